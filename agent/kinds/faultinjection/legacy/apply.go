// Package legacy is FaultInjection, which MeshFaultInjection replaces: its conf, its effect and its migration.
package legacy

import (
	"cmp"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/kinds/faultinjection"
	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

const kind = "FaultInjection"

// Conf is what one FaultInjection does.
type Conf struct {
	faultinjection.Fault
}

// Validate checks the fault.
func (c *Conf) Validate(v *resource.Validator) { c.Check(v, true) }

// Kind declares the kind and its effect.
func Kind() policy.LegacyKind {
	return policy.LegacyKind{
		Descriptor: resource.LegacyDescriptor(kind, "fault-injections", "", resource.LegacyShape{
			NewConf: func() resource.Conf { return new(Conf) }, ConfRequired: true,
		}),
		ReplacedBy: []string{faultinjection.Kind},
		Inbound:    true,
		AllApply:   true,
		Apply:      apply,
		Migrate:    migrate,
	}
}

// apply injects the faults of all FaultInjections about an inbound: those whose sources name most tags come first.
func apply(c *policy.Context, d *draft.Draft) {
	for l := range toolkit.Listeners(d, draft.Inbound) {
		var filters []draft.Extension
		for _, p := range slices.SortedFunc(slices.Values(c.Rules.LegacyInbound(kind, l.Inbound)), bySources) {
			if conf := toolkit.LegacyConf[Conf](p); conf != nil {
				filters = append(filters, conf.Filter(ofSources(p.Spec.(*resource.LegacyPolicy).Sources)))
			}
		}
		faultinjection.Inject(l, filters)
	}
}

// bySources orders FaultInjections as they act.
func bySources(a, b *resource.Resource) int {
	x, y := sources(a), sources(b)
	return cmp.Or(slices.Compare(y[:], x[:]), strings.Compare(a.Name, b.Name))
}

// sources counts the tags of the selector that names most: those with a value, and those with any.
func sources(p *resource.Resource) (most [2]int) {
	spec, ok := p.Spec.(*resource.LegacyPolicy)
	if !ok {
		return most
	}
	for i := range spec.Sources {
		var n [2]int
		for _, v := range spec.Sources[i].Match {
			if v == "*" {
				n[1]++
			} else {
				n[0]++
			}
		}
		if slices.Compare(n[:], most[:]) > 0 {
			most = n
		}
	}
	return most
}

// ofSources matches the requests of clients that one of the selectors of a legacy policy is about, in the older field
// that Kuma has for it.
func ofSources(sources []resource.LegacySelector) []*routev3.HeaderMatcher {
	list := make([]string, len(sources))
	for i := range sources {
		list[i] = faultinjection.TagsRegex(sources[i].Match)
	}
	regex := strings.Join(list, "|")
	if len(list) > 1 {
		regex = "(" + regex + ")"
	}
	return []*routev3.HeaderMatcher{{
		Name: faultinjection.TagsHeader,
		//lint:ignore SA1019 what proxies run today stays byte for byte the same
		HeaderMatchSpecifier: &routev3.HeaderMatcher_SafeRegexMatch{SafeRegexMatch: &matcherv3.RegexMatcher{Regex: regex}},
	}}
}
