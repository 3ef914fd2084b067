package status

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/deliver/drains"
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// oldOn is a proxy whose older connections may use filters from before a change.
type oldOn struct {
	proxy      *rollout.Progress
	drain      rollout.Drain
	permission bool // see [api.OldProxy]
}

// settingsOf returns the drain settings of the proxies with a drain.
func (t *Tracker) settingsOf(ctx context.Context, proxies []rollout.Progress) map[node.Key]drains.Settings {
	var keys []node.Key
	for i := range proxies {
		if len(proxies[i].Draining) > 0 {
			keys = append(keys, proxies[i].Node)
		}
	}
	return t.Drains.Settings(ctx, keys)
}

// noteOld records a proxy that has acknowledged a subject but may have older connections.
func (x *situation) noteOld(sub *subject, p *rollout.Progress) {
	if d := p.DrainOf(sub.revision); d != nil && x.touches(sub, p, false) {
		x.old = append(x.old, oldOn{p, *d, x.permitsTCP(sub, p, d)})
	} else if d := p.UnsureDrain(); x.measures && d != nil && sub.revision <= d.Revision && x.touches(sub, p, false) {
		x.old = append(x.old, oldOn{p, *d, x.permitsTCP(sub, p, d)})
	}
}

// permitsTCP reports whether a subject decides which clients an inbound admits, and a drain
// includes TCP connections to an inbound.
func (x *situation) permitsTCP(sub *subject, p *rollout.Progress, d *rollout.Drain) bool {
	if x.last == nil || x.last.Meshes[p.Mesh] == nil {
		return false
	}
	m := x.last.Meshes[p.Mesh]
	r := m.View.Dataplane(p.Name)
	if r == nil || !admits(m.Policies, sub.key.Kind) {
		return false
	}
	dp, ok := r.Spec.(*resource.Dataplane)
	return ok && slices.ContainsFunc(dp.Networking.Inbound, func(in resource.Inbound) bool {
		listens := func(name string) bool {
			return strings.HasPrefix(name, "inbound:") && strings.HasSuffix(name, fmt.Sprintf(":%d", in.Port))
		}
		return !mesh.ParseProtocol(in.Speaks()).HTTP() && (d.Listeners == nil || slices.ContainsFunc(d.Listeners, listens))
	})
}

// admits reports whether the policies of a kind decide which clients an inbound admits.
func admits(x *policy.Index, kind string) bool {
	return x != nil && slices.ContainsFunc(x.Plugins, func(p policy.Plugin) bool {
		return p.Admits != nil &&
			(slices.ContainsFunc(p.Kinds, func(d resource.Descriptor) bool { return d.Kind == kind }) ||
				slices.ContainsFunc(p.Legacy, func(l policy.LegacyKind) bool { return l.Kind == kind }))
	})
}

// addOld adds the proxies with older connections to the state of a subject. measured are
// the measurements of x.old. If it is nil, drains that previous agents may have caused do not
// count.
func (x *situation) addOld(out *api.Applied, measured []drains.Old) {
	now := time.Now()
	for i, o := range x.old {
		was := x.settings[o.proxy.Node].Until(o.drain.Since)
		left := drains.Old{Ended: o.drain.Unsure || !was.After(now), Until: was, Connections: -1}
		if measured != nil {
			left = measured[i]
		}
		if left.Ended {
			continue
		}
		if left.Until.After(out.OldUntil) {
			out.OldUntil = left.Until
		}
		if out.OldTotal++; len(out.Old) < x.limit {
			old := oldProxy(o.proxy, x.settings[o.proxy.Node], left)
			old.Permission = o.permission
			out.Old = append(out.Old, old)
		}
	}
	slices.SortFunc(out.Old, func(a, b api.OldProxy) int {
		return cmp.Or(cmp.Compare(a.Mesh, b.Mesh), cmp.Compare(a.Name, b.Name))
	})
	x.old = nil
}

func oldProxy(p *rollout.Progress, s drains.Settings, left drains.Old) api.OldProxy {
	out := api.OldProxy{Mesh: p.Mesh, Name: p.Name, Until: left.Until, DrainTime: s.Time.String(), Strategy: s.Strategy,
		DrainUnknown: s.Unknown, Reason: left.Reason}
	if left.Connections >= 0 {
		out.Connections = &left.Connections
	}
	return out
}

// measure measures the older connections of x.old.
func (x *situation) measure(ctx context.Context, d *drains.Drains) []drains.Old {
	questions := make([]drains.Question, len(x.old))
	for i, o := range x.old {
		questions[i] = drains.Question{Key: o.proxy.Node, Drain: o.drain}
	}
	return d.Measure(ctx, questions)
}

// effective completes the state of a subject whose older connections count.
func (x *situation) effective(ctx context.Context, d *drains.Drains, out *api.Applied) {
	out.Effective = true
	switch out.State {
	case api.StatePending, api.StateRejected, api.StateStale, api.StateShadow, api.StateInert:
		x.addOld(out, nil)
		return
	}
	if x.addOld(out, x.measure(ctx, d)); out.OldTotal > 0 {
		out.State = api.StateDraining
	}
}

// Draining returns the wanted proxies whose older connections may use previous filters, sorted by
// mesh and name.
func (t *Tracker) Draining(ctx context.Context, wanted func(resource.Key) bool) (out []api.OldProxy) {
	if t.Progress == nil {
		return nil
	}
	proxies, now := t.Progress(), time.Now()
	settings := t.settingsOf(ctx, proxies)
	for i := range proxies {
		p, s := &proxies[i], settings[proxies[i].Node]
		last := time.Time{}
		for _, d := range p.Draining {
			if until := s.Until(d.Since); !d.Unsure && until.After(now) && until.After(last) {
				last = until
			}
		}
		ref, err := node.ParseRef(p.Node.ID)
		if !last.IsZero() && err == nil && wanted(ref.Key()) {
			out = append(out, oldProxy(p, s, drains.Old{Until: last, Connections: -1}))
		}
	}
	slices.SortFunc(out, func(a, b api.OldProxy) int {
		return cmp.Or(cmp.Compare(a.Mesh, b.Mesh), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// OldConnections says until when connections of a dataplane may use filters from before a revision,
// "" if there are none.
func (t *Tracker) OldConnections(ctx context.Context, mesh, dataplane string, revision uint64) string {
	if t.Progress == nil {
		return ""
	}
	for _, p := range t.Progress() {
		d := p.DrainOf(revision)
		if p.Mesh != mesh || p.Name != dataplane || d == nil {
			continue
		}
		s := t.Drains.Settings(ctx, []node.Key{p.Node})[p.Node]
		until := s.Until(d.Since)
		if !until.After(time.Now()) {
			continue
		}
		out := "connections that were opened before the last change may use the previous filters until " +
			until.UTC().Format(time.RFC3339) +
			", when they have drained; routes and permissions for requests already apply to them, " +
			"and an open TCP connection keeps its previous permission until then"
		if s.Unknown != "" {
			out += "; the agent assumes Envoy's default drain time, because the Envoy does not report its own: " + s.Unknown
		}
		return out
	}
	return ""
}
