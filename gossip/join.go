package gossip

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"github.com/hashicorp/memberlist"
)

// Intervals of joining.
const (
	joinInterval     = 5 * time.Second        // between attempts to reach dead nodes
	isolatedInterval = time.Second            // the same while no other node is alive
	membersGrace     = 300 * time.Millisecond // after a membership change, in which differences are ignored once
	exchangePause    = 200 * time.Millisecond // between push/pulls
	resolveTimeout   = 3 * time.Second
)

// joinLoop joins the seeds, and then periodically retries dead nodes. Without this, two halves of a
// network partition would never merge again, because memberlist forgets dead nodes.
func (n *Node) joinLoop(ctx context.Context) {
	known, _ := n.deadAddrs()
	n.joinSeeds(some(known))
	n.joined.Store(true)
	n.wakeLoop()
	for {
		wait := joinInterval
		if n.isolated() {
			wait = isolatedInterval
		}
		wait = wait*3/4 + time.Duration(rand.Int64N(int64(wait)/2))
		select {
		case <-ctx.Done():
			return
		case addrs := <-n.rejoin:
			n.join(append(addrs[:min(len(addrs), maxJoin/2)], n.opt.Seeds()...))
			continue
		case <-time.After(wait):
		}
		dead, alive := n.deadAddrs()
		switch {
		case alive == 0:
			n.joinSeeds(some(dead))
		case rand.Float64() < float64(len(dead))/float64(alive):
			n.join([]string{dead[rand.IntN(len(dead))]})
			if seeds := n.opt.Seeds(); len(seeds) > 0 {
				n.join(seeds[rand.IntN(len(seeds)):][:1])
			}
		}
	}
}

// exchangeLoop runs the push/pulls requested by compareMembers.
func (n *Node) exchangeLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case peer := <-n.exchange:
			n.counters.exchanges.Add(1)
			if _, err := n.membership().Join([]string{peer}); err != nil {
				n.opt.Log.Debug("cannot compare members", "peer", peer, "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(exchangePause):
		}
	}
}

// membership returns the present memberlist.
func (n *Node) membership() *memberlist.Memberlist {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.list
}

// isolated reports whether no other node is alive.
func (n *Node) isolated() bool {
	_, alive := n.deadAddrs()
	return alive == 0
}

// deadAddrs returns the addresses of dead nodes to retry, and the number of live nodes.
func (n *Node) deadAddrs() (dead []string, alive int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, k := range n.roster {
		switch {
		case k.State == StateAlive:
			alive++
		case k.State == StateDead && time.Since(k.death) < rosterFor && k.Addr != n.addr && !n.left(k.Node):
			dead = append(dead, k.Addr.String())
		}
	}
	slices.Sort(dead)
	return dead, alive
}

// join contacts all addresses concurrently and returns the number of nodes that responded.
func (n *Node) join(addrs []string) int {
	ips, _ := n.targets(addrs)
	return n.contact(ips)()
}

// joinSeeds contacts known nodes and the seeds, and records whether this node is the only one of
// them. It does not wait for seeds that cannot be resolved or reached before it contacts the known
// nodes.
func (n *Node) joinSeeds(known []string) {
	wait := n.contact(known)
	ips, complete := n.targets(n.opt.Seeds())
	n.alone.Store(complete && len(ips) == 0)
	n.contact(ips)()
	wait()
}

// some returns a few addresses of a list, at random.
func some(addrs []string) []string {
	rand.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
	return addrs[:min(len(addrs), maxKnown)]
}

// Alone reports whether the seeds are known to be this node only. It is false before the first
// attempt to join, and if the name of a seed cannot be resolved.
func (n *Node) Alone() bool { return n.alone.Load() }

// targets returns the IP addresses (with ports) of other nodes, at most maxJoin, and whether all
// names could be resolved.
func (n *Node) targets(addrs []string) (ips []string, complete bool) {
	own := n.Addr().String()
	complete = true
	for _, a := range addrs {
		resolved := n.resolve(a)
		complete = complete && resolved != nil
		for _, ip := range resolved {
			if ip != own && len(ips) < maxJoin {
				ips = append(ips, ip)
			}
		}
	}
	return ips, complete
}

// contact joins IP addresses concurrently. The result waits for them, and returns the number of
// nodes that responded.
func (n *Node) contact(ips []string) (wait func() int) {
	done := make(chan int, len(ips))
	asked := 0
	for _, ip := range ips {
		n.mu.Lock()
		if n.closing {
			n.mu.Unlock()
			break
		}
		asked++
		n.wg.Go(func() {
			k, err := n.membership().Join([]string{ip})
			if k > 0 && !n.joined.Swap(true) {
				n.wakeLoop()
			}
			if err != nil {
				n.opt.Log.Debug("cannot reach node", "addr", ip, "error", err)
			}
			select {
			case done <- k:
			case <-n.stopped:
			}
		})
		n.mu.Unlock()
	}
	return func() (ok int) {
		for range asked {
			select {
			case k := <-done:
				ok += k
			case <-n.stopped:
				return ok
			}
		}
		return ok
	}
}

// Limits of joining.
const (
	maxJoin   = 16  // addresses contacted by one join
	maxKnown  = 3   // dead nodes contacted besides the seeds
	maxFaults = 256 // names whose fault is remembered
)

// resolve returns the IP addresses and port of a host:port, or nil after a fault. It logs a fault
// of a name once, until the name has another fault or none.
func (n *Node) resolve(addr string) []string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		if n.newFault(addr, err) {
			n.opt.Log.Warn("address to join is not host:port", "addr", addr)
		}
		return nil
	}
	if net.ParseIP(host) != nil {
		return []string{addr}
	}
	ctx, cancel := context.WithTimeout(context.Background(), resolveTimeout)
	defer cancel()
	ips, err := net.DefaultResolver.LookupHost(ctx, host)
	if changed := n.newFault(addr, err); err != nil {
		if changed {
			n.opt.Log.Warn("cannot resolve the name of a node to join; it is tried again", "host", host, "error", err)
		}
		return nil
	} else if changed {
		n.opt.Log.Info("the name of a node to join can be resolved again", "host", host)
	}
	out := []string{}
	for _, ip := range ips {
		out = append(out, net.JoinHostPort(ip, port))
	}
	return out
}

// newFault records the fault of an address to join, nil for none, and reports whether it is of
// another kind than before. The texts of errors differ each time, such as by a port.
func (n *Node) newFault(addr string, err error) bool {
	kind := "none"
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		kind = "not found"
	case err != nil:
		kind = "failed"
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	before, known := n.faults[addr]
	if n.faults == nil || len(n.faults) >= maxFaults {
		n.faults = map[string]string{}
	}
	n.faults[addr] = kind
	return before != kind && (known || err != nil)
}

// Join contacts addresses (host:port) and returns the number of nodes that responded.
func (n *Node) Join(addrs ...string) int {
	n.mu.Lock()
	running := n.list != nil
	n.mu.Unlock()
	if !running {
		return 0
	}
	return n.join(addrs)
}
