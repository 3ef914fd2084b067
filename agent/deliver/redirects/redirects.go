// Package redirects redirects the traffic of pods to their proxies. When the Envoy of a Dataplane
// that asks for it opens its stream, the agent installs the redirection in the network namespace of
// its process. The Envoy gets a config only after that, so no application starts without its
// redirection.
package redirects

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nearside-mesh/nearside/agent/host/intercept"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/redirect"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
)

// Installer installs redirections. [intercept.Pods] implements it.
type Installer interface {
	Install(intercept.Envoy, string, intercept.Spec) (inode uint64, changed bool, err error)
	HostAddresses() ([]netip.Prefix, error)
	Has(inode uint64, dataplane string) bool
	Remove(dataplane string) error
	Dataplanes() []string
}

// Options configures [Redirects]. Store and Installer are required.
type Options struct {
	Store     *store.Store
	Installer Installer
	// Enabled is intercept.pods. If it is false, a Dataplane that asks for a redirection gets no
	// config.
	Enabled bool
	// DNSPort is the port of the resolver in pods; 0: their DNS is not redirected.
	DNSPort uint16
	// Await waits until the DNS of a namespace is redirected, or ctx ends. Nil: nothing waits.
	Await func(ctx context.Context, inode uint64) bool
	// Virtual are the ranges of virtual addresses.
	Virtual []netip.Prefix
	Changed func()       // a proxy may have its config now; must not block. Nil: not called
	Log     *slog.Logger // nil: no logs
	Now     func() time.Time
	// Registry registers the metrics. Nil: none.
	Registry prometheus.Registerer
}

const (
	// atOnce is the maximum number of concurrent installations.
	atOnce = 8
	// dnsTime limits the wait for the resolver. Without it, names go to the real servers, and no
	// connection bypasses the proxy.
	dnsTime = 2 * time.Second
	// lookEvery is the interval between looks for removed installations and new addresses.
	lookEvery           = 10 * time.Second
	firstRetry, maxWait = time.Second, time.Minute
)

// Redirects is safe for concurrent use.
type Redirects struct {
	o    Options
	bell chan struct{} // one slot

	mu      sync.Mutex
	proxies map[node.Key]*proxy // with a stream

	// The rest belongs to Run.
	hosts []netip.Prefix // addresses of the node at the last look
	seen  *store.Snapshot
}

// proxy is a client with a stream.
type proxy struct {
	key       node.Key
	dataplane resource.Key
	streams   int
	peer      access.Peer

	inode    uint64   // of the namespace of its process, once that is redirected; else 0
	probes   []uint16 // ports that the node reaches around the proxy
	due      bool     // an attempt is due
	attempts uint64
	fault    error         // of the last attempt
	next     time.Time     // of the next attempt after a fault
	delay    time.Duration // before it
}

