// Package faultinjection implements MeshFaultInjection: an inbound randomly fails, delays, or slows
// down requests, to test the behavior of clients.
//
// Clients of from are identified by the tags that their proxies send with every request. Clients
// that send no tags get only the faults for all clients. Clients of rules are identified by the
// SPIFFE IDs in their certificates.
package faultinjection

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/fault/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Kind is the policy kind of the plugin.
const Kind = "MeshFaultInjection"

const nameFault = "envoy.filters.http.fault"

// Plugin declares the kind with the legacy kinds that it replaces.
func Plugin(legacy ...policy.LegacyKind) policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(Kind, "meshfaultinjections", "mfi", resource.PolicyShape{
			Top:       toolkit.Proxies(),
			TopToOnly: []string{"MeshGateway"},
			From:      toolkit.Clients(),
			To:        []string{"Mesh"},
			Rules:     true, RuleMatches: true, RulesApart: true,
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
		toolkit.WarnToOfGateways(c, rules, "inject faults at inbounds")
	}
	for l := range toolkit.Listeners(d, draft.Inbound) {
		if in := rules.Inbound(l.Inbound); in != nil {
			toolkit.WarnNoMTLS(c, in.Matched, l)
			toolkit.InspectServerName(c, l, in.Matched)
			Inject(l, ofRules(c, in))
		}
	}
}

// Inject inserts filters before the router of an inbound.
func Inject(l *draft.Listener, filters []draft.Extension) {
	for _, ch := range l.Chains {
		if ch.HTTP != nil && len(filters) > 0 {
			toolkit.BeforeRouter(ch.HTTP, filters...)
		}
	}
}

// ofRules returns the filters of an inbound: those of each entry of rules, which act on all clients
// that the entry matches, then those of from for the smallest groups of clients.
func ofRules(c *policy.Context, in *policy.InboundRules) []draft.Extension {
	var out []draft.Extension
	add := func(r *policy.Rule, m *resource.ClientMatch, clients []*routev3.HeaderMatcher) {
		conf := toolkit.Conf[Conf](r)
		if conf == nil || conf.HTTP == nil {
			return
		}
		for i := range *conf.HTTP {
			f, err := toolkit.ForServerName((*conf.HTTP)[i].Filter(clients), m)
			if err != nil {
				toolkit.WarnOrigins(c, r, "the fault http[%d] was dropped, because Envoy would reject it: %v", i, err)
				continue
			}
			out = append(out, f)
		}
	}
	for _, m := range in.Matched {
		add(&m.Rule, &m.Match, toolkit.OfMatch(&m.Match))
	}
	for _, r := range in.Rules {
		add(r, &resource.ClientMatch{}, ofSubset(r.Subset))
	}
	return out
}

// ofSubset returns matchers for requests of clients of a subset: one matcher for all required tags,
// and one for each excluded tag.
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

// Conf holds the faults of a group of clients. Each has a separate percentage, so several may apply
// to a request.
type Conf struct {
	HTTP *[]Fault `json:"http,omitempty"` // overrides the lists of weaker policies, even if it is empty
}

// Fits reports whether a field applies to a protocol.
func (*Conf) Fits(_ string, p mesh.Protocol) bool {
	return p.HTTP()
}

// Fault is applied to a percentage of the requests.
type Fault struct {
	Abort             *Abort     `json:"abort,omitempty"`
	Delay             *Delay     `json:"delay,omitempty"`
	ResponseBandwidth *Bandwidth `json:"responseBandwidth,omitempty"`
}

// Abort responds instead of the workload.
type Abort struct {
	HTTPStatus *uint32           `json:"httpStatus,omitempty"`
	Percentage *resource.Decimal `json:"percentage,omitempty"`
}

// Delay delays the request.
type Delay struct {
	Value      *resource.Duration `json:"value,omitempty"`
	Percentage *resource.Decimal  `json:"percentage,omitempty"`
}

// Bandwidth slows down the response.
type Bandwidth struct {
	Limit      string            `json:"limit,omitempty"` // "10kbps", "10 Mbps"
	Percentage *resource.Decimal `json:"percentage,omitempty"`
}

// MaxFaults limits the faults of a group of clients: each is a filter that every request passes.
const MaxFaults = 100

