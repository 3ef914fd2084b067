package write

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nearside-mesh/nearside/agent/answer/change"
	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/base/workers"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
)

// configs are the configs computed by a check.
type configs = map[generate.ProxyID]*change.Checked

// complete adds the content of a snapshot to a question, and the proxies of this agent.
func (w *Writer) complete(q *change.Question, snap *store.Snapshot) {
	q.Set, q.NewMesh, q.Decode, q.Rendered = snap.Set(), w.NewMesh, w.Registry.DecodeOne, w.Rendered
	q.Each, q.Workers = workers.Each, workers.Spare()
	last := w.Last()
	if last != nil {
		if last.Revision == snap.Revision() {
			q.Meshes = last.Meshes
		}
		q.InForce = func(id generate.ProxyID) *generate.Proxy { return last.Proxies[id] }
	}
	if w.NewTry != nil {
		q.Try = w.NewTry()
	}
	fit := map[generate.ProxyID]bool{}
	q.Fit = func(id generate.ProxyID) bool { return fit[id] }
	if w.Connected != nil && !q.All {
		for _, k := range w.Connected() {
			if ref, err := node.ParseRef(k.ID); err == nil && ref.Type == "" { // a dataplane
				id := generate.ProxyID{Mesh: ref.Mesh, Name: ref.Name, Flavor: k.Flavor}
				q.Connected = append(q.Connected, id)
				fit[id] = last.Fit(k, id)
			}
		}
	}
}

// Preview compares the current resources with a change and checks it. Only one preview runs at a
// time, on all processors but one, because it may take long and other work has priority.
func (w *Writer) Preview(ctx context.Context, q change.Question,
	wait Waiting) (*api.Diff, *change.Verified, *api.Error) {
	if !wait.Turn(ctx, w.Comparing) {
		return nil, nil, api.NewError(api.StatusUnavailable, api.ProblemNotReady,
			"Busy", "another comparison is running; repeat the request in a moment")
	}
	defer func() { <-w.Comparing }()
	if w.Last() == nil {
		return nil, nil, api.NewNotReady()
	}
	snap := w.Store.Snapshot()
	w.complete(&q, snap)
	q.Progress = wait.Progress
	d, v, err := change.Compare(ctx, ctx, q)
	var e *api.Error
	switch {
	case errors.As(err, &e):
		return nil, nil, e
	case err != nil:
		return nil, nil, api.NewError(api.StatusInternal, api.ProblemGeneration, "No diff", "%s", err.Error())
	}
	for i := range d.Resources {
		r := &d.Resources[i]
		if rec, ok := snap.Get(resource.Key{Kind: r.Type, Mesh: r.Mesh, Name: r.Name}); ok && !rec.Source.Operators() {
			r.Owner = rec.Source.String()
		}
	}
	return d, v, nil
}

// LeaveOut removes the parts of a diff that the caller does not want: "items", "patch".
func LeaveOut(d *api.Diff, omit []string) {
	for i := range d.Proxies {
		for _, section := range [...]*api.PartDiff{&d.Proxies[i].Config, &d.Proxies[i].Rules} {
			if slices.Contains(omit, "items") {
				section.Items = []api.ItemDiff{}
			}
			if slices.Contains(omit, "patch") {
				section.Patch = []jsonpatch.Operation{}
			}
		}
	}
}

// verify checks a write against the affected proxies. It returns the result and the computed
// configs.
func (w *Writer) verify(ctx context.Context, r *Request, d *decision) (*change.Verified, configs) {
	q := change.Question{Put: r.Put, Delete: r.Delete, Progress: r.Progress, Crew: &w.crew}
	w.complete(&q, d.on)
	var next configs
	switch {
	case w.Spare != nil && !w.Spare():
		w.crew = change.Crew{}
		q.Crew, q.Frugal = nil, true // the reconciliation computes the configs again
	case len(r.Put) > 0 && !r.DryRun:
		next = configs{}
		q.Next = func(id generate.ProxyID, p *change.Checked) { next[id] = p }
	}
	v, err := change.Verify(ctx, q)
	if err != nil {
		return unknown(err.Error()), nil
	}
	return v, next
}

