package resolver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/names"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/deliver/zones"
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/host/sockets"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/dns"
	"github.com/nearside-mesh/nearside/dns/forward"
	"github.com/nearside-mesh/nearside/dns/table"
	"golang.org/x/sync/errgroup"
)

// Options configures a [Resolver]. Config and Last are required.
type Options struct {
	Config *config.Config
	// Last returns the result of the last reconciliation, or nil before the first one.
	Last func() *status.Result
	// Sockets opens the sockets. If it is nil, no other process holds them.
	Sockets *sockets.Book
	// ResolvConf has the upstreams if the config has none; "" means /etc/resolv.conf.
	ResolvConf string
	// Mark is set on the agent's queries (SO_MARK), so that a redirection of port 53 can exempt them.
	// With 0, or without the permission to set it, the queries have no mark.
	Mark uint32
	// Views is the path of the file with the views of the last run; "" stores none. New says that
	// there was no last run.
	Views string
	New   bool
	// Suspended says why the resources are unknown in this run, so that names of the meshes and stored
	// external names fail, and no views are stored. Empty: they are known.
	Suspended string
	Group     string           // name or ID of the group of query log files; "" means the process's group
	Log       *slog.Logger     // nil discards
	Now       func() time.Time // nil means time.Now
}

// Resolver is the DNS server of an agent. Its methods are safe for concurrent use, except Open
// and Run.
type Resolver struct {
	o       Options
	addrs   []netip.AddrPort // addresses in the config
	server  *dns.Server
	forward *forward.Forwarder
	queries *queryLog
	zones   *zones.Asker
	marked  bool          // queries to upstreams have the mark
	changed chan struct{} // one slot
	keys    atomic.Pointer[keys]

	mu        sync.Mutex // held while a table is built
	table     atomic.Pointer[names.Table]
	tableKeys keys         // the keys that the table was built with
	answer    *table.Table // the resolver's form of table
	views     *views
	failing   atomic.Pointer[names.Unknown] // the names that fail at present

	state atomic.Pointer[state]
	swaps [2]atomic.Uint64 // numbers of rebuilt and of updated tables

	sets  atomic.Pointer[[]*sockets.Set] // for the listening addresses; nil: none is open
	taken bool                           // an address is in use, so Run tries again

	upstreamTotals upstreams // counters of upstreams
}

// rebindProtect is a value of dns.rebind.
const rebindProtect = "protect"

// keys has the config keys that may change while the agent runs.
type keys struct {
	names         names.Options
	ttl, negative uint32
	// The values of dns.rebind and dns.rebindExceptions.
	rebind     string
	exceptions []string
}

// state is the state of the sockets.
type state struct {
	listen []string
	reason string // why the resolver does not listen
	failed string // why a socket failed
}

// bytesOfAnswer is the memory of a cached answer for dns.cacheSize. leastCache is the minimum
// size of the cache.
const (
	bytesOfAnswer = 400
	leastCache    = 256 << 10
)

// maxSockets is the maximum number of sockets per address.
const maxSockets = 4

// New validates the options and reads the list of upstreams. It opens no sockets.
func New(o Options) (*Resolver, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Sockets == nil {
		o.Sockets = sockets.New(sockets.Options{Log: o.Log})
	}
	cfg := &o.Config.DNS
	r := &Resolver{o: o, addrs: cfg.Addrs(), changed: make(chan struct{}, 1)}
	if len(r.addrs) == 0 {
		o.Views = ""
	}
	r.failing.Store(&names.Unknown{})
	r.views = openViews(o.Views, o.New, o.Now(), o.Log)
	r.views.suspended = o.Suspended != ""
	r.state.Store(&state{reason: "dns.listen is empty"})
	r.queries = newQueryLog(o)
	r.zones = zones.New(r.askZone, r.Trigger)
	cache := -1
	if cfg.CacheSize > 0 {
		cache = max(leastCache, cfg.CacheSize*bytesOfAnswer)
	}
	if len(r.addrs) > 0 {
		f := forward.Options{Servers: cfg.Servers(), ResolvConf: o.ResolvConf, CacheBytes: cache, Own: cfg.Own,
			Routes: routes(cfg), TrustAD: cfg.TrustAD, Mark: o.Mark, Changed: r.zones.Repeat, Logger: o.Log}
		var err error
		if r.forward, err = forward.New(f); err != nil && f.Mark != 0 {
			f.Mark = 0
			r.forward, err = forward.New(f)
		}
		r.marked = f.Mark != 0
		if err != nil {
			return nil, fmt.Errorf("dns.upstreams or dns.forward: %w", err)
		}
	}
	r.server = dns.NewServer(dns.ServerOptions{Forwarder: r.forward, PassthroughDeny: passthroughDeny(o.Config),
		PeerRate: cfg.ClientRate,
		Logger:   o.Log, Sampled: r.queries.add})
	r.Configure(o.Config)
	k := r.keys.Load()
	answer, _ := names.Build(k.names, nil, nil).Served(k.ttl, k.negative)
	r.server.Swap(table.NewAnswers(answer, nil).Pending())
	return r, nil
}

