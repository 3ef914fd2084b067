package status

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/nearside-mesh/nearside/agent/model/api"
)

// AddCounts adds to proxies what their Envoys have counted, by node id.
func AddCounts(all []api.Proxy, counts map[string]api.ProxyCounts) {
	for i := range all {
		p := &all[i]
		for _, c := range p.Clients {
			if n, ok := counts[c.NodeID]; ok {
				p.RefusedConnections, p.LogWritesFailed, p.LogReopensFailed = &n.Refused, &n.WritesFailed, &n.ReopensFailed
			}
		}
		if lost := LostLines(all[i : i+1]); len(lost) > 0 {
			p.Problems = append(p.Problems, lost...)
		}
	}
}

// LostLines are the problems of the proxies whose Envoys have lost lines of access logs, of which
// Envoy itself says nothing.
func LostLines(all []api.Proxy) (out []api.Problem) {
	for i := range all {
		p := &all[i]
		writes, reopens := p.LogWritesFailed, p.LogReopensFailed
		if writes == nil || reopens == nil || *writes == 0 && *reopens == 0 {
			continue
		}
		out = append(out, api.Problem{Resource: Key(p).String(), Severity: api.SeverityWarning,
			Reason: fmt.Sprintf("its Envoy has lost lines of access logs: %d writes to them have failed since it started, "+
				"and %d attempts to open them anew. Look for a full disk, missing permissions or files that were removed; "+
				"nearside status says which FIFOs nobody holds", *writes, *reopens)})
	}
	return out
}

// Refusals are those of the proxies that have refused some.
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
