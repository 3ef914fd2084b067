package logs

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/accesslog/fifo"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/host/logpaths"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/rotation"
)

// Pipes creates, reads, and removes FIFOs. The owner of a FIFO is a node. *fifo.Pipes implements
// it.
type Pipes interface {
	// Set sets the FIFOs that an owner needs. It returns an error or nil for each.
	Set(owner string, want []fifo.Pipe) []error
	// NewWriter means that a new process of the owner will open them.
	NewWriter(owner string)
	// Gone means that the owner needs none. They are removed when no process has them open.
	Gone(owner string)
	// Flush waits until the current data in an owner's FIFOs is delivered.
	Flush(ctx context.Context, owner string) error
	Run(ctx context.Context) error
	Stats() map[string]fifo.Status // by path
}

// Options configures a [Manager]. Paths, Peer, Open, File, and Forward are required.
type Options struct {
	Dir   string             // directory of the FIFOs: access below paths.run
	Spool string             // directory of spools for collectors: spool below paths.state
	Paths *logpaths.Registry // owners of files
	// Peer returns the process of a proxy, or false if it is unknown.
	Peer func(node.Key) (access.Peer, bool)
	// Changed is called when the last result of [Manager.Prepare] is outdated. It must not block. Nil:
	// not called.
	Changed func()
	// Reopen makes the Envoy of a node flush and reopen its logs. Nil: no request.
	Reopen func(ctx context.Context, nodeID string) error
	// Open opens the FIFOs of Dir. found returns the destination of a FIFO left by an earlier agent;
	// reopen requests Reopen.
	Open func(found func(path string, labels map[string]string) accesslog.Destination,
		reopen func(owner string)) (Pipes, error)
	// File opens a rotated file, or returns the open one, and sets its limits.
	File func(path string, limits rotation.Limits) (Output, error)
	// Waiting returns the paths of files that are not open, and whose lines an earlier agent has
	// spooled. Nil: none.
	Waiting func() ([]string, error)
	// Forward connects to a collector of lines. spool is a directory used only by it.
	Forward func(address, spool string) (Output, error)
	// Relay receives records for OpenTelemetry collectors. Nil: Envoys send them directly.
	Relay Relay
	Log   *slog.Logger // nil: no logs

	// Patience limits how long [Manager.Prepare] blocks its caller, default 10 ms. Limit is how long a
	// config waits for its destinations, default 5 s. Every is the interval of checks of all FIFOs,
	// default 5 s. FoundFor is how long FIFOs of an earlier agent stay if their proxy does not
	// connect, default 10 min.
	Patience, Limit, Every, FoundFor time.Duration
	Proc                             string // "": /proc
}

// Output delivers lines to one file or collector.
type Output interface {
	accesslog.Destination
	Stats() accesslog.Stats
	// Run works until ctx ends. It must be called only once.
	Run(ctx context.Context) error
	// Close writes remaining lines to disk, after Run has ended or instead of Run.
	Close() error
	// Discard means that remaining data is not needed. It is called before Run ends, or before Close.
	Discard()
}

// lingerFor is how long a FIFO stays after it was removed from the config of a proxy: an earlier
// config may still be on its way to the Envoy, which would create a file instead.
const lingerFor = time.Minute

// retryAfter is the minimum time between two updates of a proxy whose destinations are missing.
const retryAfter = 250 * time.Millisecond

// Manager delivers the logs of Envoys to their destinations. It is safe for concurrent use.
type Manager struct {
	o      Options
	outs   *outputs
	routes *routes
	wake   chan struct{} // one slot
	reopen *queue

	mu      sync.Mutex
	pipes   Pipes // nil: Open has failed
	broken  error // error of Open
	proxies map[string]*proxy
	dirty   map[string]bool // proxies to update
	late    bool            // the last proxy that Prepare waited for was not ready in time
	opened  time.Time
}

