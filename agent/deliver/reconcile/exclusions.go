package reconcile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/match"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// maxSuspects limits the policies of one resource that are left out one at a time, the most likely
// cause first.
const maxSuspects = 6

// exclusion is a resource of a proxy that is sent without the effect of some policies, because its
// client rejected it, or the check withholds it, with them. It ends when one of these policies or
// the client changes.
type exclusion struct {
	found   draft.Rejection // Resource is the form with all policies
	blamed  map[resource.Key]resource.Digest
	sets    []omission      // to be tried in this order
	next    int             // index of the set in use; len(sets): no form without policies is left
	refused map[string]bool // versions of forms that the client rejects
	decided string          // version of found.Resource when the sets were determined
	allowed [2]string       // versions of the last two forms that were compared by restrictions
	lacks   string          // what restricts access and is missing in a form that is therefore not sent

	// The resource is sent with all policies again at retryAt, if that is not zero. retrying is set
	// from then until the client rejects it.
	attempt  int
	retryAt  time.Time
	retrying bool
}

// omission is a set of policies without which a config is generated.
type omission []omitted

// omitted is a policy without effect, or with that of an earlier revision.
type omitted struct {
	key      resource.Key
	earlier  *resource.Resource // nil: none
	revision uint64             // of earlier
}

// id returns a string that identifies the set.
func (o omission) id() string {
	var b strings.Builder
	for _, x := range o {
		fmt.Fprintf(&b, "%s@%d ", x.key, x.revision)
	}
	return b.String()
}

// mesh returns the mesh without the policies.
func (o omission) mesh(m *generate.Mesh) *generate.Mesh {
	var gone []resource.Key
	for _, x := range o {
		if x.earlier == nil {
			gone = append(gone, x.key)
		}
	}
	if len(gone) > 0 {
		m = m.Without(gone...)
	}
	for _, x := range o {
		if x.earlier != nil {
			m = m.With(x.earlier)
		}
	}
	return m
}

// names returns the policies for the API.
func (o omission) names() (out []api.Omitted) {
	for _, x := range o {
		out = append(out, api.Omitted{Type: x.key.Kind, Mesh: x.key.Mesh, Name: x.key.Name, Revision: x.revision})
	}
	return out
}

// exclusions are the exclusions of one proxy.
type exclusions struct {
	of      map[draft.ResourceID]*exclusion
	resets  uint64                     // see [rollout.Proxies.Rejections]
	changes uint64                     // increases with every change of an exclusion
	configs map[string]*generate.Proxy // the last configs without policies, by set

	last [2]substitution // of what the client rejected, and of what the check withholds
}

// substitution is a result of substitute with its inputs.
type substitution struct {
	full    *draft.Sealed
	changes uint64
	forms   map[draft.ResourceID]*generate.Proxy
	config  *generate.Proxy
	list    []draft.Rejection
}

// variant is a mesh without some policies.
type variant struct {
	of, mesh *generate.Mesh
	pass     uint64 // last use
}

// restricts reports whether policies of a plugin can restrict who reaches whom, so that a proxy
// never gets a config without one of them.
func restricts(x *policy.Plugin) bool {
	return x.Admits != nil || x.Exits != nil || slices.Contains(x.Shapes, match.LevelTransportSocket)
}

