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

// unconnected checks the proxies of this node that have no client, for which no config is computed
// otherwise. It runs on request, for a limited time. Results are cached while the mesh is
// unchanged.
type unconnected struct {
	mu     sync.Mutex // held during a check
	meshes map[string]*generate.Mesh
	seen   map[resource.Key]*seen
	cached int // number of cached findings and warnings
}

// seen is the result for one proxy.
type seen struct {
	change.Standing
	of   *resource.Resource // the proxy
	more int                // findings and warnings above the limit
}

// Limits of cached results, per proxy and in total.
const (
	maxSeen     = 10
	maxAllSeen  = 5000
	maxReported = 100 // limit of reported problems from the check
)

// unconnectedProblems returns the problems of this node's unconnected proxies. It checks them until
// f.Until, and counts those that remain unchecked.
func (t *Tracker) unconnectedProblems(ctx context.Context, f *Facts) (out []api.Problem) {
	if f.Last != nil {
		out, f.Unchecked = t.unconnected.check(ctx, f.Last, unconnectedOf(f.Snap, f.Last, f.Proxies), f.Until)
	}
	return out
}

// unconnectedOf returns the unconnected proxies of this node, sorted.
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

// check returns the problems of proxies, and the number of proxies not checked in time.
func (u *unconnected) check(ctx context.Context, last *Result, proxies []*resource.Resource,
	until time.Time) (out []api.Problem, left int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.dropChanged(last)
	var looker *change.Looker // its cache is too large to keep
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
			u.store(r, standingOf(looker, last, r))
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
					Reason: "no config can be computed: " + s.Failed.Error()})
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

// standingOf checks one proxy.
func standingOf(looker *change.Looker, last *Result, r *resource.Resource) change.Standing {
	if r.Kind == kindDataplane {
		return looker.Dataplane(last.Meshes[r.Mesh], r.Name)
	}
	return looker.Zone(last.ZoneInput(r))
}

// dropChanged drops results of meshes that have changed.
func (u *unconnected) dropChanged(last *Result) {
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
		u.cached -= len(s.Warnings) + len(s.Findings)
		delete(u.seen, k)
	}
}

// store replaces the result of a proxy.
func (u *unconnected) store(r *resource.Resource, is change.Standing) {
	if u.seen == nil {
		u.seen = map[resource.Key]*seen{}
	}
	limit := min(maxSeen, max(0, maxAllSeen-u.cached))
	s := &seen{Standing: is, of: r, more: max(0, len(is.Warnings)-limit) + max(0, len(is.Findings)-limit)}
	slices.SortStableFunc(s.Findings, func(a, b finding.Finding) int { return cmp.Compare(a.Severity, b.Severity) })
	s.Warnings, s.Findings = slices.Clip(s.Warnings[:min(len(s.Warnings), limit)]),
		slices.Clip(s.Findings[:min(len(s.Findings), limit)])
	u.cached += len(s.Warnings) + len(s.Findings)
	u.seen[r.Key] = s
}
