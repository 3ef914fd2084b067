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

// How an address in use is tried again.
const (
	reopenEvery = time.Second
	// heldTime is how long Open waits for the holder of an earlier agent, which closes its sockets
	// 20 s after that agent has ended.
	heldTime = 25 * time.Second
	// nameEvery is the number of attempts after which the process that has the address is
	// determined again.
	nameEvery = 10
)

// Open opens the sockets. If opening the default address fails, the resolver is off, and its
// state has the reason; Run tries again if the address is in use. For a configured address, Open
// waits until the holder of an earlier agent closes its sockets, or returns the error.
func (r *Resolver) Open(ctx context.Context) error {
	if len(r.addrs) == 0 {
		r.releaseUnused() // even if the resolver is off
		return nil
	}
	late := time.Now().Add(heldTime)
	for waits := false; ; waits = true {
		err := r.open(ctx)
		if err == nil {
			return nil
		}
		err = r.refused(err)
		if !r.o.Config.DNS.Given {
			r.taken = errors.Is(err, syscall.EADDRINUSE)
			r.o.Log.Warn("the resolver is off", "error", err)
			return nil
		}
		if held := new(refusal); !errors.As(err, &held) || !held.held || time.Now().After(late) {
			return err
		}
		if !waits {
			r.o.Log.Warn("the resolver waits for its address", "error", err)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(reopenEvery):
		}
	}
}

// reopen opens the sockets as soon as their address is free. It returns false if ctx ends.
func (r *Resolver) reopen(ctx context.Context) bool {
	tick := time.NewTicker(reopenEvery)
	defer tick.Stop()
	for try := 1; ; try++ {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
		err := r.open(ctx)
		if err == nil {
			r.o.Log.Info("the resolver listens, because its address is free now", "addresses", r.state.Load().listen)
			return true
		}
		if try%nameEvery == 0 {
			_ = r.refused(err)
		}
	}
}

func (r *Resolver) releaseUnused() {
	if err := r.o.Sockets.ReleaseUnused(); err != nil {
		r.o.Log.Warn("sockets of earlier dns.listen addresses are still held", "error", err)
	}
}

// notOpened reports the address that could not be opened.
type notOpened struct {
	at    netip.AddrPort
	cause error
}

func (e *notOpened) Error() string { return e.cause.Error() }
func (e *notOpened) Unwrap() error { return e.cause }

// open opens the sockets of all addresses, or none and returns a notOpened.
func (r *Resolver) open(ctx context.Context) error {
	defer r.releaseUnused()
	now := &state{}
	var sets []*sockets.Set
	for i, a := range r.addrs {
		if i > 0 && a.Port() == 0 {
			a = netip.AddrPortFrom(a.Addr(), sets[0].Addr().Port())
		}
		set, err := r.o.Sockets.Open(ctx, sockets.Here, a, min(runtime.GOMAXPROCS(0), maxSockets))
		switch {
		case err == nil:
			sets = append(sets, set)
			now.listen = append(now.listen, set.Addr().String())
			continue
		case i > 0 && (errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)):
			r.o.Log.Warn("the resolver does not listen on IPv6", "address", a, "error", err)
			continue
		}
		for _, s := range sets {
			_ = s.Close()
		}
		return &notOpened{a, err}
	}
	r.state.Store(now)
	r.sets.Store(&sets)
	return nil
}

// opened returns the sockets.
func (r *Resolver) opened() []*sockets.Set {
	if sets := r.sets.Load(); sets != nil {
		return *sets
	}
	return nil
}

// Serves reports whether the resolver listens, or will as soon as its address is free.
func (r *Resolver) Serves() bool { return r.taken || r.sets.Load() != nil }

// refusal is why an address cannot be opened, with a remedy.
type refusal struct {
	text  string
	cause error
	held  bool // only by a holder
}

func (e *refusal) Error() string { return e.text }
func (e *refusal) Unwrap() error { return e.cause }

// refused returns an error with the reason why an address cannot be opened, and what to do. The
// state gets the reason.
func (r *Resolver) refused(err error) error {
	failed := &notOpened{cause: err}
	errors.As(err, &failed)
	a, out := failed.at, &refusal{cause: err}
	why, hint := err.Error(), "set dns.listen to another address, or to \"\" to disable the resolver"
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		by := sockets.OtherHolder(a)
		if out.held = by != ""; out.held {
			why, hint = by+" holds it for another agent or an earlier one",
				"it closes the socket 20 s after that agent has ended; stop that agent, or "+hint
			break
		}
		why, hint = "another process listens on it",
			fmt.Sprintf("find it with \"ss -lntup 'sport = :%d'\" and stop it, or %s", a.Port(), hint)
	case errors.Is(err, syscall.EACCES):
		why, hint = "permission denied",
			"ports below 1024 require the capability CAP_NET_BIND_SERVICE; add it to the agent, or "+hint
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		why = "no interface of this host has the address"
	}
	out.text = fmt.Sprintf("dns.listen: %s cannot be opened: %s; %s", a, why, hint)
	r.state.Store(&state{reason: out.text})
	return out
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
	for _, s := range r.opened() {
		_ = s.Close()
	}
	r.sets.Store(nil)
}

// Held reports whether another process holds all sockets, so that queries during a restart wait
// for the next agent.
func (r *Resolver) Held() bool {
	for _, s := range r.opened() {
		if !s.Held() {
			return false
		}
	}
	return len(r.opened()) > 0
}

// holder returns the names of the processes that hold the sockets, or "" if a socket has none.
func (r *Resolver) holder() string {
	var by []string
	for _, s := range r.opened() {
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
	return r.views.expire(r.o.Now(), r.kept())
}
