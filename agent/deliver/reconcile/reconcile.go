package reconcile

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
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
	"github.com/nearside-mesh/nearside/agent/host/logpaths"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/identity"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/model/virtualip"
)

// Publisher publishes the configs of a [Reconciler]. [rollout.Proxies] implements it.
type Publisher interface {
	Connected() []node.Key
	// Waiting returns the nodes with a stream that has not been served yet, and since when; see
	// [rollout.Proxies.Waiting].
	Waiting() map[node.Key]time.Time
	// LastStream is called before a pass reads any other state; see [rollout.Config.LastStream].
	LastStream() uint64
	// Listeners returns the listeners that the client of a node has accepted, sorted by name.
	Listeners(node.Key) []*draft.Resource
	Publish(map[node.Key]rollout.Config)
}

// GenerateFunc computes the config of one proxy, like [generate.Generate].
type GenerateFunc func(in generate.Input, prev *generate.Proxy, memo *generate.Memo) (*generate.Proxy, error)

// Options configures a [Reconciler]. Store and Publisher are required.
type Options struct {
	Store     *store.Store
	Publisher Publisher
	// Recheck closes the streams of clients that may no longer have a config. Nil: none.
	Recheck func()
	Zone    string
	// AutoReachable derives reachable services from permissions.
	AutoReachable bool
	// VIPs configures virtual addresses. The store persists them. VIPFile is a file of an earlier
	// version, which is imported once; "": none.
	VIPs    virtualip.Options
	VIPFile string
	// FlatNetwork means that dataplanes in other zones are reached directly, even if their zones have
	// ingresses.
	FlatNetwork bool
	Resolver    bool             // the node has a resolver; see [mesh.Options]
	Paths       *logpaths.Rules  // directories and log files of the agent; nil: unknown
	Log         *slog.Logger     // nil: no logs
	Now         func() time.Time // nil: time.Now
	// Passed is called after each pass. It must not block. Nil: not called.
	Passed func()
	// Problems returns the problems of the sources, which are added to each result. Nil: none.
	Problems func() []api.Problem
	// Admit returns an error if there is no memory for another proxy, which is then refused with it.
	// It may call shed first, which drops caches. Nil: no limit.
	Admit func(shed func()) error
	// Forgot is called after a large object was dropped. It must not block. Nil: not called.
	Forgot func()
	// Sidecars returns the reachability annotations of a mesh's proxies by dataplane. Nil: none.
	Sidecars func(mesh string) map[string]*resource.Reach
	// Awaited returns the IDs of nodes whose Dataplane is neither stored nor rejected yet. Their
	// configs stay unchanged until then, when [Reconciler.Trigger] is called. Nil: none.
	Awaited func() map[string]bool
	// Blocked reports whether the config of a node stays unchanged, which may be none, until
	// [Reconciler.Trigger] is called. It gets the Dataplane of the node, nil if there is none. Nil:
	// none is blocked.
	Blocked  func(node.Key, *resource.Resource) bool
	Registry prometheus.Registerer         // nil: no metrics
	Generate GenerateFunc                  // nil: generate.Generate
	Build    func(node.Key) *finding.Build // returns the build of a node's client; nil: unknown
	// Plain reports whether no private keys may be sent to a node's client. Nil: they may.
	Plain func(node.Key) bool
	// Rejections returns what the client of a node rejects or the check withholds from it; see
	// [rollout.Proxies.Rejections]. Nil: no policy is left out of a rejected resource.
	Rejections func(node.Key) ([]draft.Rejection, uint64)
	// Host describes the host of a node's client, including the given files of its config. Nil: hosts
	// are unknown.
	Host  func(key node.Key, files []string) *finding.Host
	Logs  Logs      // nil: log destinations need no preparation
	Check CheckFunc // nil: [generate.Proxy.Check]
	// Certificates issues the certificates of proxies. Nil: they are kept in memory.
	Certificates *identity.Keeper
	// SystemCA is the path of the system's CA bundle, for services outside the mesh. "": none.
	SystemCA string

	// Quiet is the minimum time between passes; further triggers within it wait. A trigger after a
	// quiet period is served at once, because sources wait themselves until a file is complete.
	// Default 5 ms.
	Quiet   time.Duration
	Ceiling time.Duration // maximum delay of a pass after its first trigger; default 100 ms
	// Slice is how long a pass serves proxies that have a config, and then those that wait for one,
	// before it publishes and checks for changes; default 10 ms.
	Slice       time.Duration
	Hold        time.Duration // duration of each step of switching TLS; default 5 s
	ForgetAfter time.Duration // how long the config of a proxy without a stream is kept; default 1 min
}

