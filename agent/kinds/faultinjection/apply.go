package faultinjection

import (
	"cmp"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/fault/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

const nameFault = "envoy.filters.http.fault"

// apply puts the faults of each inbound before the routing of its requests.
func apply(c *policy.Context, d *draft.Draft) {
	rules := c.Rules.Kind(kind)
	if c.Last {
		warnOfGateways(c, rules)
	}
	for _, l := range d.Listeners {
		if l.Kind != draft.Inbound {
			continue
		}
		var filters []draft.Extension
		if in := rules.Inbound(l.Inbound); in != nil {
			filters = ofRules(in.Rules)
		} else {
			filters = ofLegacy(c.Rules.LegacyInbound(legacyKind, l.Inbound))
		}
		if len(filters) == 0 {
			continue
		}
		for _, ch := range l.Chains {
			if ch.HTTP != nil {
				at := max(0, len(ch.HTTP.Filters)-1) // the router comes last
				ch.HTTP.Filters = slices.Concat(ch.HTTP.Filters[:at], filters, ch.HTTP.Filters[at:])
			}
		}
	}
}

// warnOfGateways says what is without effect: to is about the listeners of built-in gateways.
func warnOfGateways(c *policy.Context, rules *policy.KindRules) {
	if rules == nil {
		return
	}
	for _, p := range rules.Policies {
		if spec, ok := p.Spec.(*resource.Policy); ok && len(spec.To) > 0 {
			c.Host.Warn(p.Key, "to has no effect on this proxy: it is about the listeners of built-in gateways; write from to inject faults where requests arrive")
		}
	}
}

// ofRules makes the filters of an inbound: those for the narrowest groups of clients come first.
func ofRules(rules []*policy.Rule) []draft.Extension {
	var out []draft.Extension
	for _, r := range rules {
		conf, ok := r.Conf.(*Conf)
		if !ok || conf.HTTP == nil || len(*conf.HTTP) == 0 {
			continue
		}
		clients := ofSubset(r.Subset)
		for i := range *conf.HTTP {
			out = append(out, (*conf.HTTP)[i].filter(clients, readBandwidth))
		}
	}
	return out
}

// ofLegacy makes the filters of all FaultInjections about an inbound: those whose sources name most tags come first.
func ofLegacy(policies []*resource.Resource) []draft.Extension {
	if len(policies) == 0 {
		return nil
	}
	sorted := slices.Clone(policies)
	slices.SortFunc(sorted, bySources)
	var out []draft.Extension
	for _, p := range sorted {
		spec, ok := p.Spec.(*resource.LegacyPolicy)
		if !ok {
			continue
		}
		if conf, ok := spec.Conf.(*LegacyConf); ok {
			out = append(out, conf.filter(ofSources(spec.Sources), readLegacyBandwidth))
		}
	}
	return out
}

// bySources orders FaultInjections as they act.
func bySources(a, b *resource.Resource) int {
	x, y := sources(a), sources(b)
	return cmp.Or(cmp.Compare(y.exact, x.exact), cmp.Compare(y.any, x.any), strings.Compare(a.Name, b.Name))
}

// named counts the tags of the selector that names most.
type named struct{ exact, any int }

func sources(p *resource.Resource) named {
	var best named
	spec, ok := p.Spec.(*resource.LegacyPolicy)
	if !ok {
		return best
	}
	for i := range spec.Sources {
		var n named
		for _, v := range spec.Sources[i].Match {
			if v == "*" {
				n.any++
			} else {
				n.exact++
			}
		}
		if cmp.Or(cmp.Compare(n.exact, best.exact), cmp.Compare(n.any, best.any)) > 0 {
			best = n
		}
	}
	return best
}

// filter makes the filter of one fault.
func (f *Fault) filter(clients []*routev3.HeaderMatcher, bandwidth func(string) (uint64, string)) draft.Extension {
	m := &faultv3.HTTPFault{Headers: clients}
	if a := f.Abort; a != nil && a.HTTPStatus != nil {
		m.Abort = &faultv3.FaultAbort{ErrorType: &faultv3.FaultAbort_HttpStatus{HttpStatus: *a.HTTPStatus}, Percentage: share(a.Percentage)}
	}
	if d := f.Delay; d != nil && d.Value != nil {
		m.Delay = &commonv3.FaultDelay{
			FaultDelaySecifier: &commonv3.FaultDelay_FixedDelay{FixedDelay: durationpb.New(d.Value.Duration)},
			Percentage:         share(d.Percentage),
		}
	}
	if b := f.ResponseBandwidth; b != nil {
		kbps, _ := bandwidth(b.Limit)
		m.ResponseRateLimit = &commonv3.FaultRateLimit{
			LimitType:  &commonv3.FaultRateLimit_FixedLimit_{FixedLimit: &commonv3.FaultRateLimit_FixedLimit{LimitKbps: kbps}},
			Percentage: share(b.Percentage),
		}
	}
	return draft.Extension{Name: nameFault, Message: m}
}
