package agent

import (
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/nearside-mesh/nearside/accesslog/otlp"
	"github.com/nearside-mesh/nearside/agent/base/files"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/deliver/account"
	"github.com/nearside-mesh/nearside/agent/deliver/ads"
	"github.com/nearside-mesh/nearside/agent/deliver/drains"
	"github.com/nearside-mesh/nearside/agent/deliver/logs"
	"github.com/nearside-mesh/nearside/agent/deliver/presence"
	"github.com/nearside-mesh/nearside/agent/deliver/probes"
	"github.com/nearside-mesh/nearside/agent/deliver/proxydrain"
	"github.com/nearside-mesh/nearside/agent/deliver/reconcile"
	"github.com/nearside-mesh/nearside/agent/deliver/redirects"
	"github.com/nearside-mesh/nearside/agent/deliver/resolver"
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/host/certfiles"
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/host/hold"
	"github.com/nearside-mesh/nearside/agent/host/intercept"
	"github.com/nearside-mesh/nearside/agent/host/logpaths"
	"github.com/nearside-mesh/nearside/agent/host/memory"
	"github.com/nearside-mesh/nearside/agent/host/pods"
	"github.com/nearside-mesh/nearside/agent/host/probe"
	"github.com/nearside-mesh/nearside/agent/host/sockets"
	"github.com/nearside-mesh/nearside/agent/host/statedir"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/model/token"
	"github.com/nearside-mesh/nearside/agent/serve/auditlog"
	"github.com/nearside-mesh/nearside/agent/serve/edgesapi"
	"github.com/nearside-mesh/nearside/agent/serve/events"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
	"github.com/nearside-mesh/nearside/agent/serve/logsapi"
	"github.com/nearside-mesh/nearside/agent/serve/web"
	"github.com/nearside-mesh/nearside/agent/serve/webhook"
	"github.com/nearside-mesh/nearside/agent/source/directory"
	"github.com/nearside-mesh/nearside/agent/source/metadata"
	"github.com/nearside-mesh/nearside/agent/source/peers"
)

// Deps holds the dependencies of an agent. With the zero value, the agent logs nothing, uses a
// private metrics registry, and cannot be reloaded.
type Deps struct {
	Log     *slog.Logger
	Level   *slog.LevelVar // level of Log; set to log.level at startup and reload; nil: unchanged
	LogFile *LogFile       // destination of Log in addition to stderr; nil: none
	LogTail *LogTail       // end of Log; nil: not kept
	Now     func() time.Time
	Metrics *prometheus.Registry // nil: a new one
	Version string               // of the program
	// Hangup requests a reload with each value, such as SIGHUP. Nil: never.
	Hangup <-chan os.Signal
	// Reload is the source of the config for a reload.
	Reload config.LoadOptions
	// Notify sends a state to the service manager, as sd_notify(3). Nil: systemd, if NOTIFY_SOCKET
	// is set.
	Notify func(state string)
	// Hold is the command line, up to --dir, of the program that holds the FIFOs of access logs
	// and the listening sockets while the agent is down; see [hold.Serve]. It is started if no holder
	// runs. Nil: nothing is held, and lines that Envoys write in the meantime are lost.
	Hold []string
	// Sockets are listening sockets from systemd. The agent serves a socket that listens at an
	// address of the config, instead of opening its own. The sockets stay open, except those named
	// [sockets.UnitUDP] and [sockets.UnitTCP], which are for DNS.
	Sockets []*os.File
	// Await is true if Run waits until another agent with the same paths has ended, instead of
	// failing.
	Await bool
	// Stopping is called once when the agent begins to stop, before it waits for work in progress.
	// Nil: not called.
	Stopping func()
	// EnvoyBin is the path of an Envoy that validates the configs of API writes. Empty: none.
	EnvoyBin string
	// Generate replaces the generator in tests. Nil: [generate.Generate].
	Generate reconcile.GenerateFunc
	// Check replaces the check in tests. Nil: the check of [generate.Proxy].
	Check reconcile.CheckFunc
	// Memory reads the memory use of the process; tests of memory pressure replace it. Nil:
	// [memory.Read].
	Memory func() memory.Use
	// GCPercent is the ratio of garbage to live memory in percent, for large heaps; see
	// [memory.Pace]. 0: unchanged.
	GCPercent int
	// Sync is called at the end of each transaction of the state file, which fails with its error.
	// Tests of slow disks use it. Nil: not called.
	Sync func() error
}

