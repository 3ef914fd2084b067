package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/envoy/match"
	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// Kinds whose part in a flow is found in another way than by the rules about its destination, and those of suggestions.
const (
	kindPassthrough = "MeshPassthrough"
	kindPermission  = "MeshTrafficPermission"
	kindHTTPRoute   = "MeshHTTPRoute"
	kindMesh        = "Mesh"
)

// shapes are the kinds that shape what a step is about.
func shapes(s *match.Step) []string {
	switch s.Level {
	case match.LevelTransportSocket:
		return []string{"MeshTLS"}
	case match.LevelNetworkFilter, match.LevelHTTPFilter:
		filter := strings.ToLower(s.Input + " " + s.Choice)
		switch {
		case strings.Contains(filter, "rbac"):
			return []string{kindPermission, "TrafficPermission"}
		case strings.Contains(filter, "fault"):
			return []string{"MeshFaultInjection", "FaultInjection"}
		case strings.Contains(filter, "ratelimit") || strings.Contains(filter, "rate_limit"):
			return []string{"MeshRateLimit", "RateLimit"}
		}
	case match.LevelVirtualHost:
		return []string{kindHTTPRoute, "MeshTCPRoute", "TrafficRoute"}
	case match.LevelRoute:
		return []string{kindHTTPRoute, "MeshTCPRoute", "TrafficRoute", "MeshTimeout", "Timeout", "MeshRetry", "Retry"}
	case match.LevelCluster:
		return []string{"MeshTCPRoute", "TrafficRoute", "MeshTimeout", "Timeout", "MeshCircuitBreaker", "CircuitBreaker", "MeshHealthCheck", "HealthCheck", "MeshLoadBalancingStrategy"}
	case match.LevelEndpoints:
		return []string{"MeshLoadBalancingStrategy"}
	case match.LevelAccessLog:
		return []string{"MeshAccessLog", "TrafficLog"}
	}
	return nil
}

// behind lists what a step follows from.
func (a *about) behind(s *match.Step) []FlowPolicy {
	out := []FlowPolicy{}
	switch {
	case s.Level == match.LevelListener || s.Level == match.LevelOriginalDst:
		out = append(out, a.destination()...)
	case a.passing() && (s.Level == match.LevelChain || s.Level == a.trace.At || s.Level == match.LevelVirtualHost || s.Level == match.LevelCluster):
		out = append(out, a.passthrough()...)
	case s.Level == match.LevelTransportSocket:
		out = append(out, a.mesh("mtls.enabledBackend"))
	}
	for _, kind := range shapes(s) {
		if kind == kindHTTPRoute && s.Level == match.LevelRoute {
			out = append(out, a.routed(s.Choice)...)
			continue
		}
		out = append(out, a.rulesOf(kind)...)
	}
	if s.Place != nil && (s.Level == match.LevelListener || s.Level == match.LevelCluster) {
		out = append(out, a.p.patched(a.t.mesh, draft.ResourceID{TypeURL: s.Place.Type, Name: s.Place.Resource})...)
	}
	return unique(out)
}

// passing reports whether the connection goes to no service of the mesh.
func (a *about) passing() bool {
	return a.trace.Listener != nil && isPassthrough(a.trace.Listener.Resource)
}

