package explain

import (
	"cmp"
	"fmt"
	"slices"

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
	rules     *policy.Rules
	dataplane *resource.Resource
	spec      *resource.Dataplane
	warnings  []mesh.Warning
	services  []*mesh.Service // services that the workload can call, without duplicates
	items     items
	decided   map[ruleID][]decided
	places    map[string]map[itemID][]placed // by kind
}

type ruleID struct {
	rule *policy.Rule
	in   List
}

// NewProxy returns an explanation of a dataplane of the index's mesh. warnings are those of its
// generated config; they may be nil.
func NewProxy(x *policy.Index, dataplane *resource.Resource, warnings []mesh.Warning) (*Proxy, error) {
	spec, ok := dataplane.Spec.(*resource.Dataplane)
	if !ok {
		return nil, fmt.Errorf("%s: unexpected spec %T", dataplane.Key, dataplane.Spec)
	}
	p := &Proxy{index: x, rules: x.Rules(dataplane), dataplane: dataplane, spec: spec,
		items: items{}, decided: map[ruleID][]decided{}, places: map[string]map[itemID][]placed{}}
	p.warnings = slices.Concat(p.rules.Warnings, x.Warnings, warnings)
	seen := map[mesh.ServiceID]bool{}
	outbounds, _ := x.Outbounds(dataplane)
	for i := range outbounds {
		if s := outbounds[i].Service; !seen[s.ID] {
			seen[s.ID] = true
			p.services = append(p.services, s)
		}
	}
	slices.SortFunc(p.services, func(a, b *mesh.Service) int {
		return cmp.Or(cmp.Compare(a.ID.Kind, b.ID.Kind), cmp.Compare(a.ID.Name, b.ID.Name))
	})
	return p, nil
}

// Index returns the index of the mesh's policies.
func (p *Proxy) Index() *policy.Index { return p.index }

// Rules returns the merged rules for the dataplane.
func (p *Proxy) Rules() *policy.Rules { return p.rules }

// Fields returns the fields of a rule's merged conf with their sources, in document order.
func (p *Proxy) Fields(r *policy.Rule, in List) []Field {
	out := []Field{}
	if r == nil {
		return out
	}
	of := p.items.of(r, in)
	for _, d := range p.decide(r, in) {
		f := Field{Path: d.path, Value: d.value, By: []Source{}, Over: []Overridden{}}
		for _, it := range of {
			value := it.value(d.path)
			switch {
			case value == nil:
			case slices.Contains(d.by, it):
				f.By = append(f.By, it.source)
			default:
				f.Over = append(f.Over, Overridden{it.source, value})
			}
		}
		out = append(out, f)
	}
	return out
}

func (p *Proxy) decide(r *policy.Rule, in List) []decided {
	id := ruleID{r, in}
	d, ok := p.decided[id]
	if !ok {
		d = p.items.decide(r, in)
		p.decided[id] = d
	}
	return d
}

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
	plugin, desc, legacy := pluginOf(p.index, r.Kind)
	if legacy != nil {
		out.Legacy = true
		p.legacy(r, legacy, &out)
	} else {
		p.current(r, &out)
	}
	switch {
	case !p.acts(r):
		p.inactive(r, &out)
	case desc == nil:
		out.Selected, out.Reason = false, r.Kind+" is not a policy kind"
	case desc.Inert && out.Selected:
		out.Warnings = append(out.Warnings,
			fmt.Sprintf("%s is stored and validated, but this version does not apply it", r.Kind))
		out.limit(policy.NoEffect{})
	}
	if !out.Selected {
		out.Inbounds, out.Outbounds, out.Items, out.Gateway, out.Route, out.Effect = []Inbound{}, []Destination{}, []Item{},
			false, nil, EffectNone
		return out
	}
	if plugin.NoEffect != nil {
		c := (&policy.Context{View: p.index.View, Rules: p.rules, Warnings: p.warnings}).WithDataplane(p.dataplane, p.spec)
		for _, f := range plugin.NoEffect(c, r) {
			out.limit(f)
		}
	}
	out.sum()
	return out
}

// pluginOf returns the plugin of a kind and the descriptor of the kind; nil if it is not a policy
// kind. The last result is nil for a targetRef kind.
func pluginOf(x *policy.Index, kind string) (*policy.Plugin, *resource.Descriptor, *policy.LegacyKind) {
	for i := range x.Plugins {
		plugin := &x.Plugins[i]
		for j := range plugin.Kinds {
			if plugin.Kinds[j].Kind == kind {
				return plugin, &plugin.Kinds[j], nil
			}
		}
		for j := range plugin.Legacy {
			if plugin.Legacy[j].Kind == kind {
				return plugin, &plugin.Legacy[j].Descriptor, &plugin.Legacy[j]
			}
		}
	}
	return nil, nil, nil
}

// acts reports whether the index uses this version of the policy.
func (p *Proxy) acts(r *resource.Resource) bool {
	return slices.ContainsFunc(p.index.Policies(r.Kind), func(o *resource.Resource) bool {
		return o.Key == r.Key && o.Digest == r.Digest
	})
}

// inactive explains why a policy is not active.
func (p *Proxy) inactive(r *resource.Resource, out *Policy) {
	why := "the policy changed after the current configs were computed; repeat the request in a moment"
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
	out.Inbounds = p.inbounds(sel.Inbounds)
	out.Reason = p.selects(spec.TargetRef, sel)
	for i := range spec.From {
		out.Items = append(out.Items, p.item(r, From, i, &spec.From[i].TargetRef, out))
	}
	for i := range spec.Rules {
		it := p.item(r, From, i, nil, out)
		it.About = clientsText(spec.Rules[i].Matches)
		out.Items = append(out.Items, it)
	}
	for i := range spec.To {
		out.Items = append(out.Items, p.item(r, To, i, &spec.To[i].TargetRef, out))
	}
	if spec.Default != nil {
		out.Items = append(out.Items, p.item(r, Default, 0, nil, out))
	}
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
	out := fmt.Sprintf("targetRef %s selects %s", targetText(t), what)
	if sel.Route != nil {
		out += fmt.Sprintf(", only for requests of %s", sel.Route.Key)
	}
	return out
}

func (p *Proxy) inbounds(list []int) []Inbound {
	out := make([]Inbound, 0, len(list))
	for _, i := range list {
		if i >= 0 && i < len(p.spec.Networking.Inbound) {
			in := &p.spec.Networking.Inbound[i]
			out = append(out, Inbound{Port: in.Port, Name: in.Name})
		}
	}
	return out
}

// ProxyPolicies lists the policies that select a dataplane with their effect, and the reachability
// of services; backend is as for [Proxy.Reach]. It is pure. It returns a *generate.NotFoundError if
// the mesh has no such dataplane.
func ProxyPolicies(m *generate.Mesh, name, backend string) (*Policies, []mesh.Warning, error) {
	p, warnings, err := explainProxy(m, name)
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
func PolicyOn(m *generate.Mesh, policy *resource.Resource, dataplane, backend string) (*Policy, error) {
	p, _, err := explainProxy(m, dataplane)
	if err != nil {
		return nil, err
	}
	x := p.Policy(policy)
	p.ReachBy(policy, backend, &x)
	return &x, nil
}
