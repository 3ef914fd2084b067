package reconcile

import (
	"cmp"
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nearside-mesh/nearside/agent/base/debounce"
	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/identity"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
)

// Publisher takes the configs that a [Reconciler] makes; [rollout.Proxies] is one.
type Publisher interface {
	Connected() []node.Key
	// Waiting returns the nodes with a stream that is served nothing yet, since when; see
	// [rollout.Proxies.Waiting].
	Waiting() map[node.Key]time.Time
	// LastStream is asked before a pass looks at anything else; see [rollout.Config.LastStream].
	LastStream() uint64
	// Listeners returns those that the client of a node has accepted last, sorted by name.
	Listeners(node.Key) []*draft.Resource
	Publish(map[node.Key]rollout.Config)
}

// GenerateFunc makes the config of one proxy, as [generate.Generate] does.
type GenerateFunc func(in generate.Input, prev *generate.Proxy, memo *generate.Memo) (*generate.Proxy, error)

// Options is what a [Reconciler] needs. Store and Publisher are required.
type Options struct {
	Store     *store.Store
	Publisher Publisher
	// Recheck ends the streams of clients that may no longer have the config. Nil: none end.
	Recheck func()
	Zone    string
	// AutoReachable derives from permissions what proxies reach.
	AutoReachable bool
	// VIPs say how services get virtual addresses. The store remembers them; VIPFile is the file of an
	// earlier version, which is read once. "": none.
	VIPs    mesh.VIPOptions
	VIPFile string
	// FlatNetwork says that the dataplanes of other zones are reached directly, also where their zones
	// have ingresses.
	FlatNetwork bool
	RunDir      string           // where Envoys find what the agent makes for them; "": /run/nearside
	Log         *slog.Logger     // nil: nothing is logged
	Now         func() time.Time // nil: time.Now
	// Passed is called after each pass. It must not block. Nil: nothing.
	Passed func()
	// Problems are those of the sources, added to each result. Nil: none.
	Problems func() []api.Problem
	// Room returns an error where there is no memory for one more proxy, which is then refused with
	// it. It may call shed first, which gives up what the passes remember. Nil: there is room.
	Room func(shed func()) error
	// Forgot is called when something large has been forgotten. It must not block. Nil: nothing.
	Forgot func()
	// Sidecars are what proxies of a mesh say that they reach, by dataplane. Nil: nothing.
	Sidecars func(mesh string) map[string]*resource.Reach
	// Awaited are the node ids whose clients have brought what is not in the store yet, nor in
	// conflict with it. Their configs stay as they are until it is, when [Reconciler.Trigger] is
	// called. Nil: none.
	Awaited  func() map[string]bool
	Registry prometheus.Registerer         // nil: no metrics
	Generate GenerateFunc                  // nil: generate.Generate
	Build    func(node.Key) *finding.Build // what the client of a node says of itself; nil: that is not known
	// Host is what is known of the host of a node's client, whose config names these files. Nil:
	// nothing is.
	Host  func(key node.Key, files []string) *finding.Host
	Logs  Logs      // nil: what loggers write to is there already
	Check CheckFunc // nil: the check of [generate.Proxy]
	// Certificates makes those of the proxies. Nil: one that keeps them in memory.
	Certificates *identity.Keeper
	// SystemCA is the file of the authorities that the system trusts, for services outside the mesh.
	// "": none.
	SystemCA string

	// Quiet is the least time from one pass to the next, and the pause that more triggers within it
	// wait for. A trigger after a quiet time is served at once: sources wait themselves until a file
	// is whole. Default 5 ms.
	Quiet   time.Duration
	Ceiling time.Duration // from the first trigger that waits to the pass at the latest; default 100 ms
	// Slice is how long a pass works for proxies that have a config, and then for those that wait for
	// one, before it publishes what is done and looks whether something has changed; default 10 ms.
	Slice time.Duration
	Hold  time.Duration // of each step in which mutual TLS is switched; default 5 s
	Keep  time.Duration // that the config of a proxy without a stream is remembered; default 1 min
}

// Reconciler keeps the proxies of the node in line with the store, in one loop that is triggered by
// level: a pass looks at the present state and not at what has happened. A pass derives every mesh
// and every connected proxy, each on its own: one that cannot be derived keeps what it had and
// becomes a problem in the result. The result is swapped in, and what changed is published, slice
// by slice: see [Options.Slice]. Where the state changes meanwhile, what is left is the business of
// the next pass.
type Reconciler struct {
	o       Options
	trigger chan struct{} // one slot
	last    atomic.Pointer[status.Result]
	// in Unix ns, when the pass under way began with the mesh or proxy that it is at; 0 between passes
	busy atomic.Int64

	offered  atomic.Pointer[offer]
	shedding atomic.Bool  // what the passes remember is given up with the next one
	unroomed atomic.Int64 // proxies that were refused for want of memory

	proxySeconds, checkSeconds, passSeconds prometheus.Histogram

	plugins []policy.Plugin
	vips    *vipKeeper

	// Of the goroutine that runs the passes.
	meshes    map[string]*generate.Mesh
	proxies   map[node.Key]*proxyState
	memo      *generate.Memo
	checker   *check.Checker
	logged    map[api.Problem]bool
	switching map[string]*switching // by mesh
	madeAt    map[string]uint64     // by mesh: revision of the store that it was derived from
	renewAt   time.Time             // when a pass is due for the sake of certificates or virtual addresses; zero: never
	passes    uint64                // begun so far
	refused   map[node.Key]refusal  // for want of memory
}

