package ratelimit

import (
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	httplimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/local_ratelimit/v3"
	netlimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/local_ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// Names of Envoy's filters. That for connections is known by its type, as Kuma has it.
const (
	nameHTTPLimit = "envoy.filters.http.local_ratelimit"
	nameTCPLimit  = "envoy.extensions.filters.network.local_ratelimit.v3.LocalRateLimit"
)

// apply puts the limits of each inbound into all of its chains.
func apply(c *policy.Context, d *draft.Draft) {
	rules := c.Rules.Kind(kind)
	if rules == nil {
		return
	}
	if c.Last {
		warnOfGateways(c, rules)
	}
	for _, l := range d.Listeners {
		if l.Kind != draft.Inbound {
			continue
		}
		rule := rules.InboundAll(l.Inbound)
		if rule == nil {
			continue
		}
		conf, ok := rule.Conf.(*Conf)
		if !ok || conf.Local == nil {
			continue
		}
		limitRequests(c, rule, conf.Local.HTTP, l.Chains)
		limitConnections(conf.Local.TCP, l.Chains)
	}
}

// warnOfGateways says what is without effect: to is about the listeners of built-in gateways.
func warnOfGateways(c *policy.Context, rules *policy.KindRules) {
	for _, p := range rules.Policies {
		if spec, ok := p.Spec.(*resource.Policy); ok && len(spec.To) > 0 {
			c.Host.Warn(p.Key, "to has no effect on this proxy: it is about the listeners of built-in gateways; write from to limit requests where they arrive")
		}
	}
}

// limitRequests gives every route the limit, and every connection manager the filter that looks for it there.
func limitRequests(c *policy.Context, rule *policy.Rule, h *HTTP, chains []*draft.Chain) {
	if h == nil || h.Disabled != nil && *h.Disabled || !h.RequestRate.set() {
		return
	}
	var limit *anypb.Any
	for _, ch := range chains {
		if ch.HTTP == nil || ch.HTTP.Routes == nil {
			continue
		}
		if limit == nil {
			m := requests(h)
			if n := len(m.ResponseHeadersToAdd); n > maxHeaders {
				m.ResponseHeadersToAdd = m.ResponseHeadersToAdd[:maxHeaders]
				warn(c, rule, "the policies together give %d headers to answers beyond the limit, Envoy takes %d: the rest is left out", n, maxHeaders)
			}
			packed, err := draft.Extension{Name: nameHTTPLimit, Message: m}.Pack()
			if err != nil {
				warn(c, rule, "the limit of requests is left out, as Envoy would refuse it: %v", err)
				return
			}
			limit = packed
		}
		for _, host := range ch.HTTP.Routes.VirtualHosts {
			for _, r := range host.Routes {
				if r.TypedPerFilterConfig == nil {
					r.TypedPerFilterConfig = make(map[string]*anypb.Any, 1)
				}
				r.TypedPerFilterConfig[nameHTTPLimit] = limit
			}
		}
		filter := draft.Extension{Name: nameHTTPLimit, Message: &httplimitv3.LocalRateLimit{StatPrefix: "rate_limit"}}
		at := max(0, len(ch.HTTP.Filters)-1) // the router comes last
		ch.HTTP.Filters = slices.Concat(ch.HTTP.Filters[:at], []draft.Extension{filter}, ch.HTTP.Filters[at:])
	}
}

// warn tells the owners of all policies that made a rule.
func warn(c *policy.Context, rule *policy.Rule, format string, args ...any) {
	for _, o := range rule.Origins {
		c.Host.Warn(o.Policy.Key, format, args...)
	}
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
		for _, h := range o.Headers.Add {
			out.ResponseHeadersToAdd = append(out.ResponseHeadersToAdd, header(h, corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD))
		}
		for _, h := range o.Headers.Set {
			out.ResponseHeadersToAdd = append(out.ResponseHeadersToAdd, header(h, corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD))
		}
	}
	return out
}

func header(h Header, action corev3.HeaderValueOption_HeaderAppendAction) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: h.Name, Value: h.Value}, AppendAction: action}
}

// always is a switch that is on for all requests, unless the runtime says otherwise under a key.
func always(key string) *corev3.RuntimeFractionalPercent {
	return &corev3.RuntimeFractionalPercent{DefaultValue: &typev3.FractionalPercent{Numerator: 100}, RuntimeKey: key}
}

// limitConnections makes the limit the first filter of every chain.
func limitConnections(t *TCP, chains []*draft.Chain) {
	if t == nil || t.Disabled != nil && *t.Disabled || !t.ConnectionRate.set() {
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
		TokensPerFill: wrapperspb.UInt32(*r.Num),
		FillInterval:  durationpb.New(r.Interval.Duration),
	}
}
