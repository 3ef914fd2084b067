package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/nearside-mesh/nearside/agent/deliver/ads"
	"github.com/nearside-mesh/nearside/agent/deliver/drains"
	"github.com/nearside-mesh/nearside/agent/deliver/logs"
	"github.com/nearside-mesh/nearside/agent/deliver/presence"
	"github.com/nearside-mesh/nearside/agent/deliver/reconcile"
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/host/envoyadmin"
	"github.com/nearside-mesh/nearside/agent/host/hold"
	"github.com/nearside-mesh/nearside/agent/host/lockfile"
	"github.com/nearside-mesh/nearside/agent/host/memory"
	"github.com/nearside-mesh/nearside/agent/host/probe"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/identity"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
	"github.com/nearside-mesh/nearside/agent/source/directory"
	"github.com/nearside-mesh/nearside/agent/source/metadata"
	"github.com/nearside-mesh/nearside/agent/source/peers"
	"github.com/nearside-mesh/nearside/rotation"
	"golang.org/x/sync/errgroup"
)

// Run runs the agent until ctx ends or a fatal error occurs. It loads everything before it opens a
// socket, except that of the webhook. It returns when all goroutines have ended, the sockets are
// removed, and the store is closed; nil if ctx ended. Call it once.
func (a *Agent) Run(ctx context.Context) (err error) {
	ctx, stopWebhook, err := a.startWebhook(ctx, a.cfg.Load())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopWebhook()) }()
	if a.deps.Await && lockfile.Await(ctx, filepath.Join(a.cfg.Load().Paths.Run, pidName), a.log) != nil {
		return nil
	}
	a.started = a.deps.Now()
	if a.deps.GCPercent > 0 {
		memory.Pace(a.deps.GCPercent)
	}
	cfg := a.cfg.Load()
	gids := groups{api: groupID("api.socket.group", cfg.API.Socket.Group, a.log),
		xds: groupID("xds.socket.group", cfg.XDS.Socket.Group, a.log)}
	if err := checkDirs(cfg); err != nil {
		return err
	}
	a.checkState(cfg)
	a.makeDirs(cfg, gids)
	locks, err := a.locks(cfg)
	defer func() {
		for _, l := range locks {
			l.Release()
		}
	}()
	if err != nil {
		return err
	}
	secret, err := readToken("api.tokenFile", cfg.API.TokenFile)
	if err != nil {
		return err
	}
	metricsToken, err := readToken("metrics.tokenFile", cfg.Metrics.TokenFile)
	if err != nil {
		return err
	}

	stopAudit, err := a.startAudit(cfg, gids)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopAudit()) }() // after everything that records events
	if err := a.openState(cfg); err != nil {
		return err
	}
	defer func() {
		if cerr := a.store.Close(); cerr != nil {
			a.log.Error("the state was not written completely", "error", cerr)
			err = errors.Join(err, fmt.Errorf("close the state: %w", cerr))
		}
	}()
	a.noteSetAside()

	if err := a.openAccess(cfg, gids); err != nil {
		return err
	}
	makeEnvoyDirs(envoyDir(cfg), append([]uint32{0, uint32(os.Geteuid())}, a.proxies.Users()...), a.log)
	a.openHolder(cfg)
	defer a.held.removeFiles()
	a.openRelay(ctx, cfg, gids)
	if a.otlp != nil {
		defer a.otlp.Close()
	}
	if err := a.build(cfg, gids); err != nil {
		return err
	}
	a.receivers.OpenFiles()
	defer func() {
		if cerr := a.receivers.Close(); cerr != nil {
			err = errors.Join(err, fmt.Errorf("close the access logs: %w", cerr))
		}
	}()
	leave, err := a.openResources(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leave()) }()
	a.resolver.Update()

	ls, err := a.listen(ctx, cfg, gids)
	if err != nil {
		return err
	}
	if err := a.resolver.Open(ctx); err != nil {
		ls.close()
		return err
	}
	a.addrs.DNS = a.resolver.State().Listen
	api, err := httpapi.New(a.inspectOptions(cfg,
		httpapi.Access{Roles: a.roles, Token: secret, Verify: a.verifyClient, Proxies: cfg.XDS.Access}))
	if err == nil {
		a.api.Store(api)
		err = errors.Join(a.openRenewer(cfg), a.openPage(cfg))
	}
	if err != nil {
		ls.close()
		a.resolver.Close()
		return err
	}
	a.receivers.Listen(ctx)
	a.held.release(cfg)
	close(a.ready)
	ready := "the agent is ready"
	if a.suspended != nil {
		ready = "the agent is suspended"
	}
	a.log.Info(ready, "node", cfg.Node.Name, "zone", cfg.Node.Zone, "api", cfg.API.Socket.Path,
		"xds", cfg.XDS.Socket.Path, "resources", cfg.Resources.Dir, "revision", a.store.Snapshot().Revision())
	a.sockets.warn()
	a.deps.Notify(daemon.SdNotifyReady + "\n" + a.statusLine())

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return api.Serve(ctx, ls.api...) })
	if len(ls.metrics) > 0 {
		g.Go(func() error { return api.ServeMetrics(ctx, metricsToken, ls.metrics...) })
	}
	if len(ls.ui) > 0 {
		g.Go(func() error { return a.page.Serve(ctx, nil, ls.ui...) })
	}
	g.Go(func() error { return a.xds.Serve(ctx, ls.xds...) })
	g.Go(func() error { return a.exits.Run(ctx) })
	g.Go(func() error { return a.runHeld(ctx) })
	g.Go(func() error { return a.runResources(ctx) })
	g.Go(func() error { a.maintain(ctx); return nil })
	g.Go(func() error { a.deps.LogFile.run(ctx); return nil })
	g.Go(func() error { a.watchdog.run(ctx); return nil })
	g.Go(func() error {
		<-ctx.Done()
		a.draining.Stop()
		if a.deps.Stopping != nil {
			a.deps.Stopping()
		}
		a.log.Info("the agent is stopping")
		a.deps.Notify(daemon.SdNotifyStopping + "\nSTATUS=stopping: running requests end")
		return nil
	})
	return g.Wait()
}

