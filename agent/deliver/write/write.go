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
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// Options configures a [Writer]. Its functions must be safe for concurrent use.
type Options struct {
	Registry *resource.Registry
	Store    *store.Store
	Last     func() *status.Result // result of the last reconciliation, or nil
	// NewMesh derives meshes, like the reconciliation, for sets of resources that are not stored.
	NewMesh   change.NewMesh
	Connected func() []node.Key // connected xDS clients; nil: none
	// Offer receives the configs computed by the check of a write, before the write is stored. It
	// takes ownership of the map. Nil: not called.
	Offer func(map[generate.ProxyID]*change.Checked)
	// NewTry returns a function that tests the configs of one write with an Envoy on this host. Nil:
	// no test.
	NewTry func() change.Try
	Spare  func() bool // reports whether there is memory to cache checks; nil: yes
	// Auditable returns why a change cannot be logged; then the change is refused. Nil: no audit log.
	Auditable func() error
	// Publication returns the published version of a directory; nil: unknown.
	Publication func(id string) api.Publication
	Rendered    generate.RenderCache
	Comparing   chan struct{} // one slot: held during a comparison
	Log         *slog.Logger
}

// Writer decides writes. It is safe for concurrent use.
type Writer struct {
	Options
	deciding chan struct{} // one slot: held while a write is checked and stored
	crew     change.Crew   // used by the holder of deciding
}

// New returns a writer.
func New(o Options) *Writer { return &Writer{Options: o, deciding: make(chan struct{}, 1)} }

// Shed drops cached data, unless a check is using it.
func (w *Writer) Shed() {
	select {
	case w.deciding <- struct{}{}:
		w.crew = change.Crew{}
		<-w.deciding
	default:
	}
}

// Waiting is notified while a request takes long.
type Waiting interface {
	// Turn acquires a slot. It returns false if the context ends first.
	Turn(ctx context.Context, slot chan<- struct{}) bool
	Progress(done, all int) // number of checked proxies
}

// Request is a write and the rights of its caller.
type Request struct {
	Put    []*resource.Resource
	Delete []resource.Key                      // at most one key, and only without Put
	Kept   map[resource.Key]uint64             // revisions of the resources whose stored secrets are reused in Put
	Author string                              // name of the caller
	If     func(store.Record, bool) *api.Error // returns why the precondition of a write of one resource fails
	// MayPut returns why the caller may not store the resources.
	MayPut func(*store.Snapshot, []*resource.Resource) *api.Error
	MayGet func(resource.Key) bool // reports whether the caller may see a resource
	Hidden string                  // why the caller may not see the effect on proxies; "": it may
	DryRun bool
	// Signed are the versions of Put and Delete, if an operator has signed them, and Reserved signed
	// versions of records that are no resources, only without Put and Delete.
	Signed   map[resource.Key]*engine.Record
	Reserved []*engine.Record
	Omit     []string // parts to omit from the diff of a dry run: "items", "patch"
	Waiting
}

// checkTime limits the check of a deletion, which is never refused. A put is stored only after a
// complete check.
const checkTime = 10 * time.Second

// rounds is the maximum number of decisions per write. The first decision requires that the store
// is unchanged. Later ones only require that the resources of the write are unchanged, so that a
// constantly changing store cannot block a write. The reconciliation checks the other changes.
const rounds = 4

// lackingTime limits the search for policies without effect after a write.
const lackingTime = 500 * time.Millisecond

// Write decides a write and stores it. A dry run stores nothing. The warnings about policies
// without effect are computed after the write is stored, so that they do not delay its delivery.
func (w *Writer) Write(ctx context.Context, q *Request) (*api.Written, *api.Error) {
	out, v, e := w.write(ctx, q)
	if e != nil || v == nil {
		return out, e
	}
	until := time.Now().Add(lackingTime)
	before := v.Warnings
	_ = v.Lacking(func() bool { return ctx.Err() != nil || !time.Now().Before(until) }) // status has the rest
	out.Warnings = slices.DeleteFunc(out.Warnings, func(text string) bool {
		return slices.ContainsFunc(before, func(w mesh.Warning) bool {
			return text == warningText(w) && !slices.Contains(v.Warnings, w)
		})
	})
	for _, w := range v.Warnings {
		if !slices.Contains(before, w) {
			out.Warnings = append(out.Warnings, warningText(w))
		}
	}
	return out, nil
}

// write decides a write and stores it. It returns the result of the check if that examined the
// policies of the change.
func (w *Writer) write(ctx context.Context, q *Request) (*api.Written, *change.Verified, *api.Error) {
	d, e := w.decide(q)
	if e != nil {
		return nil, nil, e
	}
	if q.DryRun && q.Hidden == "" {
		diff, v, e := w.Preview(ctx, change.Question{Put: q.Put, Delete: q.Delete,
			NoPatches: slices.Contains(q.Omit, "patch")}, q)
		if e == nil {
			out, e := w.previewed(ctx, q, d, diff, v)
			return out, v, e
		}
		w.Log.Debug("api: no diff for a dry run", "reason", e.Error())
	}
	limited := ctx
	if len(q.Delete) > 0 {
		var cancel func()
		limited, cancel = context.WithTimeout(ctx, checkTime)
		defer cancel()
	}
	turn := q.Turn(limited, w.deciding) // the check may use all processors but one for a while
	if turn {
		defer func() { <-w.deciding }()
	}
	for round := 0; ; round++ {
		if d.on != w.Store.Snapshot() { // the request has waited, or this is a later round
			if d, e = w.decide(q); e != nil {
				return nil, nil, e
			}
		}
		v, next := unknown("other writes were being checked the whole time"), configs(nil)
		if turn {
			v, next = w.verify(limited, q, d)
		}
		if e := cmp.Or(Gone(ctx), refusal(q, v)); e != nil {
			return nil, nil, e
		}
		if q.DryRun {
			return w.response(q, d, nil, v), v, nil
		}
		if round == 0 && turn {
			d.batch.On = d.on
		}
		stale, e := w.commit(q, d, next)
		switch {
		case e == nil:
			return w.response(q, d, nil, v), v, nil
		case !stale || round == rounds-1:
			return nil, nil, e
		}
	}
}

// previewed returns the result of a dry run with a diff.
func (w *Writer) previewed(ctx context.Context, q *Request, d *decision, diff *api.Diff,
	v *change.Verified) (*api.Written, *api.Error) {
	if e := Gone(ctx); e != nil {
		return nil, e
	}
	if e := refusal(q, v); e != nil {
		return nil, e
	}
	// Only a put lists warnings in the diff.
	if len(q.Delete) == 0 {
		LeaveOut(diff, q.Omit)
		v.Warnings = nil
	}
	return w.response(q, d, diff, v), nil
}

// commit stores a decision completely or not at all. It reports stale if the content of the store
// has changed since the decision.
func (w *Writer) commit(q *Request, d *decision, next configs) (stale bool, e *api.Error) {
	if w.Auditable != nil {
		if err := w.Auditable(); err != nil {
			return false, api.NewError(api.StatusUnavailable, api.ProblemAudit, "Audit log not writable",
				"nothing was stored: the audit log cannot be written: %v", err)
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

// Gone returns an error if the client has disconnected, else nil. The client does not see it; it
// prevents further work.
func Gone(ctx context.Context) *api.Error {
	if ctx.Err() == nil {
		return nil
	}
	return api.NewError(api.StatusUnavailable, api.ProblemNotReady, "Cancelled",
		"the client disconnected; nothing was stored")
}
