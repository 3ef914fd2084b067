package generate

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/mesh"
)

// apiListeners serves a gRPC client that is its own proxy: for xds:///SERVICE it asks for a listener of that name
// (gRFC A27), follows it to the routes and on to cluster and endpoints.
func (g *generator) apiListeners(list []mesh.Outbound) {
	for i := range list {
		o := &list[i]
		if o.Service.External {
			g.warnf("service %s lies outside the mesh: gRPC clients without a proxy cannot reach it", o.Service.ID.Name)
			continue
		}
		cluster := clusterName(o)
		if !g.claim(cluster) {
			continue
		}
		service := draft.Service{Kind: o.Service.ID.Kind, Name: o.Service.ID.Name, Protocol: string(o.Service.Protocol)}
		route := "outbound:" + cluster
		h := &draft.HTTP{
			Filters: draft.PlainFilters,
			Message: &hcmv3.HttpConnectionManager{
				StatPrefix: statName(cluster),
				RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{
					ConfigSource: draft.ADS, RouteConfigName: route,
				}},
			},
		}
		api, err := h.Pack()
		if err != nil {
			g.warnf("service %s: %v: it is left out", cluster, err)
			continue
		}
		g.d.Listeners = append(g.d.Listeners, &draft.Listener{
			Kind: draft.API, Port: o.Port, Service: service,
			Message: &listenerv3.Listener{Name: cluster, ApiListener: &listenerv3.ApiListener{ApiListener: api}},
		})
		g.d.Routes = append(g.d.Routes, &routev3.RouteConfiguration{
			Name:             route,
			ValidateClusters: sharedFalse,
			VirtualHosts: []*routev3.VirtualHost{{
				Name: cluster, Domains: anyDomain, Routes: []*routev3.Route{prefixRoute(routeName, cluster)},
			}},
		})
		g.d.Clusters = append(g.d.Clusters, &draft.Cluster{Service: service, Message: &clusterv3.Cluster{
			Name:                 cluster,
			ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
			EdsClusterConfig:     draft.EDS,
		}})
		g.p.refs = append(g.p.refs, endpointRef{cluster: cluster, index: o.Service.Index, set: o.Service.Endpoints, subset: o.Subset})
	}
}
