package httpapi

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/answer/render"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/deliver/write"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/httpjson"
)

// meshInsights is GET /mesh-insights.
func (s *Server) meshInsights(w http.ResponseWriter, r *http.Request) *api.Error {
	all := s.tracker.MeshInsights(s.opts.Store.Snapshot(), s.visible(r, access.VerbInspect))
	return httpjson.WritePage(w, r, s.limits.PageSize, all, httpjson.AsIs)
}

// serviceInsights is GET /meshes/{mesh}/service-insights: the services from tags.
func (s *Server) serviceInsights(w http.ResponseWriter, r *http.Request) *api.Error {
	name := r.PathValue("mesh")
	snap := s.opts.Store.Snapshot()
	if e := write.MeshExists(snap, name); e != nil {
		return e
	}
	if e := s.mayServices(r, api.KindServiceTag, name); e != nil {
		return e
	}
	m, e := s.mesh(name)
	if e != nil {
		return e
	}
	rec, _ := snap.Get(resource.Key{Kind: kindMesh, Name: name})
	services := only(render.Services(m.View, render.ServicesOptions{Kind: api.KindServiceTag}), serviceKey,
		s.visible(r, access.VerbInspect))
	insight := s.tracker.ServiceInsights(snap, rec, m.View)
	return httpjson.WritePage(w, r, s.limits.PageSize, services,
		func(x api.Service) (api.ServiceInsight, *api.Error) { return insight(&x), nil })
}

// sidecar is the kind in answers about policies and their proxies.
const sidecar = "SidecarDataplane"

// attached is GET /meshes/{mesh}/dataplanes/{name}/policies.
func (s *Server) attached(w http.ResponseWriter, r *http.Request) *api.Error {
	snap := s.opts.Store.Snapshot()
	key := resource.Key{Kind: kindDataplane, Mesh: r.PathValue("mesh"), Name: r.PathValue("name")}
	rec, ok := snap.Get(key)
	if !ok {
		return write.Missing(snap, key)
	}
	m, e := s.mesh(key.Mesh)
	if e != nil {
		return e
	}
	x := api.Attachment{Type: "dataplane", Matched: map[string][]api.Head{}}
	visible := s.visible(r, access.VerbInspect)
	for _, d := range s.opts.Registry.All() {
		if !d.Policy {
			continue
		}
		for _, p := range only(snap.Set().InMesh(d.Kind, key.Mesh), resourceKey, visible) {
			if chooses(m, p, rec.Resource) {
				rec, _ := snap.Get(p.Key)
				x.Matched[d.Kind] = append(x.Matched[d.Kind], status.HeadOf(p.Kind, rec))
			}
		}
	}
	items := []api.Attachment{}
	if len(x.Matched) > 0 {
		items = append(items, x)
	}
	httpjson.Write(w, http.StatusOK, struct {
		Kind  string           `json:"kind"`
		Total int              `json:"total"`
		Items []api.Attachment `json:"items"`
	}{sidecar, len(items), items})
	return nil
}

// chooses reports whether a policy selects a dataplane in the view of its mesh. A shadow policy
// selects nothing.
func chooses(m *generate.Mesh, policy, dp *resource.Resource) bool {
	return m.Policies != nil && m.View.Dataplane(dp.Name) != nil && !policy.Shadow() && status.Selects(m, policy, dp)
}

