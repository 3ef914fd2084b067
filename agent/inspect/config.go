package inspect

import (
	"errors"
	"net/http"
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
	diff, e := includeDiff(r)
	if e != nil {
		return e
	}
	last := s.opts.Last()
	if last == nil {
		return problem(http.StatusServiceUnavailable, ProblemNotReady, "Not ready", "the first configs are being computed; repeat the request in a moment")
	}
	name, in := r.PathValue("name"), r.PathValue("mesh")
	m := last.Meshes[in]
	if m == nil {
		return notFound("mesh %q does not exist", in)
	}
	c, _, err := ProxyConfig(m, name, diff)
	var missing *xds.NotFoundError
	switch {
	case errors.As(err, &missing):
		return notFound("%s", err.Error())
	case err != nil:
		return problem(http.StatusInternalServerError, ProblemGeneration, "No config", "%s", err.Error())
	}
	writeJSON(w, http.StatusOK, c)
	return nil
}

// includeDiff reads the query parameter include, a list that may name diff.
func includeDiff(r *http.Request) (bool, *Error) {
	diff := false
	for _, v := range r.URL.Query()["include"] {
		for item := range strings.SplitSeq(v, ",") {
			if item != "diff" {
				return false, invalidQuery("include", item, "only \"diff\" can be included")
			}
			diff = true
		}
	}
	return diff, nil
}
