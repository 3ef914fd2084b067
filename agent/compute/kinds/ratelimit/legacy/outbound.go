package legacy

import (
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/ratelimit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// outboundLimiter limits the requests of one proxy to services outside the mesh. Its policies are
// already selected by their sources, so routes need no matcher. Only the policy whose sources and
// destinations have the most tags applies.
type outboundLimiter struct {
	c      *policy.Context
	limits map[*resource.Resource]*anypb.Any
}

// isOutside reports whether connections to a service leave the mesh at the client's proxy.
func isOutside(s *mesh.Service) bool { return s.ID.Kind == mesh.KindTag && s.External }

// limit adds limits to the routes that lead to services outside the mesh.
func (x *outboundLimiter) limit(h *draft.HTTP) {
	if h == nil || h.Routes == nil {
		return
	}
	found := false
	put := func(cluster string, config *map[string]*anypb.Any) {
		if limit := x.of(cluster); limit != nil {
			ratelimit.Put(config, limit)
			found = true
		}
	}
	for _, host := range h.Routes.VirtualHosts {
		for _, r := range host.Routes {
			switch to := r.GetRoute().GetClusterSpecifier().(type) {
			case *routev3.RouteAction_Cluster:
				put(to.Cluster, &r.TypedPerFilterConfig)
			case *routev3.RouteAction_WeightedClusters:
				for _, c := range to.WeightedClusters.GetClusters() {
					put(c.Name, &c.TypedPerFilterConfig)
				}
			}
		}
	}
	if found {
		ratelimit.Enforce(h)
	}
}

// of returns the limit of requests to a cluster, or nil.
func (x *outboundLimiter) of(cluster string) *anypb.Any {
	s := x.c.View.Service(mesh.ServiceID{Kind: mesh.KindTag, Name: cluster})
	// The cluster's name may end with a hash of tags.
	if i := strings.LastIndexByte(cluster, '-'); s == nil && i > 0 {
		s = x.c.View.Service(mesh.ServiceID{Kind: mesh.KindTag, Name: cluster[:i]})
	}
	if s == nil || !isOutside(s) {
		return nil
	}
	p := x.c.Rules.LegacyOutbound(kind, s.ID.Name)
	if p == nil {
		return nil
	}
	limit, ok := x.limits[p]
	if !ok {
		limit = limitOf(p, x.c.Host.Warn)
		x.limits[p] = limit
	}
	return limit
}
