package status

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// AddCounts adds the counters of Envoys, by node ID, to proxies.
func AddCounts(all []api.Proxy, counts map[string]api.ProxyCounts) {
	for i := range all {
		p := &all[i]
		for _, c := range p.Clients {
			if n, ok := counts[c.NodeID]; ok {
				p.RefusedConnections, p.LogWritesFailed, p.LogReopensFailed = &n.Refused, &n.WritesFailed, &n.ReopensFailed
				p.InspectionTimeouts = timeouts(n.TimedOut)
			}
		}
		if lost := LostLines(all[i : i+1]); len(lost) > 0 {
			p.Problems = append(p.Problems, lost...)
		}
	}
}

// AddLogs adds the counters of its Envoy and the accounts of its access logs to a proxy.
func (t *Tracker) AddLogs(p *api.Proxy) {
	if t.Parts.Counts == nil {
		return
	}
	counts, one := t.Parts.Counts(), []api.Proxy{*p}
	AddCounts(one, counts)
	*p = one[0]
	if t.Parts.Logs == nil {
		return
	}
	published := t.sealed()
	maps.DeleteFunc(published, func(k node.Key, _ *draft.Sealed) bool {
		return !slices.ContainsFunc(p.Clients, func(c api.ProxyStatus) bool { return c.NodeID == k.ID })
	})
	p.AccessLogs = t.Parts.Logs.Proxies(published, counts)
	p.LogGaps = slices.DeleteFunc(t.Parts.Logs.Gaps(), func(g api.LogGap) bool {
		return g.Mesh != p.Mesh || g.Dataplane != p.Name
	})
}

// sealed returns the published configs.
func (t *Tracker) sealed() map[node.Key]*draft.Sealed {
	out := map[node.Key]*draft.Sealed{}
	if last := t.Last(); last != nil {
		for key, p := range last.Published {
			out[key] = p.Sealed
		}
	}
	return out
}

// AccessLogs returns the visible streams and accounts of access logs. Only a view of the whole has
// streams that contain lines of all dataplanes.
func (t *Tracker) AccessLogs(v *View) api.AccessLogs {
	out := api.AccessLogs{Items: t.LogStreams(v), Proxies: []api.ProxyLog{}, Gaps: []api.LogGap{}}
	if out.Total = len(out.Items); out.Items == nil {
		out.Items = []api.LogStream{}
	}
	if t.Parts.Logs == nil {
		return out
	}
	hidden := func(mesh, name string) bool {
		return !v.Whole && !v.sees(resource.Key{Kind: kindDataplane, Mesh: mesh, Name: name})
	}
	var counts map[string]api.ProxyCounts
	if t.Parts.Counts != nil {
		counts = t.Parts.Counts()
	}
	out.Proxies = slices.DeleteFunc(t.Parts.Logs.Proxies(t.sealed(), counts), func(x api.ProxyLog) bool {
		return hidden(x.Mesh, x.Dataplane)
	})
	out.Gaps = slices.DeleteFunc(t.Parts.Logs.Gaps(), func(x api.LogGap) bool { return hidden(x.Mesh, x.Dataplane) })
	return out
}

// timeouts sorts counts by listener, most first.
func timeouts(counts map[string]uint64) (out []api.ListenerTimeouts) {
	for name, n := range counts {
		out = append(out, api.ListenerTimeouts{Listener: name, Count: n})
	}
	slices.SortFunc(out, func(a, b api.ListenerTimeouts) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Listener, b.Listener))
	})
	return out
}

// Timeouts returns the proxies with inspection timeouts.
func Timeouts(all []api.Proxy) []api.ProxyTimeouts {
	out := []api.ProxyTimeouts{}
	for _, p := range all {
		if len(p.InspectionTimeouts) > 0 {
			out = append(out, api.ProxyTimeouts{Mesh: p.Mesh, Name: p.Name, Listeners: p.InspectionTimeouts})
		}
	}
	return out
}

// LostLines returns problems for proxies whose Envoys have lost access-log lines, which Envoy does
// not log itself.
func LostLines(all []api.Proxy) (out []api.Problem) {
	for i := range all {
		p := &all[i]
		writes, reopens := p.LogWritesFailed, p.LogReopensFailed
		if writes == nil || reopens == nil || *writes == 0 && *reopens == 0 {
			continue
		}
		out = append(out, api.Problem{Resource: Key(p).String(), Severity: api.SeverityWarning,
			Check: api.ClassLostLines, Command: api.CommandOf(api.ClassLostLines),
			Reason: fmt.Sprintf("its Envoy has lost access-log lines: since it started, %d writes "+
				"and %d attempts to reopen logs have failed. Check for a full disk, missing permissions, or removed files; "+
				"nearside status lists FIFOs without a holder", *writes, *reopens)})
	}
	return out
}

// Refusals returns the proxies that have refused connections, with the counts in descending order.
func Refusals(all []api.Proxy) []api.ProxyRefusals {
	out := []api.ProxyRefusals{}
	for _, p := range all {
		if n := p.RefusedConnections; n != nil && *n > 0 {
			out = append(out, api.ProxyRefusals{Mesh: p.Mesh, Name: p.Name, Count: *n})
		}
	}
	slices.SortStableFunc(out, func(a, b api.ProxyRefusals) int { return cmp.Compare(b.Count, a.Count) })
	return out
}
