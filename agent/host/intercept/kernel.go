package intercept

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

func nftTable() *nftables.Table {
	return &nftables.Table{Name: Table, Family: nftables.TableFamilyINet}
}

// open opens a connection to nftables in a namespace.
func (n *Namespace) open(opts ...nftables.ConnOption) (*nftables.Conn, error) {
	if n.Path != "" {
		opts = append(opts, nftables.WithNetNSFd(int(n.handle))) // requires a capability
	}
	c, err := nftables.New(opts...)
	if err != nil {
		return nil, n.explain(fmt.Errorf("connect to nftables in %s: %w", n, err))
	}
	return c, nil
}

// tableOf returns our table, or nil if it does not exist.
func (n *Namespace) tableOf(c *nftables.Conn) (*nftables.Table, error) {
	t, err := c.ListTableOfFamily(Table, nftables.TableFamilyINet)
	if errors.Is(err, fs.ErrNotExist) || err == nil && t == nil {
		return nil, nil
	}
	if err != nil {
		return nil, n.explain(fmt.Errorf("list the table inet %s: %w", Table, err))
	}
	return t, nil
}

// liveFamilies returns the families whose DNS is currently redirected, by NFPROTO.
func liveFamilies(c *nftables.Conn) ([]byte, error) {
	s, err := c.GetSetByName(nftTable(), liveSet)
	if err != nil {
		return nil, ignoreMissing(err)
	}
	list, err := c.GetSetElements(s)
	if err != nil {
		return nil, ignoreMissing(err)
	}
	var out []byte
	for _, e := range list {
		if len(e.Key) > 0 {
			out = append(out, e.Key[0])
		}
	}
	slices.Sort(out)
	return out, nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// load replaces the content of the table in one transaction. Chains and the set that the agent
// renews stay in place, so each packet meets either the old or the new rules of a chain.
func (r *Ruleset) load(n *Namespace) error {
	c, err := n.open()
	if err != nil {
		return err
	}
	has, err := n.contentsOf(c)
	if err != nil {
		return err
	}
	r.add(c, has)
	if err := c.Flush(); err != nil {
		return n.explain(fmt.Errorf("load the table inet %s: %w", Table, err))
	}
	return nil
}

// contents is the content of the table.
type contents struct {
	chains []*nftables.Chain
	sets   []*nftables.Set
	kept   map[string]bool // timeouts of conntrack
}

func (n *Namespace) contentsOf(c *nftables.Conn) (*contents, error) {
	t, err := n.tableOf(c)
	if t == nil || err != nil {
		return &contents{}, err
	}
	out := &contents{kept: map[string]bool{}}
	chains, err := c.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return nil, fmt.Errorf("list the chains of the table inet %s: %w", Table, err)
	}
	for _, x := range chains {
		if x.Table.Name == Table {
			out.chains = append(out.chains, x)
		}
	}
	if out.sets, err = c.GetSets(t); err != nil {
		return nil, fmt.Errorf("list the sets of the table inet %s: %w", Table, err)
	}
	objects, err := c.GetNamedObjects(t)
	if err != nil {
		return nil, fmt.Errorf("list the objects of the table inet %s: %w", Table, err)
	}
	for _, o := range objects {
		if named, ok := o.(*nftables.NamedObj); ok {
			out.kept[named.Name] = true
		}
	}
	return out, nil
}

// clear removes all rules, and everything that the ruleset does not have. It returns which of the
// ruleset's sets stay.
func (r *Ruleset) clear(c *nftables.Conn, has *contents) (stays string) {
	t := nftTable()
	for _, x := range has.chains {
		c.FlushChain(&nftables.Chain{Name: x.Name, Table: t})
	}
	for _, x := range has.chains {
		if !slices.ContainsFunc(r.chains, func(w chain) bool { return w.is(x) }) {
			c.DelChain(&nftables.Chain{Name: x.Name, Table: t})
		}
	}
	for _, s := range has.sets {
		if s.Name == liveSet && s.HasTimeout && r.has(liveSet) {
			stays = liveSet
		} else if !s.Anonymous {
			c.DelSet(&nftables.Set{Name: s.Name, Table: t})
		}
	}
	return stays
}

// is reports whether the kernel has the same chain.
func (x *chain) is(k *nftables.Chain) bool {
	return k.Name == x.name && k.Type == x.typ && k.Hooknum != nil && *k.Hooknum == *x.hooknum && k.Priority != nil &&
		*k.Priority == x.priority
}

