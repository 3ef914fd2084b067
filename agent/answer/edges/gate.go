package edges

import (
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// gate decides which clients an inbound admits. Inbounds with equal policies share one.
type gate struct {
	legacy *resource.Resource // the strongest legacy permission; nil if none decides
	// plugin is of the rules; nil without a permission plugin, so that everyone is admitted.
	plugin *policy.Plugin
	in     *policy.InboundRules // nil if no policy selects the inbound
	names  bool                 // the entries depend on the requested server name, and decide alone
	id     int                  // in the graph
}

// client is a client in the form of its certificate.
type client struct {
	ids  []string            // URIs
	tags map[string][]string // of all inbounds
}

// has reports whether the certificate has the tags; the value "*" matches any value.
func (c *client) has(want map[string]string) bool {
	for k, v := range want {
		if v != "*" && !slices.Contains(c.tags[k], v) {
			return false
		}
	}
	return true
}

// in reports whether the client is in a subset.
func (c *client) in(s policy.Subset) bool {
	for _, t := range s {
		if slices.Contains(c.tags[t.Key], t.Value) == t.Not {
			return false
		}
	}
	return true
}

// decision is the result of a gate. by has no policy if none selects the client.
type decision struct {
	allowed bool
	by      policy.Origin
}

// decide evaluates the policies like the RBAC filters of the inbound: a client with several values
// of a tag is admitted if one of its rules admits it.
func (g *gate) decide(c *client, serverName string) decision {
	switch {
	case g.legacy != nil:
		out := decision{by: policy.Origin{Policy: g.legacy}}
		if spec, ok := g.legacy.Spec.(*resource.LegacyPolicy); ok {
			out.allowed = slices.ContainsFunc(spec.Sources, func(s resource.LegacySelector) bool { return c.has(s.Match) })
		}
		return out
	case g.plugin == nil:
		return decision{allowed: true}
	case g.in == nil:
		return decision{}
	}
	decided, entry := g.entry(c, serverName)
	if decided == policy.Denied || g.names {
		return decision{decided == policy.Admitted, last(entry)}
	}
	var denying, admitting *policy.Rule
	for _, r := range g.in.Rules {
		if !c.in(r.Subset) {
			continue
		}
		if g.plugin.Admits(r.Conf) {
			admitting = r
		} else {
			denying = r
		}
	}
	switch {
	case admitting != nil && decided == policy.Admitted:
		return decision{true, last(entry)}
	case admitting != nil:
		return decision{true, last(admitting)}
	case denying != nil:
		return decision{false, last(denying)}
	}
	return decision{decided == policy.Admitted && !g.in.Overflow, last(entry)}
}

// entry evaluates the entries of spec.rules.
func (g *gate) entry(c *client, serverName string) (policy.Decision, *policy.Rule) {
	if len(g.in.Entries) == 0 || g.plugin.Decide == nil {
		return policy.Undecided, nil
	}
	confs := make([]resource.Conf, len(g.in.Entries))
	for i := range confs {
		confs[i] = g.in.Entries[i].Conf
	}
	d, i := g.plugin.Decide(confs, policy.Client{IDs: c.ids, ServerName: serverName})
	if d == policy.Undecided {
		return d, nil
	}
	return d, g.in.Entries[i]
}

// last returns the strongest item of a rule, which may be nil.
func last(r *policy.Rule) policy.Origin {
	if r == nil || len(r.Origins) == 0 {
		return policy.Origin{}
	}
	return r.Origins[len(r.Origins)-1]
}

// gates finds the gates of dataplanes.
type gates struct {
	x       *policy.Index
	matcher *policy.PermissionMatcher // nil until it is needed
	plugins []*policy.Plugin
	list    []*gate
	byKey   map[gateKey]*gate
	of      map[*resource.Resource][]*gate // by dataplane, one for each inbound
	inputs  []*resource.Resource           // policies
	catalog [32]byte

	// The gates that name a tag of clients. All other gates decide about a client as about one
	// without tags, which is in others.
	naming  map[[2]string][]*gate
	complex []*gate // evaluated for each client
	others  []bits
}

// gateKey identifies the policies of an inbound.
type gateKey struct {
	legacy  *resource.Resource
	print   [32]byte
	inbound int
}

// newGates prepares the gates of a mesh. It reuses those of prev, which may be nil, if they depend
// on the same policies and services.
func newGates(x *policy.Index, prev *gates) *gates {
	out := &gates{x: x, plugins: x.PermissionPlugins(), catalog: x.View.Catalog, byKey: map[gateKey]*gate{},
		of: map[*resource.Resource][]*gate{}}
	out.inputs = permissionsOf(x, out.plugins)
	if prev != nil && prev.catalog == out.catalog && slices.Equal(prev.inputs, out.inputs) {
		out.list, out.byKey, out.naming = prev.list, prev.byKey, prev.naming
		out.complex, out.others = prev.complex, prev.others
		for _, d := range x.View.Dataplanes() {
			if list, ok := prev.of[d]; ok {
				out.of[d] = list
			}
		}
	}
	return out
}

// permissionsOf returns the policies of plugins.
func permissionsOf(x *policy.Index, plugins []*policy.Plugin) (out []*resource.Resource) {
	for _, p := range plugins {
		for i := range p.Kinds {
			out = append(out, x.Policies(p.Kinds[i].Kind)...)
		}
		for i := range p.Legacy {
			out = append(out, x.Policies(p.Legacy[i].Kind)...)
		}
	}
	return out
}

// at returns the gate of an inbound of a dataplane.
func (g *gates) at(dataplane *resource.Resource, inbound int) *gate {
	list, ok := g.of[dataplane]
	if !ok {
		list = g.match(dataplane)
		g.of[dataplane] = list
	}
	if inbound < 0 || inbound >= len(list) {
		return g.shared(gateKey{inbound: -1}, &gate{})
	}
	return list[inbound]
}

func (g *gates) shared(k gateKey, x *gate) *gate {
	if have := g.byKey[k]; have != nil {
		return have
	}
	x.id = len(g.list)
	g.list, g.byKey[k] = append(g.list, x), x
	return x
}

// match finds the gates of the inbounds of a dataplane.
func (g *gates) match(dataplane *resource.Resource) []*gate {
	dp, ok := dataplane.Spec.(*resource.Dataplane)
	if !ok {
		return nil
	}
	if g.matcher == nil {
		g.matcher = g.x.PermissionMatcher()
	}
	m := g.matcher.Match(dataplane)
	var rules *policy.Rules
	out := make([]*gate, len(dp.Networking.Inbound))
	for i := range out {
		k := gateKey{print: m.Fingerprint, inbound: i}
		if have := g.byKey[k]; have != nil {
			out[i] = have
			continue
		}
		if rules == nil {
			rules = m.Rules()
		}
		x := &gate{}
		x.fill(g.plugins, rules, i)
		switch {
		case x.legacy != nil:
			k = gateKey{legacy: x.legacy}
		case x.in == nil:
			k = gateKey{inbound: -2}
		}
		out[i] = g.shared(k, x)
	}
	return out
}

// fill finds the rules of an inbound.
func (g *gate) fill(plugins []*policy.Plugin, rules *policy.Rules, inbound int) {
	for _, p := range plugins {
		g.plugin = p
		for j := range p.Legacy {
			if list := rules.LegacyInbound(p.Legacy[j].Kind, inbound); len(list) > 0 && g.legacy == nil {
				g.legacy = list[0]
			}
		}
		for j := range p.Kinds {
			if in := rules.Kind(p.Kinds[j].Kind).Inbound(inbound); in != nil {
				g.in = in
			}
		}
	}
	if g.in == nil {
		return
	}
	g.legacy = nil // replaced
	g.names = slices.ContainsFunc(g.in.Entries, func(r *policy.Rule) bool {
		c, ok := r.Conf.(policy.MatchConf)
		return ok && slices.ContainsFunc(c.ClientMatches(), func(m resource.ClientMatch) bool { return m.SNI != nil })
	})
}

// decide returns the decisions of all gates about a client.
func (g *gates) decide(c *client) []bits {
	if g.naming == nil {
		g.naming = map[[2]string][]*gate{}
	}
	for _, x := range g.list[len(g.others):] {
		g.others = append(g.others, bitsOf(x.decide(&client{}, "")))
		if !x.name(func(key, value string) {
			k := [2]string{key, value}
			if list := g.naming[k]; len(list) == 0 || list[len(list)-1] != x {
				g.naming[k] = append(list, x)
			}
		}) {
			g.complex = append(g.complex, x)
		}
	}
	out := slices.Clone(g.others)
	for _, x := range g.complex {
		out[x.id] = bitsOf(x.decide(c, ""))
	}
	for key, values := range c.tags {
		for _, v := range values {
			for _, x := range g.naming[[2]string{key, v}] {
				out[x.id] = bitsOf(x.decide(c, ""))
			}
		}
	}
	return out
}

// name calls f with the tags of clients on which the decisions depend. It returns false if they
// depend on more.
func (g *gate) name(f func(key, value string)) bool {
	switch {
	case g.legacy != nil:
		if spec, ok := g.legacy.Spec.(*resource.LegacyPolicy); ok {
			for i := range spec.Sources {
				for k, v := range spec.Sources[i].Match {
					f(k, v)
				}
			}
		}
		return true
	case g.in == nil:
		return true
	case len(g.in.Entries) > 0:
		return false
	}
	for _, r := range g.in.Rules {
		for _, t := range r.Subset {
			f(t.Key, t.Value)
		}
	}
	return true
}
