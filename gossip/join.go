package gossip

import (
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"time"
)

// Figures of joining.
const (
	joinInterval   = 5 * time.Second        // between tries to reach nodes that are away
	aloneInterval  = time.Second            // the same while no other node is there
	membersSettle  = 300 * time.Millisecond // after a change of members, in which a difference may settle by itself
	exchangePause  = 200 * time.Millisecond // between push/pulls because of differences
	resolveTimeout = 3 * time.Second
)

// joinLoop joins the seeds, and afterwards tries nodes that are away: memberlist forgets the dead,
// and two halves of a cut would never meet again.
func (n *Node) joinLoop(ctx context.Context) {
	n.join(n.opt.Seeds())
	for {
		wait := joinInterval
		if n.alone() {
			wait = aloneInterval
		}
		wait = wait*3/4 + time.Duration(rand.Int64N(int64(wait)/2))
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		dead, alive := n.away()
		switch {
		case alive == 0:
			n.join(n.opt.Seeds())
			fallthrough
		case len(dead) > 0 && rand.Float64() < float64(len(dead))/float64(alive):
			if len(dead) > 0 {
				n.join([]string{dead[rand.IntN(len(dead))]})
			}
			if seeds := n.opt.Seeds(); alive > 0 && len(seeds) > 0 && len(dead) > 0 {
				n.join(seeds[rand.IntN(len(seeds)):][:1])
			}
		}
	}
}

// exchangeLoop does the push/pulls that differences of members ask for.
func (n *Node) exchangeLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case peer := <-n.exchange:
			n.counters.exchanges.Add(1)
			if _, err := n.list.Join([]string{peer}); err != nil {
				n.opt.Log.Debug("members could not be compared", "peer", peer, "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(exchangePause):
		}
	}
}

// alone reports whether no other node is up.
func (n *Node) alone() bool {
	_, alive := n.away()
	return alive == 0
}

// away returns the addresses of nodes that are dead and not given up, and how many are alive.
func (n *Node) away() (dead []string, alive int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, k := range n.roster {
		switch {
		case k.State == StateAlive:
			alive++
		case k.State == StateDead && time.Since(k.Since) < rosterFor && k.Addr != n.addr && !n.left(k.Node):
			dead = append(dead, k.Addr.String())
		}
	}
	slices.Sort(dead)
	return dead, alive
}

// join contacts addresses, all at once, and reports how many have answered.
func (n *Node) join(addrs []string) int {
	done := make(chan int, len(addrs))
	own := n.Addr().String()
	asked := 0
	for _, a := range addrs {
		for _, ip := range n.resolve(a) {
			if ip == own || asked >= maxJoin {
				continue
			}
			n.mu.Lock()
			if n.closing {
				n.mu.Unlock()
				continue
			}
			asked++
			n.wg.Go(func() {
				k, err := n.list.Join([]string{ip})
				if err != nil {
					n.opt.Log.Debug("a node could not be reached", "addr", ip, "error", err)
				}
				select {
				case done <- k:
				case <-n.stopped:
				}
			})
			n.mu.Unlock()
		}
	}
	ok := 0
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

// maxJoin bounds the addresses that are contacted at once.
const maxJoin = 16

// resolve returns the addresses behind a host name and port.
func (n *Node) resolve(addr string) []string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		n.opt.Log.Warn("an address to join is no host:port", "addr", addr)
		return nil
	}
	if net.ParseIP(host) != nil {
		return []string{addr}
	}
	ctx, cancel := context.WithTimeout(context.Background(), resolveTimeout)
	defer cancel()
	ips, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		n.opt.Log.Warn("the name of a node to join is not resolved", "host", host, "error", err)
		return nil
	}
	var out []string
	for _, ip := range ips {
		out = append(out, net.JoinHostPort(ip, port))
	}
	return out
}

// Join contacts addresses (host:port) and returns how many have answered.
func (n *Node) Join(addrs ...string) int {
	n.mu.Lock()
	running := n.list != nil
	n.mu.Unlock()
	if !running {
		return 0
	}
	return n.join(addrs)
}
