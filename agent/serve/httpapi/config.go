package httpapi

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/answer/change"
	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// ConfigOptions says which config of a proxy is shown.
type ConfigOptions struct {
	Shadow   bool // the one that would be computed if shadow policies acted
	Computed bool // the one that was computed, with what the check withholds
	Diff     bool // with the patch that leads from the current config to the one that is shown

	Rendered generate.RenderCache // of resources that were shown before; nil: none
}

// ProxyConfig renders what the Envoy of a dataplane gets in a mesh, as _config and `inspect
// dataplane` show it, and what was left out of it. That is published, or, where it is nil since
// nobody is connected, what would be.
//
// It is pure, but for the cache. The error is a *generate.NotFoundError when the mesh has no such
// dataplane.
func ProxyConfig(m *generate.Mesh, name string, published *generate.Proxy,
	o ConfigOptions) (*Config, []mesh.Warning, error) {
	var memo *generate.Memo
	if o.Diff && o.Shadow {
		memo = generate.NewMemo() // most of two configs is the same
	}
	in := generate.Input{Name: name, Flavor: node.FlavorEnvoy}
	if published != nil {
		in.Build = published.Build
	}
	compute := func(m *generate.Mesh) (*generate.Proxy, error) {
		in.Mesh = m
		return generate.Generate(in, nil, memo)
	}
	var computed *generate.Proxy
	if o.Computed || o.Shadow && o.Diff || !o.Shadow && published == nil {
		var err error
		if computed, err = compute(m); err != nil {
			return nil, nil, err
		}
	}
	if published == nil && computed != nil && !o.Shadow {
		published = firstPublished(computed)
	}
	from, shown := published, published
	switch {
	case o.Shadow: // two computed configs are compared: the check would hide what shadow policies change
		shadow, err := computed, error(nil)
		if s := m.Shadow(); s != m || shadow == nil {
			shadow, err = compute(s)
		}
		if err != nil {
			return nil, nil, err
		}
		from, shown = computed, shadow
	case o.Computed:
		shown = computed
	}
	if o.Rendered == nil {
		o.Rendered = &RenderCache{}
	}
	r, err := generate.NewRenderer(o.Rendered)
	if err != nil {
		return nil, nil, err
	}
	doc, err := r.Config(shown)
	if err != nil {
		return nil, nil, err
	}
	c := &Config{XDS: doc}
	if o.Diff {
		if c.Diff, err = change.Config(r, from, shown); err != nil {
			return nil, nil, err
		}
		if c.Diff == nil {
			c.Diff = []Operation{}
		}
	}
	return c, shown.Warnings, nil
}

// firstPublished returns what would be published of a config for a client that has nothing yet.
func firstPublished(p *generate.Proxy) *generate.Proxy {
	var checker check.Checker
	check := func(p *generate.Proxy) []finding.Finding { return p.Check(&checker, nil) }
	out, _ := p.Withhold(check(p), nil, check)
	return out
}

// published returns what was published for the Envoy of a proxy, nil when it is not connected.
func (l *Last) published(ref node.Ref) *generate.Proxy {
	return l.Published[node.Key{ID: ref.NodeID(), Flavor: node.FlavorEnvoy}]
}

// config is GET /meshes/{mesh}/dataplanes/{name}/_config.
func (s *Server) config(w http.ResponseWriter, r *http.Request) *Error {
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
	published := last.published(node.Ref{Type: node.ProxyDataplane, Mesh: m.View.Name, Name: r.PathValue("name")})
	c, _, err := ProxyConfig(m, r.PathValue("name"), published,
		ConfigOptions{Shadow: shadow, Diff: include["diff"], Computed: computed, Rendered: &s.rendered})
	if err != nil {
		return generationError(err)
	}
	writeJSON(w, http.StatusOK, c)
	return nil
}

// mesh returns a mesh as the last reconciliation left it.
func (s *Server) mesh(name string) (*generate.Mesh, *Error) {
	return meshOf(s.opts.Last(), name)
}

func meshOf(last *Last, name string) (*generate.Mesh, *Error) {
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
