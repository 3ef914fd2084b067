package gossip

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/hashicorp/memberlist"
)

// startProbes starts goroutines that send probes. Their results are events of the loop.
func (n *Node) startProbes(ctx context.Context, list []probe) {
	for _, p := range list {
		n.wg.Go(func() {
			select {
			case n.probeSlots <- struct{}{}:
			case <-ctx.Done():
				return
			}
			alive := n.probe(ctx, p.target)
			<-n.probeSlots
			select {
			case n.probed <- probed{p, alive}:
			case <-ctx.Done():
			}
		})
	}
}

// probe reports whether a member responds over UDP or over a stream.
func (n *Node) probe(ctx context.Context, m memberEvent) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	n.mu.Lock()
	list, socket, stopped := n.list, n.carrier, n.closing
	n.mu.Unlock()
	if stopped {
		return false
	}
	answers := make(chan bool, 2)
	n.wg.Go(func() {
		if m.meta.signature != "" { // a response proves no key
			answers <- false
			return
		}
		_, err := list.Ping(m.name, net.UDPAddrFromAddrPort(m.addr))
		answers <- err == nil
	})
	n.wg.Go(func() {
		c, err := socket.DialAddressTimeout(memberlist.Address{Addr: m.addr.String()}, probeTime)
		if err == nil {
			_ = c.Close()
		}
		if errors.Is(err, syscall.ECONNREFUSED) { // no process listens there, so UDP has no reader either
			select {
			case <-time.After(refusedTime):
			case <-ctx.Done():
			}
			cancel()
		}
		answers <- err == nil && m.meta.features&FeatureProbe != 0 && n.askAlive(ctx, m)
	})
	for range 2 {
		select {
		case alive := <-answers:
			if alive {
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
	return false
}
