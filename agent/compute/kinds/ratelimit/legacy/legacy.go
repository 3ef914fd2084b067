// Package legacy implements RateLimit, which MeshRateLimit replaces: its conf, effect, and
// migration.
//
// RateLimit policies limit the requests that inbounds receive. Clients are identified by the tags
// that their proxies send; only the policy with the most specific sources applies to a request.
// Requests to services outside the mesh are limited by the proxy of the client, or by the egress.
package legacy

import (
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/ratelimit"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/compute/precedence"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

const kind = "RateLimit"

// Kind declares the kind and its effect.
func Kind() policy.LegacyKind {
	return policy.LegacyKind{
		Descriptor: resource.LegacyDescriptor(kind, "rate-limits", "", resource.LegacyShape{
			NewConf: func() resource.Conf { return new(Conf) }, ConfRequired: true,
		}),
		ReplacedBy:  []string{ratelimit.Kind},
		Inbound:     true,
		AllApply:    true,
		OutboundToo: isOutside,
		SupersededBy: func(r *policy.Rules, s draft.Service, _ string) *resource.Resource {
			return toolkit.SupersedingRoute(r, s)
		},
		Apply:   apply,
		Egress:  atEgress,
		Migrate: migrate,
	}
}

// apply limits the requests that inbounds receive, and those to services outside the mesh.
func apply(c *policy.Context, d *draft.Draft) {
	if !c.Rules.Legacy(kind) {
		return
	}
	for l := range toolkit.Listeners(d, draft.Inbound) {
		list := limitsOf(c.Rules.LegacyInbound(kind, l.Inbound), c.Host.Warn)
		for _, ch := range l.Chains {
			ratelimit.Divide(ch.HTTP, list)
		}
	}
	x := outboundLimiter{c: c, limits: map[*resource.Resource]*anypb.Any{}}
	for l := range toolkit.Listeners(d, draft.Outbound) {
		if toolkit.SupersedingRoute(c.Rules, l.Service) != nil {
			continue
		}
		for _, ch := range l.Chains {
			x.limit(ch.HTTP)
		}
	}
}

// atEgress limits the requests that an egress forwards to destinations outside the mesh.
func atEgress(to []*policy.Outside, ch *draft.Chain, warn policy.Warn) {
	var policies []*resource.Resource
	for _, o := range to {
		for _, p := range o.Rules.LegacyInbound(kind, 0) {
			if !slices.Contains(policies, p) {
				policies = append(policies, p)
			}
		}
	}
	ratelimit.Divide(ch.HTTP, limitsOf(policies, warn))
}

// limitsOf returns the limits of policies with their clients, the most specific sources first. A
// policy whose sources have another policy between them has a separate limit for each part.
func limitsOf(policies []*resource.Resource, warn policy.Warn) []ratelimit.Limited {
	var out []ratelimit.Limited
	limits := map[*resource.Resource]*anypb.Any{}
	for _, s := range precedence.SplitSources(policies) {
		limit, known := limits[s.Policy]
		if !known {
			limit = limitOf(s.Policy, warn)
			limits[s.Policy] = limit
		}
		if limit != nil {
			clients := toolkit.OfSources(s.Selectors)
			out = append(out, ratelimit.Limited{Limit: limit, Narrow: func(r *routev3.RouteMatch) {
				r.Headers = append(r.Headers, clients...)
			}})
		}
	}
	return out
}

// limitOf returns the limit of a policy as an Envoy message, or nil.
func limitOf(p *resource.Resource, warn policy.Warn) *anypb.Any {
	conf := toolkit.LegacyConf[Conf](p)
	if conf == nil || conf.HTTP == nil {
		return nil
	}
	return conf.HTTP.converted().Limit(func(format string, args ...any) { warn(p.Key, format, args...) })
}

// Conf is the conf of a RateLimit.
type Conf struct {
	HTTP *HTTP `json:"http,omitempty"`
}

// Fits reports whether a field applies to a protocol.
func (*Conf) Fits(_ string, p mesh.Protocol) bool {
	return p.HTTP()
}

// HTTP limits requests.
type HTTP struct {
	Requests    *uint32            `json:"requests,omitempty" check:"atLeastOne"`
	Interval    *resource.Duration `json:"interval,omitempty"`
	OnRateLimit *OnRateLimit       `json:"onRateLimit,omitempty"`
}

// OnRateLimit is the response to a request above the limit.
type OnRateLimit struct {
	Status  *uint32  `json:"status,omitempty"` // Default 429
	Headers []Header `json:"headers,omitempty"`
}

// Header is a header of the response.
type Header struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Append *bool  `json:"append,omitempty"` // add instead of replace. Default false
}

// Validate validates the limit.
func (c *Conf) Validate(v *resource.Validator) {
	v = v.Field("http")
	if c.HTTP == nil {
		v.Faultf("the limit is missing: give requests and interval")
		return
	}
	if c.HTTP.Requests == nil {
		v.Field("requests").Faultf("the number is missing: give 1 or more")
	}
	ratelimit.CheckInterval(v.Field("interval"), c.HTTP.Interval)
	o := c.HTTP.OnRateLimit
	if o == nil {
		return
	}
	v = v.Field("onRateLimit")
	ratelimit.CheckStatus(v.Field("status"), o.Status)
	list := v.Field("headers")
	if !toolkit.AtMost(list, len(o.Headers), ratelimit.MaxHeaders, "headers") {
		return
	}
	seen := map[string]bool{}
	for i, h := range o.Headers {
		at := list.Index(i)
		toolkit.CheckHeader(at.Field("key"), at.Field("value"), h.value(), seen, ratelimit.NoHost, ratelimit.CheckHeader)
	}
}

// value returns the header with the name in lower case.
func (h *Header) value() toolkit.HeaderValue {
	return toolkit.HeaderValue{Name: strings.ToLower(h.Key), Value: h.Value}
}

// converted returns the limit of a MeshRateLimit with the same values.
func (h *HTTP) converted() *ratelimit.HTTP {
	out := &ratelimit.HTTP{RequestRate: &ratelimit.Rate{Num: h.Requests, Interval: h.Interval}}
	o := h.OnRateLimit
	if o == nil {
		return out
	}
	out.OnRateLimit = &ratelimit.OnRateLimit{Status: o.Status}
	if len(o.Headers) > 0 {
		out.OnRateLimit.Headers = &toolkit.HeaderValues{}
	}
	for _, h := range o.Headers {
		out.OnRateLimit.Headers.Put(h.value(), toolkit.Or(h.Append, false))
	}
	return out
}
