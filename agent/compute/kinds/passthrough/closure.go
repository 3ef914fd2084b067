package passthrough

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
)

// chain is a filter chain before its conversion.
type chain struct {
	rule *rule // nil for requests by Host
	// hosts are the domains of its requests. others handles all other hosts; nil refuses them.
	hosts  []*rule
	others *rule

	protocol protocol
	port     uint32         // 0 for all ports without another chain
	ranges   []netip.Prefix // nil for all addresses without another chain of the port
	closure  bool           // repeats a rule for wider ranges
	hello    bool           // the chain of a plain rule for connections that begin with TLS
	missed   bool           // for requests that the HTTP inspector does not recognize
	variant  string         // distinguishes the names of chains of one rule
}

// rules returns the rules that the chain implements.
func (c *chain) rules() []*rule {
	out := slices.Clone(c.hosts)
	for _, r := range []*rule{c.rule, c.others} {
		if r != nil {
			out = append(out, r)
		}
	}
	return out
}

// maxClosure limits, for one address family, the chains and ranges that are added to repeat rules
// for narrower ports and ranges.
const maxClosure = 20_000

// planner creates the chains of one address family. Envoy evaluates only the most specific port and
// range of a connection. Therefore the planner collects, for each port, and for each range that
// some rule names on it, all chains that must be found there. The narrowest range with a rule
// decides for a kind of connection. Domains decide where only "any address" has a rule.
type planner struct {
	set    *ruleSet
	ports  map[uint32][]*rule
	budget int // remaining of maxClosure
	cut    bool
	out    []*chain
	// virtual are the ranges of virtual addresses to which rules lead.
	virtual []netip.Prefix
	notes   *notes
}

func (s *ruleSet) plan(n *notes) []*chain {
	p := &planner{set: s, ports: map[uint32][]*rule{}, budget: maxClosure, notes: n, virtual: s.reachedVirtual()}
	for _, r := range s.rules {
		p.ports[r.port] = append(p.ports[r.port], r)
	}
	for _, port := range slices.Sorted(maps.Keys(p.ports)) {
		if port != 0 {
			p.port(port, p.ports[0])
		}
	}
	p.port(0, nil)
	if p.cut {
		n.cut(s)
	}
	slices.SortFunc(p.out, compareChains)
	return p.out
}

// port adds the chains of one port. general are the rules for all ports.
func (p *planner) port(port uint32, general []*rule) {
	rules := p.ports[port]
	if len(general) > p.budget { // exceed the budget; do not create them
		general, p.cut = nil, true
	}
	v := newView(rules, general, p.set.silent[port] != nil)
	v.inspected = p.set.inspects(port) != nil
	v.through = p.set.through
	v.closeVirtual(p.virtual)
	chains, sum := v.chains(port)
	if sum > p.budget && v.openVirtual() {
		chains, sum = v.chains(port)
	}
	if v.covered {
		p.notes.covered(v.plainAny, v.hosts)
	}
	if sum > p.budget {
		p.cut = true
		chains = slices.DeleteFunc(chains, func(c *chain) bool { return c.added() > 0 })
		sum = 0
	}
	p.budget -= sum
	p.out = append(p.out, chains...)
}

// added returns the part of maxClosure that a chain uses: none if it corresponds to the rule
// itself.
func (c *chain) added() int {
	if !c.closure && (c.rule != nil && c.rule.port == c.port || c.rule == nil && c.ofPort()) {
		return 0
	}
	return 1 + len(c.ranges)
}

// ofPort reports whether some host of the chain has a rule for its port.
func (c *chain) ofPort() bool {
	return slices.ContainsFunc(c.hosts, func(r *rule) bool { return r.port == c.port }) ||
		c.others != nil && c.others.port == c.port
}

// view holds the rules that apply to one port.
type view struct {
	names     []*rule // TLS by server name
	hosts     []*rule // requests by their Host
	secureAny *rule   // TLS to any address
	plainAny  *rule
	httpAny   *rule
	cells     []cell // other ranges, each before the ranges that it contains
	covered   bool   // plainAny also handles requests to hosts
	inspected bool   // the proxy inspects the first bytes of clients
	closing   *rule  // of closed cells
	through   bool   // traffic leaves the mesh through zone egresses
}

// cell is a range of addresses with its rules.
type cell struct {
	prefix                  netip.Prefix
	secure, plain, requests *rule
	closed                  bool // for virtual addresses that nothing has
}

