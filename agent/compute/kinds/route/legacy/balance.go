package legacy

import (
	"encoding/json"
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/compute/successor"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// kindBalancing is the successor of loadBalancer in a TrafficRoute. The kind belongs to another
// plugin, so its policies are created as documents.
const kindBalancing = "MeshLoadBalancingStrategy"

// balancing is the set of units with a load balancing policy.
type balancing map[*successor.Unit]bool

// balancer is the loadBalancer of a MeshLoadBalancingStrategy.
type balancer struct {
	Type         string           `json:"type"`
	LeastRequest *balancerChoices `json:"leastRequest,omitempty"`
	RingHash     *balancerRing    `json:"ringHash,omitempty"`
}

type balancerChoices struct {
	ChoiceCount uint32 `json:"choiceCount"`
}

type balancerRing struct {
	HashFunction string `json:"hashFunction,omitempty"`
	MinRingSize  uint64 `json:"minRingSize,omitempty"`
	MaxRingSize  uint64 `json:"maxRingSize,omitempty"`
}

// balancerOf converts a loadBalancer; nil for the default.
func balancerOf(l *LoadBalancer) *balancer {
	switch {
	case l == nil:
	case l.LeastRequest != nil:
		b := &balancer{Type: "LeastRequest"}
		if n := l.LeastRequest.ChoiceCount; n > 0 {
			b.LeastRequest = &balancerChoices{n}
		}
		return b
	case l.RingHash != nil:
		r := &balancerRing{MinRingSize: l.RingHash.MinRingSize, MaxRingSize: l.RingHash.MaxRingSize}
		switch l.RingHash.HashFunction {
		case "XX_HASH":
			r.HashFunction = "XXHash"
		case "MURMUR_HASH_2":
			r.HashFunction = "MurmurHash2"
		}
		return &balancer{Type: "RingHash", RingHash: r}
	case l.Random != nil:
		return &balancer{Type: "Random"}
	case l.Maglev != nil:
		return &balancer{Type: "Maglev"}
	}
	return nil
}

// balancing returns the MeshLoadBalancingStrategy of a unit. It returns nil if the unit has the
// default and no weaker unit has a policy.
func (m *migration) balancing(u *successor.Unit, conf *Conf, services []string) *policy.Migrated {
	b := balancerOf(conf.LoadBalancer)
	overrides := slices.ContainsFunc(u.Weaker, func(w *successor.Unit) bool { return m.balanced[w] })
	if b == nil && !overrides {
		return nil
	}
	if b == nil {
		b = &balancer{Type: "RoundRobin"}
	}
	if m.balanced == nil {
		m.balanced = balancing{}
	}
	m.balanced[u] = true
	// By default other zones are only a fallback, which is not the case with a TrafficRoute.
	doc, err := json.Marshal(map[string]any{"loadBalancer": b, "localityAwareness": map[string]bool{"disabled": true}})
	if err != nil {
		return nil
	}
	out := &policy.Migrated{Kind: kindBalancing, Name: u.Name, From: []resource.Key{u.Policy.Key},
		Notes: slices.Clone(u.Notes),
		Spec:  &resource.Policy{TargetRef: &u.Target}}
	successor.AddNote(&out.Notes, "conf.loadBalancer becomes a separate policy; it applies to destinations, "+
		"so it also has an effect where another route leads to them")
	var to []string
	for _, s := range services {
		t := &translation{in: m.in, service: s, conf: conf}
		lists := [][]Split{conf.Split, {{Destination: conf.Destination}}}
		for i := range conf.HTTP {
			lists = append(lists, conf.HTTP[i].Split, []Split{{Destination: conf.HTTP[i].Destination}})
		}
		for _, l := range lists {
			refs, _ := t.refs(slices.DeleteFunc(slices.Clone(l), func(s Split) bool { return len(s.Destination) == 0 }), nil)
			for i := range refs {
				to = append(to, refs[i].Name)
			}
		}
	}
	slices.Sort(to)
	if u.All {
		successor.AddNote(&out.Notes,
			"the policy has an item for each existing service, and a new service needs another item")
	}
	for _, s := range slices.Compact(to) {
		out.Spec.To = append(out.Spec.To, resource.PolicyItem{
			TargetRef: resource.TargetRef{Kind: mesh.KindMeshService, Name: s}, Conf: &resource.RawConf{JSON: doc},
		})
	}
	if len(out.Spec.To) == 0 {
		return nil
	}
	return out
}

// changes explains the differences between the config of targetRef routes and TrafficRoute.
func changes() []policy.Change {
	const (
		chain   = "Listener/outbound:*/filterChains/*/filters/"
		manager = chain + "envoy.filters.network.http_connection_manager/typedConfig/"
		options = "Cluster/*/typedExtensionProtocolOptions/envoy.extensions.upstreams.http.v3.HttpProtocolOptions/" +
			"commonHttpProtocolOptions"
		limit   = "TrafficRoute disables idle timeouts; without it Envoy's defaults apply, unless a MeshTimeout sets others"
		renamed = "the route comes from a MeshHTTPRoute, or from none: it has a name, and its matches use other fields"
	)
	out := []policy.Change{
		{Path: manager + "commonHttpProtocolOptions", Before: `{"idleTimeout":"0s"}`, Why: limit},
		{Path: manager + "commonHttpProtocolOptions/idleTimeout", Before: `"0s"`, Why: limit},
		{Path: manager + "streamIdleTimeout", Before: `"0s"`, Why: limit},
		{Path: chain + "envoy.filters.network.tcp_proxy/typedConfig/idleTimeout", Before: `"0s"`, Why: limit},
		{Path: options, Before: `{"idleTimeout":"0s"}`, Why: limit},
		{Path: options + "/idleTimeout", Before: `"0s"`, Why: limit},
		{Path: "Cluster/*/connectTimeout", Before: `"5s"`, Same: true,
			Why: "Envoy's default, which TrafficRoute sets explicitly"},
		{Path: manager + "normalizePath", After: "true",
			Why: "paths are normalized (RFC 3986) before they are matched, as in any config without TrafficRoute"},
		{Path: "RouteConfiguration/outbound:*/virtualHosts/*/routes", Before: policy.Any, After: policy.Any, Why: renamed},
		{Path: "RouteConfiguration/outbound:*/virtualHosts/*/routes/*", Before: policy.Any, After: policy.Any, Why: renamed},
		{Path: "RouteConfiguration/outbound:*/virtualHosts/*/routes/*/name", Before: policy.Any,
			After: policy.Any, Why: renamed},
		{Path: "RouteConfiguration/outbound:*/virtualHosts/*/routes/*/match/**", Before: policy.Any,
			After: policy.Any, Why: renamed},
	}
	for _, f := range []string{
		"requestHeadersToAdd/**", "requestHeadersToRemove/**", "responseHeadersToAdd/**", "responseHeadersToRemove/**",
		"route/cluster", "route/weightedClusters/**", "route/prefixRewrite", "route/regexRewrite/**",
		"route/hostRewriteLiteral", "route/hostRewritePathRegex/**", "route/autoHostRewrite",
	} {
		out = append(out, policy.Change{Path: "RouteConfiguration/outbound:*/virtualHosts/*/routes/*/" + f,
			Before: policy.Any, After: policy.Any,
			Why: "the routes are sorted by the precedence of their matches, each with the action of its rule; " +
				"the notes of the policy list the differences"})
	}
	return out
}
