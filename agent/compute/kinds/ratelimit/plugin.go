// Package ratelimit implements MeshRateLimit: limits on the requests and connections that an
// inbound accepts per interval. Each proxy counts separately. Rules identify clients by the SPIFFE
// IDs in their certificates, only for requests; from does not distinguish clients.
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
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Kind is the policy kind of the plugin.
const Kind = "MeshRateLimit"

// Plugin declares the kind with the legacy kinds that it replaces.
func Plugin(legacy ...policy.LegacyKind) policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(Kind, "meshratelimits", "mrl", resource.PolicyShape{
			Top:       toolkit.Proxies(),
			TopToOnly: []string{"MeshGateway", "MeshHTTPRoute"},
			From:      []string{"Mesh"},
			To:        []string{"Mesh"},
			Rules:     true, RuleMatches: true, FromAsRules: true,
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

// Names of Envoy's filters. Kuma names the connection limit by its type.
const (
	nameHTTPLimit = "envoy.filters.http.local_ratelimit"
	nameTCPLimit  = "envoy.extensions.filters.network.local_ratelimit.v3.LocalRateLimit"
)

// apply adds the limits of each inbound to all of its chains.
func apply(c *policy.Context, d *draft.Draft) {
	rules := c.Rules.Kind(Kind)
	if rules == nil {
		return
	}
	if c.Last {
		toolkit.WarnToOfGateways(c, rules, "limit requests at inbounds")
	}
	for l := range toolkit.Listeners(d, draft.Inbound) {
		rule := rules.InboundAll(l.Inbound)
		if conf := toolkit.Conf[Conf](rule); conf != nil && conf.Local != nil {
			limitRequests(c, rule, conf.Local.HTTP, l.Chains)
			limitConnections(conf.Local.TCP, l.Chains)
		}
		if in := rules.Inbound(l.Inbound); in != nil && len(in.Matched) > 0 {
			limitClients(c, in, l)
		}
	}
}

// limitClients adds the limits of clients identified by certificates. Each group has a separate
// limit instead of the one for all clients.
func limitClients(c *policy.Context, in *policy.InboundRules, l *draft.Listener) {
	toolkit.WarnNoMTLS(c, in.Matched, l)
	toolkit.RecordServerName(c, l, in.Matched)
	list := make([]Limited, len(in.Matched))
	for i, m := range in.Matched {
		list[i].Narrow = func(r *routev3.RouteMatch) { toolkit.NarrowRoute(r, &m.Match) }
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

// limits reports whether the merged conf limits requests.
func (h *HTTP) limits() bool {
	return h != nil && !toolkit.Or(h.Disabled, false) && h.RequestRate.set()
}

// limitRequests adds the limit to every route, and the filter that applies it to every connection
// manager.
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

// Limit returns the limit of requests as the config of a route, or nil if Envoy would reject it.
// warn reports dropped settings.
func (h *HTTP) Limit(warn func(format string, args ...any)) *anypb.Any {
	m := requests(h)
	if n := len(m.ResponseHeadersToAdd); n > MaxHeaders {
		m.ResponseHeadersToAdd = m.ResponseHeadersToAdd[:MaxHeaders]
		warn("the merged policies set %d response headers, and Envoy accepts %d; the others were dropped",
			n, MaxHeaders)
	}
	packed, err := draft.Extension{Name: nameHTTPLimit, Message: m}.Pack()
	if err != nil {
		warn("the request limit was dropped, because Envoy would reject it: %v", err)
		return nil
	}
	return packed
}

// Put adds a limit to the filter config of a route or of a route's cluster.
func Put(config *map[string]*anypb.Any, limit *anypb.Any) {
	if *config == nil {
		*config = make(map[string]*anypb.Any, 1)
	}
	(*config)[nameHTTPLimit] = limit
}

// Limited is the limit of some clients; nil for no limit.
type Limited struct {
	Narrow func(*routev3.RouteMatch) // restricts a route to the clients
	Limit  *anypb.Any
}

// Divide inserts copies of the routes before the existing ones for the clients of each entry. Only
// the first entry that matches a client applies to it.
func Divide(h *draft.HTTP, list []Limited) {
	if h == nil || h.Routes == nil || len(list) == 0 {
		return
	}
	toolkit.DivideRoutes(h, len(list), func(i int, r *routev3.Route) {
		list[i].Narrow(r.Match)
		delete(r.TypedPerFilterConfig, nameHTTPLimit)
		if list[i].Limit != nil {
			Put(&r.TypedPerFilterConfig, list[i].Limit)
		}
	})
	Enforce(h)
}

// Enforce adds the filter that applies the limits of routes, unless it is present.
func Enforce(h *draft.HTTP) {
	if slices.ContainsFunc(h.Filters, func(f draft.Extension) bool { return f.Name == nameHTTPLimit }) {
		return
	}
	toolkit.BeforeRouter(h,
		draft.Extension{Name: nameHTTPLimit, Message: &httplimitv3.LocalRateLimit{StatPrefix: "rate_limit"}})
}

// requests returns the limit of requests as an Envoy message.
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

// always returns a fraction of 100 %, which the runtime may override by key.
func always(key string) *corev3.RuntimeFractionalPercent {
	return &corev3.RuntimeFractionalPercent{DefaultValue: &typev3.FractionalPercent{Numerator: 100}, RuntimeKey: key}
}

// limitConnections inserts the limit as the first filter of every chain.
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

// set reports whether the merged conf has a complete rate.
func (r *Rate) set() bool { return r != nil && r.Num != nil && r.Interval != nil }

// bucket returns a bucket with num tokens that is refilled after each interval.
func (r *Rate) bucket() *typev3.TokenBucket {
	return &typev3.TokenBucket{
		MaxTokens:     *r.Num,
		TokensPerFill: toolkit.UInt32(r.Num),
		FillInterval:  toolkit.Duration(r.Interval),
	}
}

// Conf is the conf of a MeshRateLimit. Kuma has only local limits, which each proxy counts
// separately.
type Conf struct {
	Local *Local `json:"local,omitempty"`
}

// Local holds the limits of requests and connections.
type Local struct {
	HTTP *HTTP `json:"http,omitempty"`
	TCP  *TCP  `json:"tcp,omitempty"`
}

// HTTP limits requests.
type HTTP struct {
	Disabled    *bool        `json:"disabled,omitempty"` // disables the limit of weaker policies
	RequestRate *Rate        `json:"requestRate,omitempty"`
	OnRateLimit *OnRateLimit `json:"onRateLimit,omitempty"`
}

// TCP limits connections.
type TCP struct {
	Disabled       *bool `json:"disabled,omitempty"`
	ConnectionRate *Rate `json:"connectionRate,omitempty"`
}

// Rate is a number of requests or connections per interval.
type Rate struct {
	Num      *uint32            `json:"num,omitempty" check:"atLeastOne"`
	Interval *resource.Duration `json:"interval,omitempty"`
}

// OnRateLimit is the response to a request above the limit.
type OnRateLimit struct {
	Status  *uint32               `json:"status,omitempty"` // Default 429
	Headers *toolkit.HeaderValues `json:"headers,omitempty"`
}

const (
	// minInterval is the exclusive minimum, because Envoy limits how often tokens are added.
	minInterval = 50 * time.Millisecond
	// MaxHeaders is Envoy's limit for response headers in LocalRateLimit.
	MaxHeaders = 10
	// maxHeaderValue is Envoy's limit for the length of a header value in bytes.
	maxHeaderValue = 16384
	// NoHost explains why a response cannot set the header host.
	NoHost = "a response has no header host"
)

// Validate validates the limits.
func (c *Conf) Validate(v *resource.Validator) {
	v = v.Field("local")
	switch l := c.Local; {
	case l == nil:
		v.Faultf("the limits are missing: give http, tcp or both")
	case l.HTTP == nil && l.TCP == nil:
		v.Faultf("the conf is empty: give http, tcp or both")
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
		v.Faultf("no field is set: give requestRate, onRateLimit or disabled")
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
		v.Faultf("no field is set: give connectionRate or disabled")
	}
	t.ConnectionRate.validate(v.Field("connectionRate"))
}

func (r *Rate) validate(v *resource.Validator) {
	if r == nil {
		return
	}
	if r.Num == nil {
		v.Field("num").Faultf("the number is missing: give at least 1")
	}
	CheckInterval(v.Field("interval"), r.Interval)
}

// checkMatched rejects connection limits in entries with matches.
func checkMatched(p *resource.Policy, v *resource.Validator) {
	for i := range p.Rules {
		if c, ok := p.Rules[i].Conf.(*Conf); ok && len(p.Rules[i].Matches) > 0 && c.Local != nil && c.Local.TCP != nil {
			v.Field("rules").Index(i).Field("default").Field("local").Field("tcp").
				Faultf("Envoy counts a connection before it knows the client certificate: give tcp in an entry without matches, " +
					"or only http")
		}
	}
}

// CheckInterval validates the interval of a rate.
func CheckInterval(v *resource.Validator, d *resource.Duration) {
	switch {
	case d == nil:
		v.Faultf(`the interval is missing: give a duration like "1s"`)
	case d.Duration <= minInterval:
		v.Faultf("%s is too short: give more than %s", d, minInterval)
	}
}

func (o *OnRateLimit) validate(v *resource.Validator) {
	CheckStatus(v.Field("status"), o.Status)
	if o.Headers == nil {
		return
	}
	v = v.Field("headers")
	if n := len(o.Headers.Set) + len(o.Headers.Add); n > MaxHeaders {
		v.Faultf("%d headers are given, and Envoy accepts at most %d in set and add", n, MaxHeaders)
	}
	o.Headers.Check(v, NoHost, CheckHeader)
}

// CheckHeader validates the value of a response header.
func CheckHeader(at *resource.Validator, s string) {
	switch {
	case s == "":
		at.Faultf("the value is empty: give a value or remove the header")
	case len(s) > maxHeaderValue:
		at.Faultf("the value has %d bytes, and at most %d are allowed", len(s), maxHeaderValue)
	case strings.Contains(strings.ReplaceAll(s, "%%", ""), "%"):
		at.Faultf("a single %% begins an Envoy format command, which is not allowed here: write %%%% for a percent sign")
	}
}

// CheckStatus validates the status of a response. It accepts nil.
func CheckStatus(v *resource.Validator, s *uint32) {
	if s != nil && !status(*s) {
		v.Faultf("%d is not a status with which Envoy rejects requests: give one of 400 to 599 that RFC 9110 or its "+
			"extensions define, for example 429", *s)
	}
}

// status reports whether Envoy uses the status for requests above the limit: its StatusCode
// includes it, and it is an error. Envoy replaces any other status by 429.
func status(code uint32) bool {
	_, known := typev3.StatusCode_name[int32(min(code, 1000))]
	return known && code >= 400
}
