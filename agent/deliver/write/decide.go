package write

import (
	"errors"

	"github.com/nearside-mesh/nearside/agent/answer/change"
	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/model/suffix"
	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/draft"
)

const kindMesh = "Mesh"

// decision is the effect of a write on one snapshot.
type decision struct {
	on      *store.Snapshot
	batch   store.Batch
	changes []api.Change // one per operation of the batch
	// publication is that of the options; may be nil.
	publication func(id string) api.Publication
}

// decide determines the effect of a write on the current content of the store, or why it is
// refused.
func (w *Writer) decide(q *Request) (*decision, *api.Error) {
	d := &decision{on: w.Store.Snapshot(), batch: store.Batch{Source: store.Source{Kind: store.SourceAPI},
		Author: q.Author, Durable: true}, publication: w.Publication}
	for _, k := range q.Delete {
		if e := d.remove(q, k); e != nil {
			return nil, e
		}
	}
	for _, v := range q.Reserved {
		d.record(w.Store, v)
	}
	if len(q.Put) == 0 {
		return d, nil
	}
	return d, d.put(q)
}

// record adds a version of a record that is no resource.
func (d *decision) record(s *store.Store, v *engine.Record) {
	c := api.Change{Type: v.Key.Kind, Name: v.Key.Name, Action: api.ActionChanged}
	switch before := s.Version(resource.Key(v.Key)); {
	case v.Deleted:
		c.Action = api.ActionDeleted
	case before == nil || before.Deleted:
		c.Action = api.ActionCreated
	}
	d.batch.Ops = append(d.batch.Ops, store.Op{Version: v, Signed: true})
	d.changes = append(d.changes, c)
}

// signed adds the version that an operator has signed to an op, if there is one.
func (q *Request) signed(op store.Op) store.Op {
	k := op.Delete
	if op.Put != nil {
		k = op.Put.Key
	}
	if v := q.Signed[k]; v != nil {
		op.Version, op.Signed, op.IfRevision, op.Author = v, true, nil, v.Author
	}
	return op
}

// remove adds the deletion of a resource.
func (d *decision) remove(q *Request, k resource.Key) *api.Error {
	rec, ok := d.on.Get(k)
	if _, damaged := d.on.Damaged(k); !ok && !damaged {
		return Missing(d.on, k)
	}
	if e := q.If(rec, ok); e != nil {
		return e
	}
	op := store.Op{Delete: k}
	if ok {
		if !rec.Source.Operators() {
			return d.conflict([]store.Conflict{{Key: k, Owner: rec.Source, Wanted: d.batch.Source}})
		}
		op.IfRevision = &rec.Revision
	}
	if k.Kind == kindMesh {
		if e := meshEmpty(d.on, k.Name); e != nil {
			return e
		}
	}
	d.batch.Ops = append(d.batch.Ops, q.signed(op))
	d.changes = append(d.changes, api.Change{Type: k.Kind, Mesh: k.Mesh, Name: k.Name, Action: api.ActionDeleted})
	return nil
}

// put adds the resources of the request.
func (d *decision) put(q *Request) *api.Error {
	if e := q.MayPut(d.on, q.Put); e != nil {
		return e
	}
	meshes := map[string]bool{"": true}
	for _, res := range q.Put {
		if res.Kind == kindMesh {
			meshes[res.Name] = true
		}
	}
	var conflicts []store.Conflict
	for _, res := range q.Put {
		if !meshes[res.Mesh] {
			if e := MeshExists(d.on, res.Mesh); e != nil {
				e.Detail += "; create it first, or in the same apply; it is referenced by " + res.Key.String()
				return e
			}
			meshes[res.Mesh] = true
		}
		if reason := suffix.Refusal(res); reason != "" {
			e := api.NewError(statusInvalid, api.ProblemDocument, "Invalid resource", "nothing was stored; fix the listed field")
			e.InvalidParameters = []api.InvalidParameter{{Document: res.Key.String(), Field: suffix.Field, Reason: reason}}
			return e
		}
		rec, have := d.on.Get(res.Key)
		if len(q.Put) == 1 {
			if e := q.If(rec, have); e != nil {
				return e
			}
		}
		if from, ok := q.Kept[res.Key]; ok && (!have || from != rec.Revision) {
			return api.NewError(api.StatusConflict, api.ProblemStale, "Changed in the meantime",
				"%s was changed in the meantime, so its stored secrets cannot be reused; read it again and repeat the change",
				res.Key)
		}
		if have && !rec.Source.Operators() {
			conflicts = append(conflicts, store.Conflict{Key: res.Key, Owner: rec.Source, Wanted: d.batch.Source})
		}
		c := api.Change{Type: res.Kind, Mesh: res.Mesh, Name: res.Name, Action: api.ActionCreated}
		if have {
			c.Action = api.ActionChanged
			if rec.Digest == res.Digest && q.Signed == nil {
				c.Action = api.ActionUnchanged
			} else if q.DryRun && q.MayGet(res.Key) {
				c.Fields = change.Fields(rec.Resource, res)
			}
		}
		// revision 0: it must not exist
		d.batch.Ops = append(d.batch.Ops, q.signed(store.Op{Put: res, IfRevision: &rec.Revision}))
		d.changes = append(d.changes, c)
	}
	if len(conflicts) > 0 {
		return d.conflict(conflicts)
	}
	return nil
}

