package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
)

// MaxLate bounds each list of an [api.Applied], and of the late proxies of an [api.Wait].
const MaxLate = 1000

const maxListed = 20 // instead of MaxLate where there are many [api.Applied]

// situation is what an [api.Applied] is worked out from.
type situation struct {
	reg     *resource.Registry
	snap    *store.Snapshot
	last    *Result
	proxies []rollout.Progress
	history func(resource.Key) []store.Revision
	most    int // of each list
}

func (t *Tracker) situation(most int) *situation {
	out := &situation{reg: t.Registry, snap: t.Store.Snapshot(), last: t.Last(), history: t.Store.History, most: most}
	if t.Progress != nil {
		out.proxies = t.Progress()
	}
	return out
}

// List returns how far the resources of a kind are in force that are wanted, sorted by mesh and
// name.
func (t *Tracker) List(kind string, wanted func(resource.Key) bool) api.AppliedList {
	x := t.situation(maxListed)
	out := api.AppliedList{Items: []api.Applied{}}
	for _, res := range x.snap.Set().Kind(kind) {
		if rec, ok := x.snap.Get(res.Key); ok && wanted(res.Key) {
			out.Items = append(out.Items, x.applied(rec))
		}
	}
	slices.SortFunc(out.Items, func(a, b api.Applied) int {
		return cmp.Or(cmp.Compare(a.Mesh, b.Mesh), cmp.Compare(a.Name, b.Name))
	})
	out.Total = len(out.Items)
	return out
}

// subject is a resource whose effect on proxies is asked for.
type subject struct {
	key      resource.Key
	desc     resource.Descriptor
	revision uint64
	is       *resource.Resource // nil: it is gone
	was      []*resource.Resource
	read     bool // was is
}

// applied says how far a resource that exists is in force.
func (x *situation) applied(rec store.Record) api.Applied {
	d, _ := x.reg.Lookup(rec.Kind)
	sub := &subject{key: rec.Key, desc: d, revision: rec.Revision, is: rec.Resource}
	out := x.onProxies(sub)
	switch {
	case d.Policy && rec.Shadow():
		out.State, out.Reason = api.StateShadow, "it is labelled "+resource.LabelEffect+": "+resource.EffectShadow+
			", so no proxy gets anything of it; without the label it acts"
	case d.Inert:
		out.State, out.Reason = api.StateInert, "this version stores "+d.Kind+" and does not act on it"
	case out.State == api.StateApplied && d.Kind == kindMesh && x.last != nil && x.last.Switching[rec.Name] != "":
		out.State, out.Reason = api.StatePending, x.last.Switching[rec.Name]
	case out.State != api.StateApplied || !d.Policy:
	default:
		x.selected(sub, &out)
	}
	return out
}

// gone says how far the deletion of a resource is in force.
func (x *situation) gone(key resource.Key) api.Applied {
	d, _ := x.reg.Lookup(key.Kind)
	sub := &subject{key: key, desc: d, revision: x.snap.Revision()} // of its deletion at the latest
	for _, rev := range x.history(key) {
		if rev.Deleted {
			sub.revision = rev.Revision
		}
	}
	out := x.onProxies(sub)
	if out.State == api.StateApplied {
		out.State = api.StateGone
	}
	return out
}

// onProxies says what has become of a subject on the proxies that it touches.
func (x *situation) onProxies(sub *subject) api.Applied {
	out := api.Applied{Type: sub.key.Kind, Mesh: sub.key.Mesh, Name: sub.key.Name, Revision: sub.revision,
		State: api.StateApplied,
		Late:  []api.LateProxy{}, Rejected: []api.RejectedResource{}}
	for i := range x.proxies {
		p := &x.proxies[i]
		if p.State == api.StateDisconnected || p.State == api.StateUnknown || !sub.reaches(p) {
			continue
		}
		done := p.Answered >= sub.revision
		if sub.key.Kind == kindMesh && len(p.Unanswered) > 0 {
			done = false // the steps in which mutual TLS is switched are of one revision
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
		case !done:
			x.late(&out, p.Mesh, p.Name, x.whyLate(sub, p))
		case slices.ContainsFunc(p.Rejected, func(r draft.Rejection) bool { return r.Suspect }):
			x.late(&out, p.Mesh, p.Name,
				"it rejected a response without naming a resource, and which one it is is being looked for")
		case unclear:
			x.late(&out, p.Mesh, p.Name, "it rejected something, and the policies behind that are being looked for")
		default:
			out.Acknowledged++
			if until := p.OldUntil(sub.revision, time.Now()); until.After(out.OldUntil) {
				out.OldUntil = until
			}
		}
	}
	conclude(&out)
	return out
}

