package render

import (
	"github.com/nearside-mesh/nearside/agent/answer/change"
	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// ConfigOptions selects which config of a proxy is shown.
type ConfigOptions struct {
	Shadow   bool // the config that shadow policies would produce
	Computed bool // the computed config, including resources that the check withholds
	Diff     bool // add a patch from the published config to the one shown

	Rendered generate.RenderCache // cache of rendered resources; nil: none
}

// ProxyConfig renders the config of a dataplane's Envoy in a mesh and returns the warnings of its
// generation. The API path _config and the command inspect dataplane show it. published is the
// config that the Envoy has; if it is nil because no Envoy is connected, ProxyConfig computes the
// config that would be published.
//
// It is pure except for the cache. It returns a *generate.NotFoundError if the mesh has no such
// dataplane.
func ProxyConfig(m *generate.Mesh, name string, published *generate.Proxy,
	o ConfigOptions) (*api.Config, []mesh.Warning, error) {
	var memo *generate.Memo
	if o.Diff && o.Shadow {
		memo = generate.NewMemo() // the two configs have most parts in common
	}
	in := generate.Input{Name: name, Flavor: node.FlavorEnvoy}
	if published != nil {
		in.Build, in.Secrets = published.Build, published.Secrets()
	}
	compute := func(m *generate.Mesh) (*generate.Proxy, error) {
		in.Mesh = m
		return generate.Generate(in, nil, memo)
	}
	var computed *generate.Proxy
	if o.Computed || published == nil && (!o.Shadow || o.Diff) {
		var err error
		if computed, err = compute(m); err != nil {
			return nil, nil, err
		}
	}
	if published == nil && computed != nil {
		published = firstPublished(computed)
	}
	from, shown := published, published
	switch {
	case o.Shadow: // as computed: the check could withhold what the shadow policies change
		shadow, err := computed, error(nil)
		if s := m.Shadow(); s != m || shadow == nil {
			shadow, err = compute(s)
		}
		if err != nil {
			return nil, nil, err
		}
		shown = shadow
	case o.Computed:
		shown = computed
	}
	r, err := generate.NewRenderer(o.Rendered)
	if err != nil {
		return nil, nil, err
	}
	doc, err := r.Config(shown)
	if err != nil {
		return nil, nil, err
	}
	c := &api.Config{XDS: doc}
	if o.Diff {
		if c.Diff, err = change.Config(r, from, shown); err != nil {
			return nil, nil, err
		}
		if c.Diff == nil {
			c.Diff = []jsonpatch.Operation{}
		}
	}
	return c, shown.Warnings, nil
}

// firstPublished returns the config that a new client would get: p without withheld resources.
func firstPublished(p *generate.Proxy) *generate.Proxy {
	var checker check.Checker
	check := func(p *generate.Proxy) []finding.Finding { return p.Check(&checker, nil) }
	out, _ := p.Withhold(check(p), nil, check)
	return out
}

// ZoneConfig renders the config of a zone proxy's Envoy and returns the warnings of its generation.
// The API path _config and the command inspect zoneegress show it; see [ProxyConfig]. It is pure
// except for the cache, which may be nil.
func ZoneConfig(in generate.ZoneInput, published *generate.Proxy, computed bool,
	cache generate.RenderCache) (*api.Config, []mesh.Warning, error) {
	p := published
	if computed || p == nil {
		var err error
		if p, err = generate.GenerateZone(in, nil, nil); err != nil {
			return nil, nil, err
		}
	}
	if !computed && published == nil {
		p = firstPublished(p)
	}
	r, err := generate.NewRenderer(cache)
	if err != nil {
		return nil, nil, err
	}
	doc, err := r.Config(p)
	if err != nil {
		return nil, nil, err
	}
	return &api.Config{XDS: doc}, p.Warnings, nil
}
