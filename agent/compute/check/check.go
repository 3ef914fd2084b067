package check

import (
	"cmp"
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// Checker says what an Envoy would make of configs. It remembers what it found per resource
// version, so that a config in which little changed is checked fast. The zero value is ready to
// use; it must not be used by two goroutines at once. One checker may serve many proxies.
type Checker struct {
	cache cache
	set   set
}

// Check checks a config of a proxy against the rules of [Rules]: each resource by itself with
// everything that is packed in it, the resources against each other, and the step from prev, which
// is what the proxy has accepted so far (nil or empty for a proxy that starts). facts may be nil.
// The findings are sorted: by kind, name, severity, rule, pointer.
//
// A resource that has a finding which blocks is taken as not there when others refer to it, unless
// prev has it in an older form, which then stays in force.
//
// Messages are decoded by the types that are linked into the program; an extension of a type that
// is not, and is not among the facts, is one that Envoy does not know either.
func (c *Checker) Check(prev, next *envoy.Snapshot, facts *finding.Facts) []finding.Finding {
	if prev == nil {
		prev = &envoy.Snapshot{}
	}
	if facts == nil {
		facts = &finding.Facts{}
	}
	c.cache.begin()
	var checked [envoy.NumKinds][]*checked
	for k := range envoy.NumKinds {
		checked[k] = c.cache.all(k, next[k])
	}
	out := c.set.check(&c.cache, prev, next, facts, &checked)
	slices.SortStableFunc(out, compareFindings)
	return out
}

// Forget lets go of what was found of single resources. What is known of their shapes stays, and is
// most of the work that is saved.
func (c *Checker) Forget() {
	c.cache.last = [envoy.NumKinds]results{}
	c.set = set{}
}

// Demands are what a config takes from the host of its Envoy.
type Demands struct {
	Files   []string // that Envoy opens for its logs, sorted
	Sockets int      // listeners and their addresses, each of which has a socket for each worker
	Names   bool     // Envoy's usual resolver looks host names up
}

// Demands returns what a config takes from the host of its Envoy.
func (c *Checker) Demands(s *envoy.Snapshot) (out Demands) {
	c.cache.begin()
	for _, l := range c.cache.all(envoy.KindListener, s[envoy.KindListener]) {
		for _, f := range l.files {
			out.Files = append(out.Files, f.path)
		}
		for _, b := range l.binds {
			if b.binds {
				out.Sockets++
			}
		}
	}
	for _, r := range c.cache.all(envoy.KindCluster, s[envoy.KindCluster]) {
		out.Names = out.Names || r.resolves
	}
	slices.Sort(out.Files)
	out.Files = slices.Compact(out.Files)
	return out
}

// Check is [Checker.Check] without memory.
func Check(prev, next *envoy.Snapshot, facts *finding.Facts) []finding.Finding {
	var c Checker
	return c.Check(prev, next, facts)
}

func compareFindings(a, b finding.Finding) int {
	return cmp.Or(
		cmp.Compare(slices.Index(envoy.KindURLs[:], a.Type), slices.Index(envoy.KindURLs[:], b.Type)),
		cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Severity, b.Severity),
		cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Pointer, b.Pointer), cmp.Compare(a.Message, b.Message))
}

// Alone returns what is wrong with a resource by itself, whatever stands beside it.
func (c *Checker) Alone(k envoy.Kind, r *envoy.Resource) []finding.Finding {
	c.cache.begin()
	return c.cache.get(k, r).findings
}

// Plain reports whether there is nothing to say about a resource whatever stands beside it: nothing
// is found in it, and it refers to nothing.
func (c *Checker) Plain(k envoy.Kind, r *envoy.Resource) bool {
	c.cache.begin()
	found := c.cache.get(k, r)
	return len(found.findings)+len(found.newer)+len(found.refs)+len(found.regexes)+len(found.files)+
		len(found.binds) == 0 && !found.blocked
}
