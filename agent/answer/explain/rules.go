package explain

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"

	"github.com/nearside-mesh/nearside/agent/answer/effect"
	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// RulesOptions selects what a [Rules] document contains in addition to the rules.
type RulesOptions struct {
	Shadow bool // show the rules that would apply with shadow policies
	Diff   bool // add a patch from the current rules to those shown
	Fields bool // add the source of each field
	// Effects are the inputs for warnings about policies without effect; without Trials there are
	// none.
	Effects effect.Options
}

// ProxyRules renders the merged rules for a dataplane. The API path _rules and the command inspect
// dataplane show them. It also returns the warnings that have no place in the document.
//
// It is pure. It returns a *generate.NotFoundError if the mesh has no such dataplane.
func ProxyRules(m *generate.Mesh, name string, o RulesOptions) (*Rules, []mesh.Warning, error) {
	shown := m
	if o.Shadow {
		o.Effects.Published, o.Effects.Held = nil, nil // no Envoy has shadow policies
		shown = m.Shadow()
	}
	doc, warnings, err := proxyRules(shown, name, o)
	if err != nil || !o.Diff {
		return doc, warnings, err
	}
	doc.Diff = []jsonpatch.Operation{}
	if shown == m {
		return doc, warnings, nil
	}
	current, _, err := proxyRules(m, name, o)
	if err != nil {
		return nil, nil, err
	}
	var values [2]any
	for i, r := range [...][]KindRules{current.Rules, doc.Rules} {
		b, err := json.Marshal(r)
		if err != nil {
			return nil, nil, err
		}
		if values[i], err = jsonpatch.Decode(b); err != nil {
			return nil, nil, err
		}
	}
	doc.Diff = append(doc.Diff, jsonpatch.Diff(values[0], values[1])...)
	return doc, warnings, nil
}

// proxyRules renders the rules of m for a dataplane.
func proxyRules(m *generate.Mesh, name string, o RulesOptions) (*Rules, []mesh.Warning, error) {
	p, warnings, err := explainProxy(m, name, o.Effects)
	if err != nil {
		return nil, nil, err
	}
	if o.Effects.Trials > 0 {
		p.warnOfLacking()
	}
	r := newRulesView(m, p, o.Fields)
	doc := &Rules{HTTPMatches: []HTTPMatch{}, Resource: r.meta(r.dataplane)}
	doc.Rules = r.kinds(func(k *policy.KindRules) { doc.HTTPMatches = append(doc.HTTPMatches, httpMatches(k)...) })
	slices.SortStableFunc(doc.HTTPMatches, func(a, b HTTPMatch) int { return cmp.Compare(a.Hash, b.Hash) })
	doc.HTTPMatches = slices.CompactFunc(doc.HTTPMatches, func(a, b HTTPMatch) bool { return a.Hash == b.Hash })
	warnings = slices.DeleteFunc(warnings, func(w mesh.Warning) bool { return p.Rules().Kind(w.Resource.Kind) != nil })
	return doc, warnings, nil
}

// RulesOfKind renders the merged rules of a kind for a dataplane of m, without warnings. It works
// even if no config can be generated.
func RulesOfKind(m *generate.Mesh, dataplane *resource.Resource, k *policy.KindRules) KindRules {
	p := &Proxy{index: m.Policies, dataplane: dataplane, merged: effect.NewMerged()}
	return newRulesView(m, p, false).kind(k)
}

// explainProxy prepares the explanation of a dataplane. If its config cannot be generated, the
// error becomes a warning, because the rules do not depend on the config.
func explainProxy(m *generate.Mesh, name string, o effect.Options) (*Proxy, []mesh.Warning, error) {
	dp := m.View.Dataplane(name)
	if dp == nil {
		return nil, nil, &generate.NotFoundError{Mesh: m.View.Name, Name: name}
	}
	if m.Policies == nil {
		with := *m
		with.Policies = policy.NewIndex(nil, resource.NewSet(nil), m.View, policy.Options{})
		m = &with
	}
	x := effect.New(m, o)
	var warnings []mesh.Warning
	config, err := x.Config(name)
	var missing *generate.NotFoundError
	switch {
	case errors.As(err, &missing):
		return nil, nil, err
	case err != nil:
		warnings = []mesh.Warning{{Resource: dp.Key, Reason: err.Error()}}
	default:
		warnings = config.Warnings
	}
	warnings = slices.Concat(warnings, effect.MeshTargets(m))
	p, err := NewProxy(m.Policies, dp, warnings)
	if err != nil {
		return nil, nil, err
	}
	return p.WithEffects(x), slices.Concat(m.View.Warnings, m.Policies.Warnings, warnings), nil
}

// rulesView renders the rules of one dataplane.
type rulesView struct {
	view      *mesh.View
	p         *Proxy
	dataplane *resource.Resource
	fields    bool
	metas     map[*resource.Resource]ResourceMeta
}

func newRulesView(m *generate.Mesh, p *Proxy, fields bool) *rulesView {
	return &rulesView{view: m.View, p: p, dataplane: p.dataplane, fields: fields,
		metas: map[*resource.Resource]ResourceMeta{}}
}

