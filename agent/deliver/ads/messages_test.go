package ads_test

import (
	"strings"
	"unicode"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	grpclogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/grpc/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

// resourceOf returns a resource that contains a body word in one of its fields. A listener or route
// configuration refers to the clusters that the word names, separated by punctuation. A listener
// also refers to route configurations of these names, and it is an HTTP or TCP listener if the word
// contains forHTTP or forTCP.
func resourceOf(rank int, name, body string) *draft.Resource {
	var m proto.Message
	switch draft.Types[rank] {
	case cds:
		m = &clusterv3.Cluster{Name: name, AltStatName: body, EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{}}
	case lds:
		m = listenerWith(name, body)
	case rds:
		m = routesOf(name, body)
	default:
		return draft.NewResource(rank, name, []byte(body))
	}
	raw, _ := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	return draft.NewResource(rank, name, raw)
}

// namesOf returns the names in a body word, without filler.
func namesOf(body string) (out []string) {
	for _, name := range strings.FieldsFunc(body, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_:", r)
	}) {
		if len(name) <= 64 {
			out = append(out, name)
		}
	}
	return out
}

func packed(m proto.Message) *anypb.Any {
	a := &anypb.Any{}
	_ = anypb.MarshalFrom(a, m, proto.MarshalOptions{Deterministic: true})
	return a
}

func routesOf(name, body string) *routev3.RouteConfiguration {
	host := &routev3.VirtualHost{Name: body}
	for _, cluster := range namesOf(body) {
		host.Routes = append(host.Routes, &routev3.Route{Action: &routev3.Route_Route{Route: &routev3.RouteAction{
			ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster}}}})
	}
	return &routev3.RouteConfiguration{Name: name, VirtualHosts: []*routev3.VirtualHost{host}}
}

func listenerWith(name, body string) *listenerv3.Listener {
	var filters []*listenerv3.Filter
	add := func(m proto.Message) {
		filters = append(filters, &listenerv3.Filter{ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: packed(m)}})
	}
	words := strings.NewReplacer(forHTTP, "", forTCP, "").Replace(body)
	for _, name := range namesOf(words) {
		if !strings.Contains(body, forTCP) {
			add(&hcmv3.HttpConnectionManager{AccessLog: []*accesslogv3.AccessLog{logVia(name)},
				RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{RouteConfigName: name}}})
		}
		if !strings.Contains(body, forHTTP) {
			add(&tcpv3.TcpProxy{ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: name}})
		}
	}
	return &listenerv3.Listener{Name: name, StatPrefix: body,
		FilterChains: []*listenerv3.FilterChain{{Filters: filters}}}
}

// logVia returns a logger that sends its entries to a cluster.
func logVia(cluster string) *accesslogv3.AccessLog {
	return &accesslogv3.AccessLog{ConfigType: &accesslogv3.AccessLog_TypedConfig{TypedConfig: packed(
		&grpclogv3.HttpGrpcAccessLogConfig{CommonConfig: &grpclogv3.CommonGrpcAccessLogConfig{
			GrpcService: &corev3.GrpcService{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
				EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: cluster}}}}})}}
}

// nameAndBody returns the name and the body word of a resource.
func nameAndBody(typeURL string, raw []byte) (name, body string) {
	var err error
	switch typeURL {
	case cds:
		m := &clusterv3.Cluster{}
		err = proto.Unmarshal(raw, m)
		name, body = m.GetName(), m.GetAltStatName()
	case lds:
		m := &listenerv3.Listener{}
		err = proto.Unmarshal(raw, m)
		name, body = m.GetName(), m.GetStatPrefix()
	case rds:
		m := &routev3.RouteConfiguration{}
		if err = proto.Unmarshal(raw, m); len(m.GetVirtualHosts()) > 0 {
			body = m.GetVirtualHosts()[0].GetName()
		}
		name = m.GetName()
	default:
		name, _, _ = strings.Cut(string(raw), ".")
		body = string(raw)
	}
	if err != nil {
		return "", err.Error()
	}
	return name, body
}

// bodyOf returns the body word of a resource.
func bodyOf(typeURL string, raw []byte) string {
	_, body := nameAndBody(typeURL, raw)
	return body
}