// New returns a Redirects that installs nothing before Run. It fails only if the metrics cannot be
// registered.
func New(o Options) (*Redirects, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	r := &Redirects{o: o, bell: make(chan struct{}, 1), proxies: map[node.Key]*proxy{}}
	if o.Registry != nil {
		if err := o.Registry.Register(r); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Opened records a stream of a client before it gets a response. A client whose process is another
// one than before is blocked until its namespace is redirected.
func (r *Redirects) Opened(st access.Stream) {
	ref, err := node.ParseRef(st.Key.ID)
	if err != nil || ref.Type != node.ProxyDataplane {
		return
	}
	r.mu.Lock()
	x := r.proxies[st.Key]
	if x == nil {
		x = &proxy{key: st.Key, dataplane: ref.Key()}
		r.proxies[st.Key] = x
	}
	x.streams++
	if id := processOf(&st.Peer); id == "" || id != processOf(&x.peer) {
		x.inode, x.fault, x.delay = 0, nil, 0
	}
	x.peer, x.due, x.next = st.Peer, true, time.Time{}
	r.mu.Unlock()
	r.wake()
}

// Closed records the end of a stream for which [Redirects.Opened] was called. The redirection
// stays.
func (r *Redirects) Closed(st access.Stream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.proxies[st.Key]
	if x == nil {
		return
	}
	if x.streams--; x.streams <= 0 {
		delete(r.proxies, st.Key)
	}
}

func processOf(p *access.Peer) string {
	if p.Process == nil {
		return ""
	}
	return p.Process.ID
}

func (r *Redirects) wake() {
	select {
	case r.bell <- struct{}{}:
	default:
	}
}

// Blocked reports whether a client gets no config, because its Dataplane asks for a redirection
// that is not installed for its process.
func (r *Redirects) Blocked(key node.Key, dataplane *resource.Resource) bool {
	if dataplane == nil || dataplane.Labels[redirect.Label] == "" {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.proxies[key]
	return x == nil || x.inode == 0
}

// Run installs redirections until ctx ends. They stay when it returns.
func (r *Redirects) Run(ctx context.Context) {
	changed, stop := r.o.Store.Watch()
	defer stop()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	retry := time.NewTimer(0)
	defer retry.Stop()
	r.look()
	for {
		r.mark()
		r.install(ctx)
		if at := r.nextRetry(); !at.IsZero() {
			retry.Reset(max(0, at.Sub(r.o.Now())))
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-r.bell:
		case <-retry.C:
		case <-look.C:
			r.look()
		}
	}
}

// mark makes the clients of changed Dataplanes due.
func (r *Redirects) mark() {
	snap := r.o.Store.Snapshot()
	diff := snap.Diff(r.seen)
	r.seen = snap
	r.mu.Lock()
	defer r.mu.Unlock()
	changed := map[resource.Key]bool{}
	for _, key := range diff {
		changed[key] = true
	}
	for _, x := range r.proxies {
		if changed[x.dataplane] {
			x.due, x.next, x.delay = true, time.Time{}, 0
		}
	}
}

// nextRetry returns the time of the next attempt after a fault, or zero.
func (r *Redirects) nextRetry() (at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.proxies {
		if x.due && !x.next.IsZero() && (at.IsZero() || x.next.Before(at)) {
			at = x.next
		}
	}
	return at
}

// task is one attempt.
type task struct {
	*proxy
	peer     access.Peer
	rec      store.Record
	attempts uint64
}

// install attempts all due installations, and returns when they are finished.
func (r *Redirects) install(ctx context.Context) {
	var tasks []task
	now := r.o.Now()
	r.mu.Lock()
	for _, key := range slices.SortedFunc(maps.Keys(r.proxies), compareKeys) {
		x := r.proxies[key]
		if !x.due || now.Before(x.next) {
			continue
		}
		x.due = false
		rec, stored := r.seen.Get(x.dataplane)
		if !stored || rec.Resource.Labels[redirect.Label] == "" {
			x.fault = nil
			continue
		}
		x.attempts++
		tasks = append(tasks, task{x, x.peer, rec, x.attempts})
	}
	r.mu.Unlock()
	slots := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for _, t := range tasks {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			r.attempt(ctx, t)
		})
	}
	wg.Wait()
}

// attempt installs the redirection of one client.
func (r *Redirects) attempt(ctx context.Context, t task) {
	s, err := r.specOf(t.key, &t.peer, t.rec)
	var inode uint64
	changed := false
	if err == nil {
		e := intercept.Envoy{PID: t.peer.PID, UID: t.peer.UID}
		if t.peer.Process != nil {
			e.Pidfd = t.peer.Process.Pidfd
		}
		inode, changed, err = r.o.Installer.Install(e, t.dataplane.String(), *s)
	}
	if err == nil && s.DNSPort != 0 && r.o.Await != nil {
		wait, cancel := context.WithTimeout(ctx, dnsTime)
		if !r.o.Await(wait, inode) && ctx.Err() == nil {
			r.o.Log.Warn("the DNS of a pod is not redirected yet; its names go to the real servers",
				"dataplane", t.dataplane.String())
		}
		cancel()
	}
	if err != nil {
		err = withHint(err)
	}
	r.mu.Lock()
	x := r.proxies[t.key]
	if x != t.proxy || x.attempts != t.attempts || processOf(&x.peer) != processOf(&t.peer) {
		r.mu.Unlock()
		return // the stream of another process has opened since
	}
	before, served := x.fault, x.inode != 0
	x.fault = err
	if err == nil {
		x.inode, x.probes, x.delay, x.next = inode, s.ProbePorts, 0, time.Time{}
	} else {
		x.due, x.delay = true, min(max(2*x.delay, firstRetry), maxWait)
		x.next = r.o.Now().Add(x.delay)
	}
	r.mu.Unlock()
	log := r.o.Log.With("dataplane", t.dataplane.String(), "peer", t.peer.String())
	switch {
	case err != nil && before != nil && before.Error() == err.Error():
	case err != nil && served:
		log.Warn("the changed redirection of a pod is not in force", "error", err)
	case err != nil:
		log.Warn("the traffic of a pod cannot be redirected, so its proxy gets no config", "error", err)
	case err == nil && changed:
		log.Info("redirected the traffic of a pod", "netns", inode, "redirected", s.String())
	}
	r.o.Changed()
}

// withHint adds the remedy of an error, if it has one.
func withHint(err error) error {
	if hinted := new(intercept.NeedsError); errors.As(err, &hinted) {
		return &hintedError{err, hinted.Hint()}
	}
	return err
}

type hintedError struct {
	err  error
	hint string
}

func (e *hintedError) Error() string { return e.err.Error() + "; " + e.hint }
func (e *hintedError) Unwrap() error { return e.err }

// look makes clients due whose installation was removed, or whose node has other addresses, and
// removes installations for which no Dataplane asks any more.
func (r *Redirects) look() {
	if !r.o.Enabled {
		return
	}
	snap := r.o.Store.Snapshot()
	for _, name := range r.o.Installer.Dataplanes() {
		rec, stored := snap.Get(keyOf(name))
		if !stored || rec.Resource.Labels[redirect.Label] != "" {
			continue // without a Dataplane, its pod may still run
		}
		if err := r.o.Installer.Remove(name); err != nil {
			r.o.Log.Warn("cannot remove the redirection of a pod", "dataplane", name, "error", err)
		} else {
			r.o.Log.Info("removed the redirection of a pod whose Dataplane no longer asks for it", "dataplane", name)
		}
	}
	hosts, err := r.o.Installer.HostAddresses()
	moved := err == nil && !slices.Equal(hosts, r.hosts)
	if err == nil {
		r.hosts = hosts
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.proxies {
		if x.inode != 0 && x.fault == nil &&
			(moved && len(x.probes) > 0 || !r.o.Installer.Has(x.inode, x.dataplane.String())) {
			x.due = true
		}
	}
}

// keyOf returns the key of a Dataplane from its text.
func keyOf(text string) resource.Key {
	kind, rest, _ := strings.Cut(text, "/")
	mesh, name, _ := strings.Cut(rest, "/")
	return resource.Key{Kind: kind, Mesh: mesh, Name: name}
}