// passthroughDeny returns the addresses that an external name must not direct a proxy to: this
// host and its link, multicast groups, and virtual addresses.
func passthroughDeny(c *config.Config) []netip.Prefix {
	return names.NotPast(c.VIPs.Options().Ranges.Prefixes())
}

// routes returns the upstreams for domains.
func routes(c *config.DNS) (out []forward.Route) {
	for i := range c.Forward {
		f := &c.Forward[i]
		out = append(out, forward.Route{Domains: f.Domains, Servers: f.Servers(), Protocol: forward.Protocol(f.Protocol),
			ServerName: f.ServerName})
	}
	return out
}

// forwarded returns the domains of dns.forward that are not owned without dns.suffixes.
func forwarded(c *config.DNS) (out []string) {
	for i := range c.Forward {
		for _, d := range c.Forward[i].Domains {
			if d != "." {
				out = append(out, d)
			}
		}
	}
	return out
}

// Server returns the DNS server with the resolver's table, for additional sockets.
func (r *Resolver) Server() *dns.Server { return r.server }

// Configure applies the keys of a config that may change at run time.
func (r *Resolver) Configure(c *config.Config) {
	d := &c.DNS
	// #nosec G115 -- bounded by the config
	k := &keys{ttl: uint32(d.TTL), negative: uint32(d.NegativeTTL), rebind: d.Rebind, exceptions: d.RebindExceptions,
		names: names.Options{Suffixes: d.Suffixes, Forwarded: forwarded(d), Generators: d.OwnGenerators,
			ReachableOnly: d.ReachableOnly, Ranges: c.VIPs.Options().Ranges.Prefixes()}}
	for i := range d.Forward {
		k.names.Forwarded = append(k.names.Forwarded, d.Forward[i].Domains...)
	}
	r.keys.Store(k)
	if r.forward != nil {
		if err := r.forward.Configure(routes(d), d.TrustAD); err != nil {
			r.o.Log.Error("the previous dns.forward stays in use", "error", err)
		}
	}
	r.queries.setSample(uint32(d.QueryLog.Sample)) // #nosec G115 -- bounded by the config
	if r.forward != nil {
		r.forward.Protect(&forward.Protection{Virtual: c.VIPs.Options().Ranges.Prefixes(), Private: d.Rebind == rebindProtect,
			Except: d.RebindExceptions})
	}
	r.server.Sample(uint32(d.QueryLog.Sample)) // #nosec G115 -- bounded by the config
	r.zones.Repeat()
	r.Trigger()
}

// Trigger requests a new table. It does not block.
func (r *Resolver) Trigger() {
	select {
	case r.changed <- struct{}{}:
	default: // already requested
	}
}

// Update builds the table of the last reconciliation if it differs from the current one, and
// serves it.
func (r *Resolver) Update() {
	if len(r.addrs) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	k, before, last := r.keys.Load(), r.table.Load(), r.o.Last()
	kept := r.kept()
	r.views.expire(r.o.Now(), kept)
	local := r.views.local(last)
	list := meshes(last, local)
	o := k.names
	o.Missing = kept
	o.Evidence = r.zones.Evidence()
	next := names.Build(o, list, before)
	r.zones.Set(next.Asked())
	failing := r.views.fails(&k.names, list)
	rebuild := k.ttl != r.tableKeys.ttl || k.negative != r.tableKeys.negative
	if next == before && !rebuild && failing.Equal(r.failing.Load()) {
		return
	}
	r.failing.Store(&failing)
	change := next.Since(before)
	change.Whole = change.Whole || r.answer == nil || rebuild
	var faults []error
	if change.Whole {
		r.answer, faults = next.Served(k.ttl, k.negative)
		r.swaps[0].Add(1)
	} else if len(change.Put)+len(change.Remove) > 0 {
		r.answer, faults = r.answer.With(change.Put, change.Remove)
		r.swaps[1].Add(1)
	}
	for _, err := range faults {
		r.o.Log.Error("a name of the meshes is not served", "error", err)
	}
	if next.Pending {
		r.server.Swap(table.NewAnswers(r.answer, nil).Pending().Failing(failing.Names))
	} else {
		views := make(map[netip.Addr]*table.View, len(next.Views))
		for i := range next.Views {
			views[next.Views[i].Addr] = next.Views[i].DNS()
		}
		others := next.OthersView().DNS()
		if failing.Loopback != nil {
			others = failing.Loopback
		}
		answers := table.NewAnswers(r.answer, views).Others(others).Remote(failing.Remote).Failing(failing.Names)
		if len(kept) > 0 {
			answers = answers.Partial()
		}
		r.server.Swap(answers)
	}
	r.views.save(next, local)
	r.tableKeys = *k
	r.table.Store(next)
}