// Agent is one agent. Create it with [New], and run it once with [Agent.Run].
type Agent struct {
	cfg      atomic.Pointer[config.Config] // live keys may change
	deps     Deps
	log      *slog.Logger
	registry *resource.Registry
	internal *resource.Registry // registry, and the internal kinds
	tags     *sharedTags        // of registry
	instance string
	started  time.Time

	ready chan struct{} // closed once everything is served
	// Run sets the following fields before it closes ready, and then never changes them.
	store      *store.Store
	state      *statedir.Dir
	suspended  *statedir.Fault        // why the agent serves nothing new; nil: it serves
	stateStamp string                 // of the files of the state, when the agent was suspended
	newState   bool                   // there was no state file
	unrecorded atomic.Pointer[string] // why the inventory of the state cannot be written; "" and nil: it can
	dir        *directory.Source
	envoys     *metadata.Source
	reconciler *reconcile.Reconciler
	api        atomic.Pointer[httpapi.Server] // nil until it is created
	queries    atomic.Pointer[logsapi.Logs]   // nil until the API is created
	rollout    *rollout.Proxies
	xds        *ads.Server
	nacks      *reconcile.NackWatch
	presence   *presence.Presence
	probes     *probes.Probes
	exits      *presence.Exits
	draining   *proxydrain.Drains
	host       *probe.Prober
	refused    *refused
	edges      *edgesapi.Edges
	drains     *drains.Drains
	memory     *memory.Guard
	logs       *logs.Manager
	pods       *pods.Pods       // nil: off
	account    *account.Account // of access logs
	paths      *logpaths.Registry
	files      *logs.Files
	holder     *hold.Holder // of FIFOs and listening sockets while the agent is away; nil: none
	held       *heldSockets
	otlp       net.Listener // for relay; nil: it takes nothing
	relay      *otlp.Relay
	watchdog   *watchdog
	answers    answers // of the resolver
	audit      *auditlog.Log
	events     events.Hub // of the API
	proxies    *access.Proxies
	roles      *access.Roles
	tokens     *token.Keys
	attempts   access.Limiter // limits token attempts over xDS
	addrs      Addrs
	receivers  *logs.Receivers
	dnsSockets *sockets.Book
	resolver   *resolver.Resolver
	peers      *peers.Source        // nil: the agent stands alone
	identity   peers.Identity       // key of this node
	keeper     *intercept.Renewer   // of redirections to the resolver
	watcher    *intercept.Watcher   // of network namespaces
	redirects  *redirects.Redirects // of pods
	notes      []api.Check          // deviations from the config since the start
	waiting    []*waitingListener   // set before ready
	sockets    *activated
	page       *web.Server      // nil: ui.listen is empty
	pageCerts  *certfiles.Files // of page; nil: no TLS

	webhook      *webhook.Server // nil: webhook.listen is empty
	webhookCerts *certfiles.Files
}

// Addrs holds the listening addresses of an agent. A TCP address is nil if it is not configured,
// and DNS is empty without a resolver.
type Addrs struct {
	DNS     []string
	Gossip  netip.AddrPort // zero without a pool
	API     string         // path of the socket
	XDS     string         // path of the socket
	APITCP  net.Addr
	XDSTCP  net.Addr
	Metrics net.Addr
	UI      net.Addr
	Webhook net.Addr
}

// CheckConfig reports faults of a config as a whole, including unknown resource kinds.
func CheckConfig(cfg *config.Config) resource.Faults {
	var known []string
	for _, d := range kinds.Registry().All() {
		known = append(known, d.Kind)
	}
	return slices.Concat(cfg.Validate(), cfg.CheckKinds(known), checkAudit(cfg), checkLogPaths(cfg),
		resolver.CheckConfig(cfg))
}

// New returns an agent for a config. It validates the config, and has no side effects.
func New(cfg *config.Config, d Deps) (*Agent, error) {
	if err := CheckConfig(cfg).Err(); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	if d.Metrics == nil {
		d.Metrics = prometheus.NewRegistry()
	}
	if d.Notify == nil {
		d.Notify = func(state string) {
			if _, err := daemon.SdNotify(false, state); err != nil {
				d.Log.Warn("the service manager cannot be notified", "state", state, "error", err)
			}
		}
	}
	tags := &sharedTags{}
	registry := kinds.Registry().Sharing(tags)
	a := &Agent{deps: d, sockets: newActivated(d.Sockets, d.Log), log: d.Log, tags: tags,
		registry: registry, internal: registry.WithInternal(), instance: rand.Text(), ready: make(chan struct{})}
	a.cfg.Store(cfg)
	a.setLevel(cfg.Log.Level)
	return a, nil
}

