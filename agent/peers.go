package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/host/keyring"
	"github.com/nearside-mesh/nearside/agent/host/statedir"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/identity"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
	"github.com/nearside-mesh/nearside/agent/source/directory"
	"github.com/nearside-mesh/nearside/agent/source/peers"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// openPeers opens the pool if the config has one.
func (a *Agent) openPeers(ctx context.Context, cfg *config.Config) error {
	g := &cfg.Gossip
	if g.Bind == "" {
		return nil
	}
	var keys [][]byte
	if g.KeyringFile != "" {
		var err error
		if keys, err = keyring.Read(g.KeyringFile); err != nil {
			return err
		}
	}
	convergence := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "nearside_gossip_convergence_seconds",
		Help: "Time from the write of a resource on another node, by that node's clock, " +
			"until the store of this node has it.",
		Buckets: []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 600}})
	p, err := peers.Open(ctx, peers.Options{
		Store: a.store, Decode: a.decodeStored, Self: a.identity.Node, Fresh: a.identity.Fresh,
		Signer: a.identity.Signer, Former: a.identity.Former, Node: cfg.Node.Name,
		NewID: func() (peers.Identity, error) { return a.takeIdentity(cfg) }, Machine: peers.ReadMachine(),
		Zone: cfg.Node.Zone, Version: a.deps.Version[:min(len(a.deps.Version), 64)], Cluster: g.Cluster,
		Bind: g.Bind, Advertise: g.Advertise, Join: g.Join, Keys: keys, Insecure: g.Insecure, TCPOnly: g.TCPOnly,
		KeyringFile: g.KeyringFile, Changed: func() { a.reconciler.Trigger() }, Answer: a.answer,
		Converged: func(d time.Duration) { convergence.Observe(d.Seconds()) }, Log: a.log, Now: a.deps.Now,
		Trust: peers.TrustOptions{Mode: cfg.Trust.Mode, File: cfg.Trust.File, Admit: g.Admit}, State: cfg.Paths.State,
		Kinds: a.knownKinds(), Published: published(cfg),
		Directories: func() []directory.Published { return a.dir.Published() },
	})
	if err != nil {
		return err
	}
	a.peers = p
	return errors.Join(a.deps.Metrics.Register(poolMetrics{p}), a.deps.Metrics.Register(convergence))
}

// knownKinds returns the kinds of resources that this version knows.
func (a *Agent) knownKinds() (out []string) {
	for _, d := range a.internal.All() {
		out = append(out, d.Kind)
	}
	return out
}

// published returns the IDs of the directories that the pool owns, by path.
func published(cfg *config.Config) map[string]string {
	out := map[string]string{}
	for _, d := range cfg.Resources.Dir {
		if d.Publish && cfg.Gossip.Bind != "" {
			out[filepath.Clean(d.Path)] = d.PublishID()
		}
	}
	return out
}

// publication returns the version of a directory in the pool, or zero.
func (a *Agent) publication(id string) api.Publication {
	if a.peers == nil {
		return api.Publication{}
	}
	return a.peers.Publication(id)
}

// takeIdentity gives this node another key and ID, because its state was copied.
func (a *Agent) takeIdentity(cfg *config.Config) (peers.Identity, error) {
	id, err := peers.NewIdentity(cfg.Paths.State)
	if err == nil {
		a.store.SetOrigin(origin(cfg, id))
	}
	return id, err
}

// origin returns the author of this node's versions. Without a pool they are not signed, because a
// signature is for one cluster.
func origin(cfg *config.Config, id peers.Identity) engine.Origin {
	out := engine.Origin{Node: id.Node, Name: cfg.Node.Name}
	if cfg.Gossip.Bind != "" {
		out.Cluster, out.Signer = cfg.Gossip.Cluster, id.Signer
	}
	return out
}

// idle reports whether no config depends on resources of a kind. The states of endpoints are
// measured again.
func (a *Agent) idle(kind string) bool {
	d, known := a.internal.Lookup(kind)
	return known && (d.Inert || resource.Internal(kind))
}

