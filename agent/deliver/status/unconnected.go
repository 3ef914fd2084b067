package status

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/change"
	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
)

// unconnected looks at the proxies of this node that no client asks for. No config is made for them
// otherwise, and what is to be said of them is a problem all the same. They are looked at when
// somebody asks, for a bounded time; what was found stays while their mesh does.
type unconnected struct {
	mu     sync.Mutex // held while somebody looks
	meshes map[string]*generate.Mesh
	seen   map[resource.Key]*seen
	kept   int // findings and warnings that are held
}

// seen is what was found out about a proxy.
type seen struct {
	change.Standing
	of   *resource.Resource // the proxy
	more int                // beyond what is kept
}

// Bounds of what is held: of one proxy, and of all of them.
const (
	maxSeen     = 10
	maxAllSeen  = 5000
	maxReported = 100 // problems of the check that are told of them
)

// Problems returns the problems of the last reconciliation, what clients reject, and the problems
// of the proxies of this node that are not connected. It looks at the latter for a bounded time,
// and returns how many it did not come to.
func (t *Tracker) Problems(ctx context.Context, snap *store.Snapshot, last *Result, all []api.Proxy,
	atMost time.Duration) (out []api.Problem, unchecked int) {
	out = []api.Problem{}
	if last != nil {
		out = append(out, last.Problems...)
	}
	out = append(out, t.Rejections()...)
	if last != nil {
		var more []api.Problem
		more, unchecked = t.unconnected.look(ctx, last, unconnectedOf(snap, last, all), atMost)
		out = append(out, more...)
	}
	return out, unchecked
}

// unconnectedOf lists the proxies of this node that are not connected, sorted.
func unconnectedOf(snap *store.Snapshot, last *Result, all []api.Proxy) (out []*resource.Resource) {
	connected := map[resource.Key]bool{}
	for i := range all {
		switch k := Key(&all[i]); {
		case k.Kind != kindDataplane:
			connected[k] = all[i].State != api.StateDisconnected
		case all[i].State == api.StateDisconnected && last.Meshes[k.Mesh] != nil:
			if r := last.Meshes[k.Mesh].View.Dataplane(k.Name); r != nil {
				out = append(out, r)
			}
		}
	}
	for _, t := range []node.Type{node.ProxyEgress, node.ProxyIngress} {
		for _, r := range snap.Set().Kind(t.Kind()) {
			if rec, _ := snap.Get(r.Key); rec.Source.Kind != store.SourcePeer && !connected[r.Key] &&
				generate.InZone(r, last.Zone) {
				out = append(out, r)
			}
		}
	}
	return out
}

// look returns the problems of proxies, and how many of them there was no time for.
func (u *unconnected) look(ctx context.Context, last *Result, proxies []*resource.Resource,
	atMost time.Duration) (out []api.Problem, left int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.forget(last)
	var looker *change.Looker // what it remembers is not worth to be held for long
	until := time.Now().Add(atMost)
	for _, r := range proxies {
		switch s := u.seen[r.Key]; {
		case s != nil && s.of == r:
		case ctx.Err() != nil || !time.Now().Before(until):
			left++
		default:
			if looker == nil {
				looker = change.NewLooker()
			}
			u.drop(r.Key)
			u.keep(r, standingOf(looker, last, r))
		}
	}
	found := &change.Found{}
	for _, r := range proxies {
		k, s := r.Key, u.seen[r.Key]
		if s == nil || s.of != r {
			continue
		}
		if s.Failed != nil {
			out = append(out,
				api.Problem{Resource: k.String(), Severity: api.SeverityError,
					Reason: "no config can be made: " + s.Failed.Error()})
		}
		for _, w := range s.Warnings {
			out = append(out, api.Problem{Resource: w.Resource.String(), Severity: api.SeverityWarning, Reason: w.Reason})
		}
		for i := range s.Findings {
			if !last.Found.Has(k, &s.Findings[i]) {
				found.Add(k, &s.Findings[i])
			}
		}
		if s.more > 0 {
			out = append(out, api.Problem{Resource: k.String(), Severity: api.SeverityWarning,
				Reason: plural.Count(s.more, "more warning") + " for this proxy"})
		}
	}
	out = append(out, found.Problems(maxReported)...)
	slices.SortFunc(out, func(a, b api.Problem) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Severity, b.Severity),
			cmp.Compare(a.Reason, b.Reason))
	})
	return slices.DeleteFunc(slices.Compact(out), func(p api.Problem) bool {
		return slices.Contains(last.Problems, p)
	}), left
}

// standingOf looks at one proxy.
func standingOf(looker *change.Looker, last *Result, r *resource.Resource) change.Standing {
	if r.Kind == kindDataplane {
		return looker.Dataplane(last.Meshes[r.Mesh], r.Name)
	}
	return looker.Zone(last.ZoneInput(r))
}

// forget drops what is about meshes that have changed.
func (u *unconnected) forget(last *Result) {
	if maps.Equal(u.meshes, last.Meshes) {
		return
	}
	for k := range u.seen {
		if k.Mesh == "" || u.meshes[k.Mesh] != last.Meshes[k.Mesh] {
			u.drop(k)
		}
	}
	u.meshes = last.Meshes
}

func (u *unconnected) drop(k resource.Key) {
	if s := u.seen[k]; s != nil {
		u.kept -= len(s.Warnings) + len(s.Findings)
		delete(u.seen, k)
	}
}

// keep holds what was found out about a proxy.
func (u *unconnected) keep(r *resource.Resource, is change.Standing) {
	if u.seen == nil {
		u.seen = map[resource.Key]*seen{}
	}
	most := min(maxSeen, max(0, maxAllSeen-u.kept))
	s := &seen{Standing: is, of: r, more: max(0, len(is.Warnings)-most) + max(0, len(is.Findings)-most)}
	slices.SortStableFunc(s.Findings, func(a, b finding.Finding) int { return cmp.Compare(a.Severity, b.Severity) })
	s.Warnings, s.Findings = slices.Clip(s.Warnings[:min(len(s.Warnings), most)]),
		slices.Clip(s.Findings[:min(len(s.Findings), most)])
	u.kept += len(s.Warnings) + len(s.Findings)
	u.seen[r.Key] = s
}
