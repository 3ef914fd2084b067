package httpapi

import (
	"cmp"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"

	"github.com/nearside-mesh/nearside/agent/answer/change"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
)

// target returns what a write to one resource is about, and whether it is only asked what it would
// do.
func (s *Server) target(r *http.Request) (a address, dry bool, e *api.Error) {
	if a, e = s.address(r); e != nil {
		return
	}
	if _, known := s.opts.Registry.Lookup(a.key.Kind); !known {
		return a, false, notFound("there is no %s here: it is a kind that the agent does not have", a.key.Kind)
	}
	dry, e = boolQuery(r, "dryRun")
	return
}

func (s *Server) put(w http.ResponseWriter, r *http.Request) *api.Error {
	a, dry, e := s.target(r)
	if e != nil {
		return e
	}
	body, e := s.body(r)
	if e != nil {
		return e
	}
	res, kept, e := s.decodeOne(a.key, body)
	if e != nil {
		return e
	}
	out, e := s.writeChecked(r, []*resource.Resource{res}, kept, dry)
	if e != nil {
		return e
	}
	status := http.StatusOK
	if out.Changes[0].Action == api.ActionCreated {
		status = http.StatusCreated
		w.Header().Set("Location", r.URL.EscapedPath())
	}
	if rec, ok := s.opts.Store.Snapshot().Get(a.key); ok && !dry && rec.Revision == out.Changes[0].Revision {
		w.Header().Set("ETag", etag(rec))
	}
	writeJSON(w, status, out)
	return nil
}

func (s *Server) delete(w http.ResponseWriter, r *http.Request) *api.Error {
	a, dry, e := s.target(r)
	if e != nil {
		return e
	}
	recordOf(r).dry = dry
	c, e := s.remove(r, a, true)
	if e != nil {
		return e
	}
	// A deletion is never refused for what it breaks: it may be the way out of something worse. Whom
	// it breaks is told.
	q := change.Question{Delete: []resource.Key{a.key}}
	hidden := s.mayPreview(r, &q)
	d, v := s.check(r.Context(), q, dry && hidden == nil)
	if e := gone(r); e != nil {
		return e
	}
	if !dry {
		if c, e = s.remove(r, a, false); e != nil {
			return e
		}
	}
	writeJSON(w, http.StatusOK,
		api.Written{Changes: []api.Change{c}, Warnings: withoutDiff(deleteWarnings(v), dry, hidden), DryRun: dry, Diff: d})
	return nil
}

// writeChecked stores resources, or with dry finds out what storing them would do, unless that
// would break proxies. The warnings are about what is not as it reads, and what could not be
// checked. Omit are parts of the diff of a dry run.
func (s *Server) writeChecked(r *http.Request, rs []*resource.Resource, kept keptSecrets, dry bool,
	omit ...string) (*api.Written, *api.Error) {
	s.writes(r, rs, dry)
	changes, e := s.write(r, rs, kept, true)
	if e != nil {
		return nil, e
	}
	q := change.Question{Put: rs, NoPatches: slices.Contains(omit, "patch")}
	next := map[generate.ProxyID]*change.Checked{}
	if !dry {
		q.Next = func(id generate.ProxyID, p *change.Checked) { next[id] = p }
	}
	hidden := s.mayPreview(r, &q)
	d, v := s.check(r.Context(), q, dry && hidden == nil)
	if e := cmp.Or(gone(r), refusal(v)); e != nil {
		return nil, e
	}
	if d != nil {
		leaveOut(d, omit)
		v.Warnings = nil // the diff of a dry run has them
	}
	if !dry {
		s.offer(next)
		if changes, e = s.write(r, rs, kept, false); e != nil {
			return nil, e
		}
	}
	warnings := withoutDiff(append(s.inert(changes), checkWarnings(v)...), dry, hidden)
	return &api.Written{Changes: changes, Warnings: warnings, DryRun: dry, Diff: d}, nil
}

