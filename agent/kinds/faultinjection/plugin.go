// Package faultinjection is the plugin of MeshFaultInjection: requests that an inbound answers with an error, late or
// slowly, by chance, to show what their clients make of it.
//
// Clients are told by the tags that their proxies send with every request. Whoever sends no tags is hit by the faults
// for all clients alone.
package faultinjection

import (
	"maps"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// Kind is the kind of the plugin's policies.
const Kind = "MeshFaultInjection"

// Plugin declares the kind and its effect, beside the kinds that it replaces.
func Plugin(legacy ...policy.LegacyKind) policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(Kind, "meshfaultinjections", "mfi", resource.PolicyShape{
			Top:       toolkit.Proxies(),
			TopToOnly: []string{"MeshGateway"},
			From:      toolkit.Clients(),
			To:        []string{"Mesh"},
			NewConf:   func() resource.Conf { return new(Conf) },
			Check:     func(p *resource.Policy, v *resource.Validator) { toolkit.ToOfGateways(p, v, "MeshGateway") },
		})},
		Legacy: legacy,
		Apply:  apply,
	}
}

func apply(c *policy.Context, d *draft.Draft) {
	rules := c.Rules.Kind(Kind)
	if c.Last {
		toolkit.WarnToOfGateways(c, rules, "inject faults where requests arrive")
	}
	for l := range toolkit.Listeners(d, draft.Inbound) {
		if in := rules.Inbound(l.Inbound); in != nil {
			Inject(l, ofRules(in.Rules))
		}
	}
}

// Inject puts filters before the routing of the requests of an inbound.
func Inject(l *draft.Listener, filters []draft.Extension) {
	for _, ch := range l.Chains {
		if ch.HTTP != nil && len(filters) > 0 {
			toolkit.BeforeRouter(ch.HTTP, filters...)
		}
	}
}

// ofRules makes the filters of an inbound: those for the narrowest groups of clients come first.
func ofRules(rules []*policy.Rule) []draft.Extension {
	var out []draft.Extension
	for _, r := range rules {
		conf := toolkit.Conf[Conf](r)
		if conf == nil || conf.HTTP == nil {
			continue
		}
		clients := ofSubset(r.Subset)
		for i := range *conf.HTTP {
			out = append(out, (*conf.HTTP)[i].Filter(clients))
		}
	}
	return out
}

// TagsHeader carries the tags of a client's proxy: &key=value,value&&key=value&, sorted by key.
const TagsHeader = "x-kuma-tags"

// ofSubset matches the requests of clients of a subset: one matcher for all the tags that they have, and one for each
// that they have not.
func ofSubset(s policy.Subset) []*routev3.HeaderMatcher {
	has := map[string]string{}
	var not []policy.Tag
	for _, t := range s {
		if t.Not {
			not = append(not, t)
		} else {
			has[t.Key] = t.Value
		}
	}
	var out []*routev3.HeaderMatcher
	if len(has) > 0 {
		out = append(out, header(TagsRegex(has), false))
	}
	for _, t := range not {
		out = append(out, header(TagsRegex(map[string]string{t.Key: t.Value}), true))
	}
	return out
}

func header(regex string, invert bool) *routev3.HeaderMatcher {
	out := toolkit.Header(TagsHeader, toolkit.Regex(regex))
	out.InvertMatch = invert
	return out
}

// TagsRegex is a regular expression for headers with all of the tags; "*" stands for any value. A key is found with its
// ampersand before it; a value ends at the next comma or ampersand. Where it begins is left open, as in Kuma, whose
// tests and proxies know this form: a value also holds for one that ends in it.
func TagsRegex(tags map[string]string) string {
	var b strings.Builder
	b.WriteString(".*")
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		b.WriteString("&" + k + "=")
		if v := tags[k]; v != "*" {
			b.WriteString("[^&]*" + strings.ReplaceAll(v, ".", `\.`) + "[,&]")
		}
		b.WriteString(".*")
	}
	return b.String()
}
