// Package passthrough implements MeshPassthrough: which connections to destinations outside the
// mesh a proxy permits.
//
// The matches of all policies that select a proxy are normalized and merged into one set of rules
// for each address family. Each rule lists the policies that contain it. The filter chains are
// created from the rules such that a connection is permitted if any rule permits it, regardless of
// other rules. Envoy does not provide this directly: it selects the most specific port, then the
// most specific address, and never backtracks. Therefore rules for all ports are repeated on each
// port that some rule names, and rules for wider ranges are repeated for the narrower ranges that
// they contain (the closure).
//
// A rule permits the following connections:
// - tls: with an address, TLS connections to it; with a domain, TLS connections to any address with
// this server name (RFC 6066, server_name).
// - tcp: all connections. On ports without rules for TLS or requests, immediately, because such
// ports are not inspected. On other ports the proxy waits for the first bytes of the client; those
// whose server sends first wait for the timeout of 15 s, which gets a warning. With a domain and
// the label below, connections to the virtual address that the agent's resolver assigns to the
// domain.
// - mysql: all connections, immediately. Its port is not inspected, so matches on this port that
// depend on client data are shadowed and reported.
// - http, http2, grpc: requests of HTTP/1.1 and of HTTP/2 without TLS; with a domain, those with
// this Host.
//
// An exact domain on a given port is pinned: the proxy resolves it and connects to the result, so a
// permitted name cannot be used with another address. Wildcards, and domains on all ports, lead to
// the address that the workload dialed, and the policy gets a warning. With the label
// nearside.io/dns-pinned they are also pinned.
//
// Requests by Host on one port share a filter chain, in which each domain has its own cluster, so
// domains of different protocols are served together. If two policies name different protocols for
// the same destination, the policy that takes precedence decides (package precedence), and both get
// a warning.
package passthrough

import (
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

const kind = "MeshPassthrough"

// Plugin declares the kind and its effect.
func Plugin() policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(kind, "meshpassthroughs", "mp", resource.PolicyShape{
			Top:     []string{kindMesh, kindSubset, kindDataplane},
			Default: true,
			NewConf: func() resource.Conf { return new(Conf) },
			Check:   checkPolicy, CheckLabels: checkLabels,
		})},
		Domains: domains,
		Outside: outside,
		Suggest: suggest,
		Apply:   apply,
		Exits:   exits,
		InForce: inForce,
	}
}

// apply sets the chains of the passthrough listeners, which belong to the last part of a draft.
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
	a := &applier{c: c, d: d, effect: e, added: map[string]bool{draft.VirtualCluster: true}}
	a.virtualPort, _ = mesh.VirtualPort(c.Proxy(), c.Dataplane())
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
	added  map[string]bool // names of clusters

	virtualPort uint32 // of the proxy, for connections to virtual addresses; 0 if there is none
}

// Names of the passthrough listeners, and of their clusters if there is no policy. The others
// receive only connections to virtual addresses.
const (
	listenerV4 = "outbound:passthrough:ipv4"
	listenerV6 = "outbound:passthrough:ipv6"
	virtualV4  = draft.VirtualListener + ":ipv4"
	virtualV6  = draft.VirtualListener + ":ipv6"
)

func (a *applier) listener(l *draft.Listener) {
	name := l.Message.GetName()
	switch {
	case a.effect.mode != ModeMatched:
	case name == virtualV4:
		a.virtualListener(l, a.effect.v4)
	case name == virtualV6:
		a.virtualListener(l, a.effect.v6)
	}
	if name != listenerV4 && name != listenerV6 {
		return
	}
	i := slices.IndexFunc(a.d.Clusters, func(c *draft.Cluster) bool {
		return c.Kind == draft.PassthroughCluster && c.Message.GetName() == name
	})
	if i < 0 {
		return
	}
	if a.effect.mode == ModeAll {
		a.d.Clusters[i].Message = openCluster(name, toolkit.StatName(name))
		stat(l, name, draft.StatName(name))
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
		a.d.Clusters[i].Message = closedCluster(name)
		stat(l, name, draft.ClosedStatName(name))
		return
	}
	a.d.Clusters = slices.Delete(a.d.Clusters, i, i+1) // no longer used
	l.Chains = a.chains(chains)
	a.inspect(l.Message, set)
}

