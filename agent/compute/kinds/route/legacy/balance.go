package legacy

import (
	"encoding/json"
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// kindBalancing says what a TrafficRoute says in loadBalancer. It belongs to another plugin: its
// documents are made in the form that everybody can write.
const kindBalancing = "MeshLoadBalancingStrategy"

// balancing knows which units say something about load balancing.
type balancing map[*policy.Unit]bool

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

// balancerOf translates a loadBalancer; nil for the default.
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

// balancing makes the MeshLoadBalancingStrategy of a unit; nil where the default is meant and no
// weaker unit has another one.
func (m *migration) balancing(u *policy.Unit, conf *Conf, services []string) *policy.Migrated {
	b := balancerOf(conf.LoadBalancer)
	under := slices.ContainsFunc(u.Weaker, func(w *policy.Unit) bool { return m.bal[w] })
	if b == nil && !under {
		return nil
	}
	if b == nil {
		b = &balancer{Type: "RoundRobin"}
	}
	if m.bal == nil {
		m.bal = balancing{}
	}
	m.bal[u] = true
	// Endpoints of other zones come second by default, which they do not with a TrafficRoute.
	doc, err := json.Marshal(map[string]any{"loadBalancer": b, "localityAwareness": map[string]bool{"disabled": true}})
	if err != nil {
		return nil
	}
	out := &policy.Migrated{Kind: kindBalancing, Name: u.Name, From: []resource.Key{u.Policy.Key},
		Notes: slices.Clone(u.Notes),
		Spec:  &resource.Policy{TargetRef: &u.Target}}
	policy.AddNote(&out.Notes, "conf.loadBalancer is a policy of its own; it is about destinations, "+
		"so it also holds where another route leads to them")
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
		policy.AddNote(&out.Notes,
			"there is an item for each service that exists today, and a service that comes later needs one")
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

// changes explains what targetRef routes write otherwise than TrafficRoute.
func changes() []policy.Change {
	const (
		chain   = "Listener/outbound:*/filterChains/*/filters/"
		manager = chain + "envoy.filters.network.http_connection_manager/typedConfig/"
		options = "Cluster/*/typedExtensionProtocolOptions/envoy.extensions.upstreams.http.v3.HttpProtocolOptions/" +
			"commonHttpProtocolOptions"
		limit = "TrafficRoute takes the limits off what is idle; without it those of Envoy are in force, " +
			"unless a MeshTimeout gives others"
		made = "the route is made by a MeshHTTPRoute, or by none: it has a name, " +
			"and its matches are written in other fields"
	)
	out := []policy.Change{
		{Path: manager + "commonHttpProtocolOptions", Before: `{"idleTimeout":"0s"}`, Why: limit},
		{Path: manager + "commonHttpProtocolOptions/idleTimeout", Before: `"0s"`, Why: limit},
		{Path: manager + "streamIdleTimeout", Before: `"0s"`, Why: limit},
		{Path: chain + "envoy.filters.network.tcp_proxy/typedConfig/idleTimeout", Before: `"0s"`, Why: limit},
		{Path: options, Before: `{"idleTimeout":"0s"}`, Why: limit},
		{Path: options + "/idleTimeout", Before: `"0s"`, Why: limit},
		{Path: "Cluster/*/connectTimeout", Before: `"5s"`, Same: true, Why: "Envoy's default, which TrafficRoute writes out"},
		{Path: manager + "normalizePath", After: "true",
			Why: "paths are normalised (RFC 3986) before they are matched, as everywhere without TrafficRoute"},
		{Path: "RouteConfiguration/outbound:*/virtualHosts/*/routes", Before: policy.Any, After: policy.Any, Why: made},
		{Path: "RouteConfiguration/outbound:*/virtualHosts/*/routes/*", Before: policy.Any, After: policy.Any, Why: made},
		{Path: "RouteConfiguration/outbound:*/virtualHosts/*/routes/*/name", Before: policy.Any,
			After: policy.Any, Why: made},
		{Path: "RouteConfiguration/outbound:*/virtualHosts/*/routes/*/match/**", Before: policy.Any,
			After: policy.Any, Why: made},
	}
	for _, f := range []string{
		"requestHeadersToAdd/**", "requestHeadersToRemove/**", "responseHeadersToAdd/**", "responseHeadersToRemove/**",
		"route/cluster", "route/weightedClusters/**", "route/prefixRewrite", "route/regexRewrite/**",
		"route/hostRewriteLiteral", "route/hostRewritePathRegex/**", "route/autoHostRewrite",
	} {
		out = append(out, policy.Change{Path: "RouteConfiguration/outbound:*/virtualHosts/*/routes/*/" + f,
			Before: policy.Any, After: policy.Any,
			Why: "the routes are in the order of their matches, each with what its rule says; " +
				"the notes of the policy name what cannot be said"})
	}
	return out
}
