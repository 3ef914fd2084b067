// Package ratelimit is the plugin of MeshRateLimit: how many requests and connections an inbound
// takes in a span of time. Each proxy counts by itself. Clients of rules are told by the SPIFFE IDs
// in their certificates, for requests alone; those of from are not told apart.
package ratelimit

import (
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	httplimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/local_ratelimit/v3"
	netlimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/local_ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Kind is the kind of the plugin's policies.
const Kind = "MeshRateLimit"

// Plugin declares the kind and its effect, beside the kinds that it replaces.
func Plugin(legacy ...policy.LegacyKind) policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(Kind, "meshratelimits", "mrl", resource.PolicyShape{
			Top:       toolkit.Proxies(),
			TopToOnly: []string{"MeshGateway", "MeshHTTPRoute"},
			From:      []string{"Mesh"},
			To:        []string{"Mesh"},
			Rules:     true, RuleMatches: true,
			NewConf: func() resource.Conf { return new(Conf) },
			Check: func(p *resource.Policy, v *resource.Validator) {
				toolkit.ToOfGateways(p, v, "MeshGateway or MeshHTTPRoute")
				toolkit.FromOfSidecars(p, v)
				checkMatched(p, v)
			},
		})},
		Legacy:  legacy,
		Filters: []string{nameHTTPLimit, nameTCPLimit},
		Apply:   apply,
	}
}

// Names of Envoy's filters. That for connections is known by its type, as Kuma has it.
const (
	nameHTTPLimit = "envoy.filters.http.local_ratelimit"
	nameTCPLimit  = "envoy.extensions.filters.network.local_ratelimit.v3.LocalRateLimit"
)

// apply puts the limits of each inbound into all of its chains.
func apply(c *policy.Context, d *draft.Draft) {
	rules := c.Rules.Kind(Kind)
	if rules == nil {
		return
	}
	if c.Last {
		toolkit.WarnToOfGateways(c, rules, "limit requests where they arrive")
	}
	for l := range toolkit.Listeners(d, draft.Inbound) {
		rule := rules.InboundAll(l.Inbound)
		if conf := toolkit.Conf[Conf](rule); conf != nil && conf.Local != nil {
			limitRequests(c, rule, conf.Local.HTTP, l.Chains)
			limitConnections(conf.Local.TCP, l.Chains)
		}
		if in := rules.Inbound(l.Inbound); in != nil && len(in.Matched) > 0 {
			limitClients(c, rules, in, l)
		}
	}
}

// limitClients limits those whom the policies tell by their certificates, each group by a limit of
// its own in the place of that for all.
func limitClients(c *policy.Context, rules *policy.KindRules, in *policy.InboundRules, l *draft.Listener) {
	toolkit.WarnUntold(c, rules, l)
	list := make([]Limited, len(in.Matched))
	for i, m := range in.Matched {
		list[i].Clients = []*routev3.HeaderMatcher{toolkit.OfMatch(&m.Match, false)}
		if conf := toolkit.Conf[Conf](&m.Rule); conf != nil && conf.Local != nil && conf.Local.HTTP.limits() {
			list[i].Limit = conf.Local.HTTP.Limit(func(format string, args ...any) {
				toolkit.WarnOrigins(c, &m.Rule, format, args...)
			})
		}
	}
	for _, ch := range l.Chains {
		if ch.TLS {
			Divide(ch.HTTP, list)
		}
	}
}

// limits reports whether requests are limited, by whichever policies.
func (h *HTTP) limits() bool {
	return h != nil && !toolkit.Or(h.Disabled, false) && h.RequestRate.set()
}

// limitRequests gives every route the limit, and every connection manager the filter that looks for
// it there.
func limitRequests(c *policy.Context, rule *policy.Rule, h *HTTP, chains []*draft.Chain) {
	if !h.limits() {
		return
	}
	var limit *anypb.Any
	for _, ch := range chains {
		if ch.HTTP == nil || ch.HTTP.Routes == nil {
			continue
		}
		if limit == nil {
			if limit = h.Limit(func(format string, args ...any) {
				toolkit.WarnOrigins(c, rule, format, args...)
			}); limit == nil {
				return
			}
		}
		for r := range toolkit.Routes(ch.HTTP) {
			Put(&r.TypedPerFilterConfig, limit)
		}
		Enforce(ch.HTTP)
	}
}

// Limit is the limit of requests as a route has it, nil where Envoy would refuse it. warn is told
// of what is left out.
func (h *HTTP) Limit(warn func(format string, args ...any)) *anypb.Any {
	m := requests(h)
	if n := len(m.ResponseHeadersToAdd); n > MaxHeaders {
		m.ResponseHeadersToAdd = m.ResponseHeadersToAdd[:MaxHeaders]
		warn("the policies together give %d headers to answers beyond the limit, Envoy takes %d: the rest is left out",
			n, MaxHeaders)
	}
	packed, err := draft.Extension{Name: nameHTTPLimit, Message: m}.Pack()
	if err != nil {
		warn("the limit of requests is left out, as Envoy would refuse it: %v", err)
		return nil
	}
	return packed
}

