package httpapi

import (
	"cmp"
	"maps"
	"net/http"
	"slices"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// ServicesOptions choose among the services of a mesh; a zero field chooses all.
type ServicesOptions struct {
	Kind string // KindServiceTag or the kind of a resource
	Name string
}

func (o *ServicesOptions) want(s *mesh.Service) bool {
	kind, name := s.ID.Kind, s.Resource.Name
	if kind == mesh.KindTag {
		kind, name = KindServiceTag, s.Tag
	}
	return (o.Kind == "" || o.Kind == kind) && (o.Name == "" || o.Name == name)
}

// ListServices lists the services of a view as _services and `inspect services` show them, sorted
// by kind and name: those of tags and those that are derived among them. It is pure.
func ListServices(v *mesh.View, o ServicesOptions) []Service {
	reasons := map[resource.Key][]string{}
	for _, w := range v.Warnings {
		reasons[w.Resource] = append(reasons[w.Resource], w.Reason)
	}
	out := []Service{}
	at := map[[2]string]int{}
	for _, s := range v.Services() {
		if !o.want(s) {
			continue
		}
		k := [2]string{s.ID.Kind, s.Tag + s.Resource.Name} // one of the two is empty
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
		slices.SortFunc(out[i].Ports, func(a, b ServicePort) int { return cmp.Compare(a.Port, b.Port) })
	}
	slices.SortStableFunc(out, func(a, b Service) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return out
}

func servicePort(s *mesh.Service) ServicePort {
	p := ServicePort{Port: s.Port, Name: s.Section, Protocol: string(s.Protocol), Cluster: s.ID.Name,
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

// services is GET /v1/services?mesh=&kind=&name=.
func (s *Server) services(w http.ResponseWriter, r *http.Request) *Error {
	q := r.URL.Query()
	size, offset, e := s.paging(r)
	if e != nil {
		return e
	}
	o := ServicesOptions{Name: q.Get("name")}
	if kind := q.Get("kind"); kind != "" {
		if o.Kind, e = s.serviceKind(kind); e != nil {
			return e
		}
	}
	if e := s.mayServices(r, o.Kind, q.Get("mesh")); e != nil {
		return e
	}
	last := s.opts.Last()
	if last == nil {
		return notReady()
	}
	meshes := slices.Sorted(maps.Keys(last.Meshes))
	if name := q.Get("mesh"); name != "" {
		if last.Meshes[name] == nil {
			return notFound("mesh %q does not exist", name)
		}
		meshes = []string{name}
	}
	var all []Service
	for _, name := range meshes {
		all = append(all, ListServices(last.Meshes[name].View, o)...)
	}
	all = only(all, serviceKey, s.visible(r, access.VerbInspect))
	out := Services{Total: len(all), Items: append([]Service{}, all[min(offset, len(all)):min(offset+size, len(all))]...)}
	out.Next = nextPage(r, offset, size, len(all))
	writeJSON(w, http.StatusOK, out)
	return nil
}

// mayServices refuses somebody who may look into no service of a kind, or with an empty kind of
// any.
func (s *Server) mayServices(r *http.Request, kind, inMesh string) *Error {
	p := peerOf(r)
	kinds := []string{mesh.KindMeshService, mesh.KindMeshExternalService, mesh.KindMeshMultiZoneService}
	if kind != "" {
		kinds = []string{serviceKey(Service{Kind: kind}).Kind}
	}
	var refused error
	for _, k := range kinds {
		err := s.opts.Access.Roles.CanSome(&p, access.Action{Verb: access.VerbInspect, Kind: k, Mesh: inMesh})
		if err == nil {
			return nil
		}
		if refused == nil {
			refused = err
		}
	}
	return denied(refused)
}

// serviceKey names the resource whose permissions hold for a service. That of a tag counts as a
// MeshService of its name.
func serviceKey(x Service) resource.Key {
	k := resource.Key{Kind: x.Kind, Mesh: x.Mesh, Name: x.Name}
	if k.Kind == KindServiceTag {
		k.Kind = mesh.KindMeshService
	}
	return k
}

// serviceKind reads the name of a kind of services, in any of its forms.
func (s *Server) serviceKind(name string) (string, *Error) {
	if name == KindServiceTag {
		return name, nil
	}
	d, ok := s.opts.Registry.Lookup(name)
	if ok {
		switch d.Kind {
		case mesh.KindMeshService, mesh.KindMeshExternalService, mesh.KindMeshMultiZoneService:
			return d.Kind, nil
		}
	}
	return "", invalidQuery("kind", name,
		"only "+KindServiceTag+", MeshService, MeshExternalService and MeshMultiZoneService are kinds of services")
}

// ServiceHostnames lists the names that a real service of a view has; false when there is no such
// service.
func ServiceHostnames(v *mesh.View, kind, name string) (*Hostnames, bool) {
	out := &Hostnames{Items: []HostnameItem{}}
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
			item := HostnameItem{Hostname: h.Name, Zones: []HostnameZone{}}
			if h.Zone != "" {
				item.Zones = append(item.Zones, HostnameZone{h.Zone})
			}
			out.Items = append(out.Items, item)
		}
	}
	out.Total = len(out.Items)
	return out, found
}

// hostnames is GET /meshes/{mesh}/{plural}/{name}/_hostnames.
func (s *Server) hostnames(w http.ResponseWriter, r *http.Request) *Error {
	d, ok := s.opts.Registry.Lookup(r.PathValue("plural"))
	if !ok {
		return notFound("there is no kind %q", r.PathValue("plural"))
	}
	switch d.Kind {
	case mesh.KindMeshService, mesh.KindMeshExternalService, mesh.KindMeshMultiZoneService:
	default:
		return invalid(d.Plural +
			" have no hostnames: only meshservices, meshexternalservices and meshmultizoneservices have")
	}
	m, e := s.mesh(r.PathValue("mesh"))
	if e != nil {
		return e
	}
	out, found := ServiceHostnames(m.View, d.Kind, r.PathValue("name"))
	if !found {
		return notFound("%s does not exist", resource.Key{Kind: d.Kind, Mesh: m.View.Name, Name: r.PathValue("name")})
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}
