// Package passthrough is the plugin of MeshPassthrough: which connections that belong to no service
// of the mesh may leave through the proxy.
//
// The matches of all policies that select a proxy become one set of rules for each address family:
// written alike, each once, with every policy that asks for it. From them the filter chains are
// made so that a connection is let through when some rule admits it, whatever other rules there
// are. Envoy alone does not give that: it takes the most specific port, then the most specific
// address, and never goes back. So what holds for all ports is repeated on each port that some rule
// names, and what holds for wider addresses is repeated on the narrower ones within (the closure).
//
// What a rule admits:
//   - tls with an address: TLS connections to it; with a domain: TLS connections to any address
//     that name the domain (RFC 6066, server_name).
//   - tcp: on ports that no rule about TLS or requests is about anything, at once, since nothing is
//     inspected there. On others connections that begin with anything but TLS; those in which the
//     server speaks first wait for a moment. With a domain, and the label below, those to the
//     virtual address that the resolver of the agent gives the workload for it.
//   - mysql: anything, at once. On its port nothing is inspected, so matches of that port that need
//     to know what the client says are shadowed, and reported.
//   - http, http2, grpc: requests of HTTP/1.1 and of HTTP/2 without TLS; with a domain those whose
//     Host names it.
//
// An exact domain on a given port is pinned: the proxy resolves it and connects to what it resolves
// to, so an allowed name with a foreign address leads to the allowed name. Wildcards, and domains
// on all ports, go where the workload dialled, and the policy is told; with the label
// nearside.io/dns-pinned they are pinned too.
//
// Of two policies that contradict each other the one that is merged first, which is the weaker one,
// stays: policies have no age here that all nodes agree on, and what is in force must not depend on
// who came last. Both are told.
package passthrough

import (
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

const kind = "MeshPassthrough"

// Plugin declares the kinds and their effect.
func Plugin() policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(kind, "meshpassthroughs", "mp", resource.PolicyShape{
			Top:     []string{kindMesh, kindSubset, kindDataplane},
			Default: true,
			NewConf: func() resource.Conf { return new(Conf) },
			Check:   checkPolicy, CheckLabels: checkLabels,
		})},
		Domains:  domains,
		Outside:  outside,
		Suggest:  suggest,
		Apply:    apply,
		Exits:    exits,
		InForce:  inForce,
		NoEffect: noEffect,
	}
}

// apply makes the chains of the listeners that connections to unknown destinations arrive at. They
// are part of the last part of a draft.
func apply(c *policy.Context, d *draft.Draft) {
	if !c.Last {
		return
	}
	e := newEffect(c)
	if e == nil {
		return
	}
	defer e.notes.flush(c.Host.Warn)
	if e.mode == "" || !e.intercepts {
		return
	}
	a := &applier{c: c, d: d, effect: e, made: map[string]bool{}}
	for _, l := range d.Listeners {
		if l.Kind == draft.OutboundPassthrough {
			a.listener(l)
		}
	}
}

type applier struct {
	c      *policy.Context
	d      *draft.Draft
	effect *effect
	made   map[string]bool // the names of clusters
}

// The names of the listeners, which are those of the clusters that they lead to without a policy.
const (
	listenerV4 = "outbound:passthrough:ipv4"
	listenerV6 = "outbound:passthrough:ipv6"
)

func (a *applier) listener(l *draft.Listener) {
	name := l.Message.GetName()
	if name != listenerV4 && name != listenerV6 {
		return
	}
	own := slices.IndexFunc(a.d.Clusters, func(c *draft.Cluster) bool {
		return c.Kind == draft.PassthroughCluster && c.Message.GetName() == name
	})
	if own < 0 {
		return
	}
	if a.effect.mode == ModeAll {
		a.d.Clusters[own].Message = openCluster(name, toolkit.StatName(name))
		stat(l, draft.StatName(name))
		return
	}
	set := a.effect.v4
	if name == listenerV6 {
		set = a.effect.v6
	}
	var chains []*chain
	if a.effect.mode == ModeMatched {
		chains = set.plan(&a.effect.notes)
	}
	if len(chains) == 0 {
		a.d.Clusters[own].Message = closedCluster(name)
		stat(l, draft.ClosedStatName(name))
		return
	}
	a.d.Clusters = slices.Delete(a.d.Clusters, own, own+1) // nothing leads there any more
	l.Chains = make([]*draft.Chain, len(chains))
	m := chainMaker{through: a.c.View.ThroughEgress(), dp: a.c.Dataplane()}
	for i, c := range chains {
		l.Chains[i] = m.chain(c)
		for _, r := range c.rules() {
			a.cluster(r)
		}
	}
	inspect(l.Message, a.c, set)
}

