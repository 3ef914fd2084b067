package httpapi

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/change"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
)

// apart looks at the proxies of this node that no client asks for. No config is made for them
// otherwise, and what is to be said of them is a problem all the same. They are looked at when
// somebody asks, for a bounded time; what was found stays while their mesh does.
type apart struct {
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
	maxSeen    = 10
	maxAllSeen = 5000
	maxApart   = 100 // problems of the check that are told of them
)

// apartOf lists the proxies of this node that are not connected, sorted.
func apartOf(snap *store.Snapshot, last *status.Result, all []api.Proxy) (out []*resource.Resource) {
	connected := map[resource.Key]bool{}
	for i := range all {
		switch k := proxyKey(all[i]); {
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
func (a *apart) look(ctx context.Context, last *status.Result, proxies []*resource.Resource,
	atMost time.Duration) (out []api.Problem, left int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forget(last)
	var looker *change.Looker // what it remembers is not worth to be held for long
	until := time.Now().Add(atMost)
	for _, r := range proxies {
		switch s := a.seen[r.Key]; {
		case s != nil && s.of == r:
		case ctx.Err() != nil || !time.Now().Before(until):
			left++
		default:
			if looker == nil {
				looker = change.NewLooker()
			}
			a.drop(r.Key)
			a.keep(r, standing(looker, last, r))
		}
	}
	found := &change.Found{}
	for _, r := range proxies {
		k, s := r.Key, a.seen[r.Key]
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
				Reason: fmt.Sprintf("%d more warnings for this proxy", s.more)})
		}
	}
	out = append(out, found.Problems(maxApart)...)
	slices.SortFunc(out, func(a, b api.Problem) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Severity, b.Severity),
			cmp.Compare(a.Reason, b.Reason))
	})
	return slices.DeleteFunc(slices.Compact(out), func(p api.Problem) bool {
		return slices.Contains(last.Problems, p)
	}), left
}

// standing looks at one proxy.
func standing(looker *change.Looker, last *status.Result, r *resource.Resource) change.Standing {
	if r.Kind == kindDataplane {
		return looker.Dataplane(last.Meshes[r.Mesh], r.Name)
	}
	return looker.Zone(last.ZoneInput(r))
}

// forget drops what is about meshes that have changed.
func (a *apart) forget(last *status.Result) {
	if maps.Equal(a.meshes, last.Meshes) {
		return
	}
	for k := range a.seen {
		if k.Mesh == "" || a.meshes[k.Mesh] != last.Meshes[k.Mesh] {
			a.drop(k)
		}
	}
	a.meshes = last.Meshes
}

func (a *apart) drop(k resource.Key) {
	if s := a.seen[k]; s != nil {
		a.kept -= len(s.Warnings) + len(s.Findings)
		delete(a.seen, k)
	}
}

// keep holds what was found out about a proxy.
func (a *apart) keep(r *resource.Resource, is change.Standing) {
	if a.seen == nil {
		a.seen = map[resource.Key]*seen{}
	}
	most := min(maxSeen, max(0, maxAllSeen-a.kept))
	s := &seen{Standing: is, of: r, more: max(0, len(is.Warnings)-most) + max(0, len(is.Findings)-most)}
	slices.SortStableFunc(s.Findings, func(a, b finding.Finding) int { return cmp.Compare(a.Severity, b.Severity) })
	s.Warnings, s.Findings = slices.Clip(s.Warnings[:min(len(s.Warnings), most)]),
		slices.Clip(s.Findings[:min(len(s.Findings), most)])
	a.kept += len(s.Warnings) + len(s.Findings)
	a.seen[r.Key] = s
}