// Names of the agent's files in paths.state and paths.run.
const (
	stateFile = "nearside.db"
	lockName  = "nearside.lock"
	pidName   = "nearside.pid"
)

// locks locks the state and run directories. If the state directory is not writable, the agent runs
// in memory, and only locks the run directory.
func (a *Agent) locks(cfg *config.Config) (held []*lockfile.File, err error) {
	for _, l := range []struct {
		path   string
		needed bool
	}{{filepath.Join(cfg.Paths.State, lockName), false}, {filepath.Join(cfg.Paths.Run, pidName), true}} {
		if !l.needed && a.withoutDir() {
			continue
		}
		f, err := lockfile.Lock(l.path, a.log)
		var taken *lockfile.HeldError
		switch {
		case err == nil:
			held = append(held, f)
		case errors.As(err, &taken):
			return held, err
		case l.needed:
			return held, fmt.Errorf("paths.run cannot be used: %w; make %s writable for the agent's user or set paths.run",
				err, filepath.Dir(l.path))
		default:
			a.log.Error("paths.state cannot be written; the agent continues in memory", "error", err)
		}
	}
	return held, nil
}

// handoverTime is how long proxies of this node wait for those of other nodes when the protocol of
// a service changes. It covers the time until all agents have the change and their Envoys have
// acknowledged it.
const handoverTime = 5 * time.Second

