// Package legacy is RateLimit, which MeshRateLimit replaces: its conf, its effect and its
// migration.
//
// Its policies act on the requests that inbounds receive, and tell clients by the tags that their
// proxies send: of several the one with the narrowest sources counts. Requests to services outside
// of the mesh, which no inbound receives, are limited where they leave it: by the proxy of the
// client, or by the egress.
package legacy

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/ratelimit"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

const kind = "RateLimit"

// Kind declares the kind and its effect.
func Kind() policy.LegacyKind {
	return policy.LegacyKind{
		Descriptor: resource.LegacyDescriptor(kind, "rate-limits", "", resource.LegacyShape{
			NewConf: func() resource.Conf { return new(Conf) }, ConfRequired: true,
		}),
		ReplacedBy: []string{ratelimit.Kind},
		Inbound:    true,
		AllApply:   true,
		Leaving:    isOutside,
		SupersededBy: func(r *policy.Rules, s draft.Service, _ string) *resource.Resource {
			return toolkit.SupersedingRoute(r, s)
		},
		Apply:   apply,
		Egress:  atEgress,
		Migrate: migrate,
	}
}

// apply limits the requests that inbounds receive, and those that leave for services outside of the
// mesh.
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
	x := leaving{c: c, limits: map[*resource.Resource]*anypb.Any{}}
	for l := range toolkit.Listeners(d, draft.Outbound) {
		if toolkit.SupersedingRoute(c.Rules, l.Service) != nil {
			continue
		}
		for _, ch := range l.Chains {
			x.limit(ch.HTTP)
		}
	}
}

// atEgress limits the requests that an egress hands on to destinations outside of the mesh.
func atEgress(to []*policy.Outside, ch *draft.Chain, warn policy.Warn) {
	var about []*resource.Resource
	for _, o := range to {
		for _, p := range o.Rules.LegacyInbound(kind, 0) {
			if !slices.Contains(about, p) {
				about = append(about, p)
			}
		}
	}
	ratelimit.Divide(ch.HTTP, limitsOf(about, warn))
}

// limitsOf are the limits of policies, each for its clients, the narrowest sources first.
func limitsOf(policies []*resource.Resource, warn policy.Warn) []ratelimit.Limited {
	var out []ratelimit.Limited
	for _, p := range slices.SortedStableFunc(slices.Values(policies), toolkit.CompareSources) {
		if limit := limitOf(p, warn); limit != nil {
			out = append(out,
				ratelimit.Limited{Clients: toolkit.OfSources(p.Spec.(*resource.LegacyPolicy).Sources), Limit: limit})
		}
	}
	return out
}

// limitOf is the limit of a policy as Envoy takes it, nil for none.
func limitOf(p *resource.Resource, warn policy.Warn) *anypb.Any {
	conf := toolkit.LegacyConf[Conf](p)
	if conf == nil || conf.HTTP == nil {
		return nil
	}
	return conf.HTTP.current().Limit(func(format string, args ...any) { warn(p.Key, format, args...) })
}

// Conf is what one RateLimit allows.
type Conf struct {
	HTTP *HTTP `json:"http,omitempty"`
}

// HTTP limits requests.
type HTTP struct {
	Requests    *uint32            `json:"requests,omitempty" check:"atLeastOne"`
	Interval    *resource.Duration `json:"interval,omitempty"`
	OnRateLimit *OnRateLimit       `json:"onRateLimit,omitempty"`
}

// OnRateLimit is the answer to a request beyond the limit.
type OnRateLimit struct {
	Status  *uint32  `json:"status,omitempty"` // 429 when there is none
	Headers []Header `json:"headers,omitempty"`
}

// Header is one of the answer.
type Header struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Append *bool  `json:"append,omitempty"` // false, the default: replaces what is there
}

// Validate checks the limit.
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
		at, name := list.Index(i), strings.ToLower(h.Key)
		at.Field("key").HeaderName(name)
		switch {
		case name == "host":
			at.Field("key").Faultf("an answer has no header host: remove it")
		case seen[name]:
			at.Field("key").Faultf("the header %s is given twice: give it once", toolkit.Clip(name))
		}
		seen[name] = true
		at.Field("value").HeaderValue(h.Value)
		ratelimit.CheckHeader(at.Field("value"), h.Value)
	}
}

// current is the limit of a MeshRateLimit with the same values.
func (h *HTTP) current() *ratelimit.HTTP {
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
		into := &out.OnRateLimit.Headers.Set
		if toolkit.Or(h.Append, false) {
			into = &out.OnRateLimit.Headers.Add
		}
		*into = append(*into, toolkit.HeaderValue{Name: strings.ToLower(h.Key), Value: h.Value})
	}
	return out
}
