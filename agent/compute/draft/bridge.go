package draft

import (
	"bytes"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// What follows makes the forms of resources that an Envoy is sent while connections are on filter
// chains that it has let go of. Each returns the resource as it is where it has nothing to change.

var (
	managerURL  = []byte("/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager")
	tcpProxyURL = []byte("/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy")
	httpRBACURL = []byte("/envoy.extensions.filters.http.rbac.v3.RBAC")
)

// Speaks says whether the filter chains of a listener take requests, and whether they take
// connections as they are.
func Speaks(listener *Resource) (http, tcp bool) {
	body := listener.Body()
	return bytes.Contains(body, managerURL), bytes.Contains(body, tcpProxyURL)
}

// RoutesOf returns the routes of some lists that a listener may name.
func RoutesOf(listener *Resource, lists *Lists) []*Resource {
	return mentioned(&Lists{RankListener: {listener}}, RankRoute, lists[RankRoute])
}

// LeadsTo returns the clusters of some lists that a listener, or a route of it, may name.
func LeadsTo(listener *Resource, lists *Lists) []*Resource {
	from := Lists{RankListener: {listener}, RankRoute: RoutesOf(listener, lists)}
	return mentioned(&from, RankCluster, lists[RankCluster])
}

// FollowDownstream returns a cluster that speaks to its endpoints what the client speaks.
func FollowDownstream(cluster *Resource) *Resource {
	return editHTTPOptions(cluster, func(o *httpv3.HttpProtocolOptions) {
		o.UpstreamProtocolOptions = &httpv3.HttpProtocolOptions_UseDownstreamProtocolConfig{
			UseDownstreamProtocolConfig: &httpv3.HttpProtocolOptions_UseDownstreamHttpConfig{
				HttpProtocolOptions: &corev3.Http1ProtocolOptions{}, Http2ProtocolOptions: &corev3.Http2ProtocolOptions{},
			},
		}
	})
}

// SpeakAs returns a cluster that speaks the version of HTTP that another form of it spoke.
func SpeakAs(cluster, before *Resource) *Resource {
	var m clusterv3.Cluster
	var old httpv3.HttpProtocolOptions
	if proto.Unmarshal(before.Body(), &m) != nil {
		return cluster
	}
	if a := m.TypedExtensionProtocolOptions[NameHTTPOptions]; a == nil || a.UnmarshalTo(&old) != nil ||
		old.UpstreamProtocolOptions == nil {
		return cluster
	}
	return editHTTPOptions(cluster, func(o *httpv3.HttpProtocolOptions) {
		o.UpstreamProtocolOptions = old.UpstreamProtocolOptions
	})
}

func editHTTPOptions(cluster *Resource, edit func(*httpv3.HttpProtocolOptions)) *Resource {
	var m clusterv3.Cluster
	if proto.Unmarshal(cluster.Body(), &m) != nil {
		return cluster
	}
	var o httpv3.HttpProtocolOptions
	if a := m.TypedExtensionProtocolOptions[NameHTTPOptions]; a != nil && a.UnmarshalTo(&o) != nil {
		return cluster
	}
	before := proto.Clone(&o)
	if edit(&o); proto.Equal(before, &o) {
		return cluster
	}
	packed, err := Extension{Name: NameHTTPOptions, Message: &o}.Pack()
	if err != nil {
		return cluster
	}
	if m.TypedExtensionProtocolOptions == nil {
		m.TypedExtensionProtocolOptions = map[string]*anypb.Any{}
	}
	m.TypedExtensionProtocolOptions[NameHTTPOptions] = packed
	return sealedAs(cluster, &m)
}

// Guards says whether a listener has RBAC filters for requests.
func Guards(listener *Resource) bool { return bytes.Contains(listener.Body(), httpRBACURL) }

// Guard returns routes with what the listener says now about who may use them, so that it holds on
// the chains of an older form of the listener too, which have the same routes. Without an older
// form it says so in any case.
func Guard(routes, listener, older *Resource) *Resource {
	now, before := guardsOf(listener, routes.Name), map[string]*anypb.Any{}
	if older != nil {
		before = guardsOf(older, routes.Name)
	}
	var m routev3.RouteConfiguration
	if proto.Unmarshal(routes.Body(), &m) != nil {
		return routes
	}
	for name, a := range now {
		was := before[name]
		if older != nil && (was == nil || bytes.Equal(was.Value, a.Value)) {
			continue // it is not there, or says the same
		}
		if m.TypedPerFilterConfig[name] != nil {
			continue // a patch has the routes say something else, on all filter chains
		}
		var guard httprbacv3.RBAC
		if a.UnmarshalTo(&guard) != nil {
			return routes
		}
		over, err := Extension{Name: name, Message: &httprbacv3.RBACPerRoute{Rbac: &guard}}.Pack()
		if err != nil {
			return routes
		}
		if m.TypedPerFilterConfig == nil {
			m.TypedPerFilterConfig = map[string]*anypb.Any{}
		}
		m.TypedPerFilterConfig[name] = over
	}
	return sealedAs(routes, &m)
}

// guardsOf returns the RBAC filters for requests of the chains of a listener that have certain
// routes, by name.
func guardsOf(listener *Resource, routes string) map[string]*anypb.Any {
	var l listenerv3.Listener
	if proto.Unmarshal(listener.Body(), &l) != nil {
		return nil
	}
	out := map[string]*anypb.Any{}
	for _, m := range managersOf(&l) {
		if m.GetRds().GetRouteConfigName() != routes {
			continue
		}
		for _, f := range m.HttpFilters {
			if a := f.GetTypedConfig(); a.MessageIs((*httprbacv3.RBAC)(nil)) {
				out[f.Name] = a
			}
		}
	}
	return out
}

// managersOf returns the HTTP connection managers of a listener.
func managersOf(l *listenerv3.Listener) []*hcmv3.HttpConnectionManager {
	var out []*hcmv3.HttpConnectionManager
	for _, c := range append(slices.Clip(l.FilterChains), l.DefaultFilterChain) {
		for _, f := range c.GetFilters() {
			m := &hcmv3.HttpConnectionManager{}
			if a := f.GetTypedConfig(); a != nil && a.MessageIs(m) && a.UnmarshalTo(m) == nil {
				out = append(out, m)
			}
		}
	}
	return out
}

// sealedAs seals another form of a resource.
func sealedAs(r *Resource, m proto.Message) *Resource {
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil || bytes.Equal(body, r.Body()) {
		return r
	}
	return NewResource(r.Name, body)
}
