package intercept

import (
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

	"github.com/nearside-mesh/nearside/agent/host/sockets"
)

// loopEvery is after how many refreshes it is looked whether the agent's own queries come back to
// it.
const loopEvery = 30

// errGone says that a namespace has ended.
var errGone = errors.New("the network namespace is gone")

// attended is one namespace whose DNS is kept redirected.
type attended struct {
	k    *Keeper
	r    *Record
	n    *Namespace
	nft  *nftables.Conn
	seen []Cgroup
	// One connected socket for each family, to the resolver itself.
	probes [2]net.Conn
	loops  int    // refreshes until the next look for a loop
	armed  []byte // the families whose DNS was redirected last
	sets   []*sockets.Set
	shared bool // the resolver's own sockets are of this namespace
}

// attend keeps one installation alive until ctx ends, or until something fails.
func (k *Keeper) attend(ctx context.Context, r *Record, tick <-chan time.Time) error {
	n, err := OpenNamespace(r.Netns)
	if errors.Is(err, fs.ErrNotExist) {
		return errGone
	}
	if err != nil {
		return err
	}
	defer n.Close()
	if n.Inode != r.Inode {
		if r.Netns != "" {
			return errGone
		}
		return fmt.Errorf("the record is for another network namespace than that of the agent; " +
			"run nearside intercept install --netns PATH, with a path that the agent can open")
	}
	a := &attended{k: k, r: r, n: n}
	if a.nft, err = n.open(nftables.AsLasting()); err != nil {
		return err
	}
	defer func() { _ = a.nft.CloseLasting() }()
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	switch {
	case r.Spec.DNSPort == 0:
	case k.o.Resolver == nil:
		return errors.New("the agent has no resolver that names could be redirected to; nearside check says why")
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
			return errGone
		}
	}
}

// end ends the redirection, before the resolver ends. Where the sockets are held it is left to the
// next agent, with all the time that there is.
func (a *attended) end(ctx context.Context) {
	var err error
	switch cause := context.Cause(ctx); {
	case len(a.armed) == 0 || errors.Is(cause, errReplaced):
		return
	case ctx.Err() != nil && !errors.Is(cause, errRemoved) && a.held():
		err = refresh(a.nft, a.armed)
	default:
		err = disarm(a.nft)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		a.k.log.Warn("the redirection of DNS was not ended at once; it ends by itself",
			"netns", a.r.Netns, "within", LiveTime, "error", err)
	}
}

// held asks whether all sockets that names are redirected to are held over a restart.
func (a *attended) held() bool {
	if stay := a.k.o.Stay; a.shared && (stay == nil || !stay()) {
		return false
	}
	for _, s := range a.sets {
		if !s.Held() {
			return false
		}
	}
	return true
}

// listen opens sockets for the resolver in the namespace, where nobody has done so: the agent's own
// are of its own namespace.
func (a *attended) listen(ctx, serving context.Context, wg *sync.WaitGroup) error {
	serve := func(what string, f func() error) {
		wg.Go(func() {
			if err := f(); err != nil {
				a.k.log.Warn("DNS is not served in a network namespace", "netns", a.r.Netns, "socket", what, "error", err)
			}
		})
	}
	return a.n.Do(func() error {
		for _, v6 := range []bool{false, true} {
			at := loopback(v6, a.r.Spec.DNSPort)
			s, err := a.k.o.Sockets.Open(ctx, place(a.n.Inode), at, 1)
			switch {
			case errors.Is(err, unix.EADDRINUSE): // the canary tells whether it is us
				a.shared = true
			case err != nil && v6:
				continue // there is no IPv6
			case err != nil:
				return fmt.Errorf("interception of DNS: %w", err)
			default:
				for _, c := range s.UDP {
					serve("udp "+at.String(), func() error { return a.k.o.Resolver.ServeUDP(serving, c) })
				}
				for _, l := range s.TCP {
					serve("tcp "+at.String(), func() error { return a.k.o.Resolver.ServeTCP(serving, l) })
				}
				wg.Go(func() { s.Keep(serving) })
				a.sets = append(a.sets, s)
			}
		}
		return nil
	})
}

// refresh renews the redirection of the families whose resolver answers.
func (a *attended) refresh(ctx context.Context) error {
	if err := a.renewCgroups(); err != nil {
		return err
	}
	if a.r.Spec.DNSPort == 0 {
		t, err := tableOf(a.nft)
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
		if err := a.answers(ctx, i, v6); err != nil {
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
		return explain(fmt.Errorf("renew the redirection of DNS: %w", err), unix.CAP_NET_ADMIN)
	}
	if len(families) > 0 {
		a.armed = families
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
	a.k.set(a.r, state, names, strings.Join(reasons, "; "))
	return nil
}

// answers reports whether the resolver answers in the namespace.
func (a *attended) answers(ctx context.Context, i int, v6 bool) error {
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
		return fmt.Errorf("%s is not redirected: no resolver of this agent answers on %s: %w",
			familyName(v6), loopback(v6, a.r.Spec.DNSPort), err)
	}
	return nil
}

func (a *attended) closeProbes() {
	for _, c := range a.probes {
		if c != nil {
			_ = c.Close()
		}
	}
}

// checkLoop sees to it that queries with the agent's mark are not redirected: they would come back
// to the agent for ever. They pass all rulesets before they are sent, and one that is led astray is
// counted and stopped.
func (a *attended) checkLoop(ctx context.Context, families []byte) error {
	if len(families) == 0 {
		return nil
	}
	if a.loops--; a.loops > 0 {
		return nil
	}
	a.loops = loopEvery
	before, err := packets(a.nft, loopChain)
	if err != nil {
		return fmt.Errorf("read the counters of the chain %s: %w", loopChain, err)
	}
	if err := a.n.Do(func() error {
		for _, f := range families {
			if err := sendMarked(ctx, f == unix.NFPROTO_IPV6); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	if after, err := packets(a.nft, loopChain); err != nil || after == before {
		return err
	}
	return fmt.Errorf("the agent's own queries come back to it: another ruleset redirects port 53 to the port %d "+
		"although they have the mark %#x; look for it in nft list ruleset", a.r.Spec.DNSPort, Mark)
}

// renewCgroups follows cgroups that were made anew, or made at last.
func (a *attended) renewCgroups() error {
	found, err := findCgroups(a.r.Spec.Cgroups)
	if err != nil {
		return err
	}
	if slices.Equal(found, a.seen) {
		return nil
	}
	if err := setCgroups(a.nft, a.r.Spec.Cgroups, found); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // refresh sees it
		}
		return explain(fmt.Errorf("renew the cgroups: %w", err), unix.CAP_NET_ADMIN)
	}
	a.seen = found
	a.k.log.Info("the cgroups of interception were renewed", "netns", a.r.Netns, "cgroups", fmt.Sprint(found))
	return nil
}

// restore loads the table that somebody has deleted.
func (a *attended) restore(families []byte) error {
	there, err := a.r.restore(a.n, a.k.o.Dir)
	if err != nil || !there {
		return err
	}
	a.k.set(a.r, StateWaiting, nil, "the table inet "+Table+" was deleted by another program; it is loaded again")
	a.seen = nil // the table has those that exist now, or a moment ago
	return refresh(a.nft, families)
}