// meshEmpty returns an error if a mesh still has resources.
func meshEmpty(snap *store.Snapshot, mesh string) *api.Error {
	var left []string
	more := 0
	for _, rec := range snap.Records() {
		switch {
		case rec.Mesh != mesh || resource.Internal(rec.Kind):
		case len(left) < 5:
			left = append(left, rec.Key.String()+" ("+rec.Source.String()+")")
		default:
			more++
		}
	}
	if len(left) == 0 {
		return nil
	}
	e := api.NewError(api.StatusConflict, api.ProblemInUse, "Mesh in use",
		"mesh %q still has %s", mesh,
		plural.Form(len(left)+more, "1 resource; delete it first", "%d resources; delete them first"))
	for _, l := range left {
		e.InvalidParameters = append(e.InvalidParameters, api.InvalidParameter{Field: l, Reason: "is in the mesh"})
	}
	return e
}

// Missing returns the error for a resource that is not in a snapshot.
func Missing(snap *store.Snapshot, k resource.Key) *api.Error {
	if e := MeshExists(snap, k.Mesh); e != nil {
		return e
	}
	if d, ok := snap.Damaged(k); ok {
		return api.NewError(api.StatusConflict, api.ProblemDamaged,
			"Damaged", "%s cannot be read from the state file (%s): %s", k, d.Reason, d.Remedy())
	}
	return api.NewNotFound("%s does not exist", k)
}

// MeshExists returns an error if a mesh is not in a snapshot. It returns nil for "".
func MeshExists(snap *store.Snapshot, mesh string) *api.Error {
	if mesh == "" {
		return nil
	}
	k := resource.Key{Kind: kindMesh, Name: mesh}
	if _, damaged := snap.Damaged(k); damaged {
		return Missing(snap, k)
	}
	if _, ok := snap.Get(k); !ok {
		return api.NewNotFound("mesh %q does not exist", mesh)
	}
	return nil
}

// conflict returns the error for a write of resources that a file, an Envoy, or another node owns.
func (d *decision) conflict(cs []store.Conflict) *api.Error {
	for i := range cs {
		if c := &cs[i]; c.Owner.Kind == store.SourcePublished && d.publication != nil {
			c.Commit = d.publication(c.Owner.Detail).Commit
		}
	}
	e := api.NewError(api.StatusConflict, api.ProblemOwned, "Owned by another source", "%s", cs[0].String())
	for _, c := range cs {
		e.InvalidParameters = append(e.InvalidParameters, api.InvalidParameter{Field: c.Key.String(), Reason: c.String()})
	}
	return e
}

// refused converts an error of the store to an API error. It reports stale if the content of the
// store has changed since the decision.
func (w *Writer) refused(err error) (stale bool, e *api.Error) {
	var (
		unstable *store.DurabilityError
		unsealed *store.SealError
		moved    *store.RevisionError
		owned    *store.ConflictError
		gone     *store.NotFoundError
	)
	switch {
	case errors.Is(err, draft.ErrStale):
		return false, api.NewError(api.StatusConflict, api.ProblemStale, "Changed in the meantime",
			"%s; read the version again, and sign the next one", errors.Unwrap(err))
	case errors.Is(err, engine.ErrTrust):
		return false, api.NewError(api.StatusUntrusted, api.ProblemTrust, "Not trusted", "%s; nothing was stored",
			errors.Unwrap(err))
	case errors.Is(err, engine.ErrInUse):
		return false, api.NewError(api.StatusConflict, api.ProblemInUse, "Mesh in use", "%s; nothing was stored",
			errors.Unwrap(err))
	case errors.As(err, &unstable):
		w.Log.Error("api: cannot make a write durable", "err", err)
		return false, api.NewError(api.StatusStorage, api.ProblemStorage, "Not durable", "%s", err.Error())
	case errors.As(err, &unsealed):
		w.Log.Error("api: cannot share a write with the pool", "err", err)
		return false, api.NewError(api.StatusUnavailable, api.ProblemStorage, "Not shared",
			"%s; nothing was stored", err.Error())
	case errors.Is(err, store.ErrClosed):
		return false, api.NewError(api.StatusUnavailable, api.ProblemNotReady, "Shutting down",
			"the agent is shutting down; repeat the write after it has restarted")
	case errors.Is(err, store.ErrMoved), errors.As(err, &moved), errors.As(err, &owned), errors.As(err, &gone):
		return true, api.NewError(api.StatusConflict, api.ProblemStale, "Changed in the meantime", "%s", err.Error())
	}
	w.Log.Error("api: write failed", "err", err)
	return false, api.NewError(api.StatusInternal, api.ProblemInternal, "Internal error", "%s", err.Error())
}
