package httpapi

import (
	"maps"
	"net/http"
	"slices"

	"github.com/nearside-mesh/nearside/agent/answer/render"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/httpjson"
	"github.com/nearside-mesh/nearside/agent/serve/sender"
)

// services is GET /v1/services?mesh=&kind=&name=.
func (s *Server) services(w http.ResponseWriter, r *http.Request) *api.Error {
	q := r.URL.Query()
	o := render.ServicesOptions{Name: q.Get("name")}
	if kind := q.Get("kind"); kind != "" {
		k, e := s.serviceKind(kind)
		if e != nil {
			return e
		}
		o.Kind = k
	}
	if e := s.mayServices(r, o.Kind, q.Get("mesh")); e != nil {
		return e
	}
	last := s.opts.Last()
	if last == nil {
		return api.NewNotReady()
	}
	meshes := slices.Sorted(maps.Keys(last.Meshes))
	if name := q.Get("mesh"); name != "" {
		if last.Meshes[name] == nil {
			return api.NewNotFound("mesh %q does not exist", name)
		}
		meshes = []string{name}
	}
	var all []api.Service
	for _, name := range meshes {
		all = append(all, render.Services(last.Meshes[name].View, o)...)
	}
	all = only(all, serviceKey, s.visible(r, access.VerbInspect))
	return httpjson.WritePage(w, r, s.limits.PageSize, all, httpjson.AsIs)
}

// mayServices refuses a sender that may inspect no service of a kind, or of any kind if kind is
// empty.
func (s *Server) mayServices(r *http.Request, kind, inMesh string) *api.Error {
	p := sender.Of(r)
	kinds := []string{mesh.KindMeshService, mesh.KindMeshExternalService, mesh.KindMeshMultiZoneService}
	if kind != "" {
		kinds = []string{serviceKey(api.Service{Kind: kind}).Kind}
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

// serviceKey returns the resource whose permissions apply to a service. A tag counts as a
// MeshService of its name.
func serviceKey(x api.Service) resource.Key {
	k := resource.Key{Kind: x.Kind, Mesh: x.Mesh, Name: x.Name}
	if k.Kind == api.KindServiceTag {
		k.Kind = mesh.KindMeshService
	}
	return k
}

// serviceKind parses a kind of services.
func (s *Server) serviceKind(name string) (string, *api.Error) {
	if name == api.KindServiceTag {
		return name, nil
	}
	d, ok := s.opts.Registry.Lookup(name)
	if ok {
		switch d.Kind {
		case mesh.KindMeshService, mesh.KindMeshExternalService, mesh.KindMeshMultiZoneService:
			return d.Kind, nil
		}
	}
	return "", httpjson.InvalidQuery("kind", name,
		"only "+api.KindServiceTag+", MeshService, MeshExternalService, and MeshMultiZoneService are service kinds")
}

// hostnames is GET /meshes/{mesh}/{plural}/{name}/_hostnames.
func (s *Server) hostnames(w http.ResponseWriter, r *http.Request) *api.Error {
	d, ok := s.opts.Registry.Lookup(r.PathValue("plural"))
	if !ok {
		return api.NewNotFound("there is no kind %q", r.PathValue("plural"))
	}
	switch d.Kind {
	case mesh.KindMeshService, mesh.KindMeshExternalService, mesh.KindMeshMultiZoneService:
	default:
		return api.NewInvalid(d.Plural +
			" have no hostnames; meshservices, meshexternalservices, and meshmultizoneservices do")
	}
	m, e := s.mesh(r.PathValue("mesh"))
	if e != nil {
		return e
	}
	out, found := render.Hostnames(m.View, d.Kind, r.PathValue("name"))
	if !found {
		return api.NewNotFound("%s does not exist", resource.Key{Kind: d.Kind, Mesh: m.View.Name, Name: r.PathValue("name")})
	}
	httpjson.Write(w, http.StatusOK, out)
	return nil
}
