package inspect

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/xds"
)

// ProxyConfig renders what the Envoy of a dataplane gets in a mesh, as _config and `inspect dataplane` show it, and
// what was left out of it. With diff the document also holds the patch that leads from the current config to it.
//
// It is pure. The error is an *xds.NotFoundError when the mesh has no such dataplane.
func ProxyConfig(m *xds.Mesh, name string, diff bool) (*Config, []mesh.Warning, error) {
	p, err := xds.Generate(xds.Input{Mesh: m, Name: name, Flavor: xds.FlavorEnvoy}, nil, nil)
	if err != nil {
		return nil, nil, err
	}
	doc, err := p.JSON()
	if err != nil {
		return nil, nil, err
	}
	c := &Config{XDS: doc}
	if diff {
		c.Diff = []Operation{}
	}
	return c, p.Warnings, nil
}

// config is GET /meshes/{mesh}/dataplanes/{name}/_config.
func (s *Server) config(w http.ResponseWriter, r *http.Request) *Error {
	if _, e := boolQuery(r, "shadow"); e != nil {
		return e
	}
	include, e := includes(r, "diff")
	if e != nil {
		return e
	}
	m, e := s.mesh(r.PathValue("mesh"))
	if e != nil {
		return e
	}
	c, _, err := ProxyConfig(m, r.PathValue("name"), include["diff"])
	if err != nil {
		return generationError(err)
	}
	writeJSON(w, http.StatusOK, c)
	return nil
}

// mesh returns a mesh as the last reconciliation left it.
func (s *Server) mesh(name string) (*xds.Mesh, *Error) {
	last := s.opts.Last()
	if last == nil {
		return nil, problem(http.StatusServiceUnavailable, ProblemNotReady, "Not ready", "the first configs are being computed; repeat the request in a moment")
	}
	m := last.Meshes[name]
	if m == nil {
		return nil, notFound("mesh %q does not exist", name)
	}
	return m, nil
}

// generationError is the answer when something of a proxy cannot be made.
func generationError(err error) *Error {
	var missing *xds.NotFoundError
	if errors.As(err, &missing) {
		return notFound("%s", err.Error())
	}
	return problem(http.StatusInternalServerError, ProblemGeneration, "No config", "%s", err.Error())
}

// includes reads the query parameter include, a list of what else a document is to hold.
func includes(r *http.Request, possible ...string) (map[string]bool, *Error) {
	out := map[string]bool{}
	for _, v := range r.URL.Query()["include"] {
		for item := range strings.SplitSeq(v, ",") {
			if !slices.Contains(possible, item) {
				return nil, invalidQuery("include", item, "only "+strings.Join(possible, " and ")+" can be included")
			}
			out[item] = true
		}
	}
	return out, nil
}
