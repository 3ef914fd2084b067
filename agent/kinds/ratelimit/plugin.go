// Package ratelimit is the plugin of MeshRateLimit: how many requests and connections an inbound takes in a span of
// time. Each proxy counts by itself; clients are not told apart.
package ratelimit

import (
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	httplimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/local_ratelimit/v3"
	netlimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/local_ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

const kind = "MeshRateLimit"

// Plugin declares the kinds and their effect.
func Plugin() policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(kind, "meshratelimits", "mrl", resource.PolicyShape{
			Top:       toolkit.Proxies(),
			TopToOnly: []string{"MeshGateway", "MeshHTTPRoute"},
			From:      []string{"Mesh"},
			To:        []string{"Mesh"},
			NewConf:   func() resource.Conf { return new(Conf) },
			Check: func(p *resource.Policy, v *resource.Validator) {
				toolkit.ToOfGateways(p, v, "MeshGateway or MeshHTTPRoute")
			},
		})},
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
	rules := c.Rules.Kind(kind)
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
	}
}

// limitRequests gives every route the limit, and every connection manager the filter that looks for it there.
func limitRequests(c *policy.Context, rule *policy.Rule, h *HTTP, chains []*draft.Chain) {
	if h == nil || toolkit.Or(h.Disabled, false) || !h.RequestRate.set() {
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
				toolkit.WarnOrigins(c, rule, "the policies together give %d headers to answers beyond the limit, Envoy takes %d: the rest is left out", n, maxHeaders)
			}
			packed, err := draft.Extension{Name: nameHTTPLimit, Message: m}.Pack()
			if err != nil {
				toolkit.WarnOrigins(c, rule, "the limit of requests is left out, as Envoy would refuse it: %v", err)
				return
			}
			limit = packed
		}
		for r := range toolkit.Routes(ch.HTTP) {
			if r.TypedPerFilterConfig == nil {
				r.TypedPerFilterConfig = make(map[string]*anypb.Any, 1)
			}
			r.TypedPerFilterConfig[nameHTTPLimit] = limit
		}
		toolkit.BeforeRouter(ch.HTTP, draft.Extension{Name: nameHTTPLimit, Message: &httplimitv3.LocalRateLimit{StatPrefix: "rate_limit"}})
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