// Reconciler keeps the proxies of the node up to date with the store in one level-triggered loop: a
// pass uses the current state, not events. A pass derives every mesh and every connected proxy
// independently: one that cannot be derived keeps its last state and becomes a problem in the
// result. After each slice, the pass replaces the result and publishes changed configs; see
// [Options.Slice]. If the state changes in the meantime, the next pass serves the remaining
// proxies.
type Reconciler struct {
	o       Options
	trigger chan struct{} // one slot
	last    atomic.Pointer[status.Result]
	// start of the current mesh or proxy of the pass, in Unix ns; 0 between passes
	busy atomic.Int64

	offered      atomic.Pointer[offer]
	shedding     atomic.Bool  // the next pass drops caches
	refusedCount atomic.Int64 // proxies refused because of memory

	proxySeconds, checkSeconds, passSeconds prometheus.Histogram

	plugins []policy.Plugin
	vips    *vipCache

	// Used only by the goroutine that runs the passes.
	meshes    map[string]*generate.Mesh
	proxies   map[node.Key]*proxyState
	memo      *generate.Memo
	checker   *check.Checker
	logged    map[api.Problem]bool
	switching map[string]*switching // by mesh
	tls       map[string]*tlsSteps  // by mesh
	derivedAt map[string]uint64     // store revision of the last derivation, by mesh
	renewAt   time.Time             // next pass for certificates or virtual addresses; zero: none
	passes    uint64                // started so far
	refused   map[node.Key]refusal  // refused because of memory

	// Meshes without policies, by mesh and set of policies, and the cache of configs in them.
	variants    map[string]*variant
	variantMemo *generate.Memo
}

type proxyState struct {
	proxy    *generate.Proxy
	revision uint64    // store revision of proxy
	seen     time.Time // last pass in which it was connected
	left     time.Time // first pass in which it was not connected; zero while it is
	pass     uint64    // number of the last pass that updated it
	problems []api.Problem
	stale    status.Stale // without a reason: the config is up to date
	leftOut  []status.LeftOut
	waiting  bool // the config is not published yet, because its log destinations are not ready
	verdict  verdict
	demands  demands
	keyed    keyed
	fit      *draft.Sealed   // last published config that passed the check; nil: none
	sent     *generate.Proxy // last published config
	reduced  reduced

	secrets    *identity.Secrets // of proxy
	exclusions exclusions
}

// New returns a reconciler. It does nothing before Run or Pass.
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
	o.ForgetAfter = cmp.Or(o.ForgetAfter, time.Minute)
	buckets := []float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5}
	r := &Reconciler{
		o: o, trigger: make(chan struct{}, 1), memo: generate.NewMemo(), checker: &check.Checker{},
		plugins: kinds.Plugins(), vips: openVIPs(o.Store, o.VIPFile, o.VIPs, o.Now, o.Log),
		meshes: map[string]*generate.Mesh{}, derivedAt: map[string]uint64{}, switching: map[string]*switching{},
		tls:     map[string]*tlsSteps{},
		proxies: map[node.Key]*proxyState{}, refused: map[node.Key]refusal{},
		variants: map[string]*variant{}, variantMemo: generate.NewMemo(),
		proxySeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "nearside_xds_generation_seconds", Help: "Time to compute the config of one proxy.", Buckets: buckets}),
		checkSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "nearside_xds_check_duration_seconds", Help: "Time to check the config of one proxy before it is sent.",
			Buckets: buckets}),
		passSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "nearside_reconcile_duration_seconds",
			Help:    "Duration of one pass over all meshes and connected proxies, or until a change interrupts it.",
			Buckets: append(slices.Clone(buckets), 5, 10, 25, 50)}),
	}
	if o.Registry != nil {
		o.Registry.MustRegister(r.proxySeconds, r.checkSeconds, r.passSeconds, certificates{o.Certificates})
	}
	return r
}

// Last returns the result of the last pass, or nil before the first.
func (r *Reconciler) Last() *status.Result { return r.last.Load() }

// Trigger requests a pass. It does not block.
func (r *Reconciler) Trigger() {
	select {
	case r.trigger <- struct{}{}:
	default: // already requested
	}
}

// NewMesh derives a mesh from a set of resources like a pass; see [generate.NewMesh]. It is safe
// for concurrent use.
func (r *Reconciler) NewMesh(set *resource.Set, name string, prev *generate.Mesh) (*generate.Mesh, error) {
	return r.newMesh(set, name, prev, mesh.Options{}, false)
}

func (r *Reconciler) newMesh(set *resource.Set, name string, prev *generate.Mesh, o mesh.Options,
	fixed bool) (*generate.Mesh, error) {
	o.Zone, o.FlatNetwork, o.VIPs, o.Resolver = r.o.Zone, r.o.FlatNetwork, r.vips.Options(name), r.o.Resolver
	if r.o.Sidecars != nil {
		o.Sidecars = r.o.Sidecars(name)
	}
	o.VIPs.Fixed = fixed
	return generate.NewMesh(set, name, o, r.plugins,
		policy.Options{Paths: r.o.Paths, AutoReachable: r.o.AutoReachable}, prev)
}

func (r *Reconciler) zone() string { return cmp.Or(r.o.Zone, mesh.DefaultZone) }

// BusySince returns when the pass started to process its current mesh or proxy, or the zero time
// between passes.
func (r *Reconciler) BusySince() time.Time {
	if ns := r.busy.Load(); ns != 0 {
		return time.Unix(0, ns)
	}
	return time.Time{}
}

// Run makes passes until ctx ends. The first one starts at once.
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
			drain(changed)
			drain(r.trigger)
			if ctx.Err() != nil {
				return
			}
			continue // the remaining proxies do not wait for further changes
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

// drain empties a channel with one slot.
func drain(ch <-chan struct{}) {
	select {
	case <-ch:
	default:
	}
}