// kinds renders the rules of each kind, sorted by kind, and calls also for each in the order in
// which the kinds are applied.
func (r *rulesView) kinds(also func(*policy.KindRules)) []KindRules {
	out := []KindRules{}
	for _, plugin := range r.p.Index().Plugins {
		for _, d := range plugin.Kinds {
			if k := r.p.Rules().Kind(d.Kind); k != nil {
				out = append(out, r.kind(k))
				also(k)
			}
		}
	}
	slices.SortFunc(out, func(a, b KindRules) int { return cmp.Compare(a.Type, b.Type) })
	return out
}

func (r *rulesView) kind(k *policy.KindRules) KindRules {
	out := KindRules{
		Type: k.Kind, FromRules: []FromRules{}, ToRules: []TagRule{}, ToResourceRules: []ResourceRule{},
		Warnings: r.p.Warnings(k.Kind, ""),
	}
	if k.Proxy != nil {
		out.ProxyRule = &ProxyRule{Conf: confOf(k.Proxy), Origin: r.origins(k.Proxy), Fields: r.fieldsOf(k.Proxy, Default)}
	}
	for _, t := range r.byTags(k) {
		out.ToRules = append(out.ToRules, r.tagRule(t, To))
	}
	for _, t := range r.byResources(k) {
		rr := ResourceRule{
			Conf: []json.RawMessage{confOf(&t.Rule)}, Origin: []ResourceOrigin{}, ResourceMeta: r.target(t),
			ResourceSectionName: t.Section, Fields: r.fieldsOf(&t.Rule, To),
		}
		for _, o := range t.Origins {
			rr.Origin = append(rr.Origin, ResourceOrigin{ResourceMeta: r.meta(o.Policy), RuleIndex: o.Item})
		}
		out.ToResourceRules = append(out.ToResourceRules, rr)
	}
	dp, _ := r.dataplane.Spec.(*resource.Dataplane) // NewProxy has checked the type
	for i := range k.From {
		f := &k.From[i]
		if dp == nil || f.Inbound >= len(dp.Networking.Inbound) {
			continue
		}
		in := &dp.Networking.Inbound[f.Inbound]
		id := InboundID{Name: in.Name, Port: in.Port, Tags: r.view.InboundTags(in.Tags)}
		entries, ruled := r.entries(k, f.Inbound)
		if len(entries) > 0 {
			out.InboundRules = append(out.InboundRules,
				InboundRules{Apart: f.Apart || len(f.Entries) > 0, Inbound: id, Rules: entries})
		}
		if rules := r.ofFrom(f); len(rules) > 0 {
			out.FromRules = append(out.FromRules, FromRules{Inbound: id, Rules: rules})
		}
		if ruled && !f.Apart && len(f.Rules)+len(f.Matched) > 0 {
			merged := FromRules{Inbound: id, Rules: r.matched(f.Matched)}
			merged.Rules = append(merged.Rules, r.clients(f.Rules, nil)...)
			out.MergedRules = append(out.MergedRules, merged)
		}
	}
	return out
}

// ofFrom returns the merged items of from of an inbound, and the rules for routes.
func (r *rulesView) ofFrom(f *policy.InboundRules) []TagRule {
	out := r.clients(f.Ordered(), nil)
	for _, route := range f.Routes {
		meta := r.meta(route.Route)
		out = append(out, r.matched(route.Matched)...)
		out = append(out, r.clients(route.Rules, &meta)...)
	}
	return out
}

// matched renders rules with matches.
func (r *rulesView) matched(list []*policy.MatchRule) []TagRule {
	out := make([]TagRule, len(list))
	for i, m := range list {
		out[i] = r.tagRule(&m.Rule, From)
		if m.Match != (resource.ClientMatch{}) {
			out[i].Match = &m.Match
		}
	}
	return out
}

// entries returns the entries of spec.rules that apply to an inbound, one for each match, in Kuma's
// order, and whether there are any. For kinds in which items of from act as rules, it includes the
// items for all clients.
func (r *rulesView) entries(k *policy.KindRules, inbound int) (out []InboundRule, ruled bool) {
	for _, p := range k.Policies {
		spec, ok := p.Spec.(*resource.Policy)
		if !ok || !slices.Contains(r.p.Index().Select(p, r.dataplane).Inbounds, inbound) {
			continue
		}
		items := spec.Rules
		if ruled = ruled || len(items) > 0; spec.Shape != nil && spec.Shape.FromAsRules && len(items) == 0 {
			items = spec.From
		}
		for i := range items {
			if kind := items[i].TargetRef.Kind; kind != "" && kind != kindMesh {
				continue // it selects some clients
			}
			e := InboundRule{Conf: []json.RawMessage{confOf(&policy.Rule{Conf: items[i].Conf})},
				Origin: []ResourceOrigin{{ResourceMeta: r.meta(p), RuleIndex: i}}}
			if len(items[i].Matches) == 0 {
				out = append(out, e)
			}
			for j := range items[i].Matches {
				e.Match = &items[i].Matches[j]
				out = append(out, e)
			}
		}
	}
	class := func(e *InboundRule) int {
		if e.Match == nil {
			return 0
		}
		return e.Match.Class()
	}
	slices.SortStableFunc(out, func(a, b InboundRule) int { return class(&b) - class(&a) })
	return out, ruled
}

