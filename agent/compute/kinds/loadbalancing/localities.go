package loadbalancing

import (
	"math"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// overprovisioning is Envoy's factor for policies without threshold: that of a threshold of 50 %.
const overprovisioning = 200

// localities returns the endpoint preferences, or nil if all endpoints are equal. weighted reports
// whether weights of localities apply. Without localZone and crossZone, other zones are the
// fallback. With one of them, zones without a failover rule get no traffic.
func localities(c *policy.Context, l *LocalityAwareness) (out *policy.Localities, weighted bool) {
	switch {
	case l != nil && (l.LocalZone != nil || l.CrossZone != nil): // take precedence over disabled
	case l != nil && l.Disabled != nil && *l.Disabled:
		return nil, false
	default:
		return policy.NewLocalities(policy.Localities{Zone: c.View.Zone,
			Failover: []policy.Failover{{Priority: 1, Except: true}}}), false
	}
	spec := policy.Localities{Zone: c.View.Zone, LocalWeight: 1, Overprovisioning: overprovisioning}
	if l.LocalZone != nil && l.LocalZone.AffinityTags != nil && len(*l.LocalZone.AffinityTags) > 0 {
		weighted = true
		spec.Affinity = affinity(*l.LocalZone.AffinityTags, c.View.ProxyTags(c.Dataplane()), c.Proxy().Labels)
	}
	if z := l.CrossZone; z != nil {
		if z.Failover != nil {
			spec.Failover = failover(*z.Failover, c.View.Zone)
		}
		if z.FailoverThreshold != nil {
			spec.Overprovisioning = factor(z.FailoverThreshold)
		}
	}
	return policy.NewLocalities(spec), weighted
}

// affinity returns the tags that the proxy has, with weights. Its labels stand for missing tags. By
// default each tag gets 90 % of the remaining traffic.
func affinity(list []AffinityTag, tags map[string][]string, labels map[string]string) []policy.Affinity {
	var out []policy.Affinity
	weight := uint32(9)
	for i := 1; i < len(list); i++ {
		weight *= 10 // validated: at most nine tags without weights
	}
	for i := range list {
		t := &list[i]
		value := labels[t.Key]
		if values := tags[t.Key]; len(values) > 0 {
			value = values[0]
		}
		if value != "" {
			out = append(out, policy.Affinity{Key: t.Key, Value: value, Weight: toolkit.Or(t.Weight, weight)})
		}
		weight = max(weight/10, 1)
	}
	return out
}

// failover returns the rules for proxies of a zone. The index of a rule plus one is its priority.
func failover(list []Failover, zone string) []policy.Failover {
	var out []policy.Failover
	for i := range list {
		f := &list[i]
		if f.To.Type == zonesNone || f.From != nil && !slices.Contains(f.From.Zones, zone) {
			continue
		}
		out = append(out,
			policy.Failover{Priority: uint32(i) + 1, Except: f.To.Type != zonesOnly, Zones: toolkit.Or(f.To.Zones, nil)})
	}
	return out
}

// factor converts the threshold, the percentage of healthy endpoints above which a priority
// receives all traffic, to Envoy's overprovisioning factor. It rounds up, so the threshold itself
// counts as healthy.
func factor(t *FailoverThreshold) uint32 {
	if t.Percentage == nil {
		return overprovisioning
	}
	return uint32(min(math.Ceil(100*100/t.Percentage.Float()), math.MaxUint32)) // validated: above 0
}

// place groups the endpoints of a cluster with inline endpoints by locality. It does nothing if
// there is no preference.
func group(a *endpointv3.ClusterLoadAssignment, l *policy.Localities) {
	var localities []policy.Locality
	dropped := false
	groups := map[policy.Locality][]*endpointv3.LbEndpoint{}
	for _, g := range a.Endpoints {
		for _, e := range g.LbEndpoints {
			tags := tagsOf(e)
			p, ok := l.Assign(tags[resource.TagZone], tags, nil) // outside of the mesh
			if !ok {
				dropped = true
				continue
			}
			if groups[p] == nil {
				localities = append(localities, p)
			}
			groups[p] = append(groups[p], e)
		}
	}
	if !dropped && (len(localities) == 0 || len(localities) == 1 && localities[0] == policy.Locality{Zone: l.Zone}) {
		return
	}
	slices.SortFunc(localities, policy.Locality.Compare)
	a.Endpoints = make([]*endpointv3.LocalityLbEndpoints, len(localities))
	for i, p := range localities {
		g := &endpointv3.LocalityLbEndpoints{
			Locality: &corev3.Locality{Zone: p.Zone, SubZone: p.SubZone}, Priority: p.Priority, LbEndpoints: groups[p],
		}
		if p.Weight > 0 {
			g.LoadBalancingWeight = wrapperspb.UInt32(p.Weight)
		}
		a.Endpoints[i] = g
	}
	if l.Overprovisioning > 0 {
		a.Policy = &endpointv3.ClusterLoadAssignment_Policy{OverprovisioningFactor: wrapperspb.UInt32(l.Overprovisioning)}
	}
}

// tagsOf returns the tags in the metadata of an endpoint.
func tagsOf(e *endpointv3.LbEndpoint) map[string]string {
	fields := e.GetMetadata().GetFilterMetadata()["envoy.lb"].GetFields()
	out := make(map[string]string, len(fields))
	for k, v := range fields {
		out[k] = v.GetStringValue()
	}
	return out
}