// updateExclusions updates the exclusions of a proxy from what its client rejects.
func (p *pass) updateExclusions(key node.Key, mesh string, s *proxyState) {
	if p.r.o.Rejections == nil || p.meshes[mesh] == nil {
		return
	}
	list, resets := p.r.o.Rejections(key)
	x := &s.exclusions
	if x.resets != resets {
		*x = exclusions{resets: resets, changes: x.changes + 1}
	}
	for id, e := range x.of {
		full := s.proxy.Resource(id)
		switch {
		case full == nil, !p.unchanged(e), full.Version != e.found.Resource.Version && e.next == len(e.sets):
			delete(x.of, id)
			x.changes++
		case full.Version != e.found.Resource.Version: // another cause has changed, so it may be accepted now
			e.found.Resource, e.found.Attributed = full, false
			if e.found.By == api.HeldByProxy {
				e.attempt = 0
				e.schedule(p.now)
			}
			x.changes++
		}
	}
	for i := range list {
		p.updateExclusion(mesh, s, &list[i])
	}
	for _, e := range x.of {
		switch {
		case e.retrying || e.retryAt.IsZero() || e.next == len(e.sets): // then rollout retries
		case p.now.Before(e.retryAt):
			p.wake(e.retryAt)
		default:
			e.retrying = true
			x.changes++
		}
	}
}

// updateExclusion updates the exclusion of one resource.
func (p *pass) updateExclusion(mesh string, s *proxyState, r *draft.Rejection) {
	x := &s.exclusions
	e := x.of[r.ID]
	switch {
	case r.Suspect:
	case len(r.Without) > 0:
		if e == nil || !r.InsteadRejected || e.refused[r.Instead.Version] {
			return
		}
		if x.changes++; e.decided != e.found.Resource.Version { // other policies may be the cause
			delete(x.of, r.ID)
			return
		}
		e.refused[r.Instead.Version] = true
	case e != nil && e.retrying && e.found.Resource.Version == r.Resource.Version:
		e.retrying, e.found.Reason, e.found.Time = false, r.Reason, r.Time
		if e.retryAt = (time.Time{}); rollout.ReasonOfHost(r.Reason) {
			e.schedule(p.now)
		}
		x.changes++
	case e != nil && e.found.By == r.By, !r.Attributed:
	default:
		if full := s.proxy.Resource(r.ID); full == nil || full.Version != r.Resource.Version {
			return
		}
		if e := p.exclude(mesh, r); e != nil {
			if x.of == nil {
				x.of = map[draft.ResourceID]*exclusion{}
			}
			x.of[r.ID] = e
			x.changes++
		}
	}
}

// schedule sets when the resource is sent with all policies again.
func (e *exclusion) schedule(now time.Time) {
	e.attempt++
	e.retryAt = now.Add(rollout.RetryAfter(e.attempt))
}

// unchanged reports whether the policies that are left out are still the same.
func (p *pass) unchanged(e *exclusion) bool {
	sets := e.sets
	if e.next < len(sets) {
		sets = sets[e.next : e.next+1]
	}
	for _, set := range sets {
		for _, x := range set {
			if r := p.set.Get(x.key); r == nil || r.Digest != e.blamed[x.key] {
				return false
			}
		}
	}
	return true
}

// exclude returns the exclusion of a rejected resource, or nil if no policy can be left out. The
// suspects are left out one at a time, then together.
func (p *pass) exclude(mesh string, r *draft.Rejection) *exclusion {
	e := &exclusion{found: *r, blamed: map[resource.Key]resource.Digest{}, refused: map[string]bool{},
		decided: r.Resource.Version}
	var all omission
	for _, b := range r.Blame {
		key := resource.Key{Kind: b.Type, Mesh: b.Mesh, Name: b.Name}
		policy := p.set.Get(key)
		if policy == nil {
			return nil // it has changed since
		}
		if e.blamed[key] = policy.Digest; len(all) == maxSuspects || p.restricting(mesh, b.Type) {
			continue
		}
		if old := p.earlier(policy, r.Since); old.earlier != nil {
			e.sets = append(e.sets, omission{old})
		}
		e.sets = append(e.sets, omission{{key: key}})
		all = append(all, omitted{key: key})
	}
	if len(all) == 0 {
		return nil
	}
	for n := 2; n <= len(all); n++ {
		e.sets = append(e.sets, all[:n])
	}
	if r.By == api.HeldByProxy && rollout.ReasonOfHost(r.Reason) {
		e.schedule(p.now)
	}
	return e
}

