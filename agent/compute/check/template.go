package check

import (
	"net/netip"
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/envoy"
)

// template holds the results of the first resource of a shape, for the other resources.
type template struct {
	checked *checked
	// refs holds, for each reference, the index of its name, or -1 for a name that belongs to the
	// shape.
	refs []int
}

// newTemplate returns a template, or nil if the results cannot be derived from the shape: if there
// are findings, or if it is unclear which names the references use.
func newTemplate(s *shaper, k envoy.Kind, c *checked) *template {
	if len(c.findings)+len(c.newer) > 0 || len(c.binds) > 1 || s.ips != len(c.binds) || s.ports != len(c.binds) {
		return nil
	}
	if len(c.binds) == 1 && (c.binds[0].host != s.ip.String() || c.binds[0].port != s.port) {
		return nil
	}
	refs, ok := s.origins(c.refs, k == envoy.KindCluster)
	if !ok {
		return nil
	}
	return &template{checked: c, refs: refs}
}

// origins returns, for each reference, the index of its name, or -1 for a name that belongs to the
// shape. It fails if that is ambiguous. A cluster may refer to its endpoints by its own name.
func (s *shaper) origins(refs []ref, cluster bool) ([]int, bool) {
	out := make([]int, len(refs))
	left := slices.Clone(s.refs)
	for i, r := range refs {
		out[i] = slices.Index(s.names, r.name)
		if out[i] < 0 {
			continue
		}
		j := slices.Index(left, out[i])
		switch {
		case j >= 0:
			left = slices.Delete(left, j, j+1)
		case cluster && r.kind == envoy.KindEndpoint && out[i] == s.own:
			// A cluster without a service name refers to its endpoints by its own name.
		default:
			return nil, false // the name also occurs in a field that belongs to the shape
		}
	}
	return out, len(left) == 0
}

// rename sets the names of references to those of this resource.
func (s *shaper) rename(refs []ref, origins []int) {
	for i, at := range origins {
		if at >= 0 {
			refs[i].name = s.names[at]
		}
	}
}

// with returns the results for another resource of the shape.
func (t *template) with(s *shaper) *checked {
	if len(t.refs) == 0 && len(t.checked.binds) == 0 {
		return t.checked // the results do not depend on names
	}
	out := *t.checked
	out.refs = slices.Clone(out.refs)
	s.rename(out.refs, t.refs)
	if len(out.binds) == 1 {
		b := out.binds[0]
		b.host, b.port = s.ip.String(), s.port
		b.address = bindAddress(b.udp, netip.AddrPortFrom(s.ip, uint16(s.port)))
		out.binds = []bind{b}
	}
	return &out
}