// proxy holds the destinations of one proxy, guarded by Manager.mu.
type proxy struct {
	pipes    []draft.Pipe
	peer     access.Peer
	known    bool // peer is known
	asked    uint64
	done     uint64
	ready    chan struct{}             // closed when done reaches asked; nil: reached
	missing  map[string]status.Missing // by the ID of the destination; belongs to done
	returned map[string]status.Missing // what Prepare has returned last
	good     []draft.Pipe              // ready for peer
	updated  time.Time
	failed   bool        // a destination of missing may be ready after a retry
	limit    *time.Timer // ends the wait for destinations; nil: the config does not wait
	expired  bool        // limit has passed
	retry    *time.Timer // next retry while the config waits; nil: none

	process string               // process that got the FIFOs
	pod     string               // uid of the last known pod; "": none
	recent  map[string]wantUntil // by path
	left    bool
	found   bool // found by Open, and not prepared since
}

type wantUntil struct {
	pipe  draft.Pipe
	until time.Time
}

// New returns a manager that continues to read the FIFOs of an earlier agent. If they cannot be
// opened, it retries, and [Manager.Prepare] returns the reason.
func New(o Options) *Manager {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Patience = cmp.Or(o.Patience, 10*time.Millisecond)
	o.Limit = cmp.Or(o.Limit, 5*time.Second)
	o.Every = cmp.Or(o.Every, 5*time.Second)
	o.FoundFor = cmp.Or(o.FoundFor, 10*time.Minute)
	o.Proc = cmp.Or(o.Proc, "/proc")
	m := &Manager{o: o, wake: make(chan struct{}, 1), reopen: newQueue(), proxies: map[string]*proxy{},
		dirty: map[string]bool{}, opened: time.Now()}
	m.outs, m.routes = newOutputs(&m.o), newRoutes(&m.o)
	m.open()
	return m
}

// open opens the FIFOs if they are not open.
func (m *Manager) open() {
	m.mu.Lock()
	have := m.pipes != nil
	m.mu.Unlock()
	if have {
		return
	}
	pipes, err := m.o.Open(m.foundPipe, m.reopen.add)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		if m.broken == nil || m.broken.Error() != err.Error() {
			m.o.Log.Error("cannot open the access-log FIFOs; retrying", "dir", m.o.Dir, "error", err)
		}
		m.broken = err
		return
	}
	m.pipes, m.broken = pipes, nil
}

// foundPipe returns the destination of a FIFO that an earlier agent has left.
func (m *Manager) foundPipe(path string, labels map[string]string) accesslog.Destination {
	pipe, ok := pipeOf(path, labels)
	if !ok {
		return nil
	}
	m.mu.Lock()
	id := labels[labelNode]
	p := m.proxies[id]
	if p == nil {
		p = &proxy{found: true, process: labels[labelProcess], recent: map[string]wantUntil{}}
		m.proxies[id] = p
	}
	p.recent[path] = wantUntil{pipe, m.opened.Add(m.o.FoundFor)}
	m.mu.Unlock()
	to, err := m.outs.of(&pipe)
	if err != nil {
		m.o.Log.Warn("no destination for a FIFO; its lines wait", "path", path, "error", err)
		return nil
	}
	return to
}

