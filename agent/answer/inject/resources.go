package inject

import (
	"regexp"
	"strconv"

	"github.com/nearside-mesh/nearside/agent/base/strict"
)

// resources are the resources of the sidecar.
type resources struct {
	Requests quantities `json:"requests,omitzero"`
	Limits   quantities `json:"limits,omitzero"`
}

// quantities are amounts as Kubernetes writes them, such as 100m and 64Mi.
type quantities struct {
	CPU              string `json:"cpu,omitempty"`
	Memory           string `json:"memory,omitempty"`
	EphemeralStorage string `json:"ephemeral-storage,omitempty"`
}

// defaultResources are for an Envoy with some 100 services. A CPU limit would delay requests.
var defaultResources = resources{
	Requests: quantities{CPU: "50m", Memory: "64Mi"},
	Limits:   quantities{Memory: "512Mi"},
}

var quantity = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)(m|k|Ki|M|Mi|G|Gi|T|Ti)?$`)

var factors = map[string]float64{"m": 1e-3, "": 1, "k": 1e3, "Ki": 1 << 10, "M": 1e6, "Mi": 1 << 20, "G": 1e9,
	"Gi": 1 << 30, "T": 1e12, "Ti": 1 << 40}

// amount returns the number of units of a quantity. ok is false if the text is not one.
func amount(text string) (n float64, ok bool) {
	m := quantity.FindStringSubmatch(text)
	if m == nil {
		return 0, false
	}
	n, err := strconv.ParseFloat(m[1], 64)
	return n * factors[m[2]], err == nil
}

func (q quantities) all() []string { return []string{q.CPU, q.Memory, q.EphemeralStorage} }

// setResources replaces the requests, the limits, or both by those of the annotation.
func (s *settings) setResources(p *parser) {
	s.resources = defaultResources
	text, ok := p.annotations[resourcesAnnotation]
	if !ok {
		return
	}
	const want = `use a form such as {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}}`
	root, fault := strict.One([]byte(text), strict.Limits{}.WithDefaults())
	if fault != nil || root == nil || root.Kind != strict.Mapping {
		p.faultf(resourcesAnnotation, "%s are not the resources of a container; %s", strict.Quote(text), want)
		return
	}
	for _, section := range root.Pairs {
		var to *quantities
		switch section.Key {
		case "requests":
			to = &s.resources.Requests
		case "limits":
			to = &s.resources.Limits
		default:
			p.faultf(resourcesAnnotation, "%s is not a field; %s", strict.Quote(section.Key), want)
			continue
		}
		if section.Value.Kind != strict.Mapping {
			p.faultf(resourcesAnnotation, "%s is not a mapping; %s", section.Key, want)
		}
		*to = quantities{}
		for _, pair := range section.Value.Pairs {
			value := pair.Value.Text
			switch pair.Key {
			case "cpu":
				to.CPU = value
			case "memory":
				to.Memory = value
			case "ephemeral-storage":
				to.EphemeralStorage = value
			default:
				p.faultf(resourcesAnnotation, "%s.%s is not a resource of the sidecar; use cpu, memory, and ephemeral-storage",
					section.Key, pair.Key)
				continue
			}
			if _, ok := amount(value); !ok {
				p.faultf(resourcesAnnotation, "%s.%s: %s is not a quantity; use one such as 100m or 64Mi", section.Key,
					pair.Key, strict.Quote(value))
			}
		}
	}
	for i, limit := range s.resources.Limits.all() {
		request := s.resources.Requests.all()[i]
		r, ok := amount(request)
		if l, limited := amount(limit); ok && limited && r > l {
			p.faultf(resourcesAnnotation, "the request %s is greater than the limit %s; set both", request, limit)
		}
	}
	if l, ok := amount(s.resources.Limits.Memory); ok && l < minMemory {
		p.faultf(resourcesAnnotation, "limits.memory: an Envoy does not start with %s; at least 64Mi are necessary",
			s.resources.Limits.Memory)
	}
}

// minMemory is the least memory in bytes with which an Envoy works.
const minMemory = 64 << 20

// maxHeap returns the heap in bytes at which the Envoy refuses requests, before the kernel kills it
// at the memory limit. 0 means none.
func (s *settings) maxHeap() uint64 {
	limit, ok := amount(s.resources.Limits.Memory)
	if !ok {
		return 0
	}
	return uint64(limit * 0.9)
}
