package httpapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/change"
	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/base/workers"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
)

// checkTime is how long a deletion waits for the check, which is never refused. What is written is
// stored when it was checked whole.
const checkTime = 10 * time.Second

// diff is POST /v1/diff: a stream of documents, and in the query what else would change. It stores
// nothing; whoever may look into the proxies may ask.
func (s *Server) diff(w http.ResponseWriter, r *http.Request) *api.Error {
	shadow, e := boolQuery(r, "shadow")
	if e != nil {
		return e
	}
	all, e := boolQuery(r, "allNodes")
	if e != nil {
		return e
	}
	query := r.URL.Query()
	q := change.Question{Shadow: shadow, All: all}
	for _, f := range []struct {
		name string
		to   *string
	}{{"mesh", &q.Mesh}, {"dataplane", &q.Dataplane}} {
		if v, ok := query[f.name]; ok {
			if len(v) != 1 || v[0] == "" {
				return invalidQuery(f.name, strings.Join(v, ","), "one name, or leave it out for all")
			}
			*f.to = v[0]
		}
	}
	omit, e := itemsQuery(r, "omit", "omitted", "items", "patch")
	if e != nil {
		return e
	}
	for _, v := range query["delete"] {
		k, e := s.key(v)
		if e != nil {
			return e
		}
		q.Delete = append(q.Delete, k)
	}
	if r.ContentLength != 0 || !shadow && len(q.Delete) == 0 {
		body, e := s.body(r)
		if e != nil {
			return e
		}
		release, e := s.bulky(r, body)
		if e != nil {
			return e
		}
		defer release()
		if q.Put, _, e = s.decodeAll(body); e != nil {
			return e
		}
	}
	if e := s.mayDiff(r, &q); e != nil {
		return e
	}
	q.NoPatches = omit["patch"]
	d, v, e := s.preview(r.Context(), q)
	if e != nil {
		return e
	}
	d.Findings = append(d.Findings, v.Findings...)
	leaveOut(d, slices.Collect(maps.Keys(omit)))
	longOf(r.Context()).prolong()
	writeJSON(w, http.StatusOK, d)
	return nil
}

// leaveOut empties parts of a diff that nobody wants.
func leaveOut(d *api.Diff, omit []string) {
	for i := range d.Proxies {
		for _, part := range [...]*api.PartDiff{&d.Proxies[i].Config, &d.Proxies[i].Rules} {
			if slices.Contains(omit, "items") {
				part.Items = []api.ItemDiff{}
			}
			if slices.Contains(omit, "patch") {
				part.Patch = []jsonpatch.Operation{}
			}
		}
	}
}

// key reads TYPE/MESH/NAME, or TYPE/NAME of a global kind.
func (s *Server) key(text string) (resource.Key, *api.Error) {
	typ, rest, _ := strings.Cut(text, "/")
	d, ok := s.opts.Registry.Lookup(typ)
	if !ok {
		return resource.Key{}, invalidQuery("delete", text, typ+" is no kind of resource")
	}
	k := resource.Key{Kind: d.Kind, Name: rest}
	if d.Scope != resource.ScopeGlobal {
		k.Mesh, k.Name, _ = strings.Cut(rest, "/")
	}
	if k.Name == "" || d.Scope != resource.ScopeGlobal && k.Mesh == "" {
		return k, invalidQuery("delete", text, "TYPE/MESH/NAME, or TYPE/NAME of a kind that belongs to no mesh")
	}
	return k, nil
}

// complete adds the present state to a question, for the proxies of this agent.
func (s *Server) complete(q *change.Question) *store.Snapshot {
	snap := s.opts.Store.Snapshot()
	q.Set, q.NewMesh, q.Decode, q.Rendered = snap.Set(), s.opts.NewMesh, s.opts.Registry.DecodeOne, &s.rendered
	q.Each, q.Workers = workers.Each, workers.Spare()
	last := s.opts.Last()
	if last != nil {
		if last.Revision == snap.Revision() {
			q.Made = last.Meshes
		}
		q.InForce = func(id generate.ProxyID) *generate.Proxy { return last.Proxies[id] }
	}
	if s.opts.NewTry != nil {
		q.Try = s.opts.NewTry()
	}
	q.Connected = nil
	fit := map[generate.ProxyID]bool{}
	q.Fit = func(id generate.ProxyID) bool { return fit[id] }
	if s.opts.Connected != nil && !q.All {
		for _, k := range s.opts.Connected() {
			if ref, err := node.ParseRef(k.ID); err == nil && ref.Type == "" { // of a mesh
				id := generate.ProxyID{Mesh: ref.Mesh, Name: ref.Name, Flavor: k.Flavor}
				q.Connected = append(q.Connected, id)
				fit[id] = last.Fit(k, id)
			}
		}
	}
	return snap
}

