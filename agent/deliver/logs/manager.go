package logs

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/accesslog/fifo"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/rotation"
)

// Pipes makes, reads and removes FIFOs, each of one owner: a node. *fifo.Pipes does.
type Pipes interface {
	// Set says which FIFOs an owner needs from now on, and returns why one of them is not there, held
	// and read.
	Set(owner string, want []fifo.Pipe) []error
	// NewWriter says that a new process of the owner is about to open them.
	NewWriter(owner string)
	// Gone says that the owner needs none: they go once no process has them open.
	Gone(owner string)
	// Flush waits until what is in the FIFOs of an owner has been handed on.
	Flush(ctx context.Context, owner string) error
	Run(ctx context.Context) error
	Stats() map[string]fifo.Status // by path
}

// Options is what a [Manager] needs. Peer, Open, File and Forward are required.
type Options struct {
	Dir         string   // of the FIFOs: access below paths.run
	Spool       string   // directory of what waits for collectors: spool below paths.state
	Logs        string   // paths.logs
	Directories []string // further ones in which policies may name files
	// Peer returns the process of a proxy; false where that is not known.
	Peer func(node.Key) (access.Peer, bool)
	// Changed is called when something is not as [Manager.Prepare] has said. It must not block. Nil:
	// nobody is told.
	Changed func()
	// Reopen has the Envoy of a node flush its logs and open them anew. Nil: nobody is asked.
	Reopen func(ctx context.Context, nodeID string) error
	// Open opens the FIFOs of Dir. found says where the lines of one go that an earlier agent left;
	// reopen asks for Reopen.
	Open func(found func(path string, labels map[string]string) accesslog.Destination,
		reopen func(owner string)) (Pipes, error)
	// File opens a rotated file, or returns the one that is open, with these limits from now on.
	File func(path string, limits rotation.Limits) (Output, error)
	// Forward opens the way to a collector of lines, whose spool has a directory of its own.
	Forward func(address, spool string) (Output, error)
	// Relay takes the records for OpenTelemetry collectors. Nil: they go to collectors directly.
	Relay Relay
	Log   *slog.Logger // nil: nothing is logged

	// Patience is how long [Manager.Prepare] waits, default 250 ms; Every is the time from one look at
	// all FIFOs to the next, default 5 s; Keep is how long the FIFOs stay that an earlier agent left
	// for a proxy that does not come, default 10 min.
	Patience, Every, Keep time.Duration
	Proc                  string // "": /proc
}

// Output takes lines to one file or collector.
type Output interface {
	accesslog.Destination
	Stats() accesslog.Stats
	// Run works until ctx ends. It is called once.
	Run(ctx context.Context) error
	// Close puts what is left on disk, after Run has ended or where it was not called.
	Close() error
	// Discard says, before Run ends or Close is called, that nobody will come back to it.
	Discard()
}

// settleFor is how long a FIFO stays wanted that the config of a proxy does not name any more: an
// earlier config with it may still be on its way to the Envoy, which would make a file in its
// place.
const settleFor = time.Minute

// Manager brings the logs of Envoys to their destinations. Its methods may be called at the same
// time.
type Manager struct {
	o      Options
	outs   *outputs
	routes *routes
	wake   chan struct{} // one slot
	reopen *queue

	mu      sync.Mutex
	pipes   Pipes // nil: cannot be opened
	broken  error // why
	proxies map[string]*proxy
	dirty   map[string]bool // proxies to look at
	late    bool            // the last proxy that somebody waited for was not done in time
	opened  time.Time
}

// proxy is what one proxy writes to. The mu of the manager guards it.
type proxy struct {
	pipes  []draft.Pipe
	peer   access.Peer
	known  bool // peer is
	asked  uint64
	done   uint64
	ready  chan struct{}     // closed when done reaches asked; nil: it has
	told   map[string]string // why not, by ID; of done
	said   map[string]string // what Prepare has returned last
	good   []draft.Pipe      // that are ready for peer
	looked time.Time

	process string               // that has been given the FIFOs
	recent  map[string]wantUntil // by path
	left    bool
	found   bool // by Open, and not prepared since
}

type wantUntil struct {
	pipe  draft.Pipe
	until time.Time
}

// New returns a manager that reads on from the FIFOs that an earlier agent has left. Where that
// cannot be, it is tried again, and [Manager.Prepare] says why.
func New(o Options) *Manager {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Patience = cmp.Or(o.Patience, 250*time.Millisecond)
	o.Every = cmp.Or(o.Every, 5*time.Second)
	o.Keep = cmp.Or(o.Keep, 10*time.Minute)
	o.Proc = cmp.Or(o.Proc, "/proc")
	m := &Manager{o: o, wake: make(chan struct{}, 1), reopen: newQueue(), proxies: map[string]*proxy{},
		dirty: map[string]bool{}, opened: time.Now()}
	m.outs, m.routes = newOutputs(&m.o), newRoutes(&m.o)
	m.open()
	return m
}

