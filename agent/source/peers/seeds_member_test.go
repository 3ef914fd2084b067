package peers

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/gossip"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// member is an agent of a world.
type member struct {
	i     int
	id    engine.NodeID
	path  string // of the state file
	boot  int
	began time.Time // of this start
	up    bool
	name  string        // in the pool
	old   bool          // this start runs a build that cannot decode some resources
	clock time.Duration // offset of the wall clock from the true time; may jump

	store   *store.Store
	source  *Source
	changed <-chan struct{}
	view    map[int]string // names of live members according to this node
	failed  map[int]int

	files      map[resource.Key]string // texts of the resources in files
	dataplanes map[resource.Key]string
	images     []image // earlier states of the file

	ticks     time.Time
	reacting  bool         // a reaction to changes is scheduled
	flushing  bool         // a write to the disk is scheduled
	writing   bool         // the store writes an operators' change
	held      []engine.Op  // operations of the node that wait for the end of that write
	committed func() error // called after a transaction of the store, before it returns
	sealed    []*change    // by the last call of Seal
	durable   bool         // a transaction has ended since that call
	notes     []string
}

// image is the content of a state file.
type image struct {
	at   time.Time
	data []byte
}

// note is the spec of all resources: a text.
type note struct {
	Text string `json:"text"`
}

func (note) Validate(*resource.Validator) {}

func newNote(k resource.Key, text string) *resource.Resource {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q", k, text))
	return &resource.Resource{Key: k, Spec: note{text}, Digest: resource.Digest(sum[:16])}
}

func textOf(r *resource.Resource) string { return r.Spec.(note).Text }

func decodeNote(b []byte) (*resource.Resource, error) {
	var doc struct {
		Kind string `json:"type"`
		Mesh string `json:"mesh"`
		Name string `json:"name"`
		Spec note   `json:"spec"`

		Labels map[string]string `json:"labels"`
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		return nil, err
	}
	r := newNote(resource.Key{Kind: doc.Kind, Mesh: doc.Mesh, Name: doc.Name}, doc.Spec.Text)
	if r.Labels = doc.Labels; r.Labels != nil {
		r.Digest[0]++
	}
	return r, nil
}

// newer starts the texts that an old build cannot decode.
const newer = "newer "

func (n *member) decode(b []byte) (*resource.Resource, error) {
	r, err := decodeNote(b)
	if err == nil && !n.reads(textOf(r)) {
		err = errors.New("unknown field")
	}
	return r, err
}

func (n *member) reads(text string) bool { return !n.old || !strings.HasPrefix(text, newer) }

var (
	sourceAPI  = store.Source{Kind: store.SourceAPI}
	sourceFile = store.Source{Kind: store.SourceFile, Detail: "/etc/a.yaml"}
	sourceDP   = store.Source{Kind: store.SourceEnvoy, Detail: "default.web"}
)

// clock returns the time on the clocks of a node.
func (w *world) clock(n *member) engine.Now {
	return engine.Now{Wall: w.now.Add(n.clock), Mono: w.now.Sub(n.began)}
}

func newMember(i int, dir string) *member {
	return &member{i: i, id: engine.NodeID{byte(i + 1), 0, 1}, path: filepath.Join(dir, fmt.Sprint(i, ".db")),
		files: map[resource.Key]string{}, dataplanes: map[resource.Key]string{}}
}

func (n *member) display() string { return fmt.Sprint("node-", n.i) }

func (w *world) storeOptions(n *member, path string) store.Options {
	return store.Options{Path: path, Encode: resource.Marshal, Decode: n.decode, Shared: Shared,
		Now: func() time.Time { return w.clock(n).Wall }, Origin: engine.Origin{Node: n.id, Name: n.display()},
		Sync: func() (err error) {
			if n.committed != nil {
				err = n.committed()
			}
			n.durable = err == nil
			return err
		}}
}

// open opens the store and the source of a node like an agent.
func (w *world) open(n *member) {
	var err error
	n.boot++
	n.began, n.ticks = w.now, time.Time{}
	n.view, n.failed = map[int]string{}, map[int]int{}
	n.reacting, n.flushing, n.writing, n.held = false, false, false, nil
	n.committed = nil
	n.store, err = store.Open(w.storeOptions(n, n.path))
	if err != nil {
		w.t.Fatal(err)
	}
	boot := n.boot
	n.source, err = Open(context.Background(), Options{Store: n.store, Decode: n.decode, Self: n.id, Fresh: true,
		Node: n.display(), Cluster: "seeds", Bind: ":1", Insecure: true, Changed: func() {},
		Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return w.clock(n).Wall },
		tune: func(o *gossip.Options) {
			o.Limits, o.Storage = w.limits, heldStorage{o.Storage.(gossip.Queue), n}
			o.Log = slog.New(noteHandler{slog.DiscardHandler, n})
			o.Simulation = &gossip.Simulation{Now: func() engine.Now { return w.clock(n) }, Random: w.rng.IntN,
				Send: func(list []engine.Send) {
					if n.up && n.boot == boot {
						for _, m := range list {
							w.post(n, m)
						}
					}
				}}
		}})
	if err != nil {
		w.t.Fatal(err)
	}
	n.store.Connect(&recorder{w, n})
	n.name = engine.MemberName(n.id, n.source.node.Stats().Epoch)
	n.changed, _ = n.store.Watch()
}

// noteHandler collects what a node logs.
type noteHandler struct {
	slog.Handler
	n *member
}

func (h noteHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h noteHandler) Handle(_ context.Context, r slog.Record) error {
	h.n.notes = append(h.n.notes, r.Message)
	return nil
}