// Validate validates each fault.
func (c *Conf) Validate(v *resource.Validator) {
	if c.HTTP == nil {
		return // the conf is empty, which overrides nothing
	}
	if v = v.Field("http"); toolkit.AtMost(v, len(*c.HTTP), MaxFaults, "faults") {
		for i := range *c.HTTP {
			(*c.HTTP)[i].Check(v.Index(i), false)
		}
	}
}

// Check validates the fault. If lowercase is true, the units mbps and gbps are also valid, as for
// FaultInjection.
func (f *Fault) Check(v *resource.Validator, lowercase bool) {
	if *f == (Fault{}) {
		v.Faultf("the fault is empty: give abort, delay, responseBandwidth or several of them")
	}
	if a := f.Abort; a != nil {
		v := v.Field("abort")
		switch at := v.Field("httpStatus"); {
		case a.HTTPStatus == nil:
			at.Faultf("the status is missing: give 200 to 599")
		case *a.HTTPStatus < 200 || *a.HTTPStatus > 599:
			at.Faultf("%d is not a valid status: give 200 to 599", *a.HTTPStatus)
		}
		validateShare(v.Field("percentage"), a.Percentage)
	}
	if d := f.Delay; d != nil {
		v := v.Field("delay")
		switch at := v.Field("value"); {
		case d.Value == nil:
			at.Faultf(`the delay is missing: give a duration like "5s"`)
		case d.Value.Duration <= 0:
			at.Faultf("%s is not a delay: give more than 0s", d.Value.Duration)
		}
		validateShare(v.Field("percentage"), d.Percentage)
	}
	if b := f.ResponseBandwidth; b != nil {
		v := v.Field("responseBandwidth")
		if _, reason := readBandwidth(b.Limit, lowercase); reason != "" {
			v.Field("limit").Faultf("%s", reason)
		}
		validateShare(v.Field("percentage"), b.Percentage)
	}
}

// Filter returns the filter that applies the fault to requests of some clients.
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
		kbps, _ := readBandwidth(b.Limit, true) // validated
		m.ResponseRateLimit = &commonv3.FaultRateLimit{
			LimitType: &commonv3.FaultRateLimit_FixedLimit_{
				FixedLimit: &commonv3.FaultRateLimit_FixedLimit{LimitKbps: kibibytes(kbps)},
			},
			Percentage: toolkit.Fraction(b.Percentage),
		}
	}
	return draft.Extension{Name: nameFault, Message: m}
}

// unit is the smallest percentage of requests that Envoy distinguishes from 0: one in a million.
const unit = 0.0001

func validateShare(v *resource.Validator, percentage *resource.Decimal) {
	if percentage == nil {
		v.Faultf(`the percentage is missing: give a number from 0 to 100, and quote fractions like "2.5"`)
		return
	}
	v.Percentage(percentage)
	if f := percentage.Float(); f > 0 && f < unit {
		v.Faultf("%s is too small: give 0, or at least %v", percentage, unit)
	}
}

// kibibytes converts a bandwidth to KiB/s, the unit of Envoy's limit_kbps. It returns at least 1.
func kibibytes(kbps uint64) uint64 { return max(1, (kbps*1000+4096)/8192) }

// readBandwidth parses a bandwidth and returns it in kbps, or the reason why it is invalid. If
// lowercase is true, the units mbps and gbps are also valid.
func readBandwidth(s string, lowercase bool) (kbps uint64, reason string) {
	const wanted = `a whole number with the unit kbps, Mbps or Gbps, for example "50kbps"`
	if s == "" {
		return 0, "the limit is missing: give " + wanted
	}
	digits := strings.TrimLeft(s, "0123456789")
	number, unit := s[:len(s)-len(digits)], strings.TrimPrefix(digits, " ")
	factor := map[string]uint64{"kbps": 1, "Mbps": 1_000, "Gbps": 1_000_000, "mbps": 1_000, "gbps": 1_000_000}[unit]
	if factor == 0 || number == "" || !lowercase && (unit[0] == 'm' || unit[0] == 'g') {
		return 0, fmt.Sprintf("%.40q is not a bandwidth: give %s", s, wanted)
	}
	n, err := strconv.ParseUint(number, 10, 32) // 32 bits, so that no unit overflows here or in Envoy
	switch {
	case err != nil:
		return 0, fmt.Sprintf("%.40q is out of range: the maximum is %d of any unit", s, uint32(math.MaxUint32))
	case n == 0:
		return 0, fmt.Sprintf("%.40q stops all traffic: give at least 1kbps, or use abort", s)
	}
	return n * factor, ""
}