// withoutDiff adds why a dry run shows no diff: who may write without looking into the proxies gets
// the same answer as from the write.
func withoutDiff(warnings []string, dry bool, hidden *api.Error) []string {
	if dry && hidden != nil {
		return append(warnings, "no diff is shown: "+hidden.Detail)
	}
	return warnings
}

// remove deletes a resource, or finds out whether it can be.
func (s *Server) remove(r *http.Request, a address, dry bool) (api.Change, *api.Error) {
	out := api.Change{Type: a.key.Kind, Mesh: a.key.Mesh, Name: a.key.Name, Action: api.ActionDeleted}
	s.writing.Lock()
	defer s.writing.Unlock()
	snap := s.opts.Store.Snapshot()
	op := store.Op{Delete: a.key}
	rec, ok := snap.Get(a.key)
	_, damaged := snap.Damaged(a.key)
	if !ok && !damaged {
		return out, s.missing(snap, a.key)
	}
	if e := preconditions(r, rec, ok); e != nil {
		return out, e
	}
	if ok {
		if e := ownedByAPI(rec); e != nil {
			return out, e
		}
		op.IfRevision = &rec.Revision
	}
	if a.key.Kind == kindMesh {
		if e := meshEmpty(snap, a.key.Name); e != nil {
			return out, e
		}
	}
	if !dry {
		if e := s.auditable(); e != nil {
			return out, e
		}
		author := peerOf(r).Account()
		recs, err := s.opts.Store.Apply(store.Batch{Source: store.Source{Kind: store.SourceAPI}, Durable: true,
			Author: author, Ops: []store.Op{op}})
		if err != nil {
			return out, s.storeError(err)
		}
		out.Revision = recs[0].Revision
		recordOf(r).wrote(out)
		s.log.Info("api: deleted", "resource", a.key.String(), "revision", out.Revision, "author", author)
	}
	return out, nil
}

// meshEmpty refuses to delete a mesh from below its resources.
func meshEmpty(snap *store.Snapshot, mesh string) *api.Error {
	var left []string
	more := 0
	for _, rec := range snap.Records() {
		switch {
		case rec.Mesh != mesh:
		case len(left) < 5:
			left = append(left, rec.Key.String()+" ("+rec.Source.String()+")")
		default:
			more++
		}
	}
	if len(left) == 0 {
		return nil
	}
	e := problem(http.StatusConflict, api.ProblemInUse, "Mesh in use",
		"mesh %q still has %d resources; delete them first", mesh, len(left)+more)
	for _, l := range left {
		e.InvalidParameters = append(e.InvalidParameters, api.InvalidParameter{Field: l, Reason: "is in the mesh"})
	}
	return e
}

// body reads a request body within the limit.
func (s *Server) body(r *http.Request) ([]byte, *api.Error) {
	b, err := io.ReadAll(r.Body)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, problem(http.StatusRequestEntityTooLarge, api.ProblemTooLarge, "Request too large",
			"the body has more than %d bytes; split it", tooLarge.Limit)
	case err != nil:
		return nil, invalid("the body could not be read: " + err.Error())
	case len(b) == 0:
		return nil, invalid("the body is empty; send a resource as JSON or YAML")
	}
	return b, nil
}

// decodeOne decodes a body that must hold exactly the resource with that key.
func (s *Server) decodeOne(want resource.Key, body []byte) (*resource.Resource, keptSecrets, *api.Error) {
	rs, kept, faults := s.decode(body)
	if len(faults) > 0 {
		return nil, nil, invalidDocument(faults, len(rs)+len(faults) > 1)
	}
	if len(rs) != 1 {
		return nil, nil, invalid("the body holds " + strconv.Itoa(len(rs)) + " documents; send one, or several to /v1/apply")
	}
	var wrong []api.InvalidParameter
	for _, f := range []struct{ field, have, want string }{
		{"type", rs[0].Kind, want.Kind}, {"mesh", rs[0].Mesh, want.Mesh}, {"name", rs[0].Name, want.Name},
	} {
		if f.have != f.want {
			wrong = append(wrong, api.InvalidParameter{Field: f.field,
				Reason: strconv.Quote(f.have) + " does not agree with the path, which says " + strconv.Quote(f.want)})
		}
	}
	if len(wrong) > 0 {
		return nil, nil, invalid("the document is not the resource that the path names", wrong...)
	}
	return rs[0], kept, nil
}

