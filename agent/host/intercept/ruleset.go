package intercept

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Names in the table.
const (
	liveSet      = "live"
	zoneChain    = "dns_zone"
	outputChain  = "output"
	inboundChain = "inbound"
	loopChain    = "loop"
)

// clause is a part of a rule, in the syntax of nft and as kernel expressions.
type clause struct {
	text  string
	exprs []expr.Any
}

// set is a named set with its elements.
type set struct {
	name, typ, flags string // in the syntax of nft
	def              nftables.Set
	elements         []nftables.SetElement
	texts            []string // elements in the syntax of nft
}

type chain struct {
	name     string
	typ      nftables.ChainType
	hook     string
	hooknum  *nftables.ChainHook
	prio     string
	priority nftables.ChainPriority
	rules    [][]clause
}

// Ruleset is a table that is not yet loaded. [Ruleset.String] returns input for nft -f.
type Ruleset struct {
	timeouts bool // conntrack drops redirected queries after udpEntryTime
	sets     []set
	chains   []chain
}

// NewRuleset returns the ruleset of a valid spec. With timeouts false, it omits features that a
// kernel may lack. Cgroups that do not exist have no elements; the agent adds them when they are
// created.
func NewRuleset(s *Spec, cgroups []Cgroup, timeouts bool) *Ruleset {
	r := &Ruleset{timeouts: timeouts && s.DNSPort != 0}
	if s.DNSPort != 0 {
		r.sets = append(r.sets, set{name: liveSet, typ: "nf_proto", flags: "timeout",
			def: nftables.Set{KeyType: nftables.TypeNFProto, HasTimeout: true}})
	}
	r.userSet("users", s.Users)
	r.userSet("excluded_users", s.ExcludeUsers)
	if s.Outbound != 0 {
		r.userSet("envoy_users", s.EnvoyUsers)
		r.portSet("excluded_outbound_ports", s.ExcludeOutboundPorts)
		r.prefixSets("excluded_outbound", s.ExcludeOutboundCIDRs)
		r.prefixSets("virtual", s.VirtualCIDRs)
	}
	if s.Inbound != 0 {
		r.portSet("excluded_inbound_ports", s.ExcludeInboundPorts)
		r.prefixSets("excluded_inbound", s.ExcludeInboundCIDRs)
		r.portSet("probe_ports", s.ProbePorts)
		r.prefixSets("probe_sources", s.ProbeSources)
	}
	r.cgroupSets(s.Cgroups, cgroups)
	if s.DNSPort != 0 {
		r.chains = append(r.chains, r.zone(s), r.loop(s))
	}
	if s.DNSPort != 0 || s.Outbound != 0 {
		r.chains = append(r.chains, r.output(s))
	}
	if s.Inbound != 0 {
		r.chains = append(r.chains, r.inbound(s))
	}
	return r
}

// zone assigns the conntrack zone to UDP packets that are redirected, before conntrack sees them.
// The kernel ignores later rules that assign another zone or disable tracking.
func (r *Ruleset) zone(s *Spec) chain {
	c := chain{name: zoneChain, typ: nftables.ChainTypeFilter, hook: "output", hooknum: nftables.ChainHookOutput,
		prio: fmt.Sprint(zonePriority), priority: zonePriority}
	// Exclude replies, and queries sent directly to the resolver, whose replies look the same.
	for _, side := range []string{"sport", "dport"} {
		c.add(outside("oifname", "lo"), port(unix.IPPROTO_UDP, side, s.DNSPort), setZone())
	}
	r.exempt(&c)
	c.add(linkLocal(), verdict(expr.VerdictReturn, "return"))
	for _, who := range r.selectors() {
		c.add(append(append([]clause{isLive(), port(unix.IPPROTO_UDP, "dport", 53)}, who...), counter(), setZone())...)
	}
	return c
}

// linkLocal matches link-local servers. Their sockets are bound to an interface, so they cannot
// reach a loopback address.
func linkLocal() clause { return address("daddr", "", netip.MustParsePrefix("fe80::/16")) }

// loop drops the agent's own queries if another ruleset redirects them back to the agent. It runs
// after all redirections. The agent reads its counters.
func (r *Ruleset) loop(s *Spec) chain {
	c := chain{name: loopChain, typ: nftables.ChainTypeFilter, hook: "output", hooknum: nftables.ChainHookOutput,
		prio: "filter", priority: *nftables.ChainPriorityFilter}
	for _, proto := range []byte{unix.IPPROTO_UDP, unix.IPPROTO_TCP} {
		c.add(marked(), port(proto, "dport", s.DNSPort), counter(), verdict(expr.VerdictDrop, "drop"))
	}
	return c
}