// attachedTo is GET /meshes/{mesh}/{plural}/{name}/dataplanes. As in Kuma, a missing policy selects
// nothing.
func (s *Server) attachedTo(w http.ResponseWriter, r *http.Request) *api.Error {
	a, e := s.address(r)
	if e != nil {
		return e
	}
	if _, known := s.opts.Registry.Lookup(a.desc.Kind); known && !a.desc.Policy {
		return api.NewInvalid(a.desc.Kind + " is not a policy kind")
	}
	snap := s.opts.Store.Snapshot()
	if e := write.MeshExists(snap, a.key.Mesh); e != nil {
		return e
	}
	items := []api.Attached{}
	if rec, ok := snap.Get(a.key); ok {
		m, e := s.mesh(a.key.Mesh)
		if e != nil {
			return e
		}
		for _, dp := range only(snap.Set().InMesh(kindDataplane, a.key.Mesh), resourceKey, s.visible(r, access.VerbInspect)) {
			if chooses(m, rec.Resource, dp) {
				x := api.Attached{Kind: sidecar, Attachments: []api.Attachment{{Type: "dataplane"}}}
				x.Dataplane.Mesh, x.Dataplane.Name = dp.Mesh, dp.Name
				items = append(items, x)
			}
		}
	}
	httpjson.Write(w, http.StatusOK, httpjson.Page[api.Attached]{Total: len(items), Items: items})
	return nil
}

// resourceTypes is GET /_resources.
func (s *Server) resourceTypes(w http.ResponseWriter, _ *http.Request) *api.Error {
	out := struct {
		Resources []api.ResourceType `json:"resources"`
	}{[]api.ResourceType{}}
	for _, d := range s.opts.Registry.All() {
		x := api.ResourceType{Name: d.Kind, Path: d.Plural, Scope: "Mesh", IncludeInFederation: d.Kind != kindDataplane,
			Singular: d.Kind, Plural: d.Kind}
		if d.Scope == resource.ScopeGlobal {
			x.Scope = "Global"
		}
		if d.Policy {
			x.Policy = &api.ResourcePolicy{IsTargetRef: !d.Legacy}
		}
		out.Resources = append(out.Resources, x)
	}
	slices.SortFunc(out.Resources, func(a, b api.ResourceType) int { return cmp.Compare(a.Name, b.Name) })
	httpjson.Write(w, http.StatusOK, out)
	return nil
}

// absentKinds are kinds of Kuma that nearside does not support, by path. Their lists are empty.
var absentKinds = map[string]resource.Descriptor{
	"zones":             {Kind: "Zone", Plural: "zones", Scope: resource.ScopeGlobal},
	"secrets":           {Kind: "Secret", Plural: "secrets", Scope: resource.ScopeMesh},
	"global-secrets":    {Kind: "GlobalSecret", Plural: "global-secrets", Scope: resource.ScopeGlobal},
	"globalsecrets":     {Kind: "GlobalSecret", Plural: "globalsecrets", Scope: resource.ScopeGlobal},
	"meshgateways":      {Kind: "MeshGateway", Plural: "meshgateways", Scope: resource.ScopeMesh},
	"meshgatewayroutes": {Kind: "MeshGatewayRoute", Plural: "meshgatewayroutes", Scope: resource.ScopeMesh},
	"meshidentities":    {Kind: "MeshIdentity", Plural: "meshidentities", Scope: resource.ScopeMesh},
	"meshtrusts":        {Kind: "MeshTrust", Plural: "meshtrusts", Scope: resource.ScopeMesh},
	"workloads":         {Kind: "Workload", Plural: "workloads", Scope: resource.ScopeMesh},
}

// lookup finds a kind by its name in a path. Like Kuma, it also accepts older names with dashes.
func (s *Server) lookup(plural string) (d resource.Descriptor, known bool) {
	for _, name := range []string{plural, strings.ReplaceAll(plural, "-", "")} {
		if d, known = s.opts.Registry.Lookup(name); known {
			return d, true
		}
	}
	d, known = absentKinds[plural]
	return d, known
}

// noTokens answers requests for Kuma tokens.
func (s *Server) noTokens(http.ResponseWriter, *http.Request) *api.Error {
	return api.NewError(http.StatusBadRequest, api.ProblemInvalid, "No tokens over the API",
		"the API creates no tokens; create one on the node with: nearside token create")
}

// noZones returns an empty list of zones.
func (s *Server) noZones(w http.ResponseWriter, r *http.Request) *api.Error {
	return httpjson.WritePage(w, r, s.limits.PageSize, []struct{}{}, httpjson.AsIs)
}