func conclude(a *api.Applied) {
	switch {
	case a.RejectedTotal > 0:
		a.State = api.StateRejected
	case a.LateTotal > 0:
		a.State = api.StatePending
	}
}

func (x *situation) late(a *api.Applied, mesh, name, why string) {
	if a.LateTotal++; len(a.Late) < x.most {
		a.Late = append(a.Late, api.LateProxy{Mesh: mesh, Name: name, Reason: why})
	}
}

func (x *situation) reject(a *api.Applied, r *draft.Rejection) {
	if a.RejectedTotal++; len(a.Rejected) < x.most {
		a.Rejected = append(a.Rejected, api.RejectedResource{Mesh: r.Mesh, Name: r.Name, TypeURL: r.ID.TypeURL,
			Resource: r.ID.Name,
			By:       r.By, Reason: r.Reason, Retry: r.Retry, Policies: append([]api.Blame{}, r.Blame...)})
	}
}

// reaches says whether a proxy is in a mesh that the subject is about.
func (sub *subject) reaches(p *rollout.Progress) bool {
	switch {
	case p.Mesh == "": // a proxy at the border of the zone is made from all meshes
		return true
	case sub.key.Kind == kindMesh:
		return p.Mesh == sub.key.Name
	case sub.key.Mesh != "":
		return p.Mesh == sub.key.Mesh
	}
	return true
}

// touches says whether the config of a proxy depends on the subject, in doubt that it does. Of a
// policy those proxies are touched that it selects, and, unless they have answered its last change,
// those that an earlier revision of it selected. All other resources can concern every proxy of
// their mesh.
func (x *situation) touches(sub *subject, p *rollout.Progress, done bool) bool {
	if !sub.desc.Policy {
		return true
	}
	if x.last == nil {
		return true
	}
	m := x.last.Meshes[p.Mesh]
	if m == nil || m.Policies == nil || p.Node.Flavor == node.FlavorGRPC {
		return false
	}
	dp := m.View.Dataplane(p.Name)
	if dp == nil {
		return false
	}
	if sub.is != nil && !sub.is.Shadow() && Selects(m, sub.is, dp) {
		return true
	}
	if done {
		return false
	}
	if !sub.read {
		sub.read = true
		for _, rev := range x.history(sub.key) {
			if rev.Resource != nil && !rev.Resource.Shadow() {
				sub.was = append(sub.was, rev.Resource)
			}
		}
	}
	return slices.ContainsFunc(sub.was, func(r *resource.Resource) bool { return Selects(m, r, dp) })
}

// Selects says whether a policy selects a dataplane and is not superseded there by targetRef
// policies.
func Selects(m *generate.Mesh, r, dp *resource.Resource) bool {
	if _, ok := r.Spec.(*resource.Policy); ok {
		return m.Policies.Select(r, dp).Proxy
	}
	selected, ended := selectsLegacy(m, r, dp)
	return selected && !ended
}

// selectsLegacy says whether a legacy policy selects a dataplane, and whether targetRef policies
// supersede it there.
func selectsLegacy(m *generate.Mesh, r, dp *resource.Resource) (selected, ended bool) {
	for _, plugin := range m.Policies.Plugins {
		for _, l := range plugin.Legacy {
			if l.Kind != r.Kind {
				continue
			}
			selected = m.Policies.SelectLegacy(r, dp, l.Inbound).Selected
			ended = slices.ContainsFunc(l.ReplacedBy, func(kind string) bool {
				return slices.ContainsFunc(m.Policies.Policies(kind), func(o *resource.Resource) bool {
					return m.Policies.Select(o, dp).Proxy
				})
			})
			return selected, ended
		}
	}
	return false, false
}