// output redirects outgoing packets of the namespace.
func (r *Ruleset) output(s *Spec) chain {
	c := chain{name: outputChain, typ: nftables.ChainTypeNAT, hook: "output", hooknum: nftables.ChainHookOutput,
		prio: fmt.Sprint(priority), priority: priority}
	if s.DNSPort != 0 {
		if r.timeouts {
			c.add(inZone(), nfproto(unix.NFPROTO_IPV4), setTimeout("dns4"))
			c.add(inZone(), nfproto(unix.NFPROTO_IPV6), setTimeout("dns6"))
		}
		c.add(inZone(), port(unix.IPPROTO_UDP, "dport", 53), redirect(s.DNSPort)) // but not the replies
	}
	r.exempt(&c)
	if s.DNSPort != 0 {
		c.add(linkLocal(), port(unix.IPPROTO_TCP, "dport", 53), verdict(expr.VerdictReturn, "return"))
		for _, who := range r.selectors() {
			c.add(append(append([]clause{isLive(), port(unix.IPPROTO_TCP, "dport", 53)}, who...), counter(),
				redirect(s.DNSPort))...)
		}
	}
	if s.Outbound == 0 {
		return c
	}
	if s.DNSPort != 0 {
		c.add(port(unix.IPPROTO_TCP, "dport", 53), verdict(expr.VerdictReturn, "return")) // to the real server
	}
	back := verdict(expr.VerdictReturn, "return")
	// Envoy connects to the workload from a dedicated address.
	c.add(address("saddr", "", netip.MustParsePrefix("127.0.0.6/32")), back)
	c.add(address("saddr", "", netip.MustParsePrefix("::6/128")), back)
	if s.Inbound != 0 { // a connection from Envoy to its own workload's address counts as inbound
		for _, self := range []string{"127.0.0.0/8", "::1/128"} {
			c.add(byUser("envoy_users"), outside("oifname", "lo"), address("daddr", "!= ", netip.MustParsePrefix(self)),
				l4proto(unix.IPPROTO_TCP), redirect(s.Inbound))
		}
	}
	c.add(byUser("envoy_users"), back)
	c.add(outside("oifname", "lo"), back)
	r.exclude(&c, "excluded_outbound", "daddr")
	for _, who := range r.selectors() {
		for _, to := range r.inSets("virtual", "daddr") {
			c.add(append(append([]clause{to, l4proto(unix.IPPROTO_TCP)}, who...), counter(), redirect(s.Virtual))...)
		}
		c.add(append(append([]clause{l4proto(unix.IPPROTO_TCP)}, who...), counter(), redirect(s.Outbound))...)
	}
	return c
}

// inbound redirects incoming connections.
func (r *Ruleset) inbound(s *Spec) chain {
	c := chain{name: inboundChain, typ: nftables.ChainTypeNAT, hook: "prerouting", hooknum: nftables.ChainHookPrerouting,
		prio: fmt.Sprint(priority), priority: priority}
	c.add(outside("iifname", "lo"), verdict(expr.VerdictReturn, "return"))
	r.exclude(&c, "excluded_inbound", "saddr")
	if r.has("probe_ports") {
		for _, from := range r.inSets("probe_sources", "saddr") {
			c.add(from, toPorts("probe_ports"), counter(), verdict(expr.VerdictReturn, "return"))
		}
	}
	c.add(l4proto(unix.IPPROTO_TCP), counter(), redirect(s.Inbound))
	return c
}

// exempt skips packets of the agent and of excluded users.
func (r *Ruleset) exempt(c *chain) {
	back := verdict(expr.VerdictReturn, "return")
	c.add(marked(), back)
	if r.has("excluded_users") {
		c.add(byUser("excluded_users"), back)
	}
}

// exclude skips excluded ports and networks.
func (r *Ruleset) exclude(c *chain, sets, side string) {
	back := verdict(expr.VerdictReturn, "return")
	if name := sets + "_ports"; r.has(name) {
		c.add(toPorts(name), back)
	}
	for _, in := range r.inSets(sets, side) {
		c.add(in, back)
	}
}

// inSets returns a clause for each address family that matches addresses in a set of networks.
func (r *Ruleset) inSets(sets, side string) (out []clause) {
	for _, v := range []string{"4", "6"} {
		if name := sets + "_ip" + v; r.has(name) {
			proto, load := loadAddress(side, v == "6")
			out = append(out, clause{map[string]string{"4": "ip ", "6": "ip6 "}[v] + side + " @" + name,
				append(proto, load, &expr.Lookup{SourceRegister: 1, SetName: name})})
		}
	}
	return out
}

// selectors returns the clauses that match each kind of selected process.
func (r *Ruleset) selectors() (out [][]clause) {
	if r.has("users") {
		out = append(out, []clause{byUser("users")})
	}
	for _, s := range r.sets {
		var level uint32
		if n, _ := fmt.Sscanf(s.name, "cgroups_%d", &level); n == 1 {
			out = append(out, []clause{{fmt.Sprintf("socket cgroupv2 level %d @%s", level, s.name),
				[]expr.Any{&expr.Socket{Key: expr.SocketKeyCgroupv2, Level: level, Register: 1},
					&expr.Lookup{SourceRegister: 1, SetName: s.name}}}})
		}
	}
	if out == nil {
		return [][]clause{nil}
	}
	return out
}

func (r *Ruleset) has(name string) bool {
	for _, s := range r.sets {
		if s.name == name {
			return true
		}
	}
	return false
}

