package proxypatch

import (
	"slices"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// plan is what one policy wants.
type plan struct {
	policy  *resource.Resource
	changes []*change
	bare    bool // nothing that the agent generates shall be there
}

// editor applies plans to one part of a draft.
type editor struct {
	c       *policy.Context
	d       *draft.Draft
	plans   []plan
	targets [resources + 1]bool // there are changes of them
	merged  map[mergedKey]*anypb.Any
}

// mergedKey names the configuration that a change makes of a shared one, which many filters have.
type mergedKey struct {
	change *change
	packed *anypb.Any
}

// step is a place in the plans.
type step struct{ plan, change int }

func apply(c *policy.Context, d *draft.Draft) {
	if plans := plansOf(c); len(plans) > 0 {
		(&editor{c: c, d: d, plans: plans}).run()
	}
}

func (e *editor) run() {
	d := e.d
	for i := range e.plans {
		if e.plans[i].bare {
			d.Listeners, d.Clusters, d.Routes = d.Listeners[:0], d.Clusters[:0], nil
		}
		for _, ch := range e.plans[i].changes {
			e.targets[ch.target] = true
		}
	}
	if e.targets[clusters] {
		kept := d.Clusters[:0]
		for _, x := range d.Clusters {
			if !e.replaced(clusters, x.Message.GetName()) {
				if x = e.cluster(x, step{}); x != nil {
					kept = append(kept, x)
				}
			}
		}
		d.Clusters = kept
	}
	if e.targets[listeners] || e.targets[networkFilters] || e.targets[httpFilters] || e.targets[virtualHosts] {
		kept := d.Listeners[:0]
		for _, l := range d.Listeners {
			if !e.replaced(listeners, l.Message.GetName()) {
				if l = e.listener(l, step{}); l != nil {
					kept = append(kept, l)
				}
			}
		}
		d.Listeners = kept
	}
	if e.c.Last {
		e.add()
	}
}

// plansOf returns what the policies of the proxy want, the weakest first.
func plansOf(c *policy.Context) []plan {
	if k := c.Rules.Kind(kind); k != nil && k.Proxy != nil {
		out := make([]plan, 0, len(k.Proxy.Origins))
		for _, o := range k.Proxy.Origins {
			p, ok := o.Policy.Spec.(*resource.Policy)
			if !ok {
				continue
			}
			if conf, ok := p.Default.(*Conf); ok {
				out = append(out, plan{policy: o.Policy, changes: conf.changes()})
			}
		}
		return out
	}
	r := c.Rules.LegacyProxy(legacyKind)
	if r == nil {
		return nil
	}
	p, ok := r.Spec.(*resource.LegacyPolicy)
	if !ok {
		return nil
	}
	conf, ok := p.Conf.(*LegacyConf)
	if !ok {
		return nil
	}
	conf.warn(c, r)
	return []plan{{policy: r, changes: conf.changes(), bare: !slices.Contains(conf.Imports, defaultProfile)}}
}

// replaced reports whether a policy adds another resource of the name.
func (e *editor) replaced(t target, name string) bool {
	for i := range e.plans {
		for _, ch := range e.plans[i].changes {
			if ch.adds(t, name) {
				return true
			}
		}
	}
	return false
}

// from calls fn for each plan from a step on, with the changes that are left of it.
func (e *editor) from(s step, fn func(p *plan, changes []*change)) {
	for i := s.plan; i < len(e.plans); i++ {
		changes := e.plans[i].changes
		if i == s.plan {
			changes = changes[s.change:]
		}
		fn(&e.plans[i], changes)
	}
}

// fault says that a resource stays without a policy.
func (e *editor) fault(p *plan, ch *change, what string, err error) {
	e.c.Host.Warn(p.policy.Key, "%s: %v: %s as if this policy were not there", ch.describe(), err, what)
}
