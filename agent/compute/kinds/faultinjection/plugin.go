// Package faultinjection is the plugin of MeshFaultInjection: requests that an inbound answers with
// an error, late or slowly, by chance, to show what their clients make of it.
//
// Clients of from are told by the tags that their proxies send with every request. Whoever sends no
// tags is hit by the faults for all clients alone. Clients of rules are told by the SPIFFE IDs in
// their certificates.
package faultinjection

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/fault/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Kind is the kind of the plugin's policies.
const Kind = "MeshFaultInjection"

const nameFault = "envoy.filters.http.fault"

// Plugin declares the kind and its effect, beside the kinds that it replaces.
func Plugin(legacy ...policy.LegacyKind) policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(Kind, "meshfaultinjections", "mfi", resource.PolicyShape{
			Top:       toolkit.Proxies(),
			TopToOnly: []string{"MeshGateway"},
			From:      toolkit.Clients(),
			To:        []string{"Mesh"},
			Rules:     true, RuleMatches: true,
			NewConf: func() resource.Conf { return new(Conf) },
			Check: func(p *resource.Policy, v *resource.Validator) {
				toolkit.ToOfGateways(p, v, "MeshGateway")
				toolkit.FromOfSidecars(p, v)
			},
		})},
		Legacy:  legacy,
		Filters: []string{nameFault},
		Apply:   apply,
	}
}