func (r *Ruleset) userSet(name string, users []uint32) {
	s := set{name: name, typ: "uid", def: nftables.Set{KeyType: nftables.TypeUID, KeyByteOrder: binaryutil.NativeEndian}}
	for _, u := range users {
		s.elements, s.texts = append(s.elements, nftables.SetElement{Key: binaryutil.NativeEndian.PutUint32(u)}),
			append(s.texts, fmt.Sprint(u))
	}
	r.addSet(s)
}

func (r *Ruleset) portSet(name string, ports []uint16) {
	s := set{name: name, typ: "inet_service",
		def: nftables.Set{KeyType: nftables.TypeInetService, KeyByteOrder: binaryutil.BigEndian}}
	for _, p := range ports {
		s.elements, s.texts = append(s.elements, nftables.SetElement{Key: binaryutil.BigEndian.PutUint16(p)}),
			append(s.texts, fmt.Sprint(p))
	}
	r.addSet(s)
}

func (r *Ruleset) prefixSets(name string, list []netip.Prefix) {
	v4 := set{name: name + "_ip4", typ: "ipv4_addr", flags: "interval",
		def: nftables.Set{KeyType: nftables.TypeIPAddr, Interval: true, KeyByteOrder: binaryutil.BigEndian}}
	v6 := set{name: name + "_ip6", typ: "ipv6_addr", flags: "interval",
		def: nftables.Set{KeyType: nftables.TypeIP6Addr, Interval: true, KeyByteOrder: binaryutil.BigEndian}}
	for _, p := range list {
		s := &v4
		if p.Addr().Is6() {
			s = &v6
		}
		s.texts = append(s.texts, p.String())
		s.elements = append(s.elements, nftables.SetElement{Key: p.Addr().AsSlice()})
		if end := after(p); end.IsValid() {
			s.elements = append(s.elements, nftables.SetElement{Key: end.AsSlice(), IntervalEnd: true})
		}
	}
	r.addSet(v4)
	r.addSet(v6)
}

// after returns the first address after a prefix, or an invalid one if there is none.
func after(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	last, _ := netip.AddrFromSlice(b)
	return last.Next()
}

func (r *Ruleset) cgroupSets(paths []string, found []Cgroup) {
	levels := map[int]*set{}
	for _, p := range paths {
		if l := levelOf(p); levels[l] == nil {
			levels[l] = &set{name: cgroupSet(l), typ: "cgroupsv2",
				def: nftables.Set{KeyType: nftables.TypeCGroupV2, KeyByteOrder: binaryutil.NativeEndian}}
		}
	}
	for _, c := range found {
		if s := levels[levelOf(c.Path)]; s != nil && c.ID != 0 {
			s.elements = append(s.elements, nftables.SetElement{Key: cgroupKey(c.ID)})
			s.texts = append(s.texts, fmt.Sprintf("%q", c.Path))
		}
	}
	for l := 1; l <= maxDepth; l++ {
		if s := levels[l]; s != nil {
			r.sets = append(r.sets, *s)
		}
	}
}

func cgroupSet(level int) string { return fmt.Sprintf("cgroups_%d", level) }
func cgroupKey(id uint64) []byte { return binary.NativeEndian.AppendUint64(nil, id) }
func (r *Ruleset) addSet(s set) { // empty sets are not needed
	if len(s.texts) > 0 {
		r.sets = append(r.sets, s)
	}
}
func (c *chain) add(clauses ...clause) { c.rules = append(c.rules, clauses) }

// String returns the ruleset in the syntax of nft. It replaces an existing table.
func (r *Ruleset) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "table inet %[1]s\ndelete table inet %[1]s\ntable inet %[1]s {\n", Table)
	if r.timeouts {
		for _, v := range []struct{ name, l3 string }{{"dns4", "ip"}, {"dns6", "ip6"}} {
			fmt.Fprintf(&b, "\tct timeout %s {\n\t\tprotocol udp\n\t\tl3proto %s\n"+
				"\t\tpolicy = { unreplied : %d, replied : %[3]d }\n\t}\n\n", v.name, v.l3, udpEntryTime)
		}
	}
	for _, s := range r.sets {
		fmt.Fprintf(&b, "\tset %s {\n\t\ttype %s\n", s.name, s.typ)
		if s.flags != "" {
			fmt.Fprintf(&b, "\t\tflags %s\n", s.flags)
		}
		if len(s.texts) > 0 {
			fmt.Fprintf(&b, "\t\telements = { %s }\n", strings.Join(s.texts, ", "))
		}
		b.WriteString("\t}\n\n")
	}
	for i, c := range r.chains {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "\tchain %s {\n\t\ttype %s hook %s priority %s; policy accept;\n", c.name, c.typ, c.hook, c.prio)
		for _, rule := range c.rules {
			texts := make([]string, len(rule))
			for i, p := range rule {
				texts[i] = p.text
			}
			fmt.Fprintf(&b, "\t\t%s\n", strings.Join(texts, " "))
		}
		b.WriteString("\t}\n")
	}
	b.WriteString("}\n")
	return b.String()
}
