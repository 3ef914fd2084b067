package check

import (
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/envoy"
)

// SameFindings reports whether the check of next would certainly have the same findings as that of
// prev, with the same facts: both have the same names, and each changed resource has no findings by
// itself, neither before nor now, and affects other resources as before. It examines only the
// changed resources. False means that next must be checked.
func (c *Checker) SameFindings(prev, next *envoy.Snapshot) bool {
	c.cache.begin()
	for k := range envoy.NumKinds {
		was, list := prev[k], next[k]
		if len(was) != len(list) {
			return false
		}
		changed := 0
		for i, r := range list {
			if r == was[i] || r.Version == was[i].Version && r.Name == was[i].Name {
				continue
			}
			if r.Name != was[i].Name {
				return false
			}
			changed++
		}
		if changed == 0 {
			continue
		}
		before, after := c.cache.changed(&c.cache.prior[k], k, was, list), c.cache.changed(&c.cache.last[k], k, list, was)
		for i, r := range list {
			if r != was[i] && r.Version != was[i].Version && !after[i].replaces(before[i]) {
				return false
			}
		}
	}
	return true
}

// changed returns the findings of the resources of a list. If only a few of them differ from those
// of another list, it returns the findings of these only.
func (c *cache) changed(last *results, k envoy.Kind, list, other []*envoy.Resource) []*checked {
	differ := 0
	for i, r := range list {
		if r != other[i] {
			differ++
		}
	}
	if differ > len(list)/8 {
		return c.allOf(last, k, list)
	}
	out := make([]*checked, len(list))
	for i, r := range list {
		if r != other[i] {
			out[i] = c.get(k, r)
		}
	}
	return out
}

// replaces reports whether a resource has no findings and affects others in the same way as before.
func (c *checked) replaces(before *checked) bool {
	if c == before {
		return c.plain()
	}
	return c.plain() && before.plain() && c.uses == before.uses && c.socket == before.socket &&
		c.secret == before.secret && c.resolves == before.resolves && slices.Equal(c.refs, before.refs) &&
		slices.Equal(c.binds, before.binds) && slices.Equal(c.files, before.files)
}

func (c *checked) plain() bool {
	return len(c.findings)+len(c.newer)+len(c.regexes) == 0 && !c.blocked
}
