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
	for k := range envoy.NumKinds {
		if sameList(prev[k], next[k]) {
			continue
		}
		// Most proxies share their lists with the previous proxy.
		last := &c.steps[k]
		if !sameList(last.prev, prev[k]) || !sameList(last.next, next[k]) {
			*last = step{prev[k], next[k], c.sameFindings(k, prev[k], next[k])}
		}
		if !last.same {
			return false
		}
	}
	return true
}

// step is the result for the last changed list of a kind.
type step struct {
	prev, next []*envoy.Resource
	same       bool
}

func sameList(a, b []*envoy.Resource) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

func (c *Checker) sameFindings(k envoy.Kind, prev, next []*envoy.Resource) bool {
	if len(prev) != len(next) {
		return false
	}
	changed := make([]int, 0, 16)
	for i, r := range next {
		switch {
		case r == prev[i]:
		case r.Name != prev[i].Name:
			return false
		case r.Version != prev[i].Version:
			changed = append(changed, i)
		}
	}
	if len(changed) == 0 {
		return true
	}
	c.cache.begin()
	if len(changed) <= len(next)/8 {
		for _, i := range changed {
			if !c.cache.get(k, next[i]).replaces(c.cache.get(k, prev[i])) {
				return false
			}
		}
		return true
	}
	before, after := c.cache.allOf(&c.cache.prior[k], k, prev), c.cache.all(k, next)
	for _, i := range changed {
		if !after[i].replaces(before[i]) {
			return false
		}
	}
	return true
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
