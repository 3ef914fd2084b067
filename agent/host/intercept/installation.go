package intercept

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/host/netsock"
	"github.com/nearside-mesh/nearside/agent/host/sockets"
	"github.com/nearside-mesh/nearside/dns/forward"
)

// errGone means that the network namespace no longer exists.
var errGone = errors.New("the network namespace no longer exists")

// installation is a namespace whose redirection is renewed.
type installation struct {
	k       *Renewer
	r       *Record
	n       *Namespace
	nft     *nftables.Conn
	cgroups []Cgroup
	// A connected socket to the resolver for each family.
	probes      [2]net.Conn
	loops       int // refreshes until the next check for a loop
	canaries    canaries
	redirecting []byte // the families that were redirected last
	sets        []*sockets.Set
	network     *netsock.Network
	origins     *forward.Origins
	// Families whose address was in use, by the resolver's own sockets or by another process.
	taken [2]bool
	open  func(i int, v6 bool) error // opens and serves the sockets of a family in the namespace
}

// run renews the redirection of one installation until ctx ends or an error occurs.
func (k *Renewer) run(ctx context.Context, r *Record, tick <-chan time.Time) error {
	n, err := r.open(k.o.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return errGone
	}
	if err != nil {
		return err
	}
	defer n.Close()
	if n.Inode != r.Inode {
		return fmt.Errorf("the record is for a different network namespace than the agent's; " +
			"run nearside intercept install --netns PATH with a path that the agent can open")
	}
	a := &installation{k: k, r: r, n: n}
	if a.nft, err = n.open(nftables.AsLasting()); err != nil {
		return err
	}
	defer func() { _ = a.nft.CloseLasting() }()
	if err := a.renewTable(); err != nil {
		return err
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	defer a.closeOrigins()
	defer wg.Wait()
	defer stop()
	switch {
	case r.Spec.DNSPort == 0:
	case k.o.Resolver == nil:
		return errors.New("the agent has no resolver; run nearside check for the reason")
	default:
		if err := a.listen(ctx, serving, &wg); err != nil {
			return err
		}
	}
	defer a.closeProbes()
	defer a.end(ctx)
	for {
		if err := a.refresh(ctx); err != nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick:
		}
		if n.gone() {
			if err := a.move(); err != nil {
				a.closeOrigins() // queries in flight fail immediately
				return err
			}
		}
	}
}

// open opens the namespace of the record. If the path no longer leads to it, it finds another one
// by a process in the namespace, for example after a container of a pod was restarted.
func (r *Record) open(dir string) (*Namespace, error) {
	n, err := OpenNamespace(r.Netns)
	if r.Netns == "" || err == nil && n.Inode == r.Inode || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return n, err
	}
	if err == nil {
		n.Close()
	}
	pid := processIn(r.Inode)
	if pid == 0 {
		return nil, errGone
	}
	if there, err := r.move(fmt.Sprintf("/proc/%d/ns/net", pid), dir); err != nil || !there {
		return nil, cmp.Or(err, errGone)
	}
	return OpenNamespace(r.Netns)
}

// move gives an open namespace, whose path no longer leads to it, another path.
func (a *installation) move() error {
	n, err := a.r.open(a.k.o.Dir)
	if err != nil {
		return err
	}
	defer n.Close()
	if n.Inode != a.n.Inode {
		return errGone
	}
	a.n.opened = n.opened // other goroutines read n.Path
	a.k.log.Info("a network namespace has another path", "netns", n.opened, "inode", n.Inode)
	return nil
}

// end ends the redirection before the resolver stops. If the sockets are held, it instead renews
// the redirection once more, so that the next agent has the full LiveTime to start.
func (a *installation) end(ctx context.Context) {
	var err error
	switch cause := context.Cause(ctx); {
	case len(a.redirecting) == 0 || errors.Is(cause, errReplaced):
		return
	case ctx.Err() != nil && !errors.Is(cause, errRemoved) && a.held():
		err = refresh(a.nft, a.redirecting)
	default:
		err = disarm(a.nft)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		a.k.log.Warn("cannot end the redirection of DNS immediately; it expires",
			"netns", a.r.Netns, "within", LiveTime, "error", err)
	}
}