// refusedBy returns what a proxy refuses of what the subject makes. unclear says that it refuses
// something whose policies are not known yet.
func (sub *subject) refusedBy(p *rollout.Progress) (refused []*draft.Rejection, unclear bool) {
	for i := range p.Rejected {
		r := &p.Rejected[i]
		switch {
		case !r.Attributed || r.AttributedAt < p.Revision:
			unclear = true
		case sub.desc.Policy && sub.blamed(r), !sub.desc.Policy && sub.behind(r):
			refused = append(refused, r)
		}
	}
	return refused, unclear
}

// blamed says whether a rejection keeps a policy from being in force. Where it is not known since
// when there is trouble, the likely causes alone count.
func (sub *subject) blamed(r *draft.Rejection) bool {
	list := r.Blame
	if r.Since == 0 && !r.Overtakes && !api.OfHost(list) { // what the host keeps from being in force is not in force
		list = api.Causes(list)
	}
	return sub.revision > r.Since && slices.ContainsFunc(list, func(b api.Blame) bool {
		return b.Type == sub.key.Kind && b.Mesh == sub.key.Mesh && b.Name == sub.key.Name
	})
}

// behind says whether a change of another resource than a policy may be what was rejected.
func (sub *subject) behind(r *draft.Rejection) bool {
	return sub.revision > r.Since && sub.revision <= r.MadeAt && (r.Since > 0 || r.Overtakes || len(r.Blame) == 0)
}

// whyLate says what an answer waits for.
func (x *situation) whyLate(sub *subject, p *rollout.Progress) string {
	switch {
	case p.State == api.StateWaiting:
		return "the agent has not loaded its state yet"
	case p.Revision < sub.revision:
		if x.last != nil {
			who := resource.Key{Kind: kindDataplane, Mesh: p.Mesh, Name: p.Name}.String()
			if ref, err := node.ParseRef(p.Node.ID); err == nil {
				who = ref.Key().String()
			}
			for _, prob := range x.last.Problems {
				if prob.Severity == api.SeverityError &&
					(prob.Resource == who || prob.Resource == (resource.Key{Kind: kindMesh, Name: p.Mesh}).String()) {
					return prob.Reason
				}
			}
		}
		return "its config is being made"
	case len(p.Unanswered) > 0:
		return fmt.Sprintf("it has not answered what it was sent at %s (%s)", p.SentAt.UTC().Format(time.RFC3339),
			strings.Join(p.Unanswered, ", "))
	}
	if until := p.HandoverUntil; until.After(time.Now()) {
		return "the protocol of a port changes, and it keeps the old one until " + until.UTC().Format(time.RFC3339) +
			", so that the other side changes first"
	}
	return "its config is on its way, or it has not asked for all of it yet"
}

// selected adds which dataplanes a policy selects that is in force as far as it can be.
func (x *situation) selected(sub *subject, out *api.Applied) {
	if x.last == nil {
		return
	}
	m := x.last.Meshes[sub.key.Mesh]
	if m == nil || m.Policies == nil {
		return
	}
	ended := 0
	for _, dp := range x.snap.Set().InMesh(kindDataplane, sub.key.Mesh) {
		if m.View.Dataplane(dp.Name) == nil {
			continue
		}
		if _, ok := sub.is.Spec.(*resource.Policy); ok {
			if m.Policies.Select(sub.is, dp).Proxy {
				out.Selected++
			}
			continue
		}
		switch selected, over := selectsLegacy(m, sub.is, dp); {
		case selected && over:
			ended++
		case selected:
			out.Selected++
		}
	}
	switch {
	case out.Selected > 0:
	case ended > 0:
		out.State, out.Reason = api.StateReplaced, "targetRef policies have taken its place on all dataplanes that it selects"
	default:
		out.State, out.Reason = api.StateUnselected, "it selects no dataplane of the mesh"
	}
}
