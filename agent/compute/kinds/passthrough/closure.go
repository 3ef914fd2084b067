package passthrough

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
)

// chain is one filter chain in the making.
type chain struct {
	rule *rule // what it is of; nil for requests by Host
	// hosts are the domains whose requests it takes. others takes the rest; nil: they are refused.
	hosts  []*rule
	others *rule

	protocol protocol
	port     uint32         // 0: all ports that no other chain names
	ranges   []netip.Prefix // of addresses; nil: all that no other chain of the port names
	closure  bool           // repeats what holds for wider addresses
}

// rules are those that lead the connections of the chain.
func (c *chain) rules() []*rule {
	out := slices.Clone(c.hosts)
	for _, r := range []*rule{c.rule, c.others} {
		if r != nil {
			out = append(out, r)
		}
	}
	return out
}

// maxClosure bounds, for one address family, how many chains and address ranges are added so that
// rules act beside narrower ones.
const maxClosure = 20_000

// planner makes the chains of one address family. For each port, and on it for each range of
// addresses that some rule names, it collects the chains that Envoy finds there, since it looks
// nowhere else. The narrowest range decides about a kind of connection; domains decide where no
// range but "any address" admits it.
type planner struct {
	set   *ruleSet
	ports map[uint32][]*rule
	left  int // of maxClosure
	cut   bool
	out   []*chain
	notes *notes
}

func (s *ruleSet) plan(n *notes) []*chain {
	p := &planner{set: s, ports: map[uint32][]*rule{}, left: maxClosure, notes: n}
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

// port adds the chains of one port. general are the rules about all ports.
func (p *planner) port(port uint32, general []*rule) {
	own := p.ports[port]
	if len(general) > p.left { // they would not fit, and making them costs time
		general, p.cut = nil, true
	}
	v := newView(own, general, p.set.silent[port] != nil)
	made := v.chains(port)
	if v.covered {
		p.notes.covered(v.plainAny, v.hosts)
	}
	sum := 0
	for _, c := range made {
		sum += c.added()
	}
	if sum > p.left {
		p.cut = true
		made = slices.DeleteFunc(made, func(c *chain) bool { return c.added() > 0 })
		sum = 0
	}
	p.left -= sum
	p.out = append(p.out, made...)
}

// added is what a chain counts of maxClosure: nothing when it is as the rule is written.
func (c *chain) added() int {
	if !c.closure && (c.rule != nil && c.rule.port == c.port || c.rule == nil && c.ofPort()) {
		return 0
	}
	return 1 + len(c.ranges)
}

// ofPort reports whether some host of the chain is of its port, rather than of all.
func (c *chain) ofPort() bool {
	return slices.ContainsFunc(c.hosts, func(r *rule) bool { return r.port == c.port }) ||
		c.others != nil && c.others.port == c.port
}

// view is what the rules say about one port.
type view struct {
	names     []*rule // TLS by the name that the client gives
	hosts     []*rule // requests by their Host
	secureAny *rule   // to any address
	plainAny  *rule
	httpAny   *rule
	cells     []cell // the other ranges, wider ones before those within
	covered   bool   // plainAny takes the requests to hosts
}

// cell is a range of addresses with the rules that name it.
type cell struct {
	prefix                  netip.Prefix
	secure, plain, requests *rule
}

// newView combines the rules of a port with those of all ports. Of two that are equal but for the
// port, that of the port goes first. silent is true where nothing is inspected: only plain
// connections are seen there.
func newView(own, general []*rule, silent bool) *view {
	v := &view{}
	index := map[netip.Prefix]int{}
	known := make(map[identity]bool, len(own)+len(general))
	byHost := protocol(0) // of the requests by Host, 0 for none yet
	for _, r := range slices.Concat(own, general) {
		id := r.identity()
		id.port = 0
		about := id.class == requests && (r.named() || r.anywhere())
		if known[id] || silent && id.class != plain || about && byHost != 0 && byHost != r.protocol {
			continue
		}
		known[id] = true
		if about {
			byHost = r.protocol
		}
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
	slices.SortFunc(v.cells, func(a, b cell) int {
		return cmp.Or(a.prefix.Addr().Compare(b.prefix.Addr()), cmp.Compare(a.prefix.Bits(), b.prefix.Bits()))
	})
	v.covered = v.httpAny == nil && v.plainAny != nil && len(v.hosts) > 0
	return v
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

// chains returns the chains of a port.
func (v *view) chains(port uint32) []*chain {
	var out []*chain
	add := func(r *rule, ranges []netip.Prefix, closure bool) {
		if r != nil {
			out = append(out, &chain{rule: r, protocol: r.protocol, port: port, ranges: ranges, closure: closure})
		}
	}
	wider := wider{view: v, ranges: map[*rule][]netip.Prefix{}}
	for i := range v.cells {
		c := &v.cells[i]
		for _, r := range []*rule{c.secure, c.plain, c.requests} {
			add(r, []netip.Prefix{c.prefix}, false)
		}
		wider.visit(c)
	}
	for _, r := range wider.rules {
		add(r, wider.ranges[r], true)
	}
	// What holds for any address, there and in the ranges that do not admit such connections by
	// themselves.
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
	if c := v.byHost(port); c != nil {
		out = append(out, c)
		if len(wider.noRequests) > 0 {
			again := *c
			again.ranges, again.closure = wider.noRequests, true
			out = append(out, &again)
		}
	}
	return out
}

// byHost is the chain of requests to any address; nil for none.
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

// wider finds, for each range, what holds there because it holds for wider ranges.
type wider struct {
	view   *view
	stack  []cell                   // the ranges around the one that is visited, with what they have from wider ones
	rules  []*rule                  // those that hold in narrower ranges,
	ranges map[*rule][]netip.Prefix // and which
	// noSecure and noRequests are the ranges in which what holds for any address decides.
	noSecure, noRequests []netip.Prefix
}

func (w *wider) hold(r *rule, p netip.Prefix) {
	if w.ranges[r] == nil {
		w.rules = append(w.rules, r)
	}
	w.ranges[r] = append(w.ranges[r], p)
}

// visit takes the next range in the order of view.cells. Of a cell on the stack, requests is the
// rule that takes requests there: one about them, or one about plain connections when that is of a
// narrower range.
func (w *wider) visit(c *cell) {
	for len(w.stack) > 0 && !w.stack[len(w.stack)-1].prefix.Contains(c.prefix.Addr()) {
		w.stack = w.stack[:len(w.stack)-1]
	}
	in := cell{prefix: c.prefix, secure: c.secure, plain: c.plain, requests: cmp.Or(c.requests, c.plain)}
	var around cell
	if n := len(w.stack); n > 0 {
		around = w.stack[n-1]
	}
	v := w.view
	switch {
	case c.secure != nil:
	case around.secure != nil:
		in.secure = around.secure
		w.hold(around.secure, c.prefix)
	case v.secureAny != nil || len(v.names) > 0:
		w.noSecure = append(w.noSecure, c.prefix)
	}
	switch {
	case in.requests != nil:
	case around.requests != nil:
		in.requests = around.requests
		if in.requests.protocol.class() == requests {
			w.hold(in.requests, c.prefix)
		}
	case v.httpAny != nil || len(v.hosts) > 0:
		w.noRequests = append(w.noRequests, c.prefix)
	}
	switch {
	case c.plain != nil:
	case around.plain != nil:
		in.plain = around.plain
		w.hold(around.plain, c.prefix)
	case v.plainAny != nil:
		w.hold(v.plainAny, c.prefix)
	}
	w.stack = append(w.stack, in)
}
