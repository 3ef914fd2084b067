package status

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/effect"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/deliver/drains"
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
)

// MaxLate limits each list of an [api.Applied], and the late proxies of an [api.Wait].
const MaxLate = 1000

const maxListed = 20 // replaces MaxLate in lists of [api.Applied]

// situation is the input for computing an [api.Applied].
type situation struct {
	reg     *resource.Registry
	snap    *store.Snapshot
	last    *Result
	proxies []rollout.Progress
	history func(resource.Key) []store.Revision
	limit   int // of each list

	settings map[node.Key]drains.Settings // of the proxies with a drain
	measures bool                         // drains that previous agents may have caused count, if they are measured
	old      []oldOn                      // of the subject that was evaluated last

	verdicts map[*resource.Resource]*effect.MeshVerdict // of active policies; nil: unknown
	warnings map[string][]string                        // by resource

	counts func() map[string]api.ProxyCounts // [Parts.Counts], called at most once; nil: unknown
}

func (t *Tracker) situation(ctx context.Context, limit int) *situation {
	out := &situation{reg: t.Registry, snap: t.Store.Snapshot(), last: t.Last(), history: t.Store.History, limit: limit}
	if t.Parts.Counts != nil {
		out.counts = sync.OnceValue(t.Parts.Counts)
	}
	if t.Progress != nil {
		out.proxies = t.Progress()
		out.settings = t.settingsOf(ctx, out.proxies)
	}
	return out
}

// List returns the state of the wanted resources of a kind, sorted by mesh and name.
func (t *Tracker) List(ctx context.Context, kind string, wanted func(resource.Key) bool) api.AppliedList {
	x := t.situation(ctx, maxListed)
	out := api.AppliedList{Items: []api.Applied{}}
	list := slices.DeleteFunc(slices.Clone(x.snap.Set().Kind(kind)), func(r *resource.Resource) bool {
		return !wanted(r.Key)
	})
	t.examine(ctx, x, list)
	for _, res := range list {
		if rec, ok := x.snap.Get(res.Key); ok {
			item := x.applied(rec)
			x.addOld(&item, nil)
			out.Items = append(out.Items, item)
		}
	}
	slices.SortFunc(out.Items, func(a, b api.Applied) int {
		return cmp.Or(cmp.Compare(a.Mesh, b.Mesh), cmp.Compare(a.Name, b.Name))
	})
	out.Total = len(out.Items)
	return out
}

// subject is a resource whose effect on proxies is evaluated.
type subject struct {
	key      resource.Key
	desc     resource.Descriptor
	revision uint64
	current  *resource.Resource // nil: deleted
	earlier  []*resource.Resource
	read     bool // earlier is loaded
}

// applied returns the state of an existing resource.
func (x *situation) applied(rec store.Record) api.Applied {
	d, _ := x.reg.Lookup(rec.Kind)
	sub := &subject{key: rec.Key, desc: d, revision: rec.Revision, current: rec.Resource}
	out := x.onProxies(sub)
	switch {
	case d.Policy && rec.Shadow():
		out.State, out.Reason = api.StateShadow, "it is labelled "+resource.LabelEffect+": "+resource.EffectShadow+
			", so it does not affect proxies as long as it has this label"
	case d.Inert:
		out.State, out.Reason = api.StateInert, "this version stores "+d.Kind+" but does not act on it"
	case out.State == api.StateApplied && !rec.Shadow() && x.switching(d, rec.Key) != "":
		out.State, out.Reason = api.StatePending, x.switching(d, rec.Key)
	case out.State != api.StateApplied || !d.Policy:
	default:
		if x.selected(sub, &out); out.State == api.StateApplied {
			x.effect(rec.Resource, &out)
		}
	}
	return out
}

// gone returns the state of a deletion.
func (x *situation) gone(key resource.Key) api.Applied {
	d, _ := x.reg.Lookup(key.Kind)
	sub := &subject{key: key, desc: d, revision: x.snap.Revision()} // upper bound for the revision of the deletion
	for _, rev := range x.history(key) {
		if rev.Deleted {
			sub.revision = rev.Revision
		}
	}
	out := x.onProxies(sub)
	switch why := x.switching(d, key); {
	case out.State == api.StateApplied && why != "":
		out.State, out.Reason = api.StatePending, why
	case out.State == api.StateApplied:
		out.State = api.StateGone
	}
	return out
}