// Prepare prepares the log destinations of a proxy's config before the config is published. It
// returns why some are not ready, by pipe ID. It blocks at most for Patience. If wait is true, the
// caller must not publish the config yet: Changed is called when the destinations are ready, or
// Limit has passed. A config does not wait for destinations that policies must not use.
func (m *Manager) Prepare(key node.Key, pipes []draft.Pipe) (missing map[string]status.Missing, wait bool) {
	peer, known := m.o.Peer(key)
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.proxies[key.ID]
	if p == nil {
		if len(pipes) == 0 {
			return nil, false
		}
		p = &proxy{recent: map[string]wantUntil{}}
		m.proxies[key.ID] = p
	}
	same := known == p.known && samePeer(peer, p.peer) && draft.SamePipes(pipes, p.pipes) && !p.left
	if same && p.done == p.asked && p.asked > 0 && (len(p.missing) == 0 || time.Since(p.updated) < retryAfter) &&
		time.Since(p.updated) < 2*m.o.Every {
		p.returned = p.missing
		return maps.Clone(p.missing), m.retries(key.ID, p)
	}
	if known != p.known || !samePeer(peer, p.peer) {
		p.good = nil
	}
	if peer.Pod != nil {
		p.pod = peer.Pod.UID
	} else if peer.Local {
		p.pod = ""
	}
	p.pipes, p.peer, p.known, p.left, p.found = pipes, peer, known, false, false
	if !same || p.done == p.asked { // otherwise the current update has the same input
		m.request(key.ID, p)
	}
	asked, ready := p.asked, p.ready
	if !m.late {
		m.mu.Unlock()
		late := !waitFor(ready, m.o.Patience)
		m.mu.Lock()
		m.late = m.late || late
	}
	if p.done >= asked {
		p.returned = p.missing
		return maps.Clone(p.missing), m.retries(key.ID, p)
	}
	p.returned = map[string]status.Missing{}
	for i := range pipes {
		if slices.ContainsFunc(p.good, func(g draft.Pipe) bool { return draft.SamePipes([]draft.Pipe{g}, pipes[i:i+1]) }) {
			continue // a pipe that was ready stays ready while others hang
		}
		p.returned[pipes[i].ID()] = status.Missing{Reason: status.NotReady}
	}
	return maps.Clone(p.returned), len(p.returned) > 0 && m.waits(p)
}

// request schedules an update of a proxy. m.mu is held.
func (m *Manager) request(id string, p *proxy) {
	p.asked++
	if p.ready == nil {
		p.ready = make(chan struct{})
	}
	m.dirty[id] = true
	select {
	case m.wake <- struct{}{}:
	default: // already notified
	}
}

func waitFor(ready <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ready:
		return true
	case <-t.C:
		return false
	}
}

func samePeer(a, b access.Peer) bool {
	if (a.Pod == nil) != (b.Pod == nil) || a.Pod != nil && a.Pod.UID != b.Pod.UID {
		return false
	}
	return a.Local == b.Local && a.PID == b.PID && a.UID == b.UID && a.GID == b.GID && a.Foreign == b.Foreign &&
		(a.Local || a.Addr == b.Addr)
}

// Left means that a node no longer has a config. Its FIFOs are removed when no process has them
// open; their data is still read.
func (m *Manager) Left(key node.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.proxies[key.ID]; p != nil && !p.left && !p.found {
		p.left = true
		m.request(key.ID, p)
	}
}

// Labels of the record of a FIFO.
const (
	labelNode    = "node"
	labelProcess = "process"
	labelKind    = "kind"
	labelTarget  = "target"
	labelPrefix  = "prefix"
	labelBackend = "backend"
	labelLimits  = "limits"
)

// labelsOf returns the labels that a later agent needs.
func labelsOf(id, process string, p *draft.Pipe) map[string]string {
	return map[string]string{
		labelNode: id, labelProcess: process, labelKind: string(p.Kind), labelTarget: p.Target, labelPrefix: p.Prefix,
		labelBackend: p.Backend, labelLimits: p.Rotation.Text(),
	}
}

// pipeOf parses labels. A record may come from another version.
func pipeOf(path string, labels map[string]string) (draft.Pipe, bool) {
	p := draft.Pipe{Path: path, Kind: draft.PipeKind(labels[labelKind]), Target: labels[labelTarget],
		Prefix: labels[labelPrefix], Backend: labels[labelBackend]}
	var err error
	p.Rotation, err = rotation.ParseLimits(labels[labelLimits])
	ok := err == nil && labels[labelNode] != "" && p.Target != "" && (p.Kind == draft.PipeFile || p.Kind == draft.PipeTCP)
	return p, ok
}
