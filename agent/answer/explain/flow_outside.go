package explain

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
)

// noteOtherProxies notes that proxies whose config is unknown here also decide: those of another
// mesh or another zone.
func (t *Traffic) noteOtherProxies(flow *Flow, d *dialled) {
	if flow.Verdict != VerdictAllowed || len(flow.Servers) > 0 {
		return
	}
	if isPassthrough(flow.Listener) && t.OtherMesh != nil && t.OtherMesh(d.dst) {
		flow.Beyond = "the destination is a dataplane of another mesh, whose decision is unknown here"
	}
	for i := range flow.Clusters {
		for _, at := range flow.Clusters[i].Addresses {
			if zone := t.zoneAt(at); flow.Beyond == "" && zone != "" {
				flow.Beyond = fmt.Sprintf("the destination is in the zone %s, and the decision of its proxies is unknown here",
					zone)
			}
		}
	}
	if flow.Beyond != "" {
		flow.Reason += "; " + flow.Beyond
	}
}

// zoneAt returns the other zone that an endpoint belongs to; "" if none.
func (t *Traffic) zoneAt(address string) string {
	for _, s := range t.mesh.View.Services() {
		if s.Endpoints == nil {
			continue
		}
		for i := range s.Endpoints.List {
			if e := &s.Endpoints.List[i]; e.Zone != "" && e.Zone != t.mesh.View.Zone &&
				net.JoinHostPort(e.Address, strconv.FormatUint(uint64(e.Port), 10)) == address {
				return e.Zone
			}
		}
	}
	return ""
}

// explainDeniedOutside explains that a cluster has no endpoints because no permission lets the
// dataplane use the destination.
func (t *Traffic) explainDeniedOutside(p *flowProxy, flow *Flow) {
	for i := range flow.Clusters {
		c := &flow.Clusters[i]
		o, ok := t.outsideService(flow.about.outbound, c.Name)
		if c.Endpoints > 0 || c.Missing || !ok || !t.mesh.Denied(p.dataplane, o) {
			continue
		}
		uris := t.mesh.CertificateNames(p.dataplane)
		for _, e := range o.Service.Outside.Subset(o.Subset) {
			if by := t.mesh.Policies.Outside(e.Resource.Key); !by.Admits(uris) {
				policies := t.admitting(by)
				var names []string
				for _, p := range policies {
					names = append(names, p.String())
				}
				flow.Reason += fmt.Sprintf("; the service is outside the mesh, and no permission allows %s to use it, so its "+
					"proxy has no endpoint for it", p.dataplane.Name)
				if len(names) > 0 {
					flow.Reason += "; decided by: " + strings.Join(names, ", ")
				}
				flow.Policies = unique(append(flow.Policies, policies...))
				flow.outside, flow.missed, flow.closed = by, o.Service, by.Kind == mesh.KindMeshExternalService
				return
			}
		}
	}
}

// maxUnready limits the endpoints that one explanation names.
const maxUnready = 3

// explainUnready names endpoints of the selected clusters that receive no traffic, and why.
func (t *Traffic) explainUnready(flow *Flow) {
	var names []string
	more := 0
	for i := range flow.Clusters {
		s := t.serviceOf(flow.about.outbound, flow.Clusters[i].Name)
		if s == nil {
			continue
		}
		for _, u := range s.Unready() {
			if len(names) == maxUnready {
				more++
				continue
			}
			names = append(names, fmt.Sprintf("%s is %s (%s)", u.Dataplane.Name, u.State.State, u.State.Reason))
		}
	}
	if len(names) == 0 {
		return
	}
	flow.Reason += "; endpoints without traffic: " + strings.Join(names, ", ")
	if more > 0 {
		flow.Reason += fmt.Sprintf(", and %d more", more)
	}
}

// serviceOf returns the service that a cluster belongs to, by the name of the cluster, or by the
// outbound that accepted the connection; nil for none.
func (t *Traffic) serviceOf(from *mesh.Outbound, cluster string) *mesh.Service {
	for _, kind := range []string{mesh.KindTag, mesh.KindMeshService} {
		if s := t.mesh.View.Service(mesh.ServiceID{Kind: kind, Name: cluster}); s != nil {
			return s
		}
	}
	if from != nil {
		return from.Service
	}
	return nil
}

// outsideService returns the service outside the mesh that a cluster belongs to. It uses the name
// of the cluster, or the outbound that accepted the connection.
func (t *Traffic) outsideService(from *mesh.Outbound, cluster string) (mesh.Outbound, bool) {
	for _, kind := range []string{mesh.KindTag, mesh.KindMeshExternalService} {
		if s := t.mesh.View.Service(mesh.ServiceID{Kind: kind, Name: cluster}); s != nil && s.Outside != nil {
			return mesh.Outbound{Service: s}, true
		}
	}
	if from != nil && from.Service.Outside != nil {
		return *from, true
	}
	return mesh.Outbound{}, false
}

// admitting lists the policies that decide who may use a destination outside the mesh.
func (t *Traffic) admitting(o *policy.Outside) []api.FlowPolicy {
	if o.Kind == mesh.KindMeshExternalService {
		return []api.FlowPolicy{{Ref: api.Ref{Type: kindMesh, Name: o.View.Name},
			Field: "routing.defaultForbidMeshExternalServiceAccess"}}
	}
	var out []api.FlowPolicy
	for plugin := range t.plugins() {
		if plugin.Guard == nil {
			continue
		}
		for _, l := range plugin.Legacy {
			for _, r := range o.Rules.LegacyInbound(l.Kind, 0) {
				return []api.FlowPolicy{policyOf(r.Key, "sources")} // only the strongest applies
			}
		}
		for _, d := range plugin.Kinds {
			if k := o.Rules.Kind(d.Kind); k.Inbound(0) != nil {
				for _, r := range k.Policies {
					out = append(out, policyOf(r.Key, arrivingOf(r)))
				}
			}
		}
	}
	return out
}

// ofDestination returns the flow with the rules of the destination outside the mesh.
func ofDestination(f *policy.Flow, o *policy.Outside) *policy.Flow {
	out := *f
	out.Rules, out.Inbound = o.Rules, 0
	return &out
}
