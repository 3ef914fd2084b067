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

// beyond says that servers whose config is not known here decide too: those of another mesh or
// another zone.
func (t *Traffic) beyond(flow *Flow, d *dialled) {
	if flow.Verdict != VerdictAllowed || len(flow.Servers) > 0 {
		return
	}
	if isPassthrough(flow.Listener) && t.OtherMesh != nil && t.OtherMesh(d.dst) {
		flow.Beyond = "it goes to a dataplane of another mesh, and whether that lets it in is not known here"
	}
	for i := range flow.Clusters {
		for _, at := range flow.Clusters[i].Addresses {
			if zone := t.zoneAt(at); flow.Beyond == "" && zone != "" {
				flow.Beyond = fmt.Sprintf("it leaves for the zone %s, and whether the proxies there let it in is not known here",
					zone)
			}
		}
	}
	if flow.Beyond != "" {
		flow.Reason += "; " + flow.Beyond
	}
}

// zoneAt is the other zone to which an endpoint of the mesh belongs, "" for none.
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

// notAdmittedOutside tells that a cluster is without endpoints because no permission lets the
// dataplane go where it leads.
func (t *Traffic) notAdmittedOutside(p *flowProxy, flow *Flow) {
	for i := range flow.Clusters {
		c := &flow.Clusters[i]
		o, ok := t.leads(flow.about.outbound, c.Name)
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
				flow.Reason += fmt.Sprintf("; the service lies outside the mesh, and no permission lets %s go there: its proxy "+
					"has no endpoint of it", p.dataplane.Name)
				if len(names) > 0 {
					flow.Reason += "; what decides: " + strings.Join(names, ", ")
				}
				flow.Policies = unique(append(flow.Policies, policies...))
				flow.outside, flow.missed, flow.closed = by, o.Service, by.Kind == mesh.KindMeshExternalService
				return
			}
		}
	}
}

// leads finds the service outside of the mesh that a cluster is of, by the outbound that took the
// connection or by the name of the cluster.
func (t *Traffic) leads(from *mesh.Outbound, cluster string) (mesh.Outbound, bool) {
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

// admitting lists the policies that say who may use a destination outside of the mesh.
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
				return []api.FlowPolicy{policyOf(r.Key, "sources")} // the strongest alone counts
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

// ofDestination is what a plugin sees of a denial outside of the mesh: what is said of the
// destination.
func ofDestination(f *policy.Flow, o *policy.Outside) *policy.Flow {
	out := *f
	out.Rules, out.Inbound = o.Rules, 0
	return &out
}