type proxyState struct {
	proxy    *generate.Proxy
	revision uint64    // of the store that proxy was made from
	seen     time.Time // of the last pass in which it was connected
	left     time.Time // of the first pass in which it was not; zero while it is
	pass     uint64    // that has brought it up to date last, by its number
	problems []api.Problem
	verdict  verdict
	demands  demands
	fit      *draft.Sealed   // published last that the check has found fit; nil: nothing was
	sent     *generate.Proxy // published last
	cut      cut
}

// New returns a reconciler that has done nothing yet.
func New(o Options) *Reconciler {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Forgot == nil {
		o.Forgot = func() {}
	}
	if o.Recheck == nil {
		o.Recheck = func() {}
	}
	if o.Generate == nil {
		o.Generate = generate.Generate
	}
	if o.Check == nil {
		o.Check = (*generate.Proxy).Check
	}
	if o.Certificates == nil {
		o.Certificates = identity.Open(identity.Options{Now: o.Now, Log: o.Log})
	}
	o.Quiet = cmp.Or(o.Quiet, 5*time.Millisecond)
	o.Ceiling = cmp.Or(o.Ceiling, 100*time.Millisecond)
	o.Slice = cmp.Or(o.Slice, 10*time.Millisecond)
	o.Hold = cmp.Or(o.Hold, 5*time.Second)
	o.Keep = cmp.Or(o.Keep, time.Minute)
	buckets := []float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5}
	r := &Reconciler{
		o: o, trigger: make(chan struct{}, 1), memo: generate.NewMemo(), checker: &check.Checker{},
		plugins: kinds.Plugins(), vips: openVIPs(o.Store, o.VIPFile, o.VIPs, o.Now, o.Log),
		meshes: map[string]*generate.Mesh{}, madeAt: map[string]uint64{}, switching: map[string]*switching{},
		proxies: map[node.Key]*proxyState{}, refused: map[node.Key]refusal{},
		proxySeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "nearside_xds_generation_seconds", Help: "Time to make the config of one proxy.", Buckets: buckets}),
		checkSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "nearside_xds_check_duration_seconds", Help: "Time to check the config of one proxy before it is sent.",
			Buckets: buckets}),
		passSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "nearside_reconcile_duration_seconds",
			Help:    "Time of one pass over all meshes and connected proxies, or until a change has cut it short.",
			Buckets: buckets}),
	}
	if o.Registry != nil {
		o.Registry.MustRegister(r.proxySeconds, r.checkSeconds, r.passSeconds, certificates{o.Certificates})
	}
	return r
}

// Last returns the result of the last pass, nil before the first.
func (r *Reconciler) Last() *status.Result { return r.last.Load() }

// Trigger asks for a pass soon. It never blocks.
func (r *Reconciler) Trigger() {
	select {
	case r.trigger <- struct{}{}:
	default: // one is asked for already
	}
}

// NewMesh derives a mesh from a set of resources as a pass does; see [generate.NewMesh]. It is safe
// for use by many goroutines.
func (r *Reconciler) NewMesh(set *resource.Set, name string, prev *generate.Mesh) (*generate.Mesh, error) {
	return r.newMesh(set, name, prev, nil, false)
}

func (r *Reconciler) newMesh(set *resource.Set, name string, prev *generate.Mesh, t *mesh.Transition,
	fixed bool) (*generate.Mesh, error) {
	var sidecars map[string]*resource.Reach
	if r.o.Sidecars != nil {
		sidecars = r.o.Sidecars(name)
	}
	vips := r.vips.Options(name)
	vips.Fixed = fixed
	return generate.NewMesh(set, name,
		mesh.Options{Zone: r.o.Zone, FlatNetwork: r.o.FlatNetwork, VIPs: vips, Sidecars: sidecars, Transition: t}, r.plugins,
		policy.Options{RunDir: r.o.RunDir, AutoReachable: r.o.AutoReachable}, prev)
}

func (r *Reconciler) zone() string { return cmp.Or(r.o.Zone, mesh.DefaultZone) }

// BusySince returns when the pass under way began with the mesh or proxy that it is at, the zero
// time between passes.
func (r *Reconciler) BusySince() time.Time {
	if ns := r.busy.Load(); ns != 0 {
		return time.Unix(0, ns)
	}
	return time.Time{}
}

// Run makes passes until ctx ends, the first at once.
func (r *Reconciler) Run(ctx context.Context) {
	changed, stop := r.o.Store.Watch()
	defer stop()
	defer r.vips.wait()
	wait := debounce.New(r.o.Quiet, r.o.Ceiling)
	defer wait.Stop()
	renew := newAlarm(r.o.Now)
	defer renew.Stop()
	for {
		wait.Done()
		if whole := r.pass(func() bool { return len(changed)+len(r.trigger) > 0 }); !whole {
			take(changed)
			take(r.trigger)
			if ctx.Err() != nil {
				return
			}
			continue // what is left waits no longer for others that change
		}
		renew.set(r.renewAt)
		ended := time.Now()
		for acting := false; !acting; {
			select {
			case <-ctx.Done():
				return
			case <-changed:
				wait.DueIn(r.o.Quiet - time.Since(ended))
			case <-r.trigger:
				wait.DueIn(r.o.Quiet - time.Since(ended))
			case <-wait.C:
				acting = true
			case <-renew.C:
				acting = renew.rings()
			}
		}
	}
}

// take empties a channel with one slot.
func take(ch <-chan struct{}) {
	select {
	case <-ch:
	default:
	}
}
