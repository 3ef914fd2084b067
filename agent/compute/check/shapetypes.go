package check

import (
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	filelogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/nearside-mesh/nearside/agent/compute/envoy"
)

// shapeTypes returns, by kind, the fields that hold names. A field may be listed if the rules
// depend only on which names are equal, for every text that isName accepts. A reference must be
// listed as refName.
func shapeTypes() [envoy.NumKinds]*shapeType {
	name := shapeField{role: plainName}
	ref := shapeField{role: refName}
	own := shapeField{role: ownName}
	extra := shapeField{role: metadata}

	formatted := typeWith(&corev3.SubstitutionFormatString{}, names{
		"text_format_source": in(typeWith(&corev3.DataSource{}, names{"inline_string": {role: format}})),
	})
	logs := in(typeWith(&accesslogv3.AccessLog{}, names{
		"typed_config": packing(typed{&filelogv3.FileAccessLog{}, names{"log_format": in(formatted)}}),
	}))
	routes := typeWith(&routev3.RouteConfiguration{}, names{
		"name": name,
		"virtual_hosts": in(typeWith(&routev3.VirtualHost{}, names{
			"name": name, "domains": {role: domain},
			"routes": in(typeWith(&routev3.Route{}, names{
				"name":  name,
				"route": in(typeWith(&routev3.RouteAction{}, names{"cluster": ref})),
			})),
		})),
	})
	filters := in(typeWith(&listenerv3.Filter{}, names{
		"typed_config": packing(
			typed{&tcpv3.TcpProxy{}, names{"stat_prefix": name, "cluster": ref, "access_log": logs}},
			typed{&hcmv3.HttpConnectionManager{}, names{
				"stat_prefix": name, "access_log": logs, "route_config": in(routes),
				"rds": in(typeWith(&hcmv3.Rds{}, names{"route_config_name": ref})),
			}}),
	}))
	listener := typeWith(&listenerv3.Listener{}, names{
		"name": own, "stat_prefix": name, "metadata": extra,
		"address": in(typeWith(&corev3.Address{}, names{
			"socket_address": in(typeWith(&corev3.SocketAddress{},
				names{"address": {role: ipv4}, "port_value": {role: portNumber}})),
		})),
		"filter_chains": in(typeWith(&listenerv3.FilterChain{}, names{"filters": filters})),
	})

	validation := in(typeWith(&tlsv3.CertificateValidationContext{}, names{
		"match_typed_subject_alt_names": in(typeWith(&tlsv3.SubjectAltNameMatcher{}, names{
			"matcher": in(typeWith(&matcherv3.StringMatcher{}, names{"exact": name})),
		})),
	}))
	// Rules about the endpoints of a cluster depend on whether their addresses are IP addresses.
	assigned := func(clusterName, address shapeField) *shapeType {
		return typeWith(&endpointv3.ClusterLoadAssignment{}, names{
			"cluster_name": clusterName,
			"endpoints": in(typeWith(&endpointv3.LocalityLbEndpoints{}, names{
				"lb_endpoints": in(typeWith(&endpointv3.LbEndpoint{}, names{
					"metadata": extra,
					"endpoint": in(typeWith(&endpointv3.Endpoint{}, names{
						"address": in(typeWith(&corev3.Address{}, names{
							"socket_address": in(typeWith(&corev3.SocketAddress{}, names{"address": address})),
						})),
					})),
				})),
			})),
		})
	}
	cluster := typeWith(&clusterv3.Cluster{}, names{
		"load_assignment": in(assigned(name, shapeField{role: hostAddress})),
		"name":            own, "alt_stat_name": name, "metadata": extra,
		"eds_cluster_config": in(typeWith(&clusterv3.Cluster_EdsClusterConfig{}, names{"service_name": ref})),
		"transport_socket": in(typeWith(&corev3.TransportSocket{}, names{
			"typed_config": packing(typed{&tlsv3.UpstreamTlsContext{}, names{
				"sni": name,
				"common_tls_context": in(typeWith(&tlsv3.CommonTlsContext{}, names{
					"combined_validation_context": in(typeWith(&tlsv3.CommonTlsContext_CombinedCertificateValidationContext{}, names{
						"default_validation_context": validation,
					})),
				})),
			}}),
		})),
	})
	endpoints := assigned(own, name)
	var out [envoy.NumKinds]*shapeType
	rootRoutes := *routes
	rootRoutes.fields = append([]shapeField(nil), routes.fields...)
	rootRoutes.fields[1] = own
	out[envoy.KindListener], out[envoy.KindCluster], out[envoy.KindEndpoint], out[envoy.KindRoute] = listener, cluster,
		endpoints, &rootRoutes
	return out
}

// filterTypes returns the types of network filters in a listener, by URL.
func filterTypes(listener *shapeType) map[string]*shapeType {
	chains := (&listenerv3.Listener{}).ProtoReflect().Descriptor().Fields().ByName("filter_chains")
	filters := chains.Message().Fields().ByName("filters")
	config := filters.Message().Fields().ByName("typed_config")
	return listener.field(chains.Number()).of.field(filters.Number()).of.field(config.Number()).of.packed
}

// names maps fields by their name in the API.
type names = map[protoreflect.Name]shapeField

// typed is a message type that an Any may contain.
type typed struct {
	message proto.Message
	names   names
}

// typeWith returns the shapeType of a message. It ignores names that are not fields of the message;
// a test checks that there are none.
func typeWith(m proto.Message, n names) *shapeType {
	t := &shapeType{}
	fields := m.ProtoReflect().Descriptor().Fields()
	for name, f := range n {
		d := fields.ByName(name)
		if d == nil {
			continue
		}
		for len(t.fields) <= int(d.Number()) {
			t.fields = append(t.fields, shapeField{})
		}
		t.fields[d.Number()] = f
	}
	return t
}

func in(t *shapeType) shapeField { return shapeField{role: inside, of: t} }

// packing returns a field with one of several packed messages.
func packing(types ...typed) shapeField {
	t := &shapeType{packed: map[string]*shapeType{}}
	for _, p := range types {
		t.packed[envoy.TypePrefix+string(p.message.ProtoReflect().Descriptor().FullName())] = typeWith(p.message, p.names)
	}
	return shapeField{role: packedIn, of: t}
}