// preview compares the present resources with others, and checks the change. One preview is made at
// a time, on all processors but one: it may take a while, and the agent's other work comes first.
func (s *Server) preview(ctx context.Context, q change.Question) (*api.Diff, *change.Verified, *api.Error) {
	l := longOf(ctx)
	if !l.turn(ctx, s.comparing) {
		return nil, nil, problem(http.StatusServiceUnavailable, api.ProblemNotReady,
			"Busy", "another comparison is under way; repeat the request in a moment")
	}
	defer func() { <-s.comparing }()
	if s.opts.Last() == nil {
		return nil, nil, notReady()
	}
	snap := s.complete(&q)
	q.Progress = l.progress
	d, v, err := change.Compare(ctx, ctx, q)
	var e *change.Error
	switch {
	case errors.As(err, &e) && e.Reason == change.NotFound:
		return nil, nil, notFound("%s", e.Detail)
	case errors.As(err, &e) && e.Reason == change.InUse:
		return nil, nil, problem(http.StatusConflict, api.ProblemInUse, string(e.Reason), "%s", e.Detail)
	case errors.As(err, &e):
		return nil, nil, invalid(e.Detail)
	case err != nil:
		return nil, nil, problem(http.StatusInternalServerError, api.ProblemGeneration, "No diff", "%s", err.Error())
	}
	for i := range d.Resources {
		r := &d.Resources[i]
		if rec, ok := snap.Get(resource.Key{Kind: r.Type, Mesh: r.Mesh, Name: r.Name}); ok && !rec.Source.Operators() {
			r.Owner = rec.Source.String()
		}
	}
	return d, v, nil
}

// check checks a change against the proxies concerned. The store may change meanwhile; then it is
// done once more, and what comes later is found when configs are made. A dry run has a diff too,
// unless there can be none yet.
func (s *Server) check(ctx context.Context, q change.Question, dry bool) (*api.Diff, *change.Verified) {
	unknown := func(reason string) *change.Verified {
		return &change.Verified{Notes: []api.Problem{{Resource: "the change", Severity: api.SeverityWarning, Reason: reason}}}
	}
	if dry {
		d, v, e := s.preview(ctx, q)
		switch {
		case e == nil:
			return d, v
		case ctx.Err() != nil:
			return nil, unknown(e.Error())
		}
		s.log.Debug("api: a dry run has no diff", "reason", e.Error())
	}
	l := longOf(ctx)
	if len(q.Put) == 0 {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, checkTime)
		defer cancel()
	}
	if !l.turn(ctx, s.verifying) { // one at a time: it may take all processors but one for a while
		return nil, unknown("others were being checked all the time")
	}
	defer func() { <-s.verifying }()
	q.Progress, q.Crew = l.progress, &s.crew
	if s.opts.Spare != nil && !s.opts.Spare() {
		s.crew = change.Crew{}
		q.Crew, q.Next, q.Frugal = nil, nil, true // what proxies get is made once more when it is stored
	}
	var v *change.Verified
	for range 2 {
		snap := s.complete(&q)
		var err error
		if v, err = change.Verify(ctx, q); err != nil {
			return nil, unknown(err.Error())
		}
		if s.opts.Store.Snapshot().Revision() == snap.Revision() {
			break
		}
	}
	return nil, v
}

// offer hands over what was found fit of a change that is about to be stored.
func (s *Server) offer(next map[generate.ProxyID]*change.Checked) {
	if s.opts.Offer != nil && len(next) > 0 {
		s.opts.Offer(next)
	}
}

// refusal is the answer to a change that would break proxies, nil for another one.
func refusal(v *change.Verified) *api.Error {
	list := v.Blocking()
	if len(list) == 0 {
		return nil
	}
	e := problem(http.StatusUnprocessableEntity, api.ProblemWouldBreak, "Rejected, nothing stored",
		"Envoy could not use the resulting config. Fix what is named")
	for i := range list {
		who, field, reason := list[i].Parts()
		e.InvalidParameters = append(e.InvalidParameters, api.InvalidParameter{Document: who, Field: field, Reason: reason})
	}
	return e
}

// checkWarnings returns the rest of what was found.
func checkWarnings(v *change.Verified) []string {
	var out []string
	for _, f := range v.NotBlocking() {
		out = append(out, f.Line())
	}
	for _, f := range v.Known {
		out = append(out, f.Intro("already on other proxies: "))
	}
	for _, w := range v.Warnings {
		out = append(out, w.Resource.String()+": "+w.Reason)
	}
	for _, n := range v.Notes {
		out = append(out, "not checked: "+n.Resource+": "+n.Reason)
	}
	if v.Of > v.Proxies {
		out = append(out, fmt.Sprintf("not checked: %d of %d proxies: the check took longer than %v; "+
			"they are checked when their config is made", v.Of-v.Proxies, v.Of, checkTime))
	}
	if v.More > 0 {
		out = append(out, fmt.Sprintf("%d more findings", v.More))
	}
	return out
}

// deleteWarnings returns what a deletion breaks, and the rest.
func deleteWarnings(v *change.Verified) []string {
	out := []string{}
	for _, f := range v.Blocking() {
		out = append(out, f.Intro("breaks a proxy, which keeps its config: "))
	}
	return append(out, checkWarnings(v)...)
}
