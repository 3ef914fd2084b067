// Package legacy is RateLimit, which MeshRateLimit replaces: its conf, its effect and its migration.
//
// Its policies act on the requests that inbounds receive, and tell clients by the tags that their proxies send: of
// several the one with the narrowest sources counts.
package legacy

import (
	"fmt"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/kinds/ratelimit"
	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
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
		Apply:      apply,
		Migrate:    migrate,
	}
}

// limited is a policy with its limit as Envoy takes it.
type limited struct {
	clients []*routev3.HeaderMatcher
	limit   *anypb.Any
}

// apply puts routes for the clients of each policy, with the limit, before those of an inbound.
func apply(c *policy.Context, d *draft.Draft) {
	if !c.Rules.Legacy(kind) {
		return
	}
	for l := range toolkit.Listeners(d, draft.Inbound) {
		var list []limited
		for _, p := range slices.SortedStableFunc(slices.Values(c.Rules.LegacyInbound(kind, l.Inbound)), toolkit.CompareSources) {
			conf := toolkit.LegacyConf[Conf](p)
			if conf == nil || conf.HTTP == nil {
				continue
			}
			limit := conf.HTTP.current().Limit(func(format string, args ...any) { c.Host.Warn(p.Key, format, args...) })
			if limit != nil {
				list = append(list, limited{toolkit.OfSources(p.Spec.(*resource.LegacyPolicy).Sources), limit})
			}
		}
		for _, ch := range l.Chains {
			if ch.HTTP == nil || ch.HTTP.Routes == nil || len(list) == 0 {
				continue
			}
			for _, host := range ch.HTTP.Routes.VirtualHosts {
				host.Routes = slices.Concat(routesOf(host.Routes, list), host.Routes)
			}
			ratelimit.Enforce(ch.HTTP)
		}
	}
}

// routesOf copies routes for the clients of each policy.
func routesOf(routes []*routev3.Route, list []limited) []*routev3.Route {
	out := make([]*routev3.Route, 0, len(routes)*len(list))
	for i := range list {
		for _, r := range routes {
			r = proto.Clone(r).(*routev3.Route)
			if r.Match == nil {
				continue // takes no request
			}
			r.Match.Headers = append(r.Match.Headers, list[i].clients...)
			ratelimit.Put(r, list[i].limit)
			out = append(out, r)
		}
	}
	return out
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

// defaultStatus is Envoy's answer beyond the limit.
const defaultStatus = 429

// migrate makes a MeshRateLimit of each RateLimit about all clients: MeshRateLimit does not tell them apart.
func migrate(in *policy.MigrateInput) policy.Migration {
	var out policy.Migration
	some := *in
	some.Policies = nil
	for _, r := range in.Policies {
		if spec, ok := r.Spec.(*resource.LegacyPolicy); ok && !forAll(spec.Sources) {
			out.Without = append(out.Without, policy.WithoutSuccessor{Policy: r.Key, Why: "MeshRateLimit does not tell clients apart, and this limit is for some of them: choose a limit for all"})
			continue
		}
		some.Policies = append(some.Policies, r)
	}
	narrow := len(out.Without) > 0
	plan := some.Plan(policy.PlanOptions{Kinds: []string{ratelimit.Kind}, Inbound: true, SupersededBy: toolkit.SupersededByAny(in, ratelimit.Kind)})
	out.Without = append(out.Without, plan.Without...)
	confs := map[*policy.Unit]*ratelimit.HTTP{}
	for _, u := range plan.Units { // the weakest first
		old := toolkit.LegacyConf[Conf](u.Policy)
		if old == nil || old.HTTP == nil {
			continue
		}
		conf := old.HTTP.current()
		for _, w := range u.Weaker {
			over(conf, confs[w], &u.Notes)
		}
		confs[u] = conf
		policy.AddNote(&u.Notes, "it also limits clients outside the mesh, which send no tags; RateLimit was about clients with tags alone")
		out.Policies = append(out.Policies, policy.Migrated{
			Kind: ratelimit.Kind, Name: u.Name, From: []resource.Key{u.Policy.Key}, Notes: u.Notes,
			Spec: &resource.Policy{TargetRef: toolkit.OfSidecars(u.Target), From: []resource.PolicyItem{{
				TargetRef: resource.TargetRef{Kind: "Mesh"}, Conf: &ratelimit.Conf{Local: &ratelimit.Local{HTTP: conf}},
			}}},
		})
	}
	out.Changes = changes(narrow)
	return out
}

// forAll reports whether one of the sources is every service of the mesh.
func forAll(sources []resource.LegacySelector) bool {
	return slices.ContainsFunc(sources, func(s resource.LegacySelector) bool {
		return len(s.Match) == 1 && s.Match[resource.TagService] == "*"
	})
}

// over gives what a weaker policy gives: source-destination policies are not merged.
func over(h, weak *ratelimit.HTTP, notes *[]string) {
	if weak == nil || weak.OnRateLimit == nil {
		return
	}
	if h.OnRateLimit == nil {
		h.OnRateLimit = &ratelimit.OnRateLimit{}
	}
	if h.OnRateLimit.Status == nil && weak.OnRateLimit.Status != nil {
		h.OnRateLimit.Status = new(uint32(defaultStatus))
	}
	if w := weak.OnRateLimit.Headers; w != nil && (h.OnRateLimit.Headers == nil || len(h.OnRateLimit.Headers.Set) == 0 && len(w.Set) > 0 || len(h.OnRateLimit.Headers.Add) == 0 && len(w.Add) > 0) {
		policy.AddNote(notes, "a weaker policy gives headers to answers, and merging cannot take them away: answers beyond this limit have them too")
	}
}

// changes explains what MeshRateLimit writes otherwise than RateLimit. narrow is true where limits for some clients are
// left out.
func changes(narrow bool) []policy.Change {
	const manager = "Listener/*/filterChains/*/filters/envoy.filters.network.http_connection_manager/typedConfig/"
	why := "the limit is for all requests, so it needs no route of its own for clients with tags"
	if narrow {
		why = fmt.Sprintf("limits for all clients need no route of their own, and those for some clients end: %s does not tell them apart", ratelimit.Kind)
	}
	var out []policy.Change
	for _, path := range []string{
		"RouteConfiguration/*/virtualHosts/*/routes/**", manager + "routeConfig/virtualHosts/*/routes/**",
		manager + "httpFilters/envoy.filters.http.local_ratelimit/**",
	} {
		out = append(out, policy.Change{Path: path, Before: policy.Any, After: policy.Any, Why: why})
	}
	return out
}