// Put gives a route, or a cluster of one, a limit in its config of filters.
func Put(config *map[string]*anypb.Any, limit *anypb.Any) {
	if *config == nil {
		*config = make(map[string]*anypb.Any, 1)
	}
	(*config)[nameHTTPLimit] = limit
}

// Limited is the limit of some clients, nil for none.
type Limited struct {
	Clients []*routev3.HeaderMatcher
	Limit   *anypb.Any
}

// Divide puts copies of the routes of a connection manager before them, for the clients of each of
// a list: those who come first are subject to that limit alone.
func Divide(h *draft.HTTP, list []Limited) {
	if h == nil || h.Routes == nil || len(list) == 0 {
		return
	}
	for _, host := range h.Routes.VirtualHosts {
		out := make([]*routev3.Route, 0, len(host.Routes)*(len(list)+1))
		for i := range list {
			for _, r := range host.Routes {
				r = proto.Clone(r).(*routev3.Route)
				if r.Match == nil {
					continue // takes no request
				}
				r.Match.Headers = append(r.Match.Headers, list[i].Clients...)
				delete(r.TypedPerFilterConfig, nameHTTPLimit)
				if list[i].Limit != nil {
					Put(&r.TypedPerFilterConfig, list[i].Limit)
				}
				out = append(out, r)
			}
		}
		host.Routes = append(out, host.Routes...)
	}
	Enforce(h)
}

// Enforce adds the filter that looks for limits at routes, once.
func Enforce(h *draft.HTTP) {
	if slices.ContainsFunc(h.Filters, func(f draft.Extension) bool { return f.Name == nameHTTPLimit }) {
		return
	}
	toolkit.BeforeRouter(h,
		draft.Extension{Name: nameHTTPLimit, Message: &httplimitv3.LocalRateLimit{StatPrefix: "rate_limit"}})
}

// requests is the limit of requests as Envoy takes it.
func requests(h *HTTP) *httplimitv3.LocalRateLimit {
	out := &httplimitv3.LocalRateLimit{
		StatPrefix:     "rate_limit",
		TokenBucket:    h.RequestRate.bucket(),
		FilterEnabled:  always("local_rate_limit_enabled"),
		FilterEnforced: always("local_rate_limit_enforced"),
	}
	o := h.OnRateLimit
	if o == nil {
		return out
	}
	if o.Status != nil {
		out.Status = &typev3.HttpStatus{Code: typev3.StatusCode(*o.Status)}
	}
	if o.Headers != nil {
		out.ResponseHeadersToAdd = o.Headers.Options(func(s string) []string { return []string{s} })
	}
	return out
}

// always is a switch that is on for all requests, unless the runtime says otherwise under a key.
func always(key string) *corev3.RuntimeFractionalPercent {
	return &corev3.RuntimeFractionalPercent{DefaultValue: &typev3.FractionalPercent{Numerator: 100}, RuntimeKey: key}
}

// limitConnections makes the limit the first filter of every chain.
func limitConnections(t *TCP, chains []*draft.Chain) {
	if t == nil || toolkit.Or(t.Disabled, false) || !t.ConnectionRate.set() {
		return
	}
	for _, ch := range chains {
		filter := draft.Extension{Name: nameTCPLimit, Message: &netlimitv3.LocalRateLimit{
			StatPrefix: "tcp_rate_limit", TokenBucket: t.ConnectionRate.bucket(),
		}}
		ch.Network = slices.Concat([]draft.Extension{filter}, ch.Network)
	}
}

// set reports whether the rate was given, by whichever policies.
func (r *Rate) set() bool { return r != nil && r.Num != nil && r.Interval != nil }

// bucket holds a token for each of the number, and is filled at once after each interval.
func (r *Rate) bucket() *typev3.TokenBucket {
	return &typev3.TokenBucket{
		MaxTokens:     *r.Num,
		TokensPerFill: toolkit.UInt32(r.Num),
		FillInterval:  toolkit.Duration(r.Interval),
	}
}

// Conf holds the limits that a proxy counts by itself, which are all there are.
type Conf struct {
	Local *Local `json:"local,omitempty"`
}

// Local is the limits of requests and of connections.
type Local struct {
	HTTP *HTTP `json:"http,omitempty"`
	TCP  *TCP  `json:"tcp,omitempty"`
}

// HTTP limits requests.
type HTTP struct {
	Disabled    *bool        `json:"disabled,omitempty"` // takes the limit of weaker policies away
	RequestRate *Rate        `json:"requestRate,omitempty"`
	OnRateLimit *OnRateLimit `json:"onRateLimit,omitempty"`
}

// TCP limits connections.
type TCP struct {
	Disabled       *bool `json:"disabled,omitempty"`
	ConnectionRate *Rate `json:"connectionRate,omitempty"`
}

