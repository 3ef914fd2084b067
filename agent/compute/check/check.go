package check

import (
	"cmp"
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// Checker finds what an Envoy would reject in configs. It caches findings by shape and those of the
// last config, so checking a config with few changes is fast. The zero value is ready to use. A
// Checker may serve many proxies but is not safe for concurrent use.
type Checker struct {
	cache cache
	set   set
	steps [envoy.NumKinds]step // see SameFindings
}

// Check checks the config of a proxy against the rules of [Rules]: each resource with everything
// that it packs, the resources against each other, and the step from prev, the config that the
// proxy has accepted so far (nil or empty for a proxy that starts). facts may be nil. The findings
// are sorted by kind, name, severity, rule, and pointer.
//
// References treat a resource with a blocking finding as missing, unless prev has an older form of
// it, which then stays active.
//
// Messages are decoded with the types linked into the program. Check assumes that Envoy does not
// know any other type, unless the facts list it.
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

// Forget drops the findings of the last config. Findings cached by shape are retained, because they
// save most of the work.
func (c *Checker) Forget() {
	c.cache.last, c.cache.prior = [envoy.NumKinds]results{}, [envoy.NumKinds]results{}
	c.set, c.steps = set{}, [envoy.NumKinds]step{}
}

// Demands lists what a config needs from the host of its Envoy.
type Demands struct {
	Files   []string // log files that Envoy opens, sorted
	Sockets int      // listener addresses; each has one socket per worker
	Names   bool     // Envoy's default resolver resolves host names
}

// Demands returns what a config needs from the host of its Envoy.
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

// Check is like [Checker.Check] but caches nothing.
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

// Single returns the findings of a resource, regardless of the other resources of its config.
func (c *Checker) Single(k envoy.Kind, r *envoy.Resource) []finding.Finding {
	c.cache.begin()
	return c.cache.get(k, r).findings
}
