package xds

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/mesh"
)

// routeName is the name of the route that an outbound has while no policy adds others.
const routeName = "default"

// outbounds adds a listener for each address that the workload may dial, and the clusters behind them.
func (g *generator) outbounds(list []mesh.Outbound) {
	g.d.Listeners = slices.Grow(g.d.Listeners, len(list))
	g.d.Clusters = slices.Grow(g.d.Clusters, len(list))
	for i := range list {
		o := &list[i]
		service := draft.Service{Kind: o.Service.ID.Kind, Name: o.Service.ID.Name, Protocol: string(o.Service.Protocol)}
		cluster := clusterName(o)
		l := &draft.Listener{
			Kind: draft.Outbound, Port: o.Port, Service: service,
			Message: &listenerv3.Listener{
				Name:             "outbound:" + hostPort(o.Address, o.Port),
				Address:          socketAddress(o.Address.String(), o.Port),
				TrafficDirection: corev3.TrafficDirection_OUTBOUND,
				Metadata:         tagMetadata(o.Tags),
				BindToPort:       g.bindToPort(),
			},
		}
		chain := &draft.Chain{}
		if o.Service.Protocol.HTTP() {
			chain.HTTP = g.outboundHTTP(o, cluster)
		} else {
			chain.TCP = &tcpv3.TcpProxy{
				StatPrefix:       statName(cluster),
				ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: cluster},
			}
		}
		l.Chains = []*draft.Chain{chain}
		g.d.Listeners = append(g.d.Listeners, l)
		g.serviceCluster(o, cluster, service)
	}
}

func (g *generator) outboundHTTP(o *mesh.Outbound, cluster string) *draft.HTTP {
	return &draft.HTTP{
		Filters: httpFilters(o.Service.Protocol),
		Message: &hcmv3.HttpConnectionManager{
			StatPrefix:            statName(o.Service.ID.Name),
			NormalizePath:         wrapperspb.Bool(true),
			InternalAddressConfig: internalRanges(),
		},
		Routes: &routev3.RouteConfiguration{
			Name: "outbound:" + o.Service.ID.Name,
			RequestHeadersToAdd: []*corev3.HeaderValueOption{{
				Header: &corev3.HeaderValue{Key: tagsHeader, Value: escapeHeader(g.tags)},
			}},
			ValidateClusters: wrapperspb.Bool(false),
			VirtualHosts: []*routev3.VirtualHost{{
				Name: o.Service.ID.Name, Domains: []string{"*"},
				Routes: []*routev3.Route{prefixRoute(routeName, cluster, o.Service.External)},
			}},
		},
	}
}

// escapeHeader doubles percent signs: Envoy reads a single one in a header value as the start of a command.
func escapeHeader(s string) string {
	out := make([]byte, 0, len(s))
	for i := range len(s) {
		if s[i] == '%' {
			out = append(out, '%')
		}
		out = append(out, s[i])
	}
	return string(out)
}

// clusterName is the name of the service, with a hash of the tags where the outbound wants a subset of its endpoints.
func clusterName(o *mesh.Outbound) string {
	if len(o.Subset) == 0 {
		return o.Service.ID.Name
	}
	h := sha256.New()
	for _, k := range slices.Sorted(maps.Keys(o.Subset)) {
		h.Write([]byte(k + "\x00" + o.Subset[k] + "\x00"))
	}
	return o.Service.ID.Name + "-" + hex.EncodeToString(h.Sum(nil)[:8])
}

// serviceCluster adds the cluster of an outbound once: EDS for services of the mesh, else with its endpoints.
func (g *generator) serviceCluster(o *mesh.Outbound, name string, service draft.Service) {
	if !g.claim(name) {
		return
	}
	if o.Service.External {
		g.externalCluster(o, name, service)
		return
	}
	g.d.Clusters = append(g.d.Clusters, &draft.Cluster{
		Service: service,
		Message: &clusterv3.Cluster{
			Name:                 name,
			ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
			EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{EdsConfig: adsSource()},
		},
		// Between the proxies of a mesh requests travel as HTTP/2, whatever the workloads speak.
		HTTP: draft.HTTP2Options,
	})
	g.p.refs = append(g.p.refs, endpointRef{cluster: name, id: o.Service.ID, subset: o.Subset})
}