// restricting reports whether policies of a kind can restrict access.
func (p *pass) restricting(mesh, kind string) bool {
	policies := p.meshes[mesh].Policies
	if policies == nil {
		return true
	}
	for i := range policies.Plugins {
		x := &policies.Plugins[i]
		of := slices.ContainsFunc(x.Kinds, func(d resource.Descriptor) bool { return d.Kind == kind }) ||
			slices.ContainsFunc(x.Legacy, func(l policy.LegacyKind) bool { return l.Kind == kind })
		if of && restricts(x) {
			return true
		}
	}
	return false
}

// earlier returns the last other form of a policy that was in force at a revision of the store.
func (p *pass) earlier(r *resource.Resource, since uint64) omitted {
	out := omitted{key: r.Key}
	if since == 0 {
		return out
	}
	for _, rev := range slices.Backward(p.r.o.Store.History(r.Key)) {
		if rev.Revision > since {
			continue
		}
		if rev.Resource != nil && !rev.Resource.Shadow() && rev.Resource.Digest != r.Digest {
			out.earlier, out.revision = rev.Resource, rev.Revision
		}
		break
	}
	return out
}

// substitute returns a config in which forms without policies replace the resources that the client
// rejected or, if blocked is not nil, those of blocked that the check withholds, with the
// rejections of these.
func (p *pass) substitute(key node.Key, s *proxyState, base *generate.Proxy,
	blocked map[draft.ResourceID]bool) (*generate.Proxy, []draft.Rejection) {
	x := &s.exclusions
	if len(x.of) == 0 {
		*x = exclusions{resets: x.resets, changes: x.changes}
		return base, nil
	}
	var list []draft.Rejection
	forms := map[draft.ResourceID]*generate.Proxy{}
	order := slices.SortedFunc(maps.Keys(x.of), func(a, b draft.ResourceID) int {
		return cmp.Or(cmp.Compare(draft.Rank(a.TypeURL), draft.Rank(b.TypeURL)), cmp.Compare(a.Name, b.Name))
	})
	for _, id := range order {
		e := x.of[id]
		if e.retrying || (e.found.By == api.HeldByCheck) != (blocked != nil) || blocked != nil && !blocked[id] {
			continue
		}
		from := p.formOf(key, s, id, e)
		if from == nil {
			p.reportRestriction(s, id, e)
			continue
		}
		r := e.found
		r.Without, r.Instead, r.Retry = e.sets[e.next].names(), from.Resource(id), e.retryAt
		list = append(list, r)
		if forms[id] = from; r.Instead == nil {
			addReferrers(s.proxy, id, from, forms)
		}
	}
	l := &x.last[0]
	if blocked != nil {
		l = &x.last[1]
	}
	if l.full != base.Sealed || l.changes != x.changes || !maps.Equal(l.forms, forms) {
		l.full, l.changes, l.forms, l.list = base.Sealed, x.changes, forms, list
		l.config = base.Replace(forms)
	}
	if l.config.Build == base.Build && l.config.Host == base.Host {
		return l.config, l.list
	}
	next := *l.config
	next.Build, next.Host = base.Build, base.Host
	l.config = &next
	return l.config, l.list
}

// addReferrers adds the resources that refer to a resource that a config lacks, if they have
// another form in that config.
func addReferrers(full *generate.Proxy, id draft.ResourceID, from *generate.Proxy,
	forms map[draft.ResourceID]*generate.Proxy) {
	rank := draft.Rank(id.TypeURL)
	for _, referrer := range draft.Referrers[rank] {
		for _, r := range full.Sealed.Resources[referrer] {
			other := draft.ResourceID{TypeURL: draft.Types[referrer], Name: r.Name}
			if form := from.Resource(other); forms[other] == nil && refersTo(r, rank, id.Name) &&
				(form == nil || form.Version != r.Version && unguarded(other, r, form) == "") {
				forms[other] = from
			}
		}
	}
}