// invalidDocument answers with every fault. With many documents each reason begins with the one it
// is about.
func invalidDocument(faults resource.Faults, many bool) *api.Error {
	e := problem(http.StatusBadRequest, api.ProblemDocument, "Invalid resource",
		"nothing was stored; fix every field named")
	for _, f := range faults {
		field := f.Field
		f.Field = ""
		if !many {
			f.Document, f.Resource = 0, ""
		}
		e.InvalidParameters = append(e.InvalidParameters, api.InvalidParameter{Field: field, Reason: f.String()})
	}
	return e
}

// write stores resources in one step, or finds out what storing them would do. The checks that need
// the present state and the write are one step too, as far as other writers of the API are
// concerned: one of them is whether the sender may create what is not there, and update what is.
func (s *Server) write(r *http.Request, rs []*resource.Resource, kept keptSecrets,
	dry bool) ([]api.Change, *api.Error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	snap := s.opts.Store.Snapshot()
	if e := s.mayWrite(r, snap, keysOf(rs)...); e != nil {
		return nil, e
	}
	meshes := map[string]bool{"": true}
	for _, res := range rs {
		if res.Kind == kindMesh {
			meshes[res.Name] = true
		}
	}
	changes := make([]api.Change, 0, len(rs))
	author := peerOf(r).Account()
	batch := store.Batch{Source: store.Source{Kind: store.SourceAPI}, Durable: true, Author: author}
	var conflicts []store.Conflict
	for _, res := range rs {
		if !meshes[res.Mesh] {
			if e := meshExists(snap, res.Mesh); e != nil {
				e.Detail += "; create it first, or in the same apply: it was named by " + res.Key.String()
				return nil, e
			}
			meshes[res.Mesh] = true
		}
		rec, have := snap.Get(res.Key)
		if len(rs) == 1 {
			if e := preconditions(r, rec, have); e != nil {
				return nil, e
			}
		}
		if from, ok := kept[res.Key]; ok && (!have || from != rec.Revision) {
			return nil, problem(http.StatusConflict, api.ProblemStale, "Changed meanwhile",
				"%s was changed while its secrets were kept; read it again and repeat the change", res.Key)
		}
		if have && !rec.Source.Operators() {
			conflicts = append(conflicts, store.Conflict{Key: res.Key, Owner: rec.Source, Wanted: batch.Source})
		}
		c := api.Change{Type: res.Kind, Mesh: res.Mesh, Name: res.Name, Action: api.ActionCreated}
		var from uint64
		if have {
			from, c.Action = rec.Revision, api.ActionChanged
			if rec.Digest == res.Digest {
				c.Action = api.ActionUnchanged
			} else if dry && s.may(r, access.VerbGet, res.Key) {
				c.Fields = change.Fields(rec.Resource, res)
			}
		}
		batch.Ops = append(batch.Ops, store.Op{Put: res, IfRevision: &from})
		changes = append(changes, c)
	}
	if len(conflicts) > 0 {
		return nil, s.storeError(&store.ConflictError{Conflicts: conflicts})
	}
	if dry {
		return changes, nil
	}
	if e := s.auditable(); e != nil {
		return nil, e
	}
	recs, err := s.opts.Store.Apply(batch)
	if err != nil {
		return nil, s.storeError(err)
	}
	for i, rec := range recs {
		changes[i].Revision = rec.Revision
		if changes[i].Action != api.ActionUnchanged {
			s.log.Info("api: "+changes[i].Action, "resource", rec.Key.String(), "revision", rec.Revision, "author", author)
		}
	}
	recordOf(r).wrote(changes...)
	return changes, nil
}