func unknown(reason string) *change.Verified {
	return &change.Verified{Notes: []api.Problem{{Resource: "the change", Severity: api.SeverityWarning, Reason: reason}}}
}

// refusal returns an error if a write would break proxies. Deletions are never refused, because
// they may fix a worse problem.
func refusal(q *Request, v *change.Verified) *api.Error {
	list := v.Blocking()
	if len(list) == 0 || len(q.Delete) > 0 {
		return nil
	}
	e := api.NewError(api.StatusWouldBreak, api.ProblemWouldBreak, "Rejected, nothing stored",
		"Envoy could not use the resulting config. Fix the listed problems")
	for i := range list {
		document, field, reason := list[i].Parts()
		e.InvalidParameters = append(e.InvalidParameters,
			api.InvalidParameter{Document: document, Field: field, Reason: reason})
	}
	return e
}

// response returns the response to a write.
func (w *Writer) response(q *Request, d *decision, diff *api.Diff, v *change.Verified) *api.Written {
	out := &api.Written{Changes: d.changes, Warnings: []string{}, DryRun: q.DryRun, Diff: diff}
	warn := func(text string) { out.Warnings = append(out.Warnings, text) }
	if len(q.Delete) > 0 {
		for _, f := range v.Blocking() {
			warn(f.Intro("breaks a proxy, which keeps its config: "))
		}
	} else {
		w.inert(out)
	}
	w.held(out, d)
	for _, f := range v.NotBlocking() {
		warn(f.Line())
	}
	for _, f := range v.Known {
		warn(f.Intro("already present on other proxies: "))
	}
	for _, x := range v.Warnings {
		warn(warningText(x))
	}
	for _, n := range v.Notes {
		warn("not checked: " + n.Resource + ": " + n.Reason)
	}
	if v.Of > v.Proxies {
		warn(fmt.Sprintf("not checked: %d of %d proxies: the check took longer than %v; "+
			"they are checked when their config is computed", v.Of-v.Proxies, v.Of, checkTime))
	}
	if v.More > 0 {
		warn(plural.Count(v.More, "more finding"))
	}
	if q.DryRun && q.Hidden != "" {
		warn("no diff is shown: " + q.Hidden)
	}
	return out
}

func warningText(w mesh.Warning) string { return w.Resource.String() + ": " + w.Reason }

// held adds a warning for each mesh of the write whose proxies keep their config, because another
// resource is damaged.
func (w *Writer) held(out *api.Written, d *decision) {
	for _, c := range out.Changes {
		mesh := c.Mesh
		if c.Type == kindMesh {
			mesh = c.Name
		}
		by, held := d.on.Holder(mesh)
		if !held || slices.ContainsFunc(out.Changes, func(c api.Change) bool {
			return by.Key == resource.Key{Kind: c.Type, Mesh: c.Mesh, Name: c.Name}
		}) {
			continue
		}
		text := fmt.Sprintf("proxies do not get the change yet: %s cannot be read from the state file (%s): %s", by.Key,
			by.Reason, by.Remedy())
		if !slices.Contains(out.Warnings, text) {
			out.Warnings = append(out.Warnings, text)
		}
	}
}

// inert adds one warning per kind of written resources that have no effect in this version.
func (w *Writer) inert(out *api.Written) {
	for _, c := range out.Changes {
		if d, ok := w.Registry.Lookup(c.Type); !ok || !d.Inert || c.Action == api.ActionUnchanged {
			continue
		}
		text := c.Type + " is stored and validated, but this version does not apply it: " +
			"proxies get the same config as without it"
		if !slices.Contains(out.Warnings, text) {
			out.Warnings = append(out.Warnings, text)
		}
	}
}
