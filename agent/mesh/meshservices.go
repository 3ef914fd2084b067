package mesh

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// addMeshServices adds the ports of each MeshService. Unless the mesh disables service resources, tag services without a
// MeshService of that name get a derived one.
func (v *View) addMeshServices(ix *inboundIndex, list []*resource.Resource) {
	f := v.newFinder(ix, list)
	named := make(map[string]bool, len(list))
	for r, spec := range resource.Specs[*resource.MeshService](list) {
		named[r.Name] = true
		selected := v.ofItsZone(r, f.find(&spec.Selector))
		ready := spec.Status != nil && spec.Status.TLS != nil && spec.Status.TLS.Status == resource.TLSReady
		if v.reusePorts(r.Key, r, selected) {
			v.warnMeshService(r, spec, selected)
			continue
		}
		identities := v.identities(spec, selected)
		for i := range spec.Ports {
			p := &spec.Ports[i]
			s := v.newServicePort(r, KindMeshService, "msvc", p.Port, p.AppProtocol, statusVIPs(spec.Status))
			s.Section, s.port = p.Name, p
			s.Identities, s.TLSReady = identities, ready
			match := func(in *inbound) bool { return matchesPort(in.spec, p) }
			s.setEndpoints(selected, match)
			v.throughIngresses(s, selected, match)
			v.add(s)
		}
		v.warnMeshService(r, spec, selected)
	}
	if v.Spec.ServicesMode() != resource.MeshServicesDisabled {
		v.deriveMeshServices(ix, named)
	}
}

// setEndpoints gives a service those of the inbounds that match.
func (s *Service) setEndpoints(list []*inbound, match func(*inbound) bool) {
	eps := &EndpointSet{}
	for i, in := range list {
		switch {
		case in.behind || !match(in):
		case !in.ready:
			s.NotReady++
		default:
			if eps.List == nil {
				eps.List = make([]Endpoint, 0, len(list)-i)
			}
			eps.List = append(eps.List, in.ep)
		}
	}
	s.Endpoints, s.from, s.fixed = eps, list, true
}

// warnMeshService warns about a MeshService of this zone that selects nothing or more than it seems.
func (v *View) warnMeshService(r *resource.Resource, spec *resource.MeshService, selected []*inbound) {
	if !v.local(r) {
		return
	}
	sel := &spec.Selector
	switch {
	case len(spec.Ports) == 0:
		v.warnf(r.Key, "spec.ports: the list is empty: give at least one port")
		return
	case len(sel.DataplaneTags) == 0 && sel.DataplaneLabels == nil && sel.DataplaneRef == nil:
		v.warnf(r.Key, "spec.selector: it is empty and selects nothing: give dataplaneTags, dataplaneLabels or dataplaneRef")
		return
	case len(selected) == 0:
		v.warnf(r.Key, "spec.selector: no inbound of a dataplane has %s: the service has no endpoints", describeSelector(sel))
		return
	case sel.DataplaneLabels != nil && len(sel.DataplaneLabels.MatchLabels) == 0 && len(sel.DataplaneTags) == 0 && sel.DataplaneRef == nil:
		v.warnf(r.Key, "spec.selector.dataplaneLabels.matchLabels: it is empty and matches every dataplane: all %d inbounds of the mesh "+
			"are selected; name a label that only dataplanes of this service have", len(selected))
	}
	var ports []string
	for i := range spec.Ports {
		if !slices.ContainsFunc(selected, func(in *inbound) bool { return matchesPort(in.spec, &spec.Ports[i]) }) {
			ports = append(ports, fmt.Sprintf("ports[%d] %s", i, describePort(&spec.Ports[i])))
		}
	}
	if len(ports) > 0 {
		v.warnf(r.Key, "spec.%s: none of the %d selected inbounds is behind it: set targetPort to the port or the name of one",
			list(ports, ", spec."), len(selected))
	}
}

func describeSelector(sel *resource.MeshServiceSelector) string {
	switch {
	case len(sel.DataplaneTags) > 0:
		return "the tags " + describePairs(sel.DataplaneTags)
	case sel.DataplaneRef != nil:
		return fmt.Sprintf("the name %q", sel.DataplaneRef.Name)
	}
	if len(sel.DataplaneLabels.MatchLabels) == 0 {
		return "any labels"
	}
	return "the labels " + describePairs(sel.DataplaneLabels.MatchLabels)
}

func describePort(p *resource.MeshServicePort) string {
	target := "port " + strconv.FormatUint(uint64(p.Port), 10)
	if t := p.TargetPort; t != nil && t.String != "" {
		target = fmt.Sprintf("targetPort %q", t.String)
	} else if t != nil {
		target = "targetPort " + strconv.FormatUint(uint64(t.Int), 10)
	}
	if p.Name == "" {
		return "(" + target + ")"
	}
	return fmt.Sprintf("(%q, %s)", p.Name, target)
}

// maxListed is how many names a message has; the others are counted.
const maxListed = 5

// list joins names for a message.
func list(names []string, sep string) string {
	if len(names) <= maxListed {
		return strings.Join(names, sep)
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxListed], sep), len(names)-maxListed)
}

// describePairs writes tags or labels for a message.
func describePairs(m map[string]string) string {
	var out []string
	for _, k := range sortedKeys(m) {
		out = append(out, k+"="+m[k])
	}
	return list(out, ", ")
}