// held reports whether all sockets that receive redirected queries are held during a restart.
func (a *installation) held() bool {
	if held := a.k.o.Held; a.shared() && (held == nil || !held()) {
		return false
	}
	for _, s := range a.sets {
		if !s.Held() {
			return false
		}
	}
	return true
}

// listen opens sockets for the resolver in the namespace, unless the agent's own sockets are
// there.
func (a *installation) listen(ctx, serving context.Context, wg *sync.WaitGroup) error {
	serve := func(what string, f func() error) {
		wg.Go(func() {
			if err := f(); err != nil {
				a.k.log.Warn("cannot serve DNS in a network namespace", "netns", a.r.Netns, "socket", what, "error", err)
			}
		})
	}
	var err error
	a.network, err = netsock.Open(netsock.Options{Name: a.n.Path, Do: a.n.Do, Mark: Mark, Zone: Zone})
	if err != nil {
		return a.n.explain(fmt.Errorf("interception of DNS: %w", err))
	}
	a.origins = a.k.o.Resolver.Origins(a.network)
	a.open = func(i int, v6 bool) error {
		at := loopback(v6, a.r.Spec.DNSPort)
		s, err := a.k.o.Sockets.Open(ctx, namespaceKey(a.n.Inode), at, 1)
		a.taken[i] = errors.Is(err, unix.EADDRINUSE)
		switch {
		case a.taken[i]: // answers checks whether it is this agent
			if a.n.Path == "" {
				a.k.o.Resolver.SetOrigins(a.origins)
			}
			return nil
		case err != nil && v6:
			return nil // the namespace has no IPv6
		case err != nil:
			return fmt.Errorf("interception of DNS: %w", err)
		}
		for _, c := range s.UDP {
			serve("udp "+at.String(), func() error { return a.k.o.Resolver.ServeUDPFrom(serving, c, a.origins) })
		}
		for _, l := range s.TCP {
			serve("tcp "+at.String(), func() error { return a.k.o.Resolver.ServeTCPFrom(serving, l, a.origins) })
		}
		wg.Go(func() { s.Hold(serving) })
		a.sets = append(a.sets, s)
		return nil
	}
	return a.n.Do(func() error { return errors.Join(a.open(0, false), a.open(1, true)) })
}

// shared reports whether sockets of the resolver itself, or of another process, are at an address.
func (a *installation) shared() bool { return a.taken[0] || a.taken[1] }

// reopen opens the sockets of a family if another process had their address until now, and reports
// whether it did. In its own namespace, the agent waits for the address itself.
func (a *installation) reopen(i int, v6 bool) bool {
	return a.taken[i] && a.n.Path != "" && a.n.Do(func() error { return a.open(i, v6) }) == nil && !a.taken[i]
}

// closeOrigins ends the queries to the servers of the namespace.
func (a *installation) closeOrigins() {
	if a.shared() && a.n.Path == "" {
		a.k.o.Resolver.SetOrigins(nil)
	}
	if a.origins != nil {
		a.origins.Close()
	}
	if a.network != nil {
		a.network.Close()
	}
}