// open opens the FIFOs, if they are not.
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
			m.o.Log.Error("the FIFOs of access logs cannot be used; it is tried again", "dir", m.o.Dir, "error", err)
		}
		m.broken = err
		return
	}
	m.pipes, m.broken = pipes, nil
}

// foundPipe is told of a FIFO that an earlier agent has left.
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
	p.recent[path] = wantUntil{pipe, m.opened.Add(m.o.Keep)}
	m.mu.Unlock()
	to, err := m.outs.of(&pipe)
	if err != nil {
		m.o.Log.Warn("the lines of a FIFO wait", "path", path, "error", err)
		return nil
	}
	return to
}

// Prepare makes ready what the loggers of a proxy's config write to, before that is published, and
// returns why some of it is not, by the ID of the pipe. It waits but a moment.
func (m *Manager) Prepare(key node.Key, pipes []draft.Pipe) map[string]string {
	peer, known := m.o.Peer(key)
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.proxies[key.ID]
	if p == nil {
		if len(pipes) == 0 {
			return nil
		}
		p = &proxy{recent: map[string]wantUntil{}}
		m.proxies[key.ID] = p
	}
	same := known == p.known && samePeer(peer, p.peer) && draft.SamePipes(pipes, p.pipes) && !p.left
	if same && p.done == p.asked && p.asked > 0 && (len(p.told) == 0 || time.Since(p.looked) < m.o.Patience) &&
		time.Since(p.looked) < 2*m.o.Every {
		p.said = p.told
		return maps.Clone(p.told)
	}
	if known != p.known || !samePeer(peer, p.peer) {
		p.good = nil
	}
	p.pipes, p.peer, p.known, p.left, p.found = pipes, peer, known, false, false
	m.look(key.ID, p)
	asked, ready := p.asked, p.ready
	if !m.late {
		m.mu.Unlock()
		late := !waitFor(ready, m.o.Patience)
		m.mu.Lock()
		m.late = m.late || late
	}
	if p.done >= asked {
		p.said = p.told
		return maps.Clone(p.told)
	}
	p.said = map[string]string{}
	for i := range pipes {
		if slices.ContainsFunc(p.good, func(g draft.Pipe) bool { return draft.SamePipes([]draft.Pipe{g}, pipes[i:i+1]) }) {
			continue // what was ready is not taken away because something else hangs
		}
		p.said[pipes[i].ID()] = "it is not made ready in time; it is tried on. Look for a disk that hangs, " +
			"and at the log of the agent"
	}
	return maps.Clone(p.said)
}

// look has a proxy looked at soon. The mu is held.
func (m *Manager) look(id string, p *proxy) {
	p.asked++
	if p.ready == nil {
		p.ready = make(chan struct{})
	}
	m.dirty[id] = true
	select {
	case m.wake <- struct{}{}:
	default: // it is awake
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
	return a.Local == b.Local && a.PID == b.PID && a.UID == b.UID && a.GID == b.GID && a.Foreign == b.Foreign &&
		(a.Local || a.Addr == b.Addr)
}

// Left says that a node has no config any more. Its FIFOs go once no process has them open; what is
// in them is read.
func (m *Manager) Left(key node.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.proxies[key.ID]; p != nil && !p.left && !p.found {
		p.left = true
		m.look(key.ID, p)
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

// labelsOf are what a later agent has to know of a FIFO.
func labelsOf(id, process string, p *draft.Pipe) map[string]string {
	return map[string]string{
		labelNode: id, labelProcess: process, labelKind: string(p.Kind), labelTarget: p.Target, labelPrefix: p.Prefix,
		labelBackend: p.Backend, labelLimits: p.Rotation.Text(),
	}
}

// pipeOf reads labels. The directory of FIFOs is the agent's, but a record may be of another
// version.
func pipeOf(path string, labels map[string]string) (draft.Pipe, bool) {
	p := draft.Pipe{Path: path, Kind: draft.PipeKind(labels[labelKind]), Target: labels[labelTarget],
		Prefix: labels[labelPrefix], Backend: labels[labelBackend]}
	var err error
	p.Rotation, err = rotation.ParseLimits(labels[labelLimits])
	ok := err == nil && labels[labelNode] != "" && p.Target != "" && (p.Kind == draft.PipeFile || p.Kind == draft.PipeTCP)
	return p, ok
}

// allowed says whether a policy may name a file, which the agent writes with its own rights.
func (o *Options) allowed(path string) error {
	for _, dir := range append([]string{o.Logs}, o.Directories...) {
		if rel, err := filepath.Rel(dir, path); err == nil && rel != "." && filepath.IsLocal(rel) {
			return nil
		}
	}
	return errors.New("the agent writes files of policies only below its paths.logs (" + o.Logs +
		") and accessLog.directories: give a path there, or add the directory to accessLog.directories")
}