// switching returns the current step of a change of TLS by a resource or its kind, or "".
func (x *situation) switching(d resource.Descriptor, key resource.Key) string {
	if x.last == nil || !d.Staged {
		return ""
	}
	if d.Policy {
		key.Name = ""
	}
	return x.last.Switching[key]
}

// onProxies returns the state of a subject on the affected proxies.
func (x *situation) onProxies(sub *subject) api.Applied {
	out := api.Applied{Type: sub.key.Kind, Mesh: sub.key.Mesh, Name: sub.key.Name, Revision: sub.revision,
		State: api.StateApplied,
		Late:  []api.LateProxy{}, Rejected: []api.RejectedResource{}}
	x.old = nil
	for i := range x.proxies {
		p := &x.proxies[i]
		if p.State == api.StateDisconnected || p.State == api.StateUnknown || !sub.reaches(p) {
			continue
		}
		done := p.Answered >= sub.revision
		if sub.desc.Staged && len(p.Unanswered) > 0 {
			done = false // the steps share one revision
		}
		if done {
			x.noteOld(sub, p)
		}
		if !x.touches(sub, p, done) {
			continue
		}
		out.Proxies++
		refused, unclear := sub.refusedBy(p)
		switch {
		case p.Revision >= sub.revision && len(refused) > 0:
			for _, r := range refused {
				x.reject(&out, r)
			}
		case !done && x.last.StaleSince(p.Node, sub.revision) != "":
			x.late(&out, p.Mesh, p.Name, "it keeps an older config: "+x.last.StaleSince(p.Node, sub.revision))
			out.State = api.StateStale
		case !done:
			x.late(&out, p.Mesh, p.Name, x.whyLate(sub, p))
		case slices.ContainsFunc(p.Rejected, func(r draft.Rejection) bool { return r.Suspect }):
			x.late(&out, p.Mesh, p.Name,
				"it rejected a response without naming a resource; the agent is determining which one")
		case unclear:
			x.late(&out, p.Mesh, p.Name, "it rejected a resource; the agent is determining the responsible policies")
		case x.leftOut(&out, sub, p), x.losing(&out, sub, p):
		default:
			out.Acknowledged++
		}
	}
	conclude(&out)
	return out
}

func conclude(a *api.Applied) {
	switch {
	case a.RejectedTotal > 0:
		a.State = api.StateRejected
	case a.LateTotal > 0 && a.State != api.StateStale:
		a.State = api.StatePending
	}
}

func (x *situation) late(a *api.Applied, mesh, name, why string) {
	if a.LateTotal++; len(a.Late) < x.limit {
		a.Late = append(a.Late, api.LateProxy{Mesh: mesh, Name: name, Reason: why})
	}
}

func (x *situation) reject(a *api.Applied, r *draft.Rejection) {
	if a.RejectedTotal++; len(a.Rejected) < x.limit {
		a.Rejected = append(a.Rejected, api.RejectedResource{Mesh: r.Mesh, Name: r.Name, TypeURL: r.ID.TypeURL,
			Resource: r.ID.Name,
			By:       r.By, Reason: r.Reason, Retry: r.Retry, Policies: append([]api.Blame{}, r.Blame...),
			Without: r.Without})
	}
}

// leftOut records what the published config of a proxy lacks of the subject. It reports whether
// there is something.
func (x *situation) leftOut(a *api.Applied, sub *subject, p *rollout.Progress) (found bool) {
	if x.last == nil {
		return false
	}
	for _, l := range x.last.LeftOut[p.Node] {
		switch {
		case l.Policy != sub.key:
			continue
		case l.Reason == NotReady:
			x.late(a, p.Mesh, p.Name, "the access log to "+l.What+" is disabled: "+l.Reason)
		default:
			x.reject(a, &draft.Rejection{Mesh: p.Mesh, Name: p.Name, By: api.HeldByAgent,
				ID: draft.ResourceID{TypeURL: accessLogType, Name: l.What}, Reason: "it is disabled: " + l.Reason})
		}
		found = true
	}
	return found
}

// accessLogType is the type of access logs in [api.RejectedResource].
const accessLogType = "type.googleapis.com/envoy.config.accesslog.v3.AccessLog"

