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

// leaving limits the requests of one proxy that leave the mesh. Its policies are chosen by their
// sources already, so that routes need no matcher: of several the one that names most tags of
// sources and destinations counts.
type leaving struct {
	c      *policy.Context
	limits map[*resource.Resource]*anypb.Any
}

// isOutside reports whether connections to a service leave the mesh at the proxy of the client.
func isOutside(s *mesh.Service) bool { return s.ID.Kind == mesh.KindTag && s.External }

// limit gives the limits of services outside of the mesh to the routes that lead to them.
func (x *leaving) limit(h *draft.HTTP) {
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

// of is the limit of the requests to a cluster, nil for none.
func (x *leaving) of(cluster string) *anypb.Any {
	s := x.c.View.Service(mesh.ServiceID{Kind: mesh.KindTag, Name: cluster})
	if i := strings.LastIndexByte(cluster, '-'); s == nil && i > 0 {
		s = x.c.View.Service(mesh.ServiceID{Kind: mesh.KindTag, Name: cluster[:i]}) // a hash of tags follows
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
