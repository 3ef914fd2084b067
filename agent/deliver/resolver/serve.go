package resolver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"syscall"

	"github.com/nearside-mesh/nearside/agent/host/sockets"
)

// Open opens the sockets. Where the address is the default and cannot be opened, the resolver is
// off, and says why.
func (r *Resolver) Open(ctx context.Context) error {
	defer func() { // also where there is no resolver any more
		if err := r.o.Sockets.ReleaseUnused(); err != nil {
			r.o.Log.Warn("sockets of addresses that dns.listen had before are still held", "error", err)
		}
	}()
	if len(r.addrs) == 0 {
		return nil
	}
	now := &state{}
	addrs := r.addrs
	for i, a := range addrs {
		if i > 0 && a.Port() == 0 {
			a = netip.AddrPortFrom(a.Addr(), r.sets[0].Addr().Port())
		}
		set, err := r.o.Sockets.Open(ctx, sockets.Here, a, min(runtime.GOMAXPROCS(0), maxSockets))
		switch {
		case err == nil:
			r.sets = append(r.sets, set)
			now.listen = append(now.listen, set.Addr().String())
			continue
		case i > 0 && (errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)):
			r.o.Log.Warn("the host has no IPv6 for the resolver", "address", a, "error", err)
			continue
		}
		r.Close()
		err = refused(a, err)
		if r.o.Config.DNS.Given {
			return err
		}
		r.o.Log.Warn("there is no resolver", "error", err)
		r.state.Store(&state{reason: err.Error()})
		return nil
	}
	r.state.Store(now)
	return nil
}

// refused says why an address cannot be opened, and what to do.
func refused(a netip.AddrPort, err error) error {
	why, hint := err.Error(), "set dns.listen to another address, or to \"\" for no resolver"
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		why, hint = "another process listens there",
			fmt.Sprintf("find it with \"ss -lntup 'sport = :%d'\" and stop it, or %s", a.Port(), hint)
	case errors.Is(err, syscall.EACCES):
		why, hint = "permission denied",
			"a port below 1024 takes the capability CAP_NET_BIND_SERVICE; give it to the agent, or "+hint
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		why = "no interface of the host has the address"
	}
	return fmt.Errorf("dns.listen: %s cannot be opened: %s; %s", a, why, hint)
}

// ServeUDP answers on another socket while Run runs, until ctx ends.
func (r *Resolver) ServeUDP(ctx context.Context, c *net.UDPConn) error {
	r.awaitForwarder(ctx)
	return r.server.ServeUDP(ctx, c)
}

// awaitForwarder waits until queries that are to be sent on can be: they may have waited for the
// agent.
func (r *Resolver) awaitForwarder(ctx context.Context) {
	if r.forward == nil {
		return
	}
	select {
	case <-r.forward.Started():
	case <-ctx.Done():
	}
}

// ServeTCP answers on another listener while Run runs, until ctx ends.
func (r *Resolver) ServeTCP(ctx context.Context, l net.Listener) error {
	r.awaitForwarder(ctx)
	return r.server.ServeTCP(ctx, l)
}

// Close closes the sockets. It is for an agent that does not come to Run.
func (r *Resolver) Close() {
	for _, s := range r.sets {
		_ = s.Close()
	}
	r.sets = nil
}

// Held asks whether who asks while the agent restarts waits for the next one: somebody holds all
// sockets.
func (r *Resolver) Held() bool {
	for _, s := range r.sets {
		if !s.Held() {
			return false
		}
	}
	return len(r.sets) > 0
}

// holder says who holds the sockets; "" for nobody.
func (r *Resolver) holder() string {
	var by []string
	for _, s := range r.sets {
		who := s.By()
		if who == "" {
			return ""
		}
		by = append(by, who)
	}
	return strings.Join(unique(by), " and ")
}

// ended notes that a socket is gone before its time.
func (r *Resolver) ended(err error) {
	if err == nil {
		return
	}
	r.o.Log.Error("a socket of the resolver is gone; restart the agent", "error", err)
	next := *r.state.Load()
	next.failed = err.Error()
	r.state.Store(&next)
}

// follow makes tables until ctx ends.
func (r *Resolver) follow(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.changed:
			r.Update()
		}
	}
}
