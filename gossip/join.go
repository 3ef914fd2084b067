package gossip

import (
	"context"
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
	n.join(n.opt.Seeds())
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

// maxJoin limits the addresses contacted by one join.
const maxJoin = 16

// resolve returns the IP addresses and port of a host:port.
func (n *Node) resolve(addr string) []string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		n.opt.Log.Warn("address to join is not host:port", "addr", addr)
		return nil
	}
	if net.ParseIP(host) != nil {
		return []string{addr}
	}
	ctx, cancel := context.WithTimeout(context.Background(), resolveTimeout)
	defer cancel()
	ips, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		n.opt.Log.Warn("cannot resolve the name of a node to join", "host", host, "error", err)
		return nil
	}
	var out []string
	for _, ip := range ips {
		out = append(out, net.JoinHostPort(ip, port))
	}
	return out
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
