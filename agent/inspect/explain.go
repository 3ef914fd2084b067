package inspect

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/nearside-mesh/nearside/agent/explain"
	"github.com/nearside-mesh/nearside/agent/generate"
	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// ProxyPolicies lists the policies that select a dataplane, with what of them is in force, and what the dataplane
// reaches; backend is as for [explain.Proxy.Reach]. It is pure. The error is an *xds.NotFoundError when the mesh has no
// such dataplane.
func ProxyPolicies(m *generate.Mesh, name, backend string) (*Policies, []mesh.Warning, error) {
	p, warnings, err := explainProxy(m, name)
	if err != nil {
		return nil, nil, err
	}
	out := &Policies{Mesh: m.View.Name, Name: name, Items: []PolicyBrief{}, Reach: p.Reach(backend, nil)}
	listed := map[explain.Ref]bool{}
	for _, x := range p.Policies() {
		listed[x.Policy] = true
		out.Items = append(out.Items, PolicyBrief{
			Ref: x.Policy, Legacy: x.Legacy, Selected: x.Selected, Reason: x.Reason, Inbounds: x.Inbounds,
			Outbounds: x.Outbounds, Gateway: x.Gateway, Effect: x.Effect, Warnings: x.Warnings,
		})
	}
	out.Total = len(out.Items)
	warnings = slices.DeleteFunc(warnings, func(w mesh.Warning) bool {
		return listed[explain.Ref{Type: w.Resource.Kind, Mesh: w.Resource.Mesh, Name: w.Resource.Name}]
	})
	return out, warnings, nil
}

// ExplainPolicy says whether a policy selects a dataplane and what of it is in force, or why not. The policy need not
// be one that acts. backend is as for [explain.Proxy.ReachBy]. It is pure. The error is an *xds.NotFoundError when the mesh
// has no such dataplane.
func ExplainPolicy(m *generate.Mesh, policy *resource.Resource, dataplane, backend string) (*PolicyExplanation, error) {
	p, _, err := explainProxy(m, dataplane)
	if err != nil {
		return nil, err
	}
	x := p.Policy(policy)
	p.ReachBy(policy, backend, &x)
	return &x, nil
}

// rules is GET /meshes/{mesh}/dataplanes/{name}/_rules.
func (s *Server) rules(w http.ResponseWriter, r *http.Request) *Error {
	shadow, e := boolQuery(r, "shadow")
	if e != nil {
		return e
	}
	include, e := includes(r, "diff", "fields")
	if e != nil {
		return e
	}
	m, e := s.mesh(r.PathValue("mesh"))
	if e != nil {
		return e
	}
	doc, _, err := ProxyRules(m, r.PathValue("name"), RulesOptions{Shadow: shadow, Diff: include["diff"], Fields: include["fields"]})
	if err != nil {
		return generationError(err)
	}
	writeJSON(w, http.StatusOK, doc)
	return nil
}

// policies is GET /v1/dataplanes/{mesh}/{name}/policies.
func (s *Server) policies(w http.ResponseWriter, r *http.Request) *Error {
	m, e := s.mesh(r.PathValue("mesh"))
	if e != nil {
		return e
	}
	doc, _, err := ProxyPolicies(m, r.PathValue("name"), r.URL.Query().Get("backend"))
	if err != nil {
		return generationError(err)
	}
	writeJSON(w, http.StatusOK, doc)
	return nil
}

// explain is POST /v1/explain. It changes nothing, so every reader may ask.
func (s *Server) explain(w http.ResponseWriter, r *http.Request) *Error {
	body, e := s.body(r)
	if e != nil {
		return e
	}
	var q Question
	if e := decodeRequest(body, &q); e != nil {
		return e
	}
	asked := 0
	for _, is := range []bool{q.Policy != nil, q.Connection != nil, q.Request != nil} {
		if is {
			asked++
		}
	}
	if asked != 1 {
		return invalidField("policy", "or connection or request is to be there, and one of them alone: ask about {\"policy\": {\"type\", \"mesh\", \"name\", "+
			"\"dataplane\"}}, {\"connection\": {\"mesh\", \"from\", \"to\"}} or {\"request\": {\"mesh\", \"from\", \"to\"}}")
	}
	if q.Policy == nil {
		flow, e := s.explainFlow(r, &q)
		if e != nil {
			return e
		}
		writeJSON(w, http.StatusOK, flow)
		return nil
	}
	x, e := s.explainPolicy(q.Policy)
	if e != nil {
		return e
	}
	writeJSON(w, http.StatusOK, x)
	return nil
}

func (s *Server) explainPolicy(q *PolicyQuestion) (*PolicyExplanation, *Error) {
	d, ok := s.opts.Registry.Lookup(q.Type)
	switch {
	case !ok:
		return nil, invalidField("policy.type", "%q is no kind of resource", q.Type)
	case !d.Policy:
		return nil, invalidField("policy.type", "%s is not a kind of policy", d.Kind)
	case q.Name == "":
		return nil, invalidField("policy.name", "is empty; name the policy")
	case q.Dataplane == "":
		return nil, invalidField("policy.dataplane", "is empty; name the dataplane")
	}
	in := cmp.Or(q.Mesh, resource.DefaultMesh)
	m, e := s.mesh(in)
	if e != nil {
		return nil, e
	}
	snap := s.opts.Store.Snapshot()
	rec, ok := snap.Get(resource.Key{Kind: d.Kind, Mesh: in, Name: q.Name})
	if !ok {
		return nil, s.missing(snap, resource.Key{Kind: d.Kind, Mesh: in, Name: q.Name})
	}
	x, err := ExplainPolicy(m, rec.Resource, q.Dataplane, q.Backend)
	if err != nil {
		return nil, generationError(err)
	}
	return x, nil
}
