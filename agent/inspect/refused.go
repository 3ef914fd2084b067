package inspect

import (
	"cmp"
	"slices"
)

// countRefused asks the Envoys of proxies how many connections they have refused.
func (s *Server) countRefused(all []Proxy) {
	if s.opts.RefusedConnections == nil {
		return
	}
	refused := s.opts.RefusedConnections()
	for i := range all {
		for _, c := range all[i].Clients {
			if n, ok := refused[c.NodeID]; ok {
				all[i].RefusedConnections = &n
			}
		}
	}
}

// refusals are those of the proxies that have refused some.
func refusals(all []Proxy) []ProxyRefusals {
	out := []ProxyRefusals{}
	for _, p := range all {
		if n := p.RefusedConnections; n != nil && *n > 0 {
			out = append(out, ProxyRefusals{Mesh: p.Mesh, Name: p.Name, Count: *n})
		}
	}
	slices.SortStableFunc(out, func(a, b ProxyRefusals) int { return cmp.Compare(b.Count, a.Count) })
	return out
}
