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
	"time"

	"github.com/nearside-mesh/nearside/agent/host/sockets"
	"github.com/nearside-mesh/nearside/dns/forward"
)

// Open opens the sockets. If opening the default address fails, the resolver is off, and its
// state has the reason. For a configured address, Open returns the error.
func (r *Resolver) Open(ctx context.Context) error {
	defer func() { // even if the resolver is off
		if err := r.o.Sockets.ReleaseUnused(); err != nil {
			r.o.Log.Warn("sockets of earlier dns.listen addresses are still held", "error", err)
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
			r.o.Log.Warn("the resolver does not listen on IPv6", "address", a, "error", err)
			continue
		}
		r.Close()
		err = refused(a, err)
		if r.o.Config.DNS.Given {
			return err
		}
		r.o.Log.Warn("the resolver is off", "error", err)
		r.state.Store(&state{reason: err.Error()})
		return nil
	}
	r.state.Store(now)
	return nil
}

// refused returns an error with the reason why an address cannot be opened, and what to do.
func refused(a netip.AddrPort, err error) error {
	why, hint := err.Error(), "set dns.listen to another address, or to \"\" to disable the resolver"
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		why, hint = "another process listens on it",
			fmt.Sprintf("find it with \"ss -lntup 'sport = :%d'\" and stop it, or %s", a.Port(), hint)
	case errors.Is(err, syscall.EACCES):
		why, hint = "permission denied",
			"ports below 1024 require the capability CAP_NET_BIND_SERVICE; add it to the agent, or "+hint
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		why = "no interface of this host has the address"
	}
	return fmt.Errorf("dns.listen: %s cannot be opened: %s; %s", a, why, hint)
}

// Origins implements intercept.Resolver.
func (r *Resolver) Origins(n forward.Network) *forward.Origins { return r.server.Origins(n) }

// SetOrigins implements intercept.Resolver.
func (r *Resolver) SetOrigins(o *forward.Origins) { r.server.SetOrigins(o) }

// ServeUDPFrom serves another socket until ctx ends. Run must be running.
func (r *Resolver) ServeUDPFrom(ctx context.Context, c *net.UDPConn, o *forward.Origins) error {
	r.awaitForwarder(ctx)
	return r.server.ServeUDPFrom(ctx, c, o)
}

// awaitForwarder waits until queries can be forwarded. Some may be queued since before the agent
// started.
func (r *Resolver) awaitForwarder(ctx context.Context) {
	if r.forward == nil {
		return
	}
	select {
	case <-r.forward.Started():
	case <-ctx.Done():
	}
}

// ServeTCPFrom serves another listener until ctx ends. Run must be running.
func (r *Resolver) ServeTCPFrom(ctx context.Context, l net.Listener, o *forward.Origins) error {
	r.awaitForwarder(ctx)
	return r.server.ServeTCPFrom(ctx, l, o)
}

// Close closes the sockets. Call it only if Run is not called.
func (r *Resolver) Close() {
	for _, s := range r.sets {
		_ = s.Close()
	}
	r.sets = nil
}

// Held reports whether another process holds all sockets, so that queries during a restart wait
// for the next agent.
func (r *Resolver) Held() bool {
	for _, s := range r.sets {
		if !s.Held() {
			return false
		}
	}
	return len(r.sets) > 0
}

// holder returns the names of the processes that hold the sockets, or "" if a socket has none.
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

// ended records that a socket failed.
func (r *Resolver) ended(err error) {
	if err == nil {
		return
	}
	r.o.Log.Error("a socket of the resolver failed; restart the agent", "error", err)
	next := *r.state.Load()
	next.failed = err.Error()
	r.state.Store(&next)
}

// follow updates the table until ctx ends.
func (r *Resolver) follow(ctx context.Context) {
	due := time.NewTimer(r.untilKnown())
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.changed:
			r.Update()
		case <-due.C:
			r.Update()
			if wait := r.untilKnown(); wait > 0 {
				due.Reset(wait)
			}
		}
	}
}

// untilKnown returns the time until the views of workloads whose Envoys have not returned end, or
// 0 if there are none.
func (r *Resolver) untilKnown() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.views.expire(r.o.Now())
}