// kept returns the meshes whose names are unknown, because they could not be derived, sorted.
func (r *Resolver) kept() []string {
	if last := r.o.Last(); last != nil {
		return slices.Sorted(maps.Keys(last.Kept))
	}
	return nil
}

// meshes returns the meshes of a result with their local dataplanes.
func meshes(last *status.Result, local map[string][]string) (out []names.Mesh) {
	if last == nil {
		return nil
	}
	for name, m := range last.Meshes {
		out = append(out, meshOf(m, local[name]))
	}
	return out
}

// meshOf converts a mesh for the names package.
func meshOf(m *generate.Mesh, local []string) names.Mesh {
	return names.Mesh{View: m.View, Policies: m.Policies, Local: unique(local)}
}

// Run serves queries until ctx ends. It returns when its goroutines have ended and its sockets
// are closed. Queries that it has read are still answered. Queries that queue in sockets held by
// another process are for the next agent.
func (r *Resolver) Run(ctx context.Context) error {
	if r.sets.Load() == nil && !r.taken {
		return nil // dns.listen is not live, so a changed config opens no sockets
	}
	var g errgroup.Group
	logging, endLog := context.WithCancel(context.WithoutCancel(ctx))
	var log errgroup.Group
	log.Go(func() error { r.queries.run(logging); return nil })
	asking, endAsking := context.WithCancel(context.WithoutCancel(ctx))
	var others errgroup.Group
	others.Go(func() error { return r.forward.Run(asking) })
	<-r.forward.Started() // queries may already be queued
	serve := func() {
		for _, s := range r.opened() {
			for _, c := range s.UDP {
				g.Go(func() error { r.ended(r.server.ServeUDP(ctx, c)); return nil })
			}
			for _, l := range s.TCP {
				g.Go(func() error { r.ended(r.server.ServeTCP(ctx, l)); return nil })
			}
			g.Go(func() error { s.Hold(ctx); return nil })
		}
	}
	if serve(); r.taken {
		g.Go(func() error {
			if r.reopen(ctx) {
				serve()
			}
			return nil
		})
	}
	g.Go(func() error { r.follow(ctx); return nil })
	g.Go(func() error { r.views.run(ctx); return nil })
	g.Go(func() error { r.zones.Run(ctx); return nil })
	err := g.Wait()
	endAsking()
	err = errors.Join(err, others.Wait())
	endLog()
	return errors.Join(err, log.Wait())
}

// Check returns the resolver's health. A problem degrades the node but does not make it unready. A
// node without a mesh is healthy.
func (r *Resolver) Check() api.Check {
	c := api.Check{Name: "dns", OK: true}
	s := r.State()
	switch {
	case s.State == api.DNSOff && len(r.addrs) == 0:
		c.Reason = "the resolver is off: dns.listen is empty"
		return c
	case s.Reason != "" && s.State != api.DNSPending:
		c.Reason = s.Reason
	case s.Problem != "":
		c.Reason = s.Problem
	case s.QueryLog != nil && s.QueryLog.Problem != "":
		c.Reason = s.QueryLog.Problem
	case s.State == api.DNSPending:
		c.Reason = s.Reason
		return c
	default:
		c.Reason = plural.Form(s.Names, "1 name of the meshes is answered on ", "%d names of the meshes are answered on ") +
			strings.Join(s.Listen, " and ")
		if domains := forwardedDomains(s.Upstreams); domains != "" {
			c.Reason += "; other upstreams answer for " + domains
		}
		return c
	}
	c.Degraded = true
	return c
}
