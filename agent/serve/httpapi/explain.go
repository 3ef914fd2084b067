package httpapi

import (
	"cmp"
	"net/http"

	"github.com/nearside-mesh/nearside/agent/answer/effect"
	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/deliver/write"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/httpjson"
)

// judged returns a mesh of the last pass, and the options to find the effects of its policies on
// what the Envoy of a dataplane has.
func (s *Server) judged(mesh, dataplane string) (*generate.Mesh, effect.Options, *api.Error) {
	last := s.opts.Last()
	m, e := meshOf(last, mesh)
	if e != nil {
		return nil, effect.Options{}, e
	}
	return m, s.tracker.EffectOptions(last, mesh, dataplane), nil
}

// rules is GET /meshes/{mesh}/dataplanes/{name}/_rules.
func (s *Server) rules(w http.ResponseWriter, r *http.Request) *api.Error {
	shadow, e := httpjson.Bool(r, "shadow")
	if e != nil {
		return e
	}
	include, e := includes(r, "diff", "fields")
	if e != nil {
		return e
	}
	m, effects, e := s.judged(r.PathValue("mesh"), r.PathValue("name"))
	if e != nil {
		return e
	}
	doc, _, err := explain.ProxyRules(m, r.PathValue("name"),
		explain.RulesOptions{Shadow: shadow, Diff: include["diff"], Fields: include["fields"], Effects: effects})
	if err != nil {
		return generationError(err)
	}
	httpjson.Write(w, http.StatusOK, doc)
	return nil
}

// policies is GET /v1/dataplanes/{mesh}/{name}/policies.
func (s *Server) policies(w http.ResponseWriter, r *http.Request) *api.Error {
	m, effects, e := s.judged(r.PathValue("mesh"), r.PathValue("name"))
	if e != nil {
		return e
	}
	doc, _, err := explain.ProxyPolicies(m, r.PathValue("name"), r.URL.Query().Get("backend"), effects)
	if err != nil {
		return generationError(err)
	}
	httpjson.Write(w, http.StatusOK, doc)
	return nil
}

// backends is GET /v1/dataplanes/{mesh}/{name}/backends.
func (s *Server) backends(w http.ResponseWriter, r *http.Request) *api.Error {
	m, e := s.mesh(r.PathValue("mesh"))
	if e != nil {
		return e
	}
	doc, err := explain.ProxyBackends(m, r.PathValue("name"))
	if err != nil {
		return generationError(err)
	}
	httpjson.Write(w, http.StatusOK, doc)
	return nil
}

// explain is POST /v1/explain. It changes nothing, and requires permission to inspect the proxies.
func (s *Server) explain(w http.ResponseWriter, r *http.Request) *api.Error {
	httpjson.LimitBody(w, r, maxQuestion)
	body, e := httpjson.Body(r)
	if e != nil {
		return e
	}
	var q explain.Question
	if e := httpjson.Decode(body, &q); e != nil {
		return e
	}
	asked := 0
	for _, is := range []bool{q.Policy != nil, q.Connection != nil, q.Request != nil, q.DNS != nil} {
		if is {
			asked++
		}
	}
	if asked != 1 {
		return httpjson.InvalidField("policy", "or connection, request, or dns is required, and only one of them: send "+
			"{\"policy\": {\"type\", \"mesh\", \"name\", \"dataplane\"}}, {\"connection\": {\"mesh\", \"from\", "+
			"\"to\"}}, {\"request\": {\"mesh\", \"from\", \"to\"}}, or {\"dns\": {\"name\", \"mesh\", \"dataplane\"}}")
	}
	if q.DNS != nil {
		x, e := s.explainName(r, q.DNS)
		if e != nil {
			return e
		}
		httpjson.Write(w, http.StatusOK, x)
		return nil
	}
	if q.Policy == nil {
		flow, e := s.explainFlow(r, &q)
		if e != nil {
			return e
		}
		httpjson.Write(w, http.StatusOK, flow)
		return nil
	}
	x, e := s.explainPolicy(r, q.Policy)
	if e != nil {
		return e
	}
	httpjson.Write(w, http.StatusOK, x)
	return nil
}

func (s *Server) explainPolicy(r *http.Request, q *explain.PolicyQuestion) (*explain.Policy, *api.Error) {
	d, ok := s.opts.Registry.Lookup(q.Type)
	switch {
	case !ok:
		return nil, httpjson.InvalidField("policy.type", "%q is not a kind", q.Type)
	case !d.Policy:
		return nil, httpjson.InvalidField("policy.type", "%s is not a policy kind", d.Kind)
	case q.Name == "":
		return nil, httpjson.InvalidField("policy.name", "is empty; name the policy")
	case q.Dataplane == "":
		return nil, httpjson.InvalidField("policy.dataplane", "is empty; name the dataplane")
	}
	in := cmp.Or(q.Mesh, resource.DefaultMesh)
	for _, k := range [...]resource.Key{
		{Kind: kindDataplane, Mesh: in, Name: q.Dataplane}, {Kind: d.Kind, Mesh: in, Name: q.Name},
	} {
		if e := s.can(r, access.VerbInspect, k); e != nil {
			return nil, e
		}
	}
	m, effects, e := s.judged(in, q.Dataplane)
	if e != nil {
		return nil, e
	}
	snap := s.opts.Store.Snapshot()
	rec, ok := snap.Get(resource.Key{Kind: d.Kind, Mesh: in, Name: q.Name})
	if !ok {
		return nil, write.Missing(snap, resource.Key{Kind: d.Kind, Mesh: in, Name: q.Name})
	}
	x, err := explain.PolicyOn(m, rec.Resource, q.Dataplane, q.Backend, effects)
	if err != nil {
		return nil, generationError(err)
	}
	if x.Selected {
		if old := s.tracker.OldConnections(r.Context(), in, q.Dataplane, rec.Revision); old != "" {
			x.Warnings = append(x.Warnings, old)
		}
	}
	return x, nil
}