func apply(c *policy.Context, d *draft.Draft) {
	rules := c.Rules.Kind(Kind)
	if c.Last {
		toolkit.WarnToOfGateways(c, rules, "inject faults where requests arrive")
	}
	for l := range toolkit.Listeners(d, draft.Inbound) {
		if in := rules.Inbound(l.Inbound); in != nil {
			Inject(l, ofRules(in))
			if len(in.Matched) > 0 {
				toolkit.WarnUntold(c, rules, l)
			}
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

// ofRules makes the filters of an inbound: those of clients that are told by their certificates
// come first, then those for the narrowest groups of clients.
func ofRules(in *policy.InboundRules) []draft.Extension {
	var out []draft.Extension
	add := func(r *policy.Rule, clients []*routev3.HeaderMatcher) {
		conf := toolkit.Conf[Conf](r)
		if conf == nil || conf.HTTP == nil {
			return
		}
		for i := range *conf.HTTP {
			out = append(out, (*conf.HTTP)[i].Filter(clients))
		}
	}
	var others []*routev3.HeaderMatcher // clients of none of the matches so far
	for _, m := range in.Matched {
		clients := append(slices.Clip(others), toolkit.OfMatch(&m.Match, false))
		add(&m.Rule, clients)
		others = append(others, toolkit.OfMatch(&m.Match, true))
	}
	for _, r := range in.Rules {
		add(r, append(slices.Clip(others), ofSubset(r.Subset)...))
	}
	return out
}

// ofSubset matches the requests of clients of a subset: one matcher for all the tags that they
// have, and one for each that they have not.
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
		out = append(out, header(toolkit.TagsRegex(has), false))
	}
	for _, t := range not {
		out = append(out, header(toolkit.TagsRegex(map[string]string{t.Key: t.Value}), true))
	}
	return out
}

func header(regex string, invert bool) *routev3.HeaderMatcher {
	out := toolkit.Header(toolkit.TagsHeader, toolkit.Regex(regex))
	out.InvertMatch = invert
	return out
}

// Conf is the faults of one group of clients. Each has its own chance; a request can meet several.
type Conf struct {
	HTTP *[]Fault `json:"http,omitempty"` // replaces the list of weaker policies, also when it is empty
}

// Fault is what happens to a share of the requests.
type Fault struct {
	Abort             *Abort     `json:"abort,omitempty"`
	Delay             *Delay     `json:"delay,omitempty"`
	ResponseBandwidth *Bandwidth `json:"responseBandwidth,omitempty"`
}

// Abort answers in the place of the workload.
type Abort struct {
	HTTPStatus *uint32           `json:"httpStatus,omitempty"`
	Percentage *resource.Decimal `json:"percentage,omitempty"`
}

// Delay lets the request wait.
type Delay struct {
	Value      *resource.Duration `json:"value,omitempty"`
	Percentage *resource.Decimal  `json:"percentage,omitempty"`
}

// Bandwidth slows the response down.
type Bandwidth struct {
	Limit      string            `json:"limit,omitempty"` // "10kbps", "10 Mbps"
	Percentage *resource.Decimal `json:"percentage,omitempty"`
}

// MaxFaults bounds the faults of one group of clients: each is a filter that every request passes.
const MaxFaults = 100

// Validate checks each fault.
func (c *Conf) Validate(v *resource.Validator) {
	if c.HTTP == nil {
		return // says nothing, which takes nothing away from weaker policies
	}
	if v = v.Field("http"); toolkit.AtMost(v, len(*c.HTTP), MaxFaults, "faults") {
		for i := range *c.HTTP {
			(*c.HTTP)[i].Check(v.Index(i), false)
		}
	}
}

// Check checks the fault. With small, mega and giga may also be written small, as FaultInjection
// allows.
func (f *Fault) Check(v *resource.Validator, small bool) {
	if *f == (Fault{}) {
		v.Faultf("the fault does nothing: give abort, delay, responseBandwidth or several of them")
	}
	if a := f.Abort; a != nil {
		v := v.Field("abort")
		switch at := v.Field("httpStatus"); {
		case a.HTTPStatus == nil:
			at.Faultf("the status is missing: give one of 200 to 599")
		case *a.HTTPStatus < 200 || *a.HTTPStatus > 599:
			at.Faultf("%d is not a status that Envoy answers with: give one of 200 to 599", *a.HTTPStatus)
		}
		validateShare(v.Field("percentage"), a.Percentage)
	}
	if d := f.Delay; d != nil {
		v := v.Field("delay")
		switch at := v.Field("value"); {
		case d.Value == nil:
			at.Faultf(`the delay is missing: give a duration like "5s"`)
		case d.Value.Duration <= 0:
			at.Faultf("%s is no delay: give more than 0s", d.Value.Duration)
		}
		validateShare(v.Field("percentage"), d.Percentage)
	}
	if b := f.ResponseBandwidth; b != nil {
		v := v.Field("responseBandwidth")
		if _, reason := readBandwidth(b.Limit, small); reason != "" {
			v.Field("limit").Faultf("%s", reason)
		}
		validateShare(v.Field("percentage"), b.Percentage)
	}
}

// Filter makes the filter of the fault for the requests of some clients.
func (f *Fault) Filter(clients []*routev3.HeaderMatcher) draft.Extension {
	m := &faultv3.HTTPFault{Headers: clients}
	if a := f.Abort; a != nil && a.HTTPStatus != nil {
		m.Abort = &faultv3.FaultAbort{ErrorType: &faultv3.FaultAbort_HttpStatus{HttpStatus: *a.HTTPStatus},
			Percentage: toolkit.Fraction(a.Percentage)}
	}
	if d := f.Delay; d != nil && d.Value != nil {
		m.Delay = &commonv3.FaultDelay{
			FaultDelaySecifier: &commonv3.FaultDelay_FixedDelay{FixedDelay: toolkit.Duration(d.Value)},
			Percentage:         toolkit.Fraction(d.Percentage),
		}
	}
	if b := f.ResponseBandwidth; b != nil {
		kbps, _ := readBandwidth(b.Limit, true) // was validated
		m.ResponseRateLimit = &commonv3.FaultRateLimit{
			LimitType: &commonv3.FaultRateLimit_FixedLimit_{
				FixedLimit: &commonv3.FaultRateLimit_FixedLimit{LimitKbps: kibibytes(kbps)},
			},
			Percentage: toolkit.Fraction(b.Percentage),
		}
	}
	return draft.Extension{Name: nameFault, Message: m}
}

// unit is the smallest share of requests that Envoy can tell from none, in percent: one in a
// million.
const unit = 0.0001

func validateShare(v *resource.Validator, percentage *resource.Decimal) {
	if percentage == nil {
		v.Faultf(`the percentage is missing: give a number from 0 to 100, one with a fraction in quotes: "2.5"`)
		return
	}
	v.Percentage(percentage)
	if f := percentage.Float(); f > 0 && f < unit {
		v.Faultf("%s is less than the smallest percentage that Envoy can tell from 0, %v", percentage, unit)
	}
}

// kibibytes is a bandwidth in KiB/s, which Envoy's limit_kbps is, at least 1.
func kibibytes(kbps uint64) uint64 { return max(1, (kbps*1000+4096)/8192) }

// readBandwidth reads a limit and returns it in kbps, or what is wrong. With small, mega and giga
// may also be written small.
func readBandwidth(s string, small bool) (kbps uint64, reason string) {
	const wanted = `a whole number with the unit kbps, Mbps or Gbps, for example "50kbps"`
	if s == "" {
		return 0, "the limit is missing: give " + wanted
	}
	digits := strings.TrimLeft(s, "0123456789")
	number, unit := s[:len(s)-len(digits)], strings.TrimPrefix(digits, " ")
	factor := map[string]uint64{"kbps": 1, "Mbps": 1_000, "Gbps": 1_000_000, "mbps": 1_000, "gbps": 1_000_000}[unit]
	if factor == 0 || number == "" || !small && (unit[0] == 'm' || unit[0] == 'g') {
		return 0, fmt.Sprintf("%.40q is not a bandwidth: give %s", s, wanted)
	}
	n, err := strconv.ParseUint(number, 10, 32) // so that no unit makes it overflow, here or in Envoy
	switch {
	case err != nil:
		return 0, fmt.Sprintf("%.40q is out of range: at most %d of any unit are allowed", s, uint32(math.MaxUint32))
	case n == 0:
		return 0, fmt.Sprintf("%.40q lets nothing through: give at least 1kbps, or an abort", s)
	}
	return n * factor, ""
}
