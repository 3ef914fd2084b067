package envoy

import (
	"net/netip"
	"slices"
)

// template is what was found of the first resource of a shape, for the others.
type template struct {
	checked *checked
	names   []string
	// refs are, by reference of the resource, the index of its name, -1 for one that belongs to the shape.
	refs []int
}

// newTemplate returns a template, nil where the findings cannot be told from the shape: those with findings, and those
// of which it is not sure which names the references come from.
func newTemplate(s *shaper, k Kind, c *checked) *template {
	if len(c.findings) > 0 || len(c.binds) > 1 || s.ips != len(c.binds) || s.ports != len(c.binds) {
		return nil
	}
	if len(c.binds) == 1 && (c.binds[0].host != s.ip.String() || c.binds[0].port != s.port) {
		return nil
	}
	t := &template{checked: c, names: slices.Clone(s.names), refs: make([]int, len(c.refs))}
	left := slices.Clone(s.refs)
	for i, r := range c.refs {
		t.refs[i] = slices.Index(s.names, r.name)
		if t.refs[i] < 0 {
			continue
		}
		j := slices.Index(left, t.refs[i])
		switch {
		case j >= 0:
			left = slices.Delete(left, j, j+1)
		case k == KindCluster && r.kind == KindEndpoint && t.refs[i] == s.own:
			// Without a service name the endpoints are asked for by the cluster's own.
		default:
			return nil // it comes from a field that belongs to the shape and is like a name by chance
		}
	}
	if len(left) > 0 {
		return nil
	}
	return t
}

// with makes what is known of another resource of the shape.
func (t *template) with(s *shaper) *checked {
	if len(t.refs) == 0 && len(t.checked.binds) == 0 {
		return t.checked // nothing of it depends on names
	}
	out := *t.checked
	out.refs = slices.Clone(out.refs)
	for i, at := range t.refs {
		if at >= 0 {
			out.refs[i].name = s.names[at]
		}
	}
	if len(out.binds) == 1 {
		b := out.binds[0]
		b.host, b.port = s.ip.String(), s.port
		b.address = bindAddress(b.udp, netip.AddrPortFrom(s.ip, uint16(s.port)))
		out.binds = []bind{b}
	}
	return &out
}
