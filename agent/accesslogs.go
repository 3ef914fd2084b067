package agent

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/accesslog/fifo"
	"github.com/nearside-mesh/nearside/accesslog/otlp"
	"github.com/nearside-mesh/nearside/accesslog/spool"
	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/deliver/account"
	"github.com/nearside-mesh/nearside/agent/deliver/logs"
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/host/envoyadmin"
	"github.com/nearside-mesh/nearside/agent/host/hold"
	"github.com/nearside-mesh/nearside/agent/host/logpaths"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/rotation"
)

// Names below paths.run and paths.state.
const (
	fifoDirName    = hold.FIFODir
	spoolDirName   = "spool"
	otlpSocketName = "otlp.sock" // also in the configs of Envoys
)

// spoolMemory bounds the memory that all collectors share before they use their spools, in bytes.
const spoolMemory = 64 << 20

// checkLogPaths reports log files of the config with one path.
func checkLogPaths(cfg *config.Config) (out resource.Faults) {
	for _, err := range logpaths.New(cfg).Conflicts() {
		out = append(out, resource.Fault{Reason: err.Error()})
	}
	return out
}

// newFiles assigns the log files of the config to their owners, before others can claim them.
func (a *Agent) newFiles(cfg *config.Config) {
	a.paths = logpaths.New(cfg)
	a.files = logs.NewFiles(a.paths, a.log)
	a.files.Spool = a.fileSpool(cfg)
}

// openLogs resumes reading the FIFOs of Envoys, before anything is published.
func (a *Agent) openLogs(cfg *config.Config, g groups) {
	peer := func(key node.Key) (access.Peer, bool) {
		p, _ := a.rollout.Peer(key) // also for a recently disconnected Envoy, which may still write
		return p, true
	}
	dir, spoolIn := filepath.Join(cfg.Paths.Run, fifoDirName), spoolOptions(a.spool(cfg), cfg.Paths.State)
	var relay logs.Relay
	if a.otlp != nil {
		relay = records{a.relay, spoolIn}
	}
	a.logs = logs.New(logs.Options{
		Relay: relay,
		Dir:   dir, Spool: filepath.Join(cfg.Paths.State, spoolDirName), Paths: a.paths,
		Peer: peer, Changed: func() { a.reconciler.Trigger() }, Log: a.log,
		Reopen: func(ctx context.Context, id string) error {
			p, _ := peer(node.Key{ID: id, Flavor: node.FlavorEnvoy})
			return envoyadmin.Envoy{Dir: envoyDir(cfg), ID: id, Peer: p}.ReopenLogs(ctx)
		},
		Open: func(found func(string, map[string]string) accesslog.Destination, reopen func(string)) (logs.Pipes, error) {
			o := fifo.Options{Dir: dir, Roots: []string{cfg.Paths.Run}, Group: g.xds, Log: a.log, Found: found, Reopen: reopen}
			if a.holder != nil {
				o.Holder = a.holder
			}
			p, err := a.openFIFOs(o, filepath.Join(cfg.Paths.Run, hold.PodFIFODir))
			if err != nil {
				return nil, err
			}
			if a.holder != nil {
				if err := a.holder.ReleaseRemoved(); err != nil {
					a.log.Warn("the holder still holds removed FIFOs", "error", err)
				}
			}
			return p, nil
		},
		File: func(path string, limits rotation.Limits) (logs.Output, error) {
			f, err := a.files.Open(logpaths.Policies,
				logs.FileOptions(cfg, filepath.Clean(path), limits.Or(cfg.AccessLog.Files)))
			if err != nil {
				return nil, err
			}
			return logs.NewRotated(f, cfg.AccessLog.Files), nil
		},
		Waiting: a.files.Waiting,
		Forward: func(address, at string) (logs.Output, error) {
			f, err := spool.NewForwarder(spool.ForwarderOptions{Address: address, Spool: spoolIn(at), Log: a.log})
			if err != nil {
				return nil, err
			}
			return f, nil
		},
	})
}

// openAccount creates the account of access logs, and registers the metrics.
func (a *Agent) openAccount(cfg *config.Config) error {
	a.account = account.New(account.Options{Streams: a.logStreams, Log: a.log, Now: a.deps.Now,
		Counts: func(ctx context.Context, id string) (api.ProxyCounts, error) {
			p, _ := a.rollout.Peer(node.Key{ID: id, Flavor: node.FlavorEnvoy})
			return envoyadmin.Envoy{Dir: envoyDir(cfg), ID: id, Peer: p}.Counts(ctx)
		}})
	future := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "nearside_log_future_backups",
		Help: "Rotated log files whose name has a time in the future."}, func() float64 {
		n := a.files.Total().Future + a.audit.FutureBackups()
		if f := a.deps.LogFile; f != nil {
			n += f.FutureBackups()
		}
		return float64(n)
	})
	return errors.Join(a.deps.Metrics.Register(logs.NewCollector(a.files, a.streams)),
		a.deps.Metrics.Register(a.account), a.deps.Metrics.Register(future))
}

// openRelay opens the socket for log records. If that fails, Envoys send records directly to their
// collectors.
func (a *Agent) openRelay(ctx context.Context, cfg *config.Config, g groups) {
	s := config.Socket(cfg.XDS.Socket)
	s.Path = filepath.Join(cfg.Paths.Run, otlpSocketName)
	l, err := a.listenUnix(ctx, hold.InPrefix, s, g.xds)
	if err != nil {
		a.log.Warn("log records for OpenTelemetry are not taken; they go from Envoys to their collectors", "error", err)
		return
	}
	a.otlp, a.relay = l, otlp.NewRelay(otlp.Options{Log: a.log})
}