// build creates the parts that work on the store.
func (a *Agent) build(cfg *config.Config, g groups) error {
	if err := a.measure(); err != nil {
		return err
	}
	tlsConfig, err := serverTLS(cfg)
	if err != nil {
		return err
	}
	a.memory = memory.New(memory.Options{Read: a.deps.Memory, Now: a.deps.Now, Log: a.log, Shed: a.shed,
		Own: func() { a.reconciler.Shed() }, Changed: func() { a.reconciler.Trigger() }})
	if a.exits, err = presence.NewExits(); err != nil {
		return fmt.Errorf("watch the processes of Envoys: %w", err)
	}
	a.presence = presence.New(presence.Options{Registry: a.internal, Store: a.store, Log: a.log, Now: a.deps.Now,
		Watch: a.exits.Add})
	a.envoys = metadata.New(metadata.Options{Registry: a.registry, Store: a.store, Log: a.log,
		Changed: func() { a.reconciler.Trigger(); a.probes.Annotated() }, Announce: a.presence.Announce})
	a.rollout = rollout.New(rollout.Options{
		Log: a.log, Now: a.deps.Now, Registry: a.deps.Metrics,
		Changed:  func() { a.reconciler.Trigger(); a.probes.Connected() },
		Stored:   func(ref node.Ref) uint64 { return reconcile.Stored(a.store.Snapshot(), ref) },
		Inbounds: a.ackedInbounds, Rejected: func() { a.nacks.Trigger() }, Decides: true, Forgot: a.memory.Freed,
		Recorded:  a.events.Recorded,
		DrainTime: time.Duration(cfg.XDS.DrainTime) * time.Second, HandoverTime: handoverTime,
	})
	a.xds = ads.NewServer(a.rollout, ads.ServerOptions{
		Log: a.log, Now: a.deps.Now, Registry: a.deps.Metrics, Handler: streams{a}, Metadata: metadata.Fields(),
		Authorize: a.authorize, Verify: a.verifyProxy, TLS: tlsConfig, Examine: a.examine,
		Drain: a.drainOwn,
	})
	a.drains = drains.New(drains.Options{Peer: a.rollout.Peer, Listeners: a.rollout.Listeners, Now: a.deps.Now, Log: a.log,
		Envoy: func(id string, peer access.Peer) drains.Envoy {
			return envoyadmin.Envoy{Dir: envoyDir(cfg), ID: id, Peer: peer}
		}})
	a.refused, a.edges = newRefused(a.rollout.Status, envoyDir(cfg), a.log), a.newEdges()
	a.refused.observe = a.edges.Observe
	if err := errors.Join(a.newProbes(), a.deps.Metrics.Register(a.refused)); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	a.newFiles(cfg)
	a.host = probe.NewProber(probe.Options{Peer: a.rollout.Peer, Own: cfg.Paths.Run, Refused: a.paths.CheckEnvoy,
		Changed: func() { a.reconciler.Trigger() }})
	if err := a.newRedirects(cfg); err != nil {
		return err
	}
	a.receivers = logs.NewReceivers(logs.ReceiversOptions{Config: cfg, Files: a.files, Log: a.log,
		ListenUnix: a.listenReceiver, ListenTCP: func(ctx context.Context, addr string) (net.Listener, error) {
			return a.listenTCP(ctx, hold.InPrefix, addr)
		}})
	a.openLogs(cfg, g)
	if err := a.openAccount(cfg); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	a.reconciler = reconcile.New(reconcile.Options{
		Store: a.store, Publisher: a.rollout, Recheck: a.xds.Recheck, Build: a.rollout.Build, Plain: a.rollout.Plain,
		Rejections: a.rollout.Rejections, Host: a.host.Host, Logs: logging{a.logs, a.account},
		Zone:  cfg.Node.Zone,
		Paths: a.paths.Rules(), AutoReachable: cfg.Mesh.AutoReachableBackends, FlatNetwork: cfg.Mesh.FlatNetwork,
		Resolver: cfg.DNS.Listen != "",
		VIPs:     cfg.VIPs.Options(), VIPFile: filepath.Join(cfg.Paths.State, reconcile.OldVIPFile), Log: a.log,
		Now: a.deps.Now, Admit: a.memory.Admit, Forgot: a.memory.Freed, Problems: a.sourceProblems,
		Sidecars: a.envoys.Sidecars, Awaited: a.envoys.Awaited, Blocked: a.blocked,
		Passed:   func() { a.nacks.Trigger(); a.resolver.Trigger() },
		Registry: a.deps.Metrics, Generate: a.deps.Generate, Check: a.deps.Check,
		Certificates: identity.Open(identity.Options{Dir: filepath.Join(cfg.Paths.State, reconcile.IdentityDir),
			Now: a.deps.Now, Log: a.log, Pool: authorities{a}}),
		SystemCA: identity.SystemCA(),
	})
	if err := a.openResolver(cfg, g); err != nil {
		return err
	}
	timeout, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		a.log.Warn("the service manager's watchdog is off: WATCHDOG_USEC or WATCHDOG_PID is not a number", "error", err)
	}
	a.watchdog = &watchdog{busySince: a.reconciler.BusySince, now: a.deps.Now, notify: a.deps.Notify,
		timeout: timeout, log: a.log}
	a.nacks = reconcile.NewNackWatch(a.rollout, a.reconciler.Last, a.store, a.registry, a.log, a.reconciler.Trigger)
	var dirs []directory.Dir
	ids := published(cfg)
	for _, d := range cfg.Resources.Dir {
		dirs = append(dirs, directory.Dir{Path: d.Path, Role: d.Role, Publish: ids[filepath.Clean(d.Path)]})
	}
	a.dir = directory.New(directory.Options{Dirs: dirs, May: a.roles.CheckRole, Registry: a.registry, Store: a.store,
		Log: a.log, Now: a.deps.Now, OfNode: func(kind string) bool { return !peers.Shared(kind) },
		InPool: func(id string) bool { return a.peers != nil && a.peers.InPool(id) }})
	return nil
}

