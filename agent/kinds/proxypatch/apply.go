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
	c      *policy.Context
	d      *draft.Draft
	plans  []plan
	about  [listeners + 1]concern // clusters, and listeners with all that is in them
	merged map[mergedKey]*anypb.Any
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
			e.note(i, ch)
		}
	}
	if about := &e.about[clusters]; about.any() {
		kept := d.Clusters[:0]
		for _, x := range d.Clusters {
			if !about.added[x.Message.GetName()] {
				if x = e.cluster(x, step{}); x != nil {
					kept = append(kept, x)
				}
			}
		}
		d.Clusters = kept
	}
	if about := &e.about[listeners]; about.any() {
		kept := d.Listeners[:0]
		for _, l := range d.Listeners {
			if !about.added[l.Message.GetName()] {
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

// fault says that a resource stays without a policy.
func (e *editor) fault(p *plan, ch *change, what string, err error) {
	e.c.Host.Warn(p.policy.Key, "%s: %v: %s as if this policy were not there", ch.describe(), err, what)
}