// add adds the messages that load the ruleset to a transaction.
func (r *Ruleset) add(c *nftables.Conn, has *contents) {
	t := nftTable()
	c.AddTable(t)
	stays := r.clear(c, has)
	if r.timeouts {
		for _, v := range []struct {
			name string
			l3   uint16
		}{{"dns4", unix.NFPROTO_IPV4}, {"dns6", unix.NFPROTO_IPV6}} {
			if has.kept[v.name] {
				continue
			}
			c.AddObj(&nftables.NamedObj{Table: t, Name: v.name, Type: nftables.ObjTypeCtTimeout,
				Obj: &expr.CtTimeout{L3Proto: v.l3, L4Proto: unix.IPPROTO_UDP,
					Policy: expr.CtStatePolicyTimeout{expr.CtStateUDPUNREPLIED: udpEntryTime, expr.CtStateUDPREPLIED: udpEntryTime}}})
		}
	}
	for _, s := range r.sets {
		if s.name == stays {
			continue
		}
		def := s.def
		def.Table, def.Name = t, s.name
		_ = c.AddSet(&def, s.elements) // the arguments are always valid
	}
	for _, x := range r.chains {
		prio := x.priority
		accept := nftables.ChainPolicyAccept
		ch := c.AddChain(&nftables.Chain{Name: x.name, Table: t, Type: x.typ, Hooknum: x.hooknum, Priority: &prio,
			Policy: &accept})
		for _, clauses := range x.rules {
			var exprs []expr.Any
			for _, p := range clauses {
				exprs = append(exprs, p.exprs...)
			}
			c.AddRule(&nftables.Rule{Table: t, Chain: ch, Exprs: exprs})
		}
	}
}

func liveElements(families []byte) (out []nftables.SetElement) {
	for _, f := range families {
		out = append(out, nftables.SetElement{Key: []byte{f}, Timeout: LiveTime})
	}
	return out
}

// refresh redirects DNS of some families for another [LiveTime]. To extend the time of an
// element, it must be deleted and added.
func refresh(c *nftables.Conn, families []byte) error {
	s := &nftables.Set{Table: nftTable(), Name: liveSet, KeyType: nftables.TypeNFProto, HasTimeout: true}
	if len(families) == 0 {
		return nil
	}
	elements := liveElements(families)
	if err := errors.Join(c.SetAddElements(s, elements), c.SetDeleteElements(s, elements),
		c.SetAddElements(s, elements)); err != nil {
		return err
	}
	return c.Flush()
}

// disarm ends the redirection of DNS immediately.
func disarm(c *nftables.Conn) error {
	s := &nftables.Set{Table: nftTable(), Name: liveSet, KeyType: nftables.TypeNFProto, HasTimeout: true}
	both := liveElements([]byte{unix.NFPROTO_IPV4, unix.NFPROTO_IPV6})
	if err := errors.Join(c.SetAddElements(s, both), c.SetDeleteElements(s, both)); err != nil {
		return err
	}
	return ignoreMissing(c.Flush())
}

// packets returns the sum of the counters of a chain's rules.
func packets(c *nftables.Conn, chain string) (uint64, error) {
	rules, err := c.GetRules(nftTable(), &nftables.Chain{Name: chain, Table: nftTable()})
	if err != nil {
		return 0, err
	}
	var n uint64
	for _, r := range rules {
		for _, e := range r.Exprs {
			if x, ok := e.(*expr.Counter); ok {
				n += x.Packets
			}
		}
	}
	return n, nil
}

// setCgroups sets the elements of the cgroup sets in one transaction.
func setCgroups(c *nftables.Conn, paths []string, found []Cgroup) error {
	r := &Ruleset{}
	r.cgroupSets(paths, found)
	for _, s := range r.sets {
		def := s.def
		def.Table, def.Name = nftTable(), s.name
		c.FlushSet(&def)
		if len(s.elements) > 0 {
			if err := c.SetAddElements(&def, s.elements); err != nil {
				return err
			}
		}
	}
	return c.Flush()
}

// unload deletes the table, and reports whether it existed.
func unload(n *Namespace) (bool, error) {
	c, err := n.open()
	if err != nil {
		return false, err
	}
	t, err := n.tableOf(c)
	if t == nil || err != nil {
		return false, err
	}
	c.DelTable(t)
	if err := c.Flush(); err != nil {
		return false, n.explain(fmt.Errorf("delete the table inet %s: %w", Table, err))
	}
	return true, nil
}