// spoolOptions returns a function with the options of a spool directory. All spools share one
// memory limit.
func spoolOptions(c *config.Spool, state string) func(dir string) spool.Options {
	memory := spool.NewMemory(spoolMemory)
	return func(dir string) spool.Options {
		o := spool.Options{Dir: dir, Roots: []string{state}, MaxBytes: int64(c.MaxSize) << 20,
			MaxAge: time.Duration(c.MaxAge) * time.Hour,
			OnFull: spool.Policy(c.OnFull), Memory: memory}
		if c.MaxSize == 0 {
			o.Dir = ""
		}
		return o
	}
}

// spool returns the config of spools. Without a state directory, they are in memory.
func (a *Agent) spool(cfg *config.Config) *config.Spool {
	out := cfg.AccessLog.Spool
	if a.withoutDir() {
		out.MaxSize = 0
	}
	return &out
}

// fileSpool returns the options of the spools of log files.
func (a *Agent) fileSpool(cfg *config.Config) logs.FileSpool {
	c := a.spool(cfg)
	if c.MaxSize == 0 {
		return logs.FileSpool{}
	}
	return logs.FileSpool{Dir: filepath.Join(cfg.Paths.State, spoolDirName), MaxBytes: int64(c.MaxSize) << 20}
}

// records adapts the relay to [logs.Relay].
type records struct {
	*otlp.Relay
	spool func(dir string) spool.Options
}

// SetRoute implements [logs.Relay].
func (r records) SetRoute(x logs.Route) error {
	return r.Relay.SetRoute(otlp.Route{Name: x.Name, Authority: x.Authority, Endpoint: x.Endpoint,
		Spool: r.spool(x.Spool),
		Allow: func(p otlp.Peer) error {
			return x.Allow(logs.Caller{Known: p.Known, UID: p.UID, Pod: p.Owner})
		}})
}

// runLogs delivers log lines until ctx ends. It keeps the files open until all writers have
// stopped.
func (a *Agent) runLogs(ctx context.Context) error {
	retain, stop := context.WithCancel(context.WithoutCancel(ctx))
	var g errgroup.Group
	g.Go(func() error { return a.files.Run(retain) })
	if a.otlp != nil {
		g.Go(func() error { return a.relay.Run(ctx, append(a.pods.Open(1), a.otlp)...) })
	}
	var writers errgroup.Group
	writers.Go(func() error { return a.receivers.Run(ctx) })
	writers.Go(func() error { return a.logs.Run(ctx) })
	g.Go(func() error { return a.account.Run(ctx) })
	err := writers.Wait()
	stop()
	return errors.Join(err, g.Wait())
}

// streams are those of access logs.
func (a *Agent) streams() []logs.Stream {
	return logs.Merge(append(a.logs.Streams(), a.receivers.Streams()...))
}

// logStreams returns the streams of access logs as API documents.
func (a *Agent) logStreams() []api.LogStream {
	list := a.streams()
	out := make([]api.LogStream, len(list))
	for i := range list {
		s := &list[i]
		out[i] = api.LogStream{
			Kind: string(s.Kind), Name: s.Name, Mesh: s.Mesh, Dataplane: s.Dataplane, Backend: s.Backend,
			Destination: s.Destination, Holder: s.Holder, Open: s.Open, In: s.In, Written: s.Written, Spooled: s.Spooled,
			InFlight: s.InFlight, Dropped: map[string]uint64{}, BytesIn: s.BytesIn, Unterminated: s.Unterminated,
			Oversize: s.Oversize, Repeated: s.Repeated, Refused: s.Refused, SpoolBytes: s.SpoolBytes,
			SpoolOldest: s.SpoolOldest, DirectoryChanges: s.DirChanges, Health: s.Health,
		}
		for cause, n := range s.Stats.Dropped {
			out[i].Dropped[string(cause)] = n
		}
		if s.Full {
			path, ok := strings.CutPrefix(s.Destination, "file ")
			if !ok {
				path = filepath.Join(a.cfg.Load().Paths.State, spoolDirName)
			}
			out[i].Full = a.logs.MountPoint(path)
		}
	}
	return out
}

// logging prepares loggers, and accounts for their lines.
type logging struct {
	*logs.Manager
	*account.Account
}

// Left implements [reconcile.Logs].
func (l logging) Left(key node.Key) {
	l.Manager.Left(key)
	l.Account.Left(key)
}

// logsCheck reports problems of access logs but full disks, which spaceCheck reports. They do not
// affect readiness, because they do not stop traffic.
func (a *Agent) logsCheck() api.Check {
	problem := slices.Concat(a.logs.Problems(), a.receivers.Problems(), a.files.Future())
	if len(problem) == 0 {
		return api.Check{Name: "access-logs", OK: true, Reason: "all lines go where they are to go"}
	}
	const most = 5
	more := ""
	if n := len(problem) - most; n > 0 {
		problem, more = problem[:most], plural.Form(n, "; and 1 more", "; and %d more")
	}
	return api.Check{Name: "access-logs", OK: true, Degraded: true, Reason: strings.Join(problem, "; ") + more}
}
