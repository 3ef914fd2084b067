// Package probes checks the workloads of this node's proxies. A probe opens a connection, or sends
// an HTTP request, from where the Envoy of the proxy reaches the workload. Several equal results
// change the state of an inbound.
package probes

import (
	"container/heap"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
)

const (
	defaultAtOnce = 64
	// absent is the interval at which a probe looks for its Envoy, while that is not connected and
	// Connected is not called.
	absent = 30 * time.Second
)

// Options configures [Probes]. Store, Peer, and Result are required.
type Options struct {
	Store *store.Store
	// Peer returns the process of an Envoy, and false if it has no stream.
	Peer func(node.Key) (access.Peer, bool)
	// Reach returns the annotations in the metadata of an Envoy; nil for none. It may be nil.
	Reach func(mesh, name string) *resource.Reach
	// Result receives changed states, and true when a probe is removed.
	Result func(dataplane resource.Key, port uint32, ok bool)
	// Run runs one probe. Nil connects to the workload.
	Run func(ctx context.Context, peer access.Peer, p *resource.Probe) error

	AtOnce   int              // maximum number of concurrent probes; 0: 64
	Now      func() time.Time // nil: time.Now
	Log      *slog.Logger     // nil: no logging
	Registry prometheus.Registerer
}

// Probes schedules all probes of a node in one goroutine.
type Probes struct {
	o      Options
	bell   chan struct{} // one slot
	all    atomic.Bool   // annotations may have changed
	counts counts

	// The rest belongs to Run.
	jobs    map[resource.Key]map[uint32]*job
	queue   queue
	running int
	done    chan result
	seen    *store.Snapshot
}

// job is the probe of one inbound.
type job struct {
	probe     resource.Probe
	dataplane resource.Key
	at        time.Time // of the next run
	index     int       // in the queue; -1 while it runs
	removed   bool
	known     bool // a result has been reported
	ok        bool // the reported result
	late      bool // the run is counted as late
	absent    bool // the Envoy was not connected at the last run
	row       uint32
	rowOK     bool // result of the last row runs
	blocked   bool // the last run did not reach the network namespace, and the log has the reason
}

type result struct {
	job *job
	err error
}