// feature is a kernel feature that may be missing.
type feature struct {
	name, remedy string
	needed       func(*Spec) bool
	try          func(*nftables.Conn, *nftables.Table)
}

func features() []feature {
	natChain := func(c *nftables.Conn, t *nftables.Table) *nftables.Chain {
		return c.AddChain(&nftables.Chain{Name: "x", Table: t, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookOutput,
			Priority: nftables.ChainPriorityNATDest})
	}
	filterChain := func(c *nftables.Conn, t *nftables.Table) *nftables.Chain {
		return c.AddChain(&nftables.Chain{Name: "x", Table: t, Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityRaw})
	}
	rule := func(c *nftables.Conn, ch *nftables.Chain, clauses ...clause) {
		var exprs []expr.Any
		for _, p := range clauses {
			exprs = append(exprs, p.exprs...)
		}
		c.AddRule(&nftables.Rule{Table: ch.Table, Chain: ch, Exprs: exprs})
	}
	always, withDNS := func(*Spec) bool { return true }, func(s *Spec) bool { return s.DNSPort != 0 }
	return []feature{
		{"nftables", "load the module nf_tables (CONFIG_NF_TABLES and CONFIG_NF_TABLES_INET)",
			always, func(*nftables.Conn, *nftables.Table) {}},
		{"NAT in tables of the family inet", "use Linux 5.2 or newer with the module nft_chain_nat (CONFIG_NFT_NAT)",
			always, func(c *nftables.Conn, t *nftables.Table) { natChain(c, t) }},
		{"redirection", "load the module nft_redir (CONFIG_NFT_REDIR)", always, func(c *nftables.Conn, t *nftables.Table) {
			rule(c, natChain(c, t), l4proto(unix.IPPROTO_TCP), redirect(1))
		}},
		{"sets with timeouts", "load the module nf_tables of Linux 4.1 or newer", withDNS, func(c *nftables.Conn,
			t *nftables.Table) {
			_ = c.AddSet(&nftables.Set{Table: t, Name: "x", KeyType: nftables.TypeNFProto, HasTimeout: true},
				liveElements([]byte{unix.NFPROTO_IPV4}))
		}},
		{"conntrack zones", "load the module nft_ct (CONFIG_NFT_CT) of a kernel with CONFIG_NF_CONNTRACK_ZONES",
			withDNS, func(c *nftables.Conn, t *nftables.Table) {
				rule(c, filterChain(c, t), setZone())
			}},
		{"matching sockets by cgroup", "use Linux 5.13 or newer with the module nft_socket (CONFIG_NFT_SOCKET), " +
			"or use --user", func(s *Spec) bool { return len(s.Cgroups) > 0 },
			func(c *nftables.Conn, t *nftables.Table) {
				rule(c, filterChain(c, t), clause{"", []expr.Any{&expr.Socket{Key: expr.SocketKeyCgroupv2, Level: 1, Register: 1}}})
			}},
	}
}

// MissingError means that the kernel lacks a feature.
type MissingError struct {
	err    error
	what   string
	remedy string
}

func (e *MissingError) Error() string { return fmt.Sprintf("the kernel lacks %s: %v", e.what, e.err) }
func (e *MissingError) Unwrap() error { return e.err }

// Hint returns the remedy.
func (e *MissingError) Hint() string { return e.remedy }

// probe returns an error if the kernel lacks a feature that the spec needs. Each test is a
// transaction that is rolled back.
func probe(n *Namespace, s *Spec) error {
	for _, f := range features() {
		if !f.needed(s) {
			continue
		}
		if err := f.tryIn(n); err != nil {
			var needs *NeedsError
			if errors.As(err, &needs) {
				return err
			}
			return &MissingError{err, f.name, f.remedy}
		}
	}
	return nil
}

func (f *feature) tryIn(n *Namespace) error {
	c, err := n.open()
	if err != nil {
		return err
	}
	t := &nftables.Table{Name: fmt.Sprintf("%s_probe_%d", Table, time.Now().UnixNano()), Family: nftables.TableFamilyINet}
	c.AddTable(t)
	f.try(c, t)
	c.DelTable(t)
	return n.explain(c.Flush())
}