// chains converts chains, and adds their clusters.
func (a *applier) chains(list []*chain) []*draft.Chain {
	out := make([]*draft.Chain, len(list))
	m := chainMaker{through: a.c.View.ThroughEgress(), dp: a.c.Dataplane()}
	for i, c := range list {
		out[i] = m.chain(c)
		for _, r := range c.rules() {
			a.cluster(r)
		}
	}
	return out
}

// stat sets the statistics prefix of the chain that leads to the cluster of a passthrough listener
// without matches.
func stat(l *draft.Listener, cluster, prefix string) {
	for _, c := range l.Chains {
		if c.TCP != nil && c.TCP.GetCluster() == cluster {
			c.TCP.StatPrefix = prefix
		}
	}
}

func (a *applier) cluster(r *rule) {
	if a.added[r.name] {
		return
	}
	a.added[r.name] = true
	if a.c.Host.Claim(draft.TypeCluster, r.name) {
		c := newCluster(r, a.c.Dataplane())
		if a.c.View.ThroughEgress() {
			c = a.egressCluster(r)
		}
		a.d.Clusters = append(a.d.Clusters, c)
	}
}

// effect is the combined effect of the policies on one proxy.
type effect struct {
	mode       string // "" if the Mesh decides
	intercepts bool   // the proxy intercepts outbound connections
	v4, v6     *ruleSet
	notes      notes
}

// newEffect returns nil if there is no policy.
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
		e.all(origins, "%s does not intercept outbound connections, so the policy has no effect there; "+
			"set networking.transparentProxying.redirectPortOutbound of the dataplane", c.Proxy().Key)
		return e
	case e.mode == "":
		e.all(origins, "networking.outbound.passthrough of the Mesh is true, which permits all connections, so the policy "+
			"has no effect; set passthroughMode, which takes precedence, or remove the field from the Mesh")
		return e
	}
	var list []*rule
	for i := range origins {
		conf, key := confOf(origins[i].Policy), origins[i].Policy.Key
		if conf == nil {
			continue
		}
		if e.mode != ModeMatched {
			if len(conf.AppendMatch) > 0 {
				e.notes.say(key, "appendMatch has no effect, because passthroughMode is %s", e.mode)
			}
			continue
		}
		pin := e.pins(c, origins[i].Policy)
		for j := range conf.AppendMatch {
			from := source{policy: key, index: j, pin: pin}
			if conf.AppendMatch[j].virtual() != "" {
				list = append(list, e.virtual(c, &conf.AppendMatch[j], from)...)
				continue
			}
			if r, ok := ruleOf(&conf.AppendMatch[j], from); ok {
				r.pin = pin && !c.View.ThroughEgress()
				list = append(list, r)
			}
		}
	}
	e.resolveAll(list)
	e.v4, e.v6 = newRuleSet(false, list, &e.notes), newRuleSet(true, list, &e.notes)
	e.v4.virtual, e.v6.virtual = c.View.VirtualRanges(false), c.View.VirtualRanges(true)
	for _, s := range []*ruleSet{e.v4, e.v6} {
		s.through = c.View.ThroughEgress()
		for _, r := range s.rules {
			e.notes.permitted(r)
		}
		s.noteSilence(&e.notes)
	}
	return e
}

// pins reports whether the matches of a policy are pinned.
func (e *effect) pins(c *policy.Context, p *resource.Resource) bool {
	pin, ok := pins(p.Labels)
	switch {
	case !ok:
		e.notes.say(p.Key, "labels[%q] must be true or false, not %q, which is treated as false",
			labelPinned, toolkit.Clip(p.Labels[labelPinned]))
	case pin && c.View.ThroughEgress():
		e.notes.say(p.Key, "labels[%q] has no effect, because the matched traffic leaves through the ZoneEgress, "+
			"which connects to the dialed address", labelPinned)
	}
	return pin
}

// all adds a note to every policy.
func (e *effect) all(origins []policy.Origin, format string, args ...any) {
	for _, o := range origins {
		e.notes.say(o.Policy.Key, format, args...)
	}
}
