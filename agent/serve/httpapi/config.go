package httpapi

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/answer/render"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// config is GET /meshes/{mesh}/dataplanes/{name}/_config.
func (s *Server) config(w http.ResponseWriter, r *http.Request) *api.Error {
	shadow, e := boolQuery(r, "shadow")
	if e != nil {
		return e
	}
	computed, e := boolQuery(r, "computed")
	if e != nil {
		return e
	}
	if computed && shadow {
		return invalidQuery("computed", "true", "leave it out with shadow=true, which is always computed")
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
	writeJSON(w, http.StatusOK, c)
	return nil
}

// mesh returns a mesh as the last reconciliation left it.
func (s *Server) mesh(name string) (*generate.Mesh, *api.Error) {
	return meshOf(s.opts.Last(), name)
}

func meshOf(last *status.Result, name string) (*generate.Mesh, *api.Error) {
	if last == nil {
		return nil, notReady()
	}
	m := last.Meshes[name]
	if m == nil {
		return nil, notFound("mesh %q does not exist", name)
	}
	return m, nil
}

// generationError is the answer when something of a proxy cannot be made.
func generationError(err error) *api.Error {
	var missing *generate.NotFoundError
	if errors.As(err, &missing) {
		return notFound("%s", err.Error())
	}
	return problem(http.StatusInternalServerError, api.ProblemGeneration, "No config", "%s", err.Error())
}

// includes reads the query parameter include, a list of what else a document is to hold.
func includes(r *http.Request, possible ...string) (map[string]bool, *api.Error) {
	return itemsQuery(r, "include", "included", possible...)
}

// itemsQuery reads a query parameter that is a list.
func itemsQuery(r *http.Request, name, done string, possible ...string) (map[string]bool, *api.Error) {
	out := map[string]bool{}
	for _, v := range r.URL.Query()[name] {
		for item := range strings.SplitSeq(v, ",") {
			if !slices.Contains(possible, item) {
				return nil, invalidQuery(name, item, "only "+strings.Join(possible, " and ")+" can be "+done)
			}
			out[item] = true
		}
	}
	return out, nil
}
