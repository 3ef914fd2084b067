package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// unreachable finds the service of the mesh that is dialled and that the dataplane does not reach, by its name or its
// address, and why that is so; nil for none. The address of a name that nobody knows becomes that of the service.
func (p *flowProxy) unreachable(t *Traffic, d *dialled) (*mesh.Service, policy.ReachVerdict) {
	none := policy.ReachVerdict{}
	if t.mesh.Policies == nil {
		return nil, none
	}
	var reach *policy.Reach
	var found *mesh.Service
	var why policy.ReachVerdict
	for _, s := range t.mesh.View.Services() {
		o := mesh.Outbound{Service: s}
		if !s.VIP.IsValid() || d.any && !slices.Contains(namesOf(&o), strings.TrimSuffix(d.host, ".mesh")) ||
			!d.any && s.VIP != d.dst.Addr() && s.VIP6 != d.dst.Addr() {
			continue
		}
		if reach == nil {
			reach = t.mesh.Policies.Reach(p.dataplane)
		}
		v := reach.Of(s)
		if v.Reachable {
			return nil, none
		}
		if found == nil || s.Port == uint32(d.dst.Port()) && found.Port != s.Port {
			found, why = s, v
		}
	}
	if found != nil && d.any {
		d.dst, d.any = netip.AddrPortFrom(found.VIP, d.dst.Port()), false
		d.note = fmt.Sprintf("%s has the address %s, where the dataplane has no outbound", d.host, found.VIP)
	}
	return found, why
}

// notReached tells that what is dialled is a service that the dataplane does not reach. Nothing is behind its address
// outside of the mesh, so that nothing answers what passes.
func (t *Traffic) notReached(p *flowProxy, flow *Flow, s *mesh.Service, v policy.ReachVerdict) {
	if isPassthrough(flow.Listener) && flow.Verdict == VerdictAllowed {
		flow.Verdict = VerdictClosed
	}
	about := &Proxy{index: t.mesh.Policies, dataplane: p.dataplane, spec: p.spec}
	why := about.why(s, v)
	flow.Reason = fmt.Sprintf("the dataplane does not reach %s: %s", destinationOf(s), why.Reason)
	flow.missed, flow.closed = s, v.Cause != mesh.CauseNoPermission
	switch {
	case v.Cause == mesh.CauseNoPermission:
		if why.Policy != nil {
			flow.Policies = unique(append(flow.Policies, policyOf(v.By.Policy.Key, why.Policy.Field)))
		}
	case v.Cause != mesh.CauseNotListed:
	case s.ID.Kind == mesh.KindTag:
		flow.Reason += fmt.Sprintf("; to reach it, add %s to %s", inline(s.Tag), why.Field)
	default:
		ns := s.Labels[resource.LabelNamespace]
		ref := policy.BackendRef{Kind: s.ID.Kind, Name: strings.TrimSuffix(s.Resource.Name, "."+ns), Namespace: ns, Port: s.Port}
		flow.Reason += fmt.Sprintf("; to reach it, add %s to %s", inline(ref), why.Field)
	}
}