type listeners struct{ api, xds, metrics, ui []net.Listener }

func (l listeners) close() {
	for _, x := range slices.Concat(l.api, l.xds, l.metrics, l.ui) {
		_ = x.Close()
	}
}

// listen opens all sockets, or none. TCP sockets wait for an address in use.
func (a *Agent) listen(ctx context.Context, cfg *config.Config, g groups) (ls listeners, err error) {
	defer func() {
		if err != nil {
			ls.close()
		}
	}()
	for _, s := range []struct {
		to  *[]net.Listener
		cfg config.Socket
		gid int
		tcp string
		key string
		at  *net.Addr
		as  string // prefix of the name of a held socket
	}{
		{&ls.api, config.Socket(cfg.API.Socket), g.api, cfg.API.TCP, "api.tcp", &a.addrs.APITCP, hold.APIPrefix},
		{&ls.xds, config.Socket(cfg.XDS.Socket), g.xds, cfg.XDS.TCP, "xds.tcp", &a.addrs.XDSTCP, hold.InPrefix},
		{to: &ls.metrics, tcp: cfg.Metrics.Listen, key: "metrics.listen", at: &a.addrs.Metrics, as: hold.APIPrefix},
		{to: &ls.ui, tcp: cfg.UI.Listen, key: "ui.listen", at: &a.addrs.UI, as: hold.APIPrefix},
	} {
		if s.cfg.Path != "" {
			u, err := a.listenUnix(ctx, s.as, s.cfg, s.gid)
			if err != nil {
				return ls, err
			}
			*s.to = append(*s.to, u)
		}
		if s.tcp == "" {
			continue
		}
		l, err := a.listenOrAwait(ctx, s.key, s.as, s.tcp)
		if err != nil {
			return ls, err
		}
		*s.to = append(*s.to, l)
		*s.at = l.Addr()
	}
	ls.xds = append(ls.xds, a.pods.Open(0)...) // before the holder releases unused sockets
	a.addrs.API, a.addrs.XDS = cfg.API.Socket.Path, cfg.XDS.Socket.Path
	return ls, nil
}

// maintain releases memory, closes streams with expired tokens, and handles reloads, until ctx
// ends.
func (a *Agent) maintain(ctx context.Context) {
	t := time.NewTimer(rotation.NextTick(trimEvery))
	defer t.Stop()
	revoked := time.NewTimer(rotation.NextTick(revokedEvery))
	defer revoked.Stop()
	var burst trimmer
	status, tokens := a.statusLine(), a.tokens.Stamp()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			t.Reset(rotation.NextTick(trimEvery))
			burst.look(a.log)
			a.memory.Look()
			a.xds.Recheck()
			a.recordState()
			if now := a.statusLine(); now != status {
				status = now
				a.deps.Notify(status)
			}
		case <-revoked.C:
			revoked.Reset(rotation.NextTick(revokedEvery))
			if now := a.tokens.Stamp(); now != tokens {
				tokens = now
				a.xds.Recheck()
			}
		case <-a.deps.Hangup:
			a.deps.Notify(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec() +
				"STATUS=reloading the config and the resources")
			a.Reload(a.deps.Reload)
			status = a.statusLine()
			a.deps.Notify(daemon.SdNotifyReady + "\n" + status)
		}
	}
}
