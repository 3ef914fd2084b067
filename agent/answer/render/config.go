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
	o ConfigOptions) (*api.Config, []mesh.Warning, error) {
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

// firstPublished returns what would be published of a config for a client that has nothing yet.
func firstPublished(p *generate.Proxy) *generate.Proxy {
	var checker check.Checker
	check := func(p *generate.Proxy) []finding.Finding { return p.Check(&checker, nil) }
	out, _ := p.Withhold(check(p), nil, check)
	return out
}

// ZoneConfig renders what the Envoy of a proxy at the border of a zone gets, as _config and
// `inspect zoneegress` show it, and what was left out of it; see [ProxyConfig]. It is pure, but for
// the cache, which may be nil.
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
