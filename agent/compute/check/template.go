package check

import (
	"net/netip"
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/envoy"
)

// template is what was found of the first resource of a shape, for the others.
type template struct {
	checked *checked
	// refs are, by reference of the resource, the index of its name, -1 for one that belongs to the
	// shape.
	refs []int
}

// newTemplate returns a template, nil where the findings cannot be told from the shape: those with
// findings, and those of which it is not sure which names the references come from.
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

// origins returns the indexes of the names that references come from, -1 for one that belongs to
// the shape. It fails where that is not sure. The endpoints of a cluster may be asked for by its
// own name.
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
			// Without a service name the endpoints are asked for by the cluster's own.
		default:
			return nil, false // it comes from a field that belongs to the shape and is like a name by chance
		}
	}
	return out, len(left) == 0
}

// rename gives references the names that they have in this resource, by their origins.
func (s *shaper) rename(refs []ref, origins []int) {
	for i, at := range origins {
		if at >= 0 {
			refs[i].name = s.names[at]
		}
	}
}

// with makes what is known of another resource of the shape.
func (t *template) with(s *shaper) *checked {
	if len(t.refs) == 0 && len(t.checked.binds) == 0 {
		return t.checked // nothing of it depends on names
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