// refresh renews the redirection of the families for which the resolver responds.
func (a *installation) refresh(ctx context.Context) error {
	if err := a.renewCgroups(); err != nil {
		return err
	}
	if a.r.Spec.DNSPort == 0 {
		t, err := a.n.tableOf(a.nft)
		if err == nil && t == nil {
			err = a.restore(nil)
		}
		if err == nil {
			a.k.set(a.r, StateTCPOnly, nil, "")
		}
		return err
	}
	var families []byte
	var names, reasons []string
	for i, v6 := range []bool{false, true} {
		err := a.answers(ctx, i, v6)
		if err != nil && a.reopen(i, v6) {
			err = a.answers(ctx, i, v6)
		}
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			reasons = append(reasons, err.Error())
			continue
		}
		families = append(families, [2]byte{unix.NFPROTO_IPV4, unix.NFPROTO_IPV6}[i])
		names = append(names, familyName(v6))
	}
	if err := refresh(a.nft, families); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return a.restore(families)
		}
		return a.n.explain(fmt.Errorf("renew the redirection of DNS: %w", err))
	}
	if len(families) > 0 {
		a.redirecting = families
	}
	if err := a.checkLoop(ctx, families); err != nil {
		return err
	}
	state := StateActive
	switch len(families) {
	case 0:
		state = StateWaiting
	case 1:
		state = StatePartly
	}
	lost := a.lost(ctx, names)
	if ctx.Err() != nil {
		return nil
	}
	if lost != "" {
		state, reasons = StateBroken, append(reasons, lost)
	}
	a.k.set(a.r, state, names, strings.Join(reasons, "; "))
	return nil
}

// answers returns nil if the resolver responds in the namespace.
func (a *installation) answers(ctx context.Context, i int, v6 bool) error {
	if a.probes[i] == nil {
		err := a.n.Do(func() (err error) {
			a.probes[i], err = net.Dial("udp", loopback(v6, a.r.Spec.DNSPort).String())
			return err
		})
		if err != nil {
			a.probes[i] = nil
			return fmt.Errorf("%s is not redirected: %w", familyName(v6), err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, canaryTime)
	defer cancel()
	if err := exchange(ctx, a.probes[i], false); err != nil {
		return fmt.Errorf("%s is not redirected: the agent's resolver does not respond on %s: %w",
			familyName(v6), loopback(v6, a.r.Spec.DNSPort), err)
	}
	return nil
}

func (a *installation) closeProbes() {
	for _, c := range a.probes {
		if c != nil {
			_ = c.Close()
		}
	}
}

// renewCgroups updates the sets after cgroups were created or recreated.
func (a *installation) renewCgroups() error {
	found, err := findCgroups(a.r.Spec.Cgroups)
	if err != nil {
		return err
	}
	if slices.Equal(found, a.cgroups) {
		return nil
	}
	if err := setCgroups(a.nft, a.r.Spec.Cgroups, found); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the table is missing; refresh reloads it
		}
		return a.n.explain(fmt.Errorf("renew the cgroups: %w", err))
	}
	a.cgroups = found
	a.k.log.Info("updated the cgroups of interception", "netns", a.r.Netns, "cgroups", fmt.Sprint(found))
	return nil
}

// renewTable reloads a table of an earlier version, whose chains have other priorities.
func (a *installation) renewTable() error {
	has, err := a.n.contentsOf(a.nft)
	if err != nil {
		return err
	}
	wanted := NewRuleset(&a.r.Spec, nil, false).chains
	if !slices.ContainsFunc(has.chains, func(k *nftables.Chain) bool {
		return slices.ContainsFunc(wanted, func(c chain) bool { return c.name == k.Name && !c.is(k) })
	}) {
		return nil
	}
	there, err := a.r.restore(a.n, a.k.o.Dir)
	if err == nil && there {
		a.k.log.Info("reloaded the rules of an earlier version", "netns", a.r.Netns)
	}
	return err
}

// restore reloads a table that another program deleted.
func (a *installation) restore(families []byte) error {
	there, err := a.r.restore(a.n, a.k.o.Dir)
	if err != nil || !there {
		return err
	}
	a.k.set(a.r, StateWaiting, nil, "the table inet "+Table+" was deleted by another program and is reloaded")
	a.cgroups = nil // the table has the cgroups of a moment ago
	return refresh(a.nft, families)
}