// byTags returns the rules for destinations by tags. If tags are not services in this mesh, the
// rules by resource cover all destinations.
func (r *rulesView) byTags(k *policy.KindRules) []*policy.Rule {
	if r.view.Spec.ServicesMode() == resource.MeshServicesExclusive {
		return nil
	}
	return k.To
}

// byResources returns the rules for resources. If all services are tag services, rules for a route,
// which is a policy, are shown with the tag rules.
func (r *rulesView) byResources(k *policy.KindRules) []*policy.ResourceRule {
	if len(r.byTags(k)) == 0 ||
		slices.ContainsFunc(r.view.Services(), func(s *mesh.Service) bool { return s.ID.Kind != mesh.KindTag }) {
		return k.ToResources
	}
	return slices.DeleteFunc(slices.Clone(k.ToResources), func(t *policy.ResourceRule) bool {
		return len(r.p.Index().Policies(t.Resource.Kind)) > 0
	})
}

func (r *rulesView) tagRule(t *policy.Rule, in List) TagRule {
	out := TagRule{Conf: confOf(t), Matchers: t.Subset, Origin: r.origins(t), Fields: r.fieldsOf(t, in)}
	if out.Matchers == nil {
		out.Matchers = []policy.Tag{}
	}
	return out
}

// maxApart limits the rules that a rule with many negations is expanded to.
const maxApart = 64

// clients renders rules for clients. A rule that excludes several values of a tag is expanded into
// one rule per value, since tools expect that form. The result is equivalent: the rules for the
// excluded values come first, so the first rule that matches a client is the same.
func (r *rulesView) clients(rules []*policy.Rule, route *ResourceMeta) []TagRule {
	out := make([]TagRule, 0, len(rules))
	for _, t := range rules {
		shown := r.tagRule(t, From)
		shown.Route = route
		for _, s := range apart(t.Subset) {
			one := shown
			one.Matchers = s
			out = append(out, one)
		}
	}
	return out
}

// apart splits a subset into subsets with at most one condition per tag that together contain the
// same elements.
func apart(s policy.Subset) []policy.Subset {
	var groups []policy.Subset // conditions grouped by tag
	for i, t := range s {
		if i > 0 && t.Key == s[i-1].Key {
			groups[len(groups)-1] = append(groups[len(groups)-1], t)
		} else {
			groups = append(groups, policy.Subset{t})
		}
	}
	out := []policy.Subset{{}}
	for _, g := range groups {
		if len(out)*len(g) > maxApart {
			return []policy.Subset{s}
		}
		next := make([]policy.Subset, 0, len(out)*len(g))
		for _, t := range g {
			for _, o := range out {
				next = append(next, append(slices.Clone(o), t))
			}
		}
		out = next
	}
	return out
}

// origins returns the policies of a rule in merge order without duplicates.
func (r *rulesView) origins(t *policy.Rule) []ResourceMeta {
	out := []ResourceMeta{}
	seen := map[resource.Key]bool{}
	for _, o := range t.Origins {
		if !seen[o.Policy.Key] {
			seen[o.Policy.Key] = true
			out = append(out, r.meta(o.Policy))
		}
	}
	return out
}

func (r *rulesView) fieldsOf(t *policy.Rule, in List) []Field {
	if !r.fields {
		return nil
	}
	return r.p.Fields(t, in)
}

// meta describes a resource, including the labels that the view adds.
func (r *rulesView) meta(res *resource.Resource) ResourceMeta {
	m, ok := r.metas[res]
	if !ok { // cached, since many rules have the same origins
		m = ResourceMeta{Labels: r.view.Labels(res), Mesh: res.Mesh, Name: res.Name, Type: res.Kind}
		r.metas[res] = m
	}
	return m
}

// target describes the resource that a rule applies to.
func (r *rulesView) target(t *policy.ResourceRule) ResourceMeta {
	if t.Resource.Kind == kindMesh { // the mesh, without labels, represents all destinations
		return ResourceMeta{Labels: map[string]string{}, Name: t.Resource.Name, Type: kindMesh}
	}
	res := resource.Resource{Key: t.Resource, Labels: t.Labels}
	for _, p := range r.p.Index().Policies(t.Resource.Kind) { // routes are policies
		if p.Key == t.Resource {
			res = *p
		}
	}
	return r.meta(&res)
}

func confOf(t *policy.Rule) json.RawMessage {
	if t.Conf == nil {
		return json.RawMessage("{}")
	}
	var shown any = t.Conf
	if s, ok := t.Conf.(policy.ShownConf); ok {
		shown = s.Shown()
	}
	b, err := json.Marshal(shown)
	if err != nil { // unreachable: a decoded conf has a JSON form
		return json.RawMessage("null")
	}
	return b
}
