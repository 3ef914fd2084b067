package write

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/change"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
)

// Options is what a [Writer] is built of. Functions are called from many goroutines at once.
type Options struct {
	Registry *resource.Registry
	Store    *store.Store
	Last     func() *status.Result // the result of the last reconciliation, nil before the first
	// NewMesh derives meshes as the reconciliation does, for sets of resources that are not stored.
	NewMesh   change.NewMesh
	Connected func() []node.Key // the clients of xDS; nil: none is connected
	// Offer is called with the configs that the check of a write has made, before the write is stored.
	// It keeps the map. Nil: it is not called.
	Offer func(map[generate.ProxyID]*change.Checked)
	// NewTry returns what asks an Envoy of this host about the configs of one write. Nil: none is
	// asked.
	NewTry func() change.Try
	Spare  func() bool // reports whether there is memory to remember checks; nil: there is
	// Auditable returns why the event of a change cannot be logged: the change is refused. Nil:
	// nothing is logged.
	Auditable func() error
	Rendered  generate.RenderCache
	Comparing chan struct{} // one slot: who fills it may compare
	Log       *slog.Logger
}

// Writer decides writes. It is safe for concurrent use.
type Writer struct {
	Options
	deciding chan struct{} // one slot: who fills it may check a write and store it
	crew     change.Crew   // of who may
}

// New returns a writer.
func New(o Options) *Writer { return &Writer{Options: o, deciding: make(chan struct{}, 1)} }

// Shed gives up what the writer remembers to save work, unless a check needs it now.
func (w *Writer) Shed() {
	select {
	case w.deciding <- struct{}{}:
		w.crew = change.Crew{}
		<-w.deciding
	default:
	}
}

// Waiting is called while a request takes long.
type Waiting interface {
	// Turn fills a slot, and reports false when the context ends before that.
	Turn(ctx context.Context, slot chan<- struct{}) bool
	Progress(done, all int) // so many of the proxies were looked at
}

// Request is a write, with what its caller may do.
type Request struct {
	Put    []*resource.Resource
	Delete []resource.Key                      // one, and nothing to put; or none
	Kept   map[resource.Key]uint64             // revisions of the resources whose stored secrets Put holds
	Author string                              // the caller
	If     func(store.Record, bool) *api.Error // returns why a precondition of a write of one resource does not hold
	// MayPut returns why the caller may not store resources in a snapshot.
	MayPut func(*store.Snapshot, []*resource.Resource) *api.Error
	MayGet func(resource.Key) bool // reports whether the caller may see a resource
	Hidden string                  // why the caller may not see what the write does to proxies; "": they may
	DryRun bool
	Omit   []string // "items", "patch": parts of the diff of a dry run
	Waiting
}

// checkTime is how long a deletion waits for the check, which never refuses it. A put is stored
// when it was checked as a whole.
const checkTime = 10 * time.Second

// rounds is how often a write is decided at most. The first round is exact: nothing has changed
// since. After it, only the resources of the write have to be as they were, so that a store that
// changes all the time does not keep the write out. What else has changed is checked when configs
// are made.
const rounds = 4

// Write decides a write and stores it. A dry run stores nothing.
func (w *Writer) Write(ctx context.Context, q *Request) (*api.Written, *api.Error) {
	d, e := w.decide(q)
	if e != nil {
		return nil, e
	}
	if q.DryRun && q.Hidden == "" {
		diff, v, e := w.Preview(ctx, change.Question{Put: q.Put, Delete: q.Delete,
			NoPatches: slices.Contains(q.Omit, "patch")}, q)
		if e == nil {
			return w.previewed(ctx, q, d, diff, v)
		}
		w.Log.Debug("api: a dry run has no diff", "reason", e.Error())
	}
	limited := ctx
	if len(q.Delete) > 0 {
		var cancel func()
		limited, cancel = context.WithTimeout(ctx, checkTime)
		defer cancel()
	}
	turn := q.Turn(limited, w.deciding) // the check may take all processors but one for a while
	if turn {
		defer func() { <-w.deciding }()
	}
	for round := 0; ; round++ {
		if d.on != w.Store.Snapshot() { // the request has waited, or this is not the first round
			if d, e = w.decide(q); e != nil {
				return nil, e
			}
		}
		v, next := unknown("others were being checked all the time"), configs(nil)
		if turn {
			v, next = w.verify(limited, q, d)
		}
		if e := cmp.Or(Gone(ctx), refusal(q, v)); e != nil {
			return nil, e
		}
		if q.DryRun {
			return w.written(q, d, nil, v), nil
		}
		if round == 0 && turn {
			d.batch.On = d.on
		}
		stale, e := w.commit(q, d, next)
		switch {
		case e == nil:
			return w.written(q, d, nil, v), nil
		case !stale || round == rounds-1:
			return nil, e
		}
	}
}

// previewed answers a dry run that has a diff.
func (w *Writer) previewed(ctx context.Context, q *Request, d *decision, diff *api.Diff,
	v *change.Verified) (*api.Written, *api.Error) {
	if e := Gone(ctx); e != nil {
		return nil, e
	}
	if e := refusal(q, v); e != nil {
		return nil, e
	}
	if len(q.Delete) == 0 {
		LeaveOut(diff, q.Omit)
		v.Warnings = nil // the diff has them
	}
	return w.written(q, d, diff, v), nil
}

// commit stores what was decided, or nothing. It reports stale where the store has other content
// than that of the decision.
func (w *Writer) commit(q *Request, d *decision, next configs) (stale bool, e *api.Error) {
	if w.Auditable != nil {
		if err := w.Auditable(); err != nil {
			return false, api.NewError(api.StatusUnavailable, api.ProblemAudit, "Audit log not writable",
				"nothing was stored: no change is made that the audit log cannot hold: %v", err)
		}
	}
	if w.Offer != nil && len(next) > 0 {
		w.Offer(next)
	}
	recs, err := w.Store.Apply(d.batch)
	if err != nil {
		return w.refused(err)
	}
	for i, rec := range recs {
		c := &d.changes[i]
		if c.Revision = rec.Revision; c.Action != api.ActionUnchanged {
			w.Log.Info("api: "+c.Action, "resource", rec.Key.String(), "revision", rec.Revision, "author", q.Author)
		}
	}
	return false, nil
}

// Gone is the answer to a client that went away, which nobody reads; nil while it is there. Nothing
// is done for it.
func Gone(ctx context.Context) *api.Error {
	if ctx.Err() == nil {
		return nil
	}
	return api.NewError(api.StatusUnavailable, api.ProblemNotReady, "Cancelled",
		"the client went away; nothing was stored")
}
