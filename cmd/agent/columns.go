package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/client"
)

// document is what tables show of a resource.
type document struct {
	Type, Mesh, Name string
	Labels           map[string]string
	MTLS             struct{ EnabledBackend string }
	Networking       struct {
		Address string
		Gateway *struct{ Tags map[string]string }
		Inbound []struct {
			Port uint32
			Tags map[string]string
		}
	}
	Tags map[string]string
	Spec struct {
		TargetRef *struct{ Kind, Name string }
		Ports     []struct{ Port uint32 }
		Match     struct {
			Port     uint32
			Protocol string
		}
	}
}

func readDocument(it client.Item) (*document, error) {
	d := &document{}
	if err := json.Unmarshal(it.Resource, d); err != nil {
		return nil, fmt.Errorf("the agent has sent a resource that this command cannot read: %w", err)
	}
	return d, nil
}

// column is one that a kind has beside those of all kinds.
type column struct {
	header string
	cell   func(*document) string
}

func columnsOf(k client.Kind) []column {
	service := func(d *document) string { return d.Tags["kuma.io/service"] }
	address := func(d *document) string { return d.Networking.Address }
	ports := func(d *document) string {
		var s []string
		for _, p := range d.Spec.Ports {
			s = append(s, fmt.Sprint(p.Port))
		}
		return strings.Join(s, ",")
	}
	switch k.Kind {
	case "Mesh":
		return []column{{"MTLS", func(d *document) string { return d.MTLS.EnabledBackend }}}
	case "Dataplane":
		return []column{{"SERVICES", services}, {"ADDRESS", address}}
	case "ZoneEgress", "ZoneIngress":
		return []column{{"ADDRESS", address}}
	case "ExternalService":
		return []column{{"SERVICE", service}, {"ADDRESS", address}}
	case "MeshService", "MeshMultiZoneService":
		return []column{{"PORTS", ports}}
	case "MeshExternalService":
		return []column{{"PORT", func(d *document) string { return fmt.Sprint(d.Spec.Match.Port) }},
			{"PROTOCOL", func(d *document) string { return d.Spec.Match.Protocol }}}
	}
	if k.Policy && !k.Legacy {
		return []column{{"TARGET", target}, {"EFFECT", func(d *document) string { return d.Labels["kuma.io/effect"] }}}
	}
	return nil
}

// services lists the service tags of a dataplane, without repetition.
func services(d *document) string {
	var s []string
	for _, in := range d.Networking.Inbound {
		s = append(s, in.Tags["kuma.io/service"])
	}
	if g := d.Networking.Gateway; g != nil {
		s = append(s, g.Tags["kuma.io/service"])
	}
	slices.Sort(s)
	return strings.Join(slices.Compact(s), ",")
}

// target is the top-level targetRef of a policy.
func target(d *document) string {
	switch r := d.Spec.TargetRef; {
	case r == nil:
		return "Mesh"
	case r.Name != "":
		return r.Kind + "/" + r.Name
	default:
		return r.Kind
	}
}

// pairs writes a map as k=v,k=v in a stable order.
func pairs(m map[string]string) string {
	var s []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		s = append(s, k+"="+m[k])
	}
	return strings.Join(s, ",")
}