// stat names the statistics of a listener that has no chains by matches.
func stat(l *draft.Listener, prefix string) {
	for _, c := range l.Chains {
		if c.TCP != nil {
			c.TCP.StatPrefix = prefix
		}
	}
}

func (a *applier) cluster(r *rule) {
	if a.made[r.name] {
		return
	}
	a.made[r.name] = true
	if a.c.Host.Claim(draft.TypeCluster, r.name) {
		c := newCluster(r, a.c.Dataplane())
		if a.c.View.ThroughEgress() {
			c = a.egressCluster(r)
		}
		a.d.Clusters = append(a.d.Clusters, c)
	}
}

// effect is what the policies say together about one proxy.
type effect struct {
	mode       string // "": the Mesh decides
	intercepts bool   // connections of the workload pass through the proxy
	v4, v6     *ruleSet
	notes      notes
}

// newEffect returns nil where there is no policy.
func newEffect(c *policy.Context) *effect {
	rules := c.Rules.Kind(kind)
	if rules == nil || rules.Proxy == nil {
		return nil
	}
	merged, ok := rules.Proxy.Conf.(*Conf)
	if !ok {
		return nil
	}
	origins := rules.Proxy.Origins
	e := &effect{mode: modeOf(c.View.Spec, merged)}
	tp := c.Dataplane().Networking.TransparentProxying
	e.intercepts = tp != nil && tp.RedirectPortOutbound != 0
	switch {
	case !e.intercepts:
		e.all(origins, "has no effect on %s: connections pass through a proxy unasked only where its "+
			"networking.transparentProxying has a redirectPortOutbound", c.Proxy().Key)
		return e
	case e.mode == "":
		e.all(origins, "has no effect: networking.outbound.passthrough of the Mesh is true, so everything may leave; "+
			"give passthroughMode, which takes precedence over it, or remove that from the Mesh")
		return e
	}
	var asked []*rule
	for i := range origins {
		conf, key := confOf(origins[i].Policy), origins[i].Policy.Key
		if conf == nil {
			continue
		}
		if e.mode != ModeMatched {
			if len(conf.AppendMatch) > 0 {
				e.notes.say(key, "appendMatch has no effect: passthroughMode %s is in force", e.mode)
			}
			continue
		}
		pin := e.pins(c, origins[i].Policy)
		for j := range conf.AppendMatch {
			from := source{policy: key, index: j, pin: pin}
			if conf.AppendMatch[j].virtual() != "" {
				asked = append(asked, e.virtual(c, &conf.AppendMatch[j], from)...)
				continue
			}
			if r, ok := ruleOf(&conf.AppendMatch[j], from); ok {
				r.pin = pin && !c.View.ThroughEgress()
				asked = append(asked, r)
			}
		}
	}
	e.goPast(asked)
	e.v4, e.v6 = newRuleSet(false, asked, &e.notes), newRuleSet(true, asked, &e.notes)
	for _, s := range []*ruleSet{e.v4, e.v6} {
		for _, r := range s.rules {
			e.notes.permitted(r)
		}
		s.noteSilence(&e.notes)
	}
	return e
}

// pins reports whether the matches of a policy are to be pinned.
func (e *effect) pins(c *policy.Context, p *resource.Resource) bool {
	pin, ok := pins(p.Labels)
	switch {
	case !ok:
		e.notes.say(p.Key, "labels[%q]: %q is neither true nor false, and is taken as false",
			labelPinned, toolkit.Clip(p.Labels[labelPinned]))
	case pin && c.View.ThroughEgress():
		e.notes.say(p.Key, "labels[%q] has no effect: what the matches permit leaves through the ZoneEgress, "+
			"which is handed the address that was dialled", labelPinned)
	}
	return pin
}

// all says something to every policy.
func (e *effect) all(origins []policy.Origin, format string, args ...any) {
	for _, o := range origins {
		e.notes.say(o.Policy.Key, format, args...)
	}
}
