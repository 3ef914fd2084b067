package inspect

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/change"
	"github.com/nearside-mesh/nearside/agent/generate"
	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/node"
)

// ConfigOptions says which config of a proxy is shown.
type ConfigOptions struct {
	Shadow bool // the one that it would have if shadow policies acted
	Diff   bool // with the patch that leads from the current config to the one that is shown

	Rendered generate.RenderCache // of resources that were shown before; nil: none
}

// ProxyConfig renders what the Envoy of a dataplane gets in a mesh, as _config and `inspect dataplane` show it, and
// what was left out of it.
//
// It is pure, but for the cache. The error is an *xds.NotFoundError when the mesh has no such dataplane.
func ProxyConfig(m *generate.Mesh, name string, o ConfigOptions) (*Config, []mesh.Warning, error) {
	in := generate.Input{Mesh: m, Name: name, Flavor: node.FlavorEnvoy}
	if o.Shadow {
		in.Mesh = m.Shadow()
	}
	var memo *generate.Memo
	if o.Diff && in.Mesh != m {
		memo = generate.NewMemo() // most of two configs is the same
	}
	p, err := generate.Generate(in, nil, memo)
	if err != nil {
		return nil, nil, err
	}
	if o.Rendered == nil {
		o.Rendered = &RenderCache{}
	}
	r, err := generate.NewRenderer(o.Rendered)
	if err != nil {
		return nil, nil, err
	}
	doc, err := r.Config(p)
	if err != nil {
		return nil, nil, err
	}
	c := &Config{XDS: doc}
	if o.Diff {
		c.Diff = []Operation{}
		if in.Mesh != m {
			in.Mesh = m
			current, err := generate.Generate(in, nil, memo)
			if err != nil {
				return nil, nil, err
			}
			if c.Diff, err = change.Config(r, current, p); err != nil {
				return nil, nil, err
			}
		}
	}
	return c, p.Warnings, nil
}

// config is GET /meshes/{mesh}/dataplanes/{name}/_config.
func (s *Server) config(w http.ResponseWriter, r *http.Request) *Error {
	shadow, e := boolQuery(r, "shadow")
	if e != nil {
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
	c, _, err := ProxyConfig(m, r.PathValue("name"), ConfigOptions{Shadow: shadow, Diff: include["diff"], Rendered: &s.rendered})
	if err != nil {
		return generationError(err)
	}
	writeJSON(w, http.StatusOK, c)
	return nil
}

// mesh returns a mesh as the last reconciliation left it.
func (s *Server) mesh(name string) (*generate.Mesh, *Error) {
	last := s.opts.Last()
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
func generationError(err error) *Error {
	var missing *generate.NotFoundError
	if errors.As(err, &missing) {
		return notFound("%s", err.Error())
	}
	return problem(http.StatusInternalServerError, ProblemGeneration, "No config", "%s", err.Error())
}

// includes reads the query parameter include, a list of what else a document is to hold.
func includes(r *http.Request, possible ...string) (map[string]bool, *Error) {
	return itemsQuery(r, "include", "included", possible...)
}

// itemsQuery reads a query parameter that is a list.
func itemsQuery(r *http.Request, name, done string, possible ...string) (map[string]bool, *Error) {
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