func unique(list []FlowPolicy) []FlowPolicy {
	out := list[:0]
	for _, p := range list {
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

func (a *about) mesh(field string) FlowPolicy {
	return FlowPolicy{Ref: Ref{Type: kindMesh, Name: a.t.mesh.View.Name}, Field: field}
}

func policyOf(r *resource.Resource, field string) FlowPolicy {
	return FlowPolicy{Ref: RefOf(r.Key), Field: field}
}

// destination is what says that there is an outbound or inbound, never nil.
func (a *about) destination() []FlowPolicy {
	none := []FlowPolicy{}
	n := &a.p.spec.Networking
	switch {
	case a.inbound >= 0:
		return []FlowPolicy{policyOf(a.p.dataplane, fmt.Sprintf("networking.inbound[%d]", a.inbound))}
	case a.outbound == nil:
		return none
	}
	for i := range n.Outbound {
		o := &n.Outbound[i]
		addr, err := netip.ParseAddr(cmp.Or(o.Address, "127.0.0.1"))
		if err == nil && addr == a.outbound.Address && o.Port == a.outbound.Port {
			return []FlowPolicy{policyOf(a.p.dataplane, fmt.Sprintf("networking.outbound[%d]", i))}
		}
	}
	if k := a.outbound.Service.Resource; k != (resource.Key{}) {
		return []FlowPolicy{{Ref: RefOf(k), Field: "spec.ports"}}
	}
	return none // the virtual address of a tag
}

// rulesOf lists the items of the policies of a kind that are merged into the rule about what the flow is about.
func (a *about) rulesOf(kind string) []FlowPolicy {
	rules := a.p.rules()
	if rules == nil {
		return nil
	}
	var out []FlowPolicy
	k := rules.Kind(kind)
	items := func(r *policy.Rule, list List) {
		if r == nil {
			return
		}
		for _, o := range r.Origins {
			_, source := itemOf(o.Policy, list, o.Item)
			out = append(out, policyOf(o.Policy, source.Field))
		}
	}
	if k != nil && k.Proxy != nil {
		items(k.Proxy, Default)
	}
	if a.outbound != nil {
		s := a.outbound.Service
		items(k.ServiceRule(s), To)
		if s.ID.Kind == mesh.KindTag {
			if p := rules.LegacyOutbound(kind, s.ID.Name); p != nil {
				out = append(out, policyOf(p, "conf"))
			}
		}
	}
	if a.passing() {
		items(k.ServiceRule(&mesh.Service{}), To) // what is said of all destinations
	}
	if a.inbound >= 0 {
		items(a.clientRule(k), From)
		for _, p := range rules.LegacyInbound(kind, a.inbound) {
			field := "conf"
			if kind == "TrafficPermission" {
				field = "sources"
			}
			out = append(out, policyOf(p, field))
			if kind == "TrafficPermission" {
				break // the strongest alone counts
			}
		}
		if len(out) == 0 && k != nil && kind == kindPermission && k.Inbound(a.inbound) != nil {
			for _, p := range k.Policies { // none of them speaks of the client
				out = append(out, policyOf(p, "spec.from"))
			}
		}
	}
	return out
}

// routed lists the rules of routes that a route by its name is made of.
func (a *about) routed(name string) []FlowPolicy {
	rules := a.p.rules()
	if rules == nil || a.outbound == nil {
		return nil
	}
	r := rules.Kind(kindHTTPRoute).ServiceRule(a.outbound.Service)
	if r == nil {
		return nil
	}
	var out []FlowPolicy
	for _, o := range r.Origins {
		conf, source := itemOf(o.Policy, To, o.Item)
		if routes, ok := conf.(policy.RouteConf); ok {
			if i := slices.Index(routes.RouteNames(), name); i >= 0 {
				out = append(out, policyOf(o.Policy, fmt.Sprintf("%s.rules[%d]", source.Field, i)))
			}
		}
	}
	return out
}

// clientRule is the rule of a kind about the client of an inbound.
func (a *about) clientRule(k *policy.KindRules) *policy.Rule {
	in := k.Inbound(a.inbound)
	if in == nil || a.client == nil {
		return nil
	}
	var client policy.Subset
	for key, values := range a.t.mesh.View.ProxyTags(a.client.spec) {
		for _, v := range values {
			client = append(client, policy.Tag{Key: key, Value: v})
		}
	}
	for _, r := range in.Rules {
		if holds(r.Subset, client) {
			return r
		}
	}
	return nil
}

// holds reports whether a proxy with these tags is in a subset.
func holds(s policy.Subset, tags policy.Subset) bool {
	for _, t := range s {
		if slices.Contains(tags, policy.Tag{Key: t.Key, Value: t.Value}) == t.Not {
			return false
		}
	}
	return true
}
