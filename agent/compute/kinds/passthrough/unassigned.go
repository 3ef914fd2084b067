package passthrough

import (
	"net/netip"
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

// Nothing has a virtual address that neither a listener nor a rule has. A rule for wider ranges, or
// for any address, would connect to it and wait for the timeout. Therefore, if there is such a
// rule, each port has chains for the ranges of virtual addresses: they close connections, except
// those with a name that the proxy resolves.

// closing returns the rule that closes connections to virtual addresses.
func closing(prefix netip.Prefix) *rule {
	return &rule{target: target{kind: networkTarget, prefix: prefix, text: "virtual", addr: prefix.Addr().String()},
		protocol: tcp, name: draft.VirtualCluster, stat: draft.StatName(draft.VirtualCluster), closes: true}
}

// reachedVirtual returns the ranges of virtual addresses to which a rule leads.
func (s *ruleSet) reachedVirtual() []netip.Prefix {
	if s.unassigned {
		return s.virtual
	}
	return slices.DeleteFunc(slices.Clone(s.virtual), func(p netip.Prefix) bool {
		return !slices.ContainsFunc(s.rules, func(r *rule) bool {
			if r.named() {
				return !r.resolves()
			}
			return r.prefix.Bits() <= p.Bits() && r.prefix.Contains(p.Addr())
		})
	})
}

// closeVirtual adds closed cells for ranges of virtual addresses. A rule for exactly such a range
// has no effect.
func (v *view) closeVirtual(ranges []netip.Prefix) {
	if len(ranges) == 0 {
		return
	}
	v.closing = closing(ranges[0])
	v.cells = slices.DeleteFunc(v.cells, func(c cell) bool { return slices.Contains(ranges, c.prefix) })
	for _, p := range ranges {
		v.cells = append(v.cells, cell{prefix: p, closed: true})
	}
	slices.SortFunc(v.cells, compareCells)
}

// openVirtual removes the closed cells, and reports whether there were any.
func (v *view) openVirtual() bool {
	n := len(v.cells)
	v.cells = slices.DeleteFunc(v.cells, func(c cell) bool { return c.closed })
	return len(v.cells) < n
}

// virtualListener adds the chains of domains with virtual addresses to the listener that receives
// only connections to such addresses. It inspects only ports of such domains with other rules than
// tcp.
func (a *applier) virtualListener(l *draft.Listener, s *ruleSet) {
	own := &ruleSet{v6: s.v6, silent: map[uint32]*rule{}, first: map[uint32]*rule{}, virtual: s.virtual, unassigned: true,
		through: s.through}
	for _, r := range s.rules {
		if r.resolved == "" {
			continue
		}
		own.rules = append(own.rules, r)
		if r.protocol.class() != plain && own.first[r.port] == nil {
			own.first[r.port] = r
		}
	}
	if len(own.rules) == 0 {
		return
	}
	l.Chains = append(a.chains(own.plan(&notes{})), l.Chains...)
	a.inspect(l.Message, own)
}

// resolves reports whether the proxy resolves the domain of a rule, so that the dialed address has
// no effect.
func (r *rule) resolves() bool { return r.pinned() || r.forwarded() }

// visitVirtual processes a closed cell.
func (w *wider) visitVirtual(c *cell) {
	w.virtual = append(w.virtual, c.prefix)
	// The chain of these requests also takes connections of other protocols, and closes them.
	if !slices.ContainsFunc(w.view.hosts, (*rule).resolves) {
		w.all.add(w.view.closing, c.prefix)
	}
	if w.view.inspected {
		w.hello.add(w.view.closing, c.prefix)
	}
	w.stack = append(w.stack, cell{prefix: c.prefix, plain: w.view.closing})
}

// atVirtual returns the chains of resolved domains for closed cells.
func (v *view) atVirtual(port uint32, ranges []netip.Prefix) (out []*chain) {
	if len(ranges) == 0 {
		return nil
	}
	for _, r := range v.names {
		if r.resolves() {
			out = append(out, &chain{rule: r, protocol: r.protocol, port: port, ranges: ranges, closure: true,
				variant: "_virtual"})
		}
	}
	hosts := slices.DeleteFunc(slices.Clone(v.hosts), func(r *rule) bool { return !r.resolves() })
	if len(hosts) > 0 {
		out = append(out, &chain{hosts: hosts, protocol: hosts[0].protocol, port: port, ranges: ranges, closure: true,
			variant: "_virtual"})
	}
	return out
}