// preconditions checks If-Match and If-None-Match (RFC 9110, 13.1).
func preconditions(r *http.Request, rec store.Record, have bool) *api.Error {
	if m := r.Header.Get("If-Match"); m != "" {
		if !have {
			return problem(http.StatusPreconditionFailed, api.ProblemStale, "Stale revision",
				"there is nothing at %q that If-Match could name", r.URL.Path)
		}
		if tag := etag(rec); !tagListed(m, tag) {
			return problem(http.StatusPreconditionFailed, api.ProblemStale, "Stale revision",
				"%s has the ETag %s now, If-Match names %s: someone changed it since; read it again and repeat the change",
				rec.Key, tag, m)
		}
	}
	if m := r.Header.Get("If-None-Match"); m != "" && have && tagListed(m, etag(rec)) {
		return problem(http.StatusPreconditionFailed, api.ProblemExists, "Already exists",
			"%s exists already, at revision %d, and If-None-Match asks that it does not", rec.Key, rec.Revision)
	}
	return nil
}

// ownedByAPI refuses to touch what comes from a file, an Envoy or another node.
func ownedByAPI(rec store.Record) *api.Error {
	if rec.Source.Operators() {
		return nil
	}
	return conflict([]store.Conflict{{Key: rec.Key, Owner: rec.Source, Wanted: store.Source{Kind: store.SourceAPI}}})
}

func conflict(cs []store.Conflict) *api.Error {
	e := problem(http.StatusConflict, api.ProblemOwned, "Owned by another source", "%s", cs[0].String())
	for _, c := range cs {
		e.InvalidParameters = append(e.InvalidParameters, api.InvalidParameter{Field: c.Key.String(), Reason: c.String()})
	}
	return e
}

// storeError turns the answer of the store into one of the API.
func (s *Server) storeError(err error) *api.Error {
	var (
		owned    *store.ConflictError
		stale    *store.RevisionError
		gone     *store.NotFoundError
		unstable *store.DurabilityError
		alone    *store.ShareError
	)
	switch {
	case errors.As(err, &owned) && len(owned.Conflicts) > 0:
		return conflict(slices.Clone(owned.Conflicts))
	case errors.As(err, &stale):
		return problem(http.StatusConflict, api.ProblemStale, "Changed meanwhile", "%s", err.Error())
	case errors.As(err, &gone):
		return notFound("%s", err.Error())
	case errors.As(err, &unstable):
		s.log.Error("api: a write could not be made durable", "err", err)
		return problem(http.StatusInsufficientStorage, api.ProblemStorage, "Not durable", "%s", err.Error())
	case errors.As(err, &alone):
		s.log.Error("api: a write is not in the pool", "err", err)
		return problem(http.StatusServiceUnavailable, api.ProblemStorage, "Not shared", "%s; nothing was stored", err.Error())
	case errors.Is(err, store.ErrClosed):
		return problem(http.StatusServiceUnavailable, api.ProblemNotReady, "Shutting down",
			"the agent is shutting down; repeat the write once it is up again")
	}
	s.log.Error("api: a write failed", "err", err)
	return problem(http.StatusInternalServerError, api.ProblemInternal, "Internal error", "%s", err.Error())
}

// inert warns, once for each kind, of resources that were written and that nothing acts on.
func (s *Server) inert(changes []api.Change) []string {
	out := []string{}
	for _, c := range changes {
		if d, ok := s.opts.Registry.Lookup(c.Type); !ok || !d.Inert || c.Action == api.ActionUnchanged {
			continue
		}
		w := c.Type + " is stored and checked, but this version does not act on it: proxies get the same config as without it"
		if !slices.Contains(out, w) {
			out = append(out, w)
		}
	}
	return out
}