// newView combines the rules of a port with those of all ports. If two rules differ only in the
// port, the rule of the port takes precedence. silent disables inspection, so that only plain
// connections can be recognized.
func newView(rules, general []*rule, silent bool) *view {
	v := &view{}
	index := map[netip.Prefix]int{}
	known := make(map[identity]bool, len(rules)+len(general))
	for _, r := range slices.Concat(rules, general) {
		id := r.identity()
		id.port = 0
		if known[id] || silent && id.class != plain {
			continue
		}
		known[id] = true
		if !r.named() && !r.anywhere() {
			v.cell(index, r)
			continue
		}
		switch {
		case r.anywhere() && id.class == secure:
			v.secureAny = r
		case r.anywhere() && id.class == plain:
			v.plainAny = r
		case r.anywhere():
			v.httpAny = r
		case id.class == secure:
			v.names = append(v.names, r)
		default:
			v.hosts = append(v.hosts, r)
		}
	}
	slices.SortFunc(v.cells, compareCells)
	v.covered = v.httpAny == nil && v.plainAny != nil && len(v.hosts) > 0
	return v
}

// compareCells puts each range before the ranges that it contains.
func compareCells(a, b cell) int {
	return cmp.Or(a.prefix.Addr().Compare(b.prefix.Addr()), cmp.Compare(a.prefix.Bits(), b.prefix.Bits()))
}

func (v *view) cell(index map[netip.Prefix]int, r *rule) {
	i, ok := index[r.prefix]
	if !ok {
		i = len(v.cells)
		index[r.prefix] = i
		v.cells = append(v.cells, cell{prefix: r.prefix})
	}
	switch c := &v.cells[i]; r.protocol.class() {
	case secure:
		c.secure = r
	case plain:
		c.plain = r
	case requests:
		c.requests = r
	}
}

// chains returns the chains of a port, and the part of maxClosure that they use.
func (v *view) chains(port uint32) (out []*chain, cost int) {
	add := func(r *rule, ranges []netip.Prefix, closure bool) {
		if r != nil {
			out = append(out, &chain{rule: r, protocol: r.protocol, port: port, ranges: ranges, closure: closure})
		}
	}
	// A connection that is not inspected in time uses the chain of a plain rule, whatever its bytes
	// are. Therefore these rules also permit TLS where no rule for TLS applies.
	addHello := func(r *rule, ranges []netip.Prefix, closure bool) {
		if r != nil {
			out = append(out, &chain{rule: r, protocol: r.protocol, port: port, ranges: ranges, closure: closure, hello: true,
				variant: "_tls"})
		}
	}
	wider := wider{view: v}
	for i := range v.cells {
		c := &v.cells[i]
		hello := wider.visit(c)
		if c.closed {
			continue
		}
		for _, r := range []*rule{c.secure, c.plain, c.requests} {
			add(r, []netip.Prefix{c.prefix}, false)
		}
		if hello {
			addHello(c.plain, []netip.Prefix{c.prefix}, false)
		}
	}
	for _, r := range wider.all.rules {
		add(r, wider.all.ranges[r], true)
	}
	for _, r := range wider.hello.rules {
		addHello(r, wider.hello.ranges[r], true)
	}
	// Rules for any address apply there and in the ranges without a rule for such connections.
	for _, at := range []struct {
		ranges  []netip.Prefix
		closure bool
	}{{nil, false}, {wider.noSecure, true}} {
		if at.closure && len(at.ranges) == 0 {
			continue
		}
		for _, r := range v.names {
			add(r, at.ranges, at.closure)
		}
		add(v.secureAny, at.ranges, at.closure)
	}
	add(v.plainAny, nil, false)
	if v.inspected && v.secureAny == nil {
		addHello(v.plainAny, nil, false)
	}
	out = append(out, v.atVirtual(port, wider.virtual)...)
	if c := v.byHost(port); c != nil {
		out = append(out, c)
		if len(wider.noRequests) > 0 {
			copied := *c
			copied.ranges, copied.closure = wider.noRequests, true
			out = append(out, &copied)
		}
	}
	out = append(out, v.missed(out)...)
	for _, c := range out {
		cost += c.added()
	}
	return out, cost
}