// New returns a scheduler. It fails only if the metrics cannot be registered.
func New(o Options) (*Probes, error) {
	if o.AtOnce == 0 {
		o.AtOnce = defaultAtOnce
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Run == nil {
		o.Run = run
	}
	p := &Probes{o: o, bell: make(chan struct{}, 1), jobs: map[resource.Key]map[uint32]*job{},
		done: make(chan result, o.AtOnce)}
	if o.Registry != nil {
		if err := o.Registry.Register(&p.counts); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// Annotated makes Run read the annotations of all Envoys.
func (p *Probes) Annotated() {
	p.all.Store(true)
	p.Connected()
}

// Connected makes Run look for Envoys that were not connected.
func (p *Probes) Connected() {
	select {
	case p.bell <- struct{}{}:
	default:
	}
}

// Run probes workloads until ctx ends. It returns when all probes have ended.
func (p *Probes) Run(ctx context.Context) {
	changed, stop := p.o.Store.Watch()
	defer stop()
	p.forgetRemoved(p.update(false))
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if len(p.queue) > 0 && p.running < p.o.AtOnce {
			timer.Reset(max(0, p.queue[0].at.Sub(p.o.Now())))
		} else {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
			for ; p.running > 0; p.running-- {
				<-p.done
			}
			return
		case <-changed:
			p.update(false)
		case <-p.bell:
			if p.all.Swap(false) {
				p.update(true)
			}
			p.wake()
		case r := <-p.done:
			p.running--
			p.finish(r)
		case <-timer.C:
			p.start(ctx)
		}
	}
}

// update brings the jobs up to date with the changed Dataplanes, or with all.
func (p *Probes) update(all bool) *store.Snapshot {
	snap := p.o.Store.Snapshot()
	prev := p.seen
	if all {
		prev = nil
	}
	for _, key := range snap.Diff(prev) {
		if key.Kind == "Dataplane" {
			p.updateOne(snap, key)
		}
	}
	p.seen = snap
	return snap
}

func (p *Probes) updateOne(snap *store.Snapshot, key resource.Key) {
	var list []resource.Probe
	if rec, ok := snap.Get(key); ok && rec.Source.Kind != store.SourcePeer {
		r := rec.Resource
		if p.o.Reach != nil {
			if reach := p.o.Reach(key.Mesh, key.Name); reach != nil {
				r = reach.Restrict(r)
			}
		}
		list = resource.ProbesOf(r)
	}
	old := p.jobs[key]
	if len(old)+len(list) == 0 {
		return
	}
	jobs := make(map[uint32]*job, len(list))
	for _, probe := range list {
		j := old[probe.Port]
		if j == nil || j.probe != probe {
			next := &job{probe: probe, dataplane: key, at: p.o.Now()}
			if j != nil { // the previous result counts until the new probe has one
				next.known, next.ok = j.known, j.ok
				p.remove(j)
			}
			j = next
			heap.Push(&p.queue, j)
			p.counts.state(j).Add(1)
		}
		delete(old, probe.Port)
		jobs[probe.Port] = j
	}
	for port, j := range old {
		p.remove(j)
		p.o.Result(key, port, true)
	}
	if p.jobs[key] = jobs; len(jobs) == 0 {
		delete(p.jobs, key)
	}
}

func (p *Probes) remove(j *job) {
	j.removed = true
	p.counts.state(j).Add(-1)
	if j.index >= 0 {
		heap.Remove(&p.queue, j.index)
	}
}

// forgetRemoved reports success for inbounds that had a failing probe before the agent started, and
// have none now.
func (p *Probes) forgetRemoved(snap *store.Snapshot) {
	for _, rec := range snap.BySource(store.SourceNode) {
		state, ok := rec.Spec.(*resource.EndpointState)
		if !ok {
			continue
		}
		key := resource.Key{Kind: "Dataplane", Mesh: rec.Key.Mesh, Name: rec.Key.Name}
		for _, port := range state.Inbounds {
			if p.jobs[key][port] == nil {
				p.o.Result(key, port, true)
			}
		}
	}
}

// wake makes the jobs due whose Envoy was not connected.
func (p *Probes) wake() {
	for _, j := range p.queue {
		if j.absent {
			j.absent, j.at = false, p.o.Now()
		}
	}
	heap.Init(&p.queue)
}

// start starts the jobs that are due.
func (p *Probes) start(ctx context.Context) {
	now := p.o.Now()
	for len(p.queue) > 0 && !p.queue[0].at.After(now) && p.running < p.o.AtOnce {
		j := p.queue[0]
		ref := node.Ref{Type: node.ProxyDataplane, Mesh: j.dataplane.Mesh, Name: j.dataplane.Name}
		peer, connected := p.o.Peer(node.Key{ID: ref.NodeID(), Flavor: node.FlavorEnvoy})
		if !connected {
			j.absent, j.at = true, now.Add(absent)
			heap.Fix(&p.queue, 0)
			continue
		}
		heap.Pop(&p.queue)
		j.late, j.absent = false, false
		p.running++
		probe := j.probe
		go func() {
			ctx, cancel := context.WithTimeout(ctx, probe.Timeout)
			defer cancel()
			p.done <- result{j, p.o.Run(ctx, peer, &probe)}
		}()
	}
	if p.running < p.o.AtOnce {
		return
	}
	for _, j := range p.queue {
		if !j.late && !j.at.After(now) {
			j.late = true
			p.counts.late.Add(1)
		}
	}
}

// finish records the result of a run.
func (p *Probes) finish(r result) {
	j := r.job
	if j.removed {
		return
	}
	j.at = p.o.Now().Add(j.probe.Interval)
	heap.Push(&p.queue, j)
	log := p.o.Log.With("dataplane", j.dataplane.String(), "port", j.probe.Port)
	if unreachable := new(NamespaceError); errors.As(r.err, &unreachable) {
		p.counts.skipped.Add(1)
		if !j.blocked {
			j.blocked = true
			log.Warn("the workload cannot be probed, so its probe has no effect", "error", r.err)
		}
		return
	}
	j.blocked = false
	ok := r.err == nil
	if ok {
		p.counts.success.Add(1)
	} else {
		p.counts.failure.Add(1)
	}
	if j.row > 0 && j.rowOK == ok {
		j.row = min(j.row+1, max(j.probe.Healthy, j.probe.Unhealthy))
	} else {
		j.row, j.rowOK = 1, ok
	}
	threshold := j.probe.Healthy
	if !ok {
		threshold = j.probe.Unhealthy
	}
	if j.row < threshold || j.known && j.ok == ok {
		return
	}
	if ok && j.known {
		log.Info("the probe of a workload succeeds; its inbound receives traffic")
	} else if !ok {
		log.Warn("the probe of a workload fails; its inbound receives no traffic", "error", r.err)
	}
	p.counts.state(j).Add(-1)
	j.known, j.ok = true, ok
	p.counts.state(j).Add(1)
	p.o.Result(j.dataplane, j.probe.Port, ok)
}

// queue is a heap of jobs by time.
type queue []*job

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].at.Before(q[j].at) }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push and Pop implement heap.Interface.
func (q *queue) Push(x any) {
	j := x.(*job)
	j.index = len(*q)
	*q = append(*q, j)
}

func (q *queue) Pop() any {
	last := len(*q) - 1
	j := (*q)[last]
	(*q)[last], j.index = nil, -1
	*q = (*q)[:last]
	return j
}