// openStore opens the state file.
func (a *Agent) openStore(cfg *config.Config) error {
	dir := cfg.Paths.State
	id, err := peers.OpenIdentity(dir)
	unusable := (*peers.FileError)(nil)
	if errors.As(err, &unusable) && a.state.LossAccepted() {
		if err = a.state.SetAside(filepath.Base(unusable.Path)); err == nil {
			id, err = peers.OpenIdentity(dir)
		}
	}
	if err != nil && (cfg.Gossip.Bind != "" || errors.As(err, &unusable)) {
		return err
	}
	if err != nil { // an agent without a pool needs no ID; writes fail while the disk does
		a.log.Warn("the agent has no node key", "error", err)
	}
	a.identity = id
	// The pool's file of an earlier release must be readable before the store adopts it.
	_, err = peers.Import(dir, slog.New(slog.DiscardHandler))
	if errors.As(err, &unusable) && a.state.LossAccepted() {
		err = a.state.SetAside(filepath.Base(unusable.Path))
	}
	if err != nil {
		return err
	}
	_, missing := os.Stat(filepath.Join(dir, stateFile))
	a.newState = errors.Is(missing, fs.ErrNotExist)
	a.store, err = store.Open(store.Options{
		Path: filepath.Join(dir, stateFile), Log: a.log, Now: a.deps.Now, Encode: resource.Marshal,
		Decode: a.decodeStored, Sync: a.deps.Sync, Changed: a.changed, Shared: peers.Shared, Origin: origin(cfg, id),
		Idle:         a.idle,
		Import:       func() ([]engine.Op, error) { return peers.Import(dir, a.log) },
		AcceptDamage: !a.state.Had(statedir.Database), AcceptLoss: a.state.LossAccepted(),
	})
	if err != nil {
		return fmt.Errorf("open the state: %w", err)
	}
	if err := peers.RetireImported(dir, a.store); err != nil {
		a.log.Warn("cannot rename the pool's file of an earlier release", "error", err)
	}
	return nil
}

// authorities exchanges certificate authorities with the pool, once it is open.
type authorities struct{ a *Agent }

var noOthers = identity.NewOthers(nil)

func (x authorities) Tell(list []identity.Authorities) {
	if x.a.peers != nil {
		x.a.peers.Tell(list)
	}
}

func (x authorities) Others() *identity.Others {
	if x.a.peers == nil {
		return noOthers
	}
	return x.a.peers.Others()
}

func (x authorities) Announced() (others, without int) {
	if x.a.peers == nil {
		return 0, 0
	}
	return x.a.peers.Announced()
}

// startPeers joins the pool. stop leaves it, and waits.
func (a *Agent) startPeers(ctx context.Context) (stop func() error, err error) {
	if a.peers == nil {
		return func() error { return nil }, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	wait, err := a.peers.Start(ctx)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("gossip.bind: %w", portTaken(a.cfg.Load().Gossip.Bind, err))
	}
	return func() error { cancel(); return wait() }, nil
}

// pool returns the pool for the API, or nil.
func (a *Agent) pool() httpapi.Pool {
	if a.peers == nil {
		return nil
	}
	return a.peers
}

// answer answers a question of another member, once the API exists.
func (a *Agent) answer(ctx context.Context, question []byte) []byte {
	if queries := a.queries.Load(); queries != nil {
		if b := queries.Answer(ctx, question); b != nil {
			return b
		}
	}
	if api := a.api.Load(); api != nil {
		return api.Answer(ctx, question)
	}
	return nil
}

var (
	membersDesc = prometheus.NewDesc("nearside_gossip_members", "Members of the pool, by state.", []string{"state"}, nil)
	droppedDesc = prometheus.NewDesc("nearside_gossip_messages_dropped_total",
		"Messages of the pool that this node lost: busy ones arrived faster than they were processed, "+
			"unsent ones exceeded the queue, and refused ones were invalid.", []string{"reason"}, nil)
	differsDesc = prometheus.NewDesc("nearside_gossip_differs_seconds",
		"Longest time for which a resource of the pool has differed between this node and a live member, above 30 s.",
		nil, nil)
	differingDesc = prometheus.NewDesc("nearside_gossip_differing_members",
		"Live members whose resources have differed from those of this node for longer than 30 s.", nil, nil)
	otherFilesDesc = prometheus.NewDesc("nearside_gossip_members_with_other_files",
		"Live members whose resources in files differ from those of this node.", nil, nil)
	unappliedDesc = prometheus.NewDesc("nearside_gossip_refused_records",
		"Versions of the pool that this node knows and does not apply, by reason.", []string{"reason"}, nil)
)

// poolMetrics collects the metrics of the pool.
type poolMetrics struct{ p *peers.Source }

func (m poolMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{membersDesc, droppedDesc, differsDesc, differingDesc, otherFilesDesc,
		unappliedDesc} {
		ch <- d
	}
}

func (m poolMetrics) Collect(ch chan<- prometheus.Metric) {
	states := map[string]int{api.MemberAlive: 0, api.MemberDead: 0, api.MemberLeft: 0, api.MemberRefused: 0}
	for _, x := range m.p.Members() {
		states[x.State]++
	}
	for state, n := range states {
		ch <- prometheus.MustNewConstMetric(membersDesc, prometheus.GaugeValue, float64(n), state)
	}
	for reason, n := range m.p.Dropped() {
		ch <- prometheus.MustNewConstMetric(droppedDesc, prometheus.CounterValue, float64(n), reason)
	}
	members, longest, files := m.p.Differing()
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	gauge(differsDesc, longest.Seconds())
	gauge(differingDesc, float64(members))
	gauge(otherFilesDesc, float64(files))
	for reason, n := range m.p.Refused() {
		gauge(unappliedDesc, float64(n), reason)
	}
}