// Rate is a number in a span of time.
type Rate struct {
	Num      *uint32            `json:"num,omitempty" check:"atLeastOne"`
	Interval *resource.Duration `json:"interval,omitempty"`
}

// OnRateLimit is the answer to a request beyond the limit.
type OnRateLimit struct {
	Status  *uint32               `json:"status,omitempty"` // 429 when there is none
	Headers *toolkit.HeaderValues `json:"headers,omitempty"`
}

const (
	// minInterval is what Envoy's limit on how often tokens are added leaves out.
	minInterval = 50 * time.Millisecond
	// MaxHeaders bounds the headers of an answer, by the rules of Envoy's LocalRateLimit.
	MaxHeaders = 10
	// maxHeaderValue bounds the value of a header in bytes, by the rules of Envoy's HeaderValue.
	maxHeaderValue = 16384
)

// Validate checks the limits.
func (c *Conf) Validate(v *resource.Validator) {
	v = v.Field("local")
	switch l := c.Local; {
	case l == nil:
		v.Faultf("the limits are missing: give http, tcp or both")
	case l.HTTP == nil && l.TCP == nil:
		v.Faultf("the policy limits nothing: give http, tcp or both")
	default:
		l.HTTP.validate(v.Field("http"))
		l.TCP.validate(v.Field("tcp"))
	}
}

func (h *HTTP) validate(v *resource.Validator) {
	if h == nil {
		return
	}
	if h.Disabled == nil && h.RequestRate == nil && h.OnRateLimit == nil {
		v.Faultf("nothing is given: give requestRate, onRateLimit or disabled")
	}
	h.RequestRate.validate(v.Field("requestRate"))
	if o := h.OnRateLimit; o != nil {
		o.validate(v.Field("onRateLimit"))
	}
}

func (t *TCP) validate(v *resource.Validator) {
	if t == nil {
		return
	}
	if t.Disabled == nil && t.ConnectionRate == nil {
		v.Faultf("nothing is given: give connectionRate or disabled")
	}
	t.ConnectionRate.validate(v.Field("connectionRate"))
}

func (r *Rate) validate(v *resource.Validator) {
	if r == nil {
		return
	}
	if r.Num == nil {
		v.Field("num").Faultf("the number is missing: give 1 or more")
	}
	CheckInterval(v.Field("interval"), r.Interval)
}

// checkMatched refuses limits of connections for clients who are told by their certificates.
func checkMatched(p *resource.Policy, v *resource.Validator) {
	for i := range p.Rules {
		if c, ok := p.Rules[i].Conf.(*Conf); ok && len(p.Rules[i].Matches) > 0 && c.Local != nil && c.Local.TCP != nil {
			v.Field("rules").Index(i).Field("default").Field("local").Field("tcp").
				Faultf("a connection is counted before its client has shown a certificate: give tcp in an entry without matches, " +
					"or http alone")
		}
	}
}

// CheckInterval checks the interval of a rate.
func CheckInterval(v *resource.Validator, d *resource.Duration) {
	switch {
	case d == nil:
		v.Faultf(`the interval is missing: give a duration like "1s"`)
	case d.Duration <= minInterval:
		v.Faultf("%s is too short: an interval is longer than %s", d, minInterval)
	}
}

func (o *OnRateLimit) validate(v *resource.Validator) {
	CheckStatus(v.Field("status"), o.Status)
	if o.Headers == nil {
		return
	}
	v = v.Field("headers")
	if n := len(o.Headers.Set) + len(o.Headers.Add); n > MaxHeaders {
		v.Faultf("%d headers are given, Envoy takes at most %d in set and add together", n, MaxHeaders)
	}
	o.Headers.Check(v, "an answer has no header host", CheckHeader)
}

// CheckHeader checks the value of a header of an answer.
func CheckHeader(at *resource.Validator, s string) {
	switch {
	case s == "":
		at.Faultf("the value is empty: give one or remove the header")
	case len(s) > maxHeaderValue:
		at.Faultf("the value has %d bytes, at most %d are allowed", len(s), maxHeaderValue)
	case strings.Contains(strings.ReplaceAll(s, "%%", ""), "%"):
		at.Faultf("a single %% begins a command of Envoy, which has no place here: write %%%% for a percent sign")
	}
}

// CheckStatus checks the status of an answer, which may be open.
func CheckStatus(v *resource.Validator, s *uint32) {
	if s != nil && !status(*s) {
		v.Faultf("%d is not a status that Envoy refuses requests with: give one of 400 to 599 that RFC 9110 or its "+
			"extensions define, for example 429", *s)
	}
}

// status reports whether Envoy answers with a status when a request is beyond the limit: its
// StatusCode knows it and it is an error. With any other Envoy answers 429.
func status(code uint32) bool {
	_, known := typev3.StatusCode_name[int32(min(code, 1000))]
	return known && code >= 400
}