// heldStorage delays writes of the node while the store writes an operators' change, as the lock of
// the store does.
type heldStorage struct {
	gossip.Queue
	n *member
}

func (s heldStorage) Write(ops []engine.Op) error {
	if s.n.writing {
		s.n.held = append(s.n.held, ops...)
		return nil
	}
	return s.Queue.Write(ops)
}

// start starts a node.
func (w *world) start(n *member) {
	n.old = w.rng.IntN(6) == 0
	w.open(n)
	n.up = true
	w.applyLocal(n)
	n.source.enter()
	boot := n.boot
	w.after(w.millis(1000), func() { w.probe(n, boot) })
	w.tick(n)
	w.react(n)
}

// drive passes an event to a node.
func (w *world) drive(n *member, ev engine.Event) {
	if n.up {
		n.source.node.Drive(ev)
		w.tick(n)
		w.react(n)
	}
}

// tick schedules the next tick of a node.
func (w *world) tick(n *member) {
	d := min(max(n.source.node.Due()-w.clock(n).Mono, time.Millisecond), time.Second)
	at := w.now.Add(d)
	if !n.ticks.IsZero() && !at.Before(n.ticks) && n.ticks.After(w.now) {
		return
	}
	n.ticks = at
	boot := n.boot
	w.after(d, func() {
		if n.up && n.boot == boot && n.ticks.Equal(at) {
			n.ticks = time.Time{}
			w.drive(n, engine.Tick{})
		}
	})
}

// react schedules what the loops of the agent do after a change.
func (w *world) react(n *member) {
	boot := n.boot
	if !n.reacting && len(n.source.watcher.C())+len(n.changed) > 0 {
		n.reacting = true
		w.after(w.millis(5), func() {
			if n.up && n.boot == boot {
				n.reacting = false
				w.poll(n)
			}
		})
	}
	if n.source.node.Unsaved()+len(n.changed) > 0 {
		w.flushLater(n)
	}
}

func (w *world) flushLater(n *member) {
	boot := n.boot
	if !n.flushing {
		n.flushing = true
		w.after(w.millis(200), func() {
			if n.up && n.boot == boot {
				n.flushing = false
				w.flush(n)
			}
		})
	}
}

func (w *world) poll(n *member) {
	select {
	case <-n.source.watcher.C():
		n.source.take(n.source.watcher.Take(), false)
	default:
	}
	select {
	case <-n.changed:
		w.applyLocal(n)
		n.source.publishOwn()
		n.source.retry()
	default:
	}
	w.react(n)
	w.tick(n)
	w.flushLater(n) // a version that is not visible is no change that is watched
}

// flush writes behind: the changes of the store, those of the node, or both.
func (w *world) flush(n *member) {
	if n.writing {
		w.react(n)
		return
	}
	k := w.rng.IntN(3)
	if k != 0 {
		w.must(n.store.Flush())
		if w.rng.IntN(20) == 0 {
			w.verifyFile(n)
		}
	}
	if k != 1 {
		w.must(n.source.node.Save())
	}
	w.react(n)
}

func (w *world) must(err error) {
	if err != nil && !errors.Is(err, errKilled) && !errors.Is(err, errDisk) {
		w.t.Errorf("write behind: %v", err)
	}
}

// applyLocal brings the store up to date with the files and the dataplanes of a node.
func (w *world) applyLocal(n *member) {
	for _, layer := range []struct {
		want map[resource.Key]string
		from store.Source
	}{{n.files, sourceFile}, {n.dataplanes, sourceDP}} {
		snap := n.store.Snapshot()
		for _, k := range slices.SortedFunc(maps.Keys(layer.want), resource.Key.Compare) {
			r := newNote(k, layer.want[k])
			if rec, ok := snap.Get(k); !ok || rec.Source != layer.from || rec.Digest != r.Digest {
				w.apply(n, layer.from, store.Op{Put: r})
			}
		}
		for _, rec := range snap.BySource(layer.from.Kind) {
			if _, ok := layer.want[rec.Key]; !ok {
				w.apply(n, layer.from, store.Op{Delete: rec.Key})
			}
		}
	}
}

func (w *world) apply(n *member, from store.Source, op store.Op) {
	_, err := n.store.Apply(store.Batch{Source: from, Ops: []store.Op{op}})
	if conflict := (*store.ConflictError)(nil); err != nil && !errors.As(err, &conflict) {
		w.t.Errorf("node %d: %v: %v", n.i, op, err)
	}
}

// load returns the content of the state file.
func (w *world) load(n *member) []byte {
	b, err := os.ReadFile(n.path)
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

// kill ends a node without writing anything, and leaves data in its file. Nil removes the file.
func (w *world) kill(n *member, data []byte) {
	w.noteDropped(n)
	n.up, n.committed = false, nil
	_ = n.store.Close()
	w.replace(n, data)
}

// replace replaces the state file of a node that is down. Nil removes it.
func (w *world) replace(n *member, data []byte) {
	if data == nil {
		w.check(os.RemoveAll(n.path))
		return
	}
	w.check(os.WriteFile(n.path, data, 0o600))
}

func (w *world) check(err error) {
	if err != nil {
		w.t.Fatal(err)
	}
}

// noteDropped remembers whether a node did not list all conflicts.
func (w *world) noteDropped(n *member) {
	for what, k := range n.source.node.Stats().Counters {
		w.truth.dropped = w.truth.dropped || k > 0 && strings.HasPrefix(what, "conflict dropped")
	}
}