// reaches reports whether a proxy is in the mesh of the subject.
func (sub *subject) reaches(p *rollout.Progress) bool {
	switch {
	case p.Mesh == "": // a zone proxy depends on all meshes
		return true
	case sub.key.Kind == kindMesh:
		return p.Mesh == sub.key.Name
	case sub.key.Mesh != "":
		return p.Mesh == sub.key.Mesh
	}
	return true
}

// touches reports whether the config of a proxy may depend on the subject. A policy affects the
// proxies that it selects and, until they have acknowledged its last change, those that earlier
// revisions selected. Other resources may affect every proxy of their mesh.
func (x *situation) touches(sub *subject, p *rollout.Progress, done bool) bool {
	if !sub.desc.Policy {
		return true
	}
	if x.last == nil {
		return true
	}
	m := x.last.Meshes[p.Mesh]
	if x.last.Kept[p.Mesh] != "" {
		return true
	}
	if m == nil || m.Policies == nil || p.Node.Flavor == node.FlavorGRPC {
		return false
	}
	dp := m.View.Dataplane(p.Name)
	if dp == nil {
		return false
	}
	if sub.current != nil && !sub.current.Shadow() && Selects(m, sub.current, dp) {
		return true
	}
	if done {
		return false
	}
	if !sub.read {
		sub.read = true
		for _, rev := range x.history(sub.key) {
			if rev.Resource != nil && !rev.Resource.Shadow() {
				sub.earlier = append(sub.earlier, rev.Resource)
			}
		}
	}
	return slices.ContainsFunc(sub.earlier, func(r *resource.Resource) bool { return Selects(m, r, dp) })
}

// refusedBy returns the rejections that the subject has caused. unclear means that the causes of
// other rejections are not known yet.
func (sub *subject) refusedBy(p *rollout.Progress) (refused []*draft.Rejection, unclear bool) {
	for i := range p.Rejected {
		r := &p.Rejected[i]
		switch {
		case !r.Attributed || r.AttributedAt < p.Revision || r.Deciding:
			unclear = true
		case sub.desc.Policy && sub.blamed(r), !sub.desc.Policy && sub.behind(r):
			refused = append(refused, r)
		}
	}
	return refused, unclear
}

// blamed reports whether a rejection prevents a policy from being in force. If the start of the
// problem is unknown, only the likely causes count.
func (sub *subject) blamed(r *draft.Rejection) bool {
	list := r.Blame
	switch {
	case r.Substituted(): // all other policies are in force
		list = r.Causes()
	case r.Since == 0 && !r.Overtakes && !api.OfHost(list): // if the cause is the host, all policies are affected
		list = api.Causes(list)
	}
	return sub.revision > r.Since && slices.ContainsFunc(list, func(b api.Blame) bool {
		return b.Type == sub.key.Kind && b.Mesh == sub.key.Mesh && b.Name == sub.key.Name
	})
}

// behind reports whether a change of a resource other than a policy may have caused a rejection.
func (sub *subject) behind(r *draft.Rejection) bool {
	return !r.Substituted() && sub.revision > r.Since && sub.revision <= r.MadeAt &&
		(r.Since > 0 || r.Overtakes || len(r.Blame) == 0)
}

// whyLate returns what a proxy waits for.
func (x *situation) whyLate(sub *subject, p *rollout.Progress) string {
	switch {
	case p.State == api.StateWaiting:
		return "the agent has not loaded its state yet"
	case p.Revision < sub.revision:
		if x.last != nil {
			owner := resource.Key{Kind: kindDataplane, Mesh: p.Mesh, Name: p.Name}.String()
			if ref, err := node.ParseRef(p.Node.ID); err == nil {
				owner = ref.Key().String()
			}
			for _, prob := range x.last.Problems {
				if prob.Severity == api.SeverityError &&
					(prob.Resource == owner || prob.Resource == (resource.Key{Kind: kindMesh, Name: p.Mesh}).String()) {
					return prob.Reason
				}
			}
		}
		return "its config is being computed"
	case len(p.Unanswered) > 0:
		return fmt.Sprintf("it has not acknowledged the response sent at %s (%s)", p.SentAt.UTC().Format(time.RFC3339),
			strings.Join(p.Unanswered, ", "))
	}
	if until := p.HandoverUntil; until.After(time.Now()) {
		return "the protocol of a port changes, and it keeps the old one until " + until.UTC().Format(time.RFC3339) +
			", so that the other side changes first"
	}
	return "its config is being sent, or it has not requested all of it yet"
}
