package httpapi

import (
	"errors"
	"net/http"

	"github.com/nearside-mesh/nearside/agent/answer/render"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/serve/httpjson"
)

// config is GET /meshes/{mesh}/dataplanes/{name}/_config.
func (s *Server) config(w http.ResponseWriter, r *http.Request) *api.Error {
	shadow, e := httpjson.Bool(r, "shadow")
	if e != nil {
		return e
	}
	computed, e := httpjson.Bool(r, "computed")
	if e != nil {
		return e
	}
	if computed && shadow {
		return httpjson.InvalidQuery("computed", "true", "omit it with shadow=true, which always shows the computed config")
	}
	include, e := includes(r, "diff")
	if e != nil {
		return e
	}
	last := s.opts.Last()
	m, e := meshOf(last, r.PathValue("mesh"))
	if e != nil {
		return e
	}
	published := last.PublishedOf(node.Ref{Type: node.ProxyDataplane, Mesh: m.View.Name, Name: r.PathValue("name")})
	c, _, err := render.ProxyConfig(m, r.PathValue("name"), published,
		render.ConfigOptions{Shadow: shadow, Diff: include["diff"], Computed: computed, Rendered: &s.rendered})
	if err != nil {
		return generationError(err)
	}
	httpjson.Write(w, http.StatusOK, c)
	return nil
}

// mesh returns a mesh of the last pass.
func (s *Server) mesh(name string) (*generate.Mesh, *api.Error) {
	return meshOf(s.opts.Last(), name)
}

func meshOf(last *status.Result, name string) (*generate.Mesh, *api.Error) {
	if last == nil {
		return nil, api.NewNotReady()
	}
	m := last.Meshes[name]
	if why := last.Kept[name]; m == nil && why != "" {
		return nil, api.NewError(api.StatusUnavailable, api.ProblemGeneration, "No config", "mesh %q: %s", name, why)
	}
	if m == nil {
		return nil, api.NewNotFound("mesh %q does not exist", name)
	}
	return m, nil
}

// generationError returns the answer if a proxy's config cannot be computed.
func generationError(err error) *api.Error {
	var missing *generate.NotFoundError
	if errors.As(err, &missing) {
		return api.NewNotFound("%s", err.Error())
	}
	return api.NewError(http.StatusInternalServerError, api.ProblemGeneration, "No config", "%s", err.Error())
}

// includes parses the query parameter include, a list of optional parts of a document.
func includes(r *http.Request, possible ...string) (map[string]bool, *api.Error) {
	return httpjson.Items(r, "include", "included", possible...)
}
