package explain

import (
	"fmt"
	"slices"

	"github.com/nearside-mesh/nearside/agent/answer/effect"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Proxy explains the policies of one dataplane and caches intermediate results. It is not safe for
// concurrent use.
type Proxy struct {
	index     *policy.Index
	effects   *effect.Examiner // nil: effects are unknown
	rules     *policy.Rules
	dataplane *resource.Resource
	spec      *resource.Dataplane
	warnings  []mesh.Warning
	services  []*mesh.Service // services that the workload can call, without duplicates
	merged    *effect.Merged
}

// NewProxy returns an explanation of a dataplane of the index's mesh. warnings are those of its
// generated config; they may be nil.
func NewProxy(x *policy.Index, dataplane *resource.Resource, warnings []mesh.Warning) (*Proxy, error) {
	spec, ok := dataplane.Spec.(*resource.Dataplane)
	if !ok {
		return nil, fmt.Errorf("%s: unexpected spec %T", dataplane.Key, dataplane.Spec)
	}
	p := &Proxy{index: x, rules: x.Rules(dataplane), dataplane: dataplane, spec: spec, merged: effect.NewMerged()}
	p.warnings = slices.Concat(p.rules.Warnings, x.Warnings, warnings)
	outbounds, _ := x.Outbounds(dataplane)
	p.services = effect.ServicesOf(outbounds)
	return p, nil
}

// WithEffects sets what finds the effect of policies, and returns p. Without it, their effect is
// unknown.
func (p *Proxy) WithEffects(x *effect.Examiner) *Proxy {
	p.effects = x
	return p
}

// Index returns the index of the mesh's policies.
func (p *Proxy) Index() *policy.Index { return p.index }

// Rules returns the merged rules for the dataplane.
func (p *Proxy) Rules() *policy.Rules { return p.rules }

// Fields returns the fields of a rule's merged conf with their sources, in document order.
func (p *Proxy) Fields(r *policy.Rule, in List) []Field { return p.merged.Fields(r, in) }

// Warnings returns the sorted warnings about the policies of a kind, or about one policy if name is
// not "".
func (p *Proxy) Warnings(kind, name string) []string {
	out := []string{}
	for _, w := range p.warnings {
		if w.Resource.Kind == kind && (name == "" || w.Resource.Name == name) {
			if name == "" {
				out = append(out, w.Resource.String()+": "+w.Reason)
			} else {
				out = append(out, w.Reason)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Policies explains each active policy that selects the dataplane, in the order in which the kinds
// are applied and, within a kind, in ascending precedence. It includes legacy policies that a
// targetRef policy supersedes.
func (p *Proxy) Policies() []Policy {
	out := []Policy{}
	for i := range p.index.Plugins {
		plugin := &p.index.Plugins[i]
		for _, d := range plugin.Kinds {
			if k := p.rules.Kind(d.Kind); k != nil {
				for _, r := range k.Policies {
					out = append(out, p.Policy(r))
				}
			}
		}
		for j := range plugin.Legacy {
			l := &plugin.Legacy[j]
			for _, r := range p.index.Policies(l.Kind) {
				if p.index.SelectLegacy(r, p.dataplane, l.Inbound).Selected || p.actsOutbound(r, l) {
					out = append(out, p.Policy(r))
				}
			}
		}
	}
	return out
}

// Policy explains one policy of the mesh: whether it selects the dataplane and how much of it is in
// effect.
func (p *Proxy) Policy(r *resource.Resource) Policy {
	out := Policy{
		Policy: api.RefOf(r.Key), Dataplane: api.RefOf(p.dataplane.Key), Shadow: r.Shadow(), Effect: EffectNone,
		Inbounds: []Inbound{}, Outbounds: []Destination{}, Items: []Item{}, Warnings: p.Warnings(r.Kind, r.Name),
	}
	_, desc, legacy := effect.KindOf(p.index, r.Kind)
	if legacy != nil {
		out.Legacy = true
		p.legacy(r, legacy, &out)
	} else {
		p.current(r, &out)
	}
	switch {
	case !effect.Acts(p.index, r):
		p.inactive(r, &out)
	case desc == nil:
		out.Selected, out.Reason = false, r.Kind+" is not a policy kind"
	case desc.Inert && out.Selected:
		out.Warnings = append(out.Warnings,
			fmt.Sprintf("%s is stored and validated, but this version does not apply it", r.Kind))
	}
	if !out.Selected {
		out.Inbounds, out.Gateway, out.Route = []Inbound{}, false, nil
		return out
	}
	p.examine(r, &out)
	return out
}

// examine finds how much of a policy is in force.
func (p *Proxy) examine(r *resource.Resource, out *Policy) {
	if p.effects == nil {
		out.Effect = api.EffectUnknown
		return
	}
	v := p.effects.On(r, p.dataplane.Name)
	out.Effect, out.By, out.Held = v.Effect, v.By, v.Held
	if items := p.effects.Fields(r, p.dataplane.Name); items != nil {
		out.Items = items
	}
	if v.Effect == EffectAll {
		if out.Effect = effect.SumOf(out.Items, func(it Item) string { return it.Effect }); out.Effect != EffectAll {
			out.Effect = EffectPart
		}
	} else if !v.InForce() {
		out.WhyNot = v.Reason
	}
	seen := map[Destination]bool{}
	for i := range out.Items {
		for j := range out.Items[i].Places {
			for _, d := range out.Items[i].Places[j].Outbounds {
				if !seen[d] {
					seen[d] = true
					out.Outbounds = append(out.Outbounds, d)
				}
			}
		}
	}
}

// inactive explains why a policy is not active.
func (p *Proxy) inactive(r *resource.Resource, out *Policy) {
	why := "the policy changed after the current configs were computed; repeat the request in a moment"
	if p.effects != nil {
		if stale := p.effects.Stale(p.dataplane.Name); stale != "" {
			why = "the Envoy keeps an older config: " + stale
		}
	}
	if r.Shadow() {
		why = "it is a shadow policy: the label " + resource.LabelEffect + ": " + resource.EffectShadow +
			" keeps it inactive"
		if out.Selected {
			why += "; without the label it would apply: " + out.Reason
		} else {
			why += "; without the label it would not apply either: " + out.Reason
		}
	}
	out.Selected, out.Reason = false, why
}

// current explains a targetRef policy.
func (p *Proxy) current(r *resource.Resource, out *Policy) {
	spec, ok := r.Spec.(*resource.Policy)
	if !ok {
		out.Reason = "it is not a policy with a targetRef"
		return
	}
	sel := p.index.Select(r, p.dataplane)
	if out.Selected = sel.Proxy; !sel.Proxy {
		out.Reason = sel.Why
		return
	}
	out.Gateway = sel.Gateway
	if sel.Route != nil {
		ref := api.RefOf(sel.Route.Key)
		out.Route = &ref
	}
	out.Inbounds = effect.InboundsOf(p.spec, sel.Inbounds)
	out.Reason = p.selects(spec.TargetRef, sel)
}

// legacy explains a source-destination (legacy) policy. These are not merged: one policy decides
// about a connection.
func (p *Proxy) legacy(r *resource.Resource, k *policy.LegacyKind, out *Policy) {
	spec, ok := r.Spec.(*resource.LegacyPolicy)
	if !ok {
		out.Reason = "it is not a policy with sources and destinations or selectors"
		return
	}
	sel := p.index.SelectLegacy(r, p.dataplane, k.Inbound)
	if !sel.Selected && !p.actsOutbound(r, k) {
		out.Reason = sel.Why
		return
	}
	for _, kind := range k.ReplacedBy {
		if by := p.rules.Kind(kind); by != nil && len(by.Policies) > 0 {
			last := by.Policies[len(by.Policies)-1]
			out.Reason = fmt.Sprintf("superseded by %s: while a policy of kind %s selects the dataplane, "+
				"%s policies do not apply to it", last.Key, kind, r.Kind)
			return
		}
	}
	out.Selected = true
	if k.Inbound && len(spec.Selectors) == 0 {
		out.Inbounds = effect.InboundsOf(p.spec, sel.Inbounds)
	}
	switch {
	case len(spec.Selectors) > 0:
		out.Reason = "selectors match the dataplane"
	case !sel.Selected:
		out.Reason = "sources match the dataplane, and destinations match services outside the mesh"
	case k.Inbound:
		out.Reason = "destinations match inbounds of the dataplane"
	default:
		out.Reason = "sources match the dataplane"
	}
}

// actsOutbound reports whether a policy for inbound connections also applies to connections that
// leave the mesh at this dataplane.
func (p *Proxy) actsOutbound(r *resource.Resource, k *policy.LegacyKind) bool {
	return effect.ActsOutbound(p.index, r, k, p.dataplane, p.services)
}

// selects describes what a policy selects.
func (p *Proxy) selects(t *resource.TargetRef, sel policy.Selection) string {
	n := len(p.spec.Networking.Inbound)
	var what string
	switch {
	case sel.Gateway:
		what = "the gateway"
	case n > 1 && len(sel.Inbounds) > 0 && len(sel.Inbounds) < n:
		what = fmt.Sprintf("%d of the %d inbounds", len(sel.Inbounds), n)
	default:
		what = "the dataplane"
	}
	out := fmt.Sprintf("targetRef %s selects %s", effect.TargetText(t), what)
	if sel.Route != nil {
		out += fmt.Sprintf(", only for requests of %s", sel.Route.Key)
	}
	return out
}

// ProxyPolicies lists the policies that select a dataplane with their effect, and the reachability
// of services; backend is as for [Proxy.Reach]. It is pure. It returns a *generate.NotFoundError if
// the mesh has no such dataplane.
func ProxyPolicies(m *generate.Mesh, name, backend string,
	o effect.Options) (*Policies, []mesh.Warning, error) {
	p, warnings, err := explainProxy(m, name, o)
	if err != nil {
		return nil, nil, err
	}
	out := &Policies{Mesh: m.View.Name, Name: name, Items: []PolicyBrief{}, Reach: p.Reach(backend, nil)}
	listed := map[api.Ref]bool{}
	for _, x := range p.Policies() {
		listed[x.Policy] = true
		out.Items = append(out.Items, PolicyBrief{
			Ref: x.Policy, Legacy: x.Legacy, Selected: x.Selected, Reason: x.Reason, Inbounds: x.Inbounds,
			Outbounds: x.Outbounds, Gateway: x.Gateway, Effect: x.Effect, Warnings: x.Warnings,
		})
	}
	out.Total = len(out.Items)
	warnings = slices.DeleteFunc(warnings, func(w mesh.Warning) bool {
		return listed[api.RefOf(w.Resource)]
	})
	return out, warnings, nil
}

// PolicyOn explains the effect of a policy on a dataplane. The policy need not be active. backend
// is as for [Proxy.ReachBy]. It is pure. It returns a *generate.NotFoundError if the mesh has no
// such dataplane.
func PolicyOn(m *generate.Mesh, policy *resource.Resource, dataplane, backend string,
	o effect.Options) (*Policy, error) {
	p, _, err := explainProxy(m, dataplane, o)
	if err != nil {
		return nil, err
	}
	x := p.Policy(policy)
	p.ReachBy(policy, backend, &x)
	return &x, nil
}

// warnOfLacking adds warnings about policies that select the dataplane and have no effect on any
// proxy of the mesh.
func (p *Proxy) warnOfLacking() {
	for _, plugin := range p.index.Plugins {
		for _, d := range plugin.Kinds {
			k := p.rules.Kind(d.Kind)
			if k == nil || d.Inert {
				continue
			}
			for _, r := range k.Policies {
				if v := p.effects.On(r, p.dataplane.Name); v.Effect != EffectNone || v.Held != "" {
					continue
				}
				if v, lacks := p.effects.Lacks(r); lacks {
					p.warnings = effect.WithLacking(p.warnings, r, &v)
				}
			}
		}
	}
}