// Ready returns a channel that is closed once everything is loaded and all sockets are served.
func (a *Agent) Ready() <-chan struct{} { return a.ready }

// Addrs returns the listening addresses. It is empty before [Agent.Ready].
func (a *Agent) Addrs() Addrs {
	return whenReady(a, func() Addrs { return a.addrs })
}

// whenReady returns get(), or the zero value before the agent is ready.
func whenReady[T any](a *Agent, get func() T) (v T) {
	select {
	case <-a.ready:
		return get()
	default:
		return v
	}
}

// Config returns the config in force.
func (a *Agent) Config() *config.Config { return a.cfg.Load() }

// Metrics returns the metrics of /metrics.
func (a *Agent) Metrics() prometheus.Gatherer { return a.deps.Metrics }

// Files returns the state of the resource files. It is empty before [Agent.Ready].
func (a *Agent) Files() []api.FileStatus {
	return whenReady(a, func() []api.FileStatus { return a.dir.Files() })
}

// Last returns the result of the last pass, or nil before [Agent.Ready].
func (a *Agent) Last() *status.Result {
	return whenReady(a, func() *status.Result { return a.reconciler.Last() })
}

// Proxies returns the state of the connected proxies. It is empty before [Agent.Ready].
func (a *Agent) Proxies() []api.ProxyStatus {
	return whenReady(a, func() []api.ProxyStatus { return a.rollout.Status() })
}

// Receivers returns the state of the receivers of access logs. It is empty before [Agent.Ready].
func (a *Agent) Receivers() []logs.ReceiverStatus {
	return whenReady(a, func() []logs.ReceiverStatus { return a.receivers.Status() })
}

// Store returns the store. It is nil before [Agent.Ready], and closed after [Agent.Run].
func (a *Agent) Store() *store.Store {
	return whenReady(a, func() *store.Store { return a.store })
}

func (a *Agent) setLevel(name string) {
	if a.deps.Level == nil {
		return
	}
	var l slog.Level
	if err := l.UnmarshalText([]byte(name)); err == nil { // Validate has checked it
		a.deps.Level.Set(l)
	}
}

// measure registers the metrics of the agent as a whole.
func (a *Agent) measure() error {
	info := prometheus.NewGauge(prometheus.GaugeOpts{Name: "nearside_build_info",
		Help:        "Always 1; the label has the version.",
		ConstLabels: prometheus.Labels{"version": a.deps.Version}})
	info.Set(1)
	for _, c := range []prometheus.Collector{
		info,
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "nearside_state_last_persist_timestamp_seconds",
			Help: "Time of the last write of the state to disk; 0 when there was none."}, func() float64 {
			if t := a.store.Health().LastPersist; !t.IsZero() {
				return float64(t.UnixMilli()) / 1000
			}
			return 0
		}),
		policies{a}, proxies{a}, conditions{a}, memoryUse{a},
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "nearside_state_pending_resources",
			Help: "Resources whose last change is not on disk."}, func() float64 { return float64(a.store.Health().Pending) }),
	} {
		if err := a.deps.Metrics.Register(c); err != nil {
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	return nil
}

// minToken is the minimum length of a token in a file, in bytes.
const minToken = 16

// readToken reads the token file of a config key, if any. It refuses a file that other users may
// open, because they may have the token.
func readToken(key, path string) (string, error) {
	if path == "" {
		return "", nil
	}
	f, err := files.OpenRegular(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w; create it, or unset %s", key, err, key)
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil {
		return "", fmt.Errorf("%s: %w", key, err)
	} else if mode := st.Mode().Perm(); mode&0o077 != 0 {
		return "", fmt.Errorf("%s: %s has the mode %#o, so that others than the agent's user may use the token; "+
			"make a new token, and run chmod 0600 %s", key, path, mode, path)
	}
	b, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil {
		return "", fmt.Errorf("%s: %w", key, err)
	}
	token := strings.TrimSpace(string(b))
	if len(token) < minToken {
		return "", fmt.Errorf("%s: the token in %s has %d bytes; give it at least %d", key, path, len(token), minToken)
	}
	return token, nil
}
