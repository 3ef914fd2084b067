package render

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// ServicesOptions selects services of a mesh; a zero field matches all.
type ServicesOptions struct {
	Kind string // api.KindServiceTag or the kind of a resource
	Name string
}

func (o *ServicesOptions) want(s *mesh.Service) bool {
	kind, name := s.ID.Kind, s.Resource.Name
	if kind == mesh.KindTag {
		kind, name = api.KindServiceTag, s.Tag
	}
	return (o.Kind == "" || o.Kind == kind) && (o.Name == "" || o.Name == name)
}

// Services lists the services of a view, sorted by kind and name, including tag services and
// derived services. The API path _services and the command inspect services show them. It is pure.
func Services(v *mesh.View, o ServicesOptions) []api.Service {
	reasons := map[resource.Key][]string{}
	for _, w := range v.Warnings {
		reasons[w.Resource] = append(reasons[w.Resource], w.Reason)
	}
	out := []api.Service{}
	at := map[[2]string]int{}
	for _, s := range v.Services() {
		if !o.want(s) {
			continue
		}
		k := [2]string{s.ID.Kind, s.Tag + s.Resource.Name} // one of the two names is empty
		i, known := at[k]
		if !known {
			i = len(out)
			at[k] = i
			x := service(v, s)
			if s.ID.Kind != mesh.KindTag {
				x.Reasons = append(x.Reasons, reasons[s.Resource]...)
			}
			out = append(out, x)
		}
		out[i].Ports = append(out[i].Ports, servicePort(s))
	}
	for i := range out {
		slices.SortFunc(out[i].Ports, func(a, b api.ServicePort) int { return cmp.Compare(a.Port, b.Port) })
	}
	slices.SortStableFunc(out, func(a, b api.Service) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return out
}

func servicePort(s *mesh.Service) api.ServicePort {
	p := api.ServicePort{Port: s.Port, Name: s.Section, Protocol: string(s.Protocol), Cluster: s.ID.Name,
		Ready: len(s.Endpoints.List), Total: len(s.Endpoints.List) + s.NotReady, Identity: s.Identities}
	zones := map[string]bool{}
	for i := range s.Endpoints.List {
		if z := s.Endpoints.List[i].Zone; z != "" {
			zones[z] = true
		}
	}
	p.Zones = append([]string{}, slices.Sorted(maps.Keys(zones))...)
	if s.TLSReady {
		p.TLS = resource.TLSReady
	}
	return p
}

// Hostnames lists the hostnames of a service resource in a view. It returns false if there is no
// such service.
func Hostnames(v *mesh.View, kind, name string) (*api.Hostnames, bool) {
	out := &api.Hostnames{Items: []api.HostnameItem{}}
	found := false
	for _, s := range v.Services() {
		if found || s.ID.Kind != kind || s.Resource.Name != name {
			continue
		}
		found = true
		for _, h := range v.Hostnames() {
			if h.Kind != kind || h.Resource != s.Resource {
				continue
			}
			item := api.HostnameItem{Hostname: h.Name, Zones: []api.HostnameZone{}}
			if h.Zone != "" {
				item.Zones = append(item.Zones, api.HostnameZone{Name: h.Zone})
			}
			out.Items = append(out.Items, item)
		}
	}
	out.Total = len(out.Items)
	return out, found
}

// service converts the first port of a service to an [api.Service] without ports.
func service(v *mesh.View, s *mesh.Service) api.Service {
	out := api.Service{Kind: s.ID.Kind, Mesh: v.Name, Name: s.Resource.Name, Derived: s.Derived, Labels: s.Labels,
		VIPs: []netip.Addr{}, Hostnames: []api.ServiceHostname{}, Ports: []api.ServicePort{}, Reasons: []string{}}
	if s.ID.Kind == mesh.KindTag {
		out.Kind, out.Name = api.KindServiceTag, s.Tag
	}
	if s.VIP.IsValid() {
		out.VIPs = append(out.VIPs, s.VIP)
	}
	if s.VIP6.IsValid() && v.IPv6 {
		out.VIPs = append(out.VIPs, s.VIP6)
	}
	for _, h := range v.HostnamesOf(s) {
		out.Hostnames = append(out.Hostnames, api.ServiceHostname{Hostname: h.Hostname, Origin: string(h.Origin),
			Generator: h.Generator.Name,
			Generated: h.Generated, Reason: h.Reason, Message: h.Message})
	}
	return out
}

// Kinds lists the kinds of a registry in registry order.
func Kinds(reg *resource.Registry) []api.Kind {
	out := []api.Kind{}
	for _, d := range reg.All() {
		out = append(out, api.Kind{Kind: d.Kind, Plural: d.Plural, Short: d.Short,
			Global: d.Scope == resource.ScopeGlobal, Policy: d.Policy, Legacy: d.Legacy})
	}
	return out
}