// missed returns chains for the requests that the HTTP inspector does not recognize: a wake-up
// without new bytes before the end of the request line ends its parser. They repeat the chains of
// requests wherever a connection of no recognized protocol has no chain. Their HTTP connection
// manager closes connections of other protocols.
func (v *view) missed(chains []*chain) (out []*chain) {
	taken := map[netip.Prefix]bool{} // by plain rules; the zero prefix is any address
	for _, c := range chains {
		if c.rule == nil || c.protocol.class() != plain || c.hello {
			continue
		}
		taken[netip.Prefix{}] = taken[netip.Prefix{}] || len(c.ranges) == 0
		for _, p := range c.ranges {
			taken[p] = true
		}
	}
	for _, c := range chains {
		if c.protocol.class() != requests || v.through && c.tunneled() {
			continue
		}
		copied := *c
		copied.missed, copied.variant = true, c.variant+"_missed"
		if len(c.ranges) == 0 {
			if !taken[netip.Prefix{}] {
				out = append(out, &copied)
			}
			continue
		}
		if slices.ContainsFunc(c.ranges, func(p netip.Prefix) bool { return taken[p] }) {
			copied.ranges = slices.DeleteFunc(slices.Clone(c.ranges), func(p netip.Prefix) bool { return taken[p] })
		}
		if len(copied.ranges) > 0 {
			out = append(out, &copied)
		}
	}
	return out
}

// byHost returns the chain of requests to any address, or nil.
func (v *view) byHost(port uint32) *chain {
	switch {
	case v.covered || len(v.hosts) == 0 && v.httpAny == nil:
		return nil
	case len(v.hosts) == 0 && !v.httpAny.named():
		return &chain{rule: v.httpAny, protocol: v.httpAny.protocol, port: port}
	}
	c := &chain{hosts: v.hosts, others: v.httpAny, port: port}
	if c.others != nil {
		c.protocol = c.others.protocol
	} else {
		c.protocol = c.hosts[0].protocol
	}
	return c
}

// inheritance holds rules that ranges inherit from wider ranges.
type inheritance struct {
	rules  []*rule // in order
	ranges map[*rule][]netip.Prefix
}

func (h *inheritance) add(r *rule, p netip.Prefix) {
	if h.ranges == nil {
		h.ranges = map[*rule][]netip.Prefix{}
	}
	if h.ranges[r] == nil {
		h.rules = append(h.rules, r)
	}
	h.ranges[r] = append(h.ranges[r], p)
}

// wider finds the rules that each range inherits from wider ranges.
type wider struct {
	view  *view
	stack []cell      // enclosing ranges, including inherited rules
	all   inheritance // inherited rules
	hello inheritance // plain rules that also permit TLS in a range
	// noSecure and noRequests are the ranges in which the rules for any address apply. virtual are
	// those of virtual addresses.
	noSecure, noRequests, virtual []netip.Prefix
}

// visit processes the next range in the order of view.cells. In a cell on the stack, requests is
// the rule that handles requests: a rule for requests, or a plain rule of a narrower range. It
// reports whether the cell's plain rule also permits TLS.
func (w *wider) visit(c *cell) (hello bool) {
	for len(w.stack) > 0 && !w.stack[len(w.stack)-1].prefix.Contains(c.prefix.Addr()) {
		w.stack = w.stack[:len(w.stack)-1]
	}
	if c.closed {
		w.visitVirtual(c)
		return false
	}
	in := cell{prefix: c.prefix, secure: c.secure, plain: c.plain, requests: cmp.Or(c.requests, c.plain)}
	var enclosing cell
	if n := len(w.stack); n > 0 {
		enclosing = w.stack[n-1]
	}
	v := w.view
	switch {
	case c.secure != nil:
	case enclosing.secure != nil:
		in.secure = enclosing.secure
		w.all.add(enclosing.secure, c.prefix)
	case v.secureAny != nil || len(v.names) > 0:
		w.noSecure = append(w.noSecure, c.prefix)
	}
	switch {
	case in.requests != nil:
	case enclosing.requests != nil:
		in.requests = enclosing.requests
		if in.requests.protocol.class() == requests {
			w.all.add(in.requests, c.prefix)
		}
	case v.httpAny != nil || len(v.hosts) > 0:
		w.noRequests = append(w.noRequests, c.prefix)
	}
	inherited := v.plainAny
	switch {
	case c.plain != nil:
	case enclosing.plain != nil:
		in.plain, inherited = enclosing.plain, enclosing.plain
		w.all.add(inherited, c.prefix)
	case inherited != nil:
		w.all.add(inherited, c.prefix)
	}
	if hello = v.inspected && in.secure == nil && v.secureAny == nil; hello && c.plain == nil && inherited != nil {
		w.hello.add(inherited, c.prefix)
	}
	w.stack = append(w.stack, in)
	return hello
}
