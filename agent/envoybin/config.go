package envoybin

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/envoy"
	"github.com/nearside-mesh/nearside/agent/inspect"
	"github.com/nearside-mesh/nearside/agent/redact"
)

// hiddenKey stands for what the API does not show.
const hiddenKey = "hidden"

// staticFromJSON reads a config as the API shows it.
func staticFromJSON(x inspect.XDS) (*staticConfig, error) {
	out := &staticConfig{endpoints: map[string]*endpointv3.ClusterLoadAssignment{}, routes: map[string]*routev3.RouteConfiguration{}}
	// In a field of bytes it has to be base64, in a text it may be anything.
	hidden := []byte(`"` + base64.StdEncoding.EncodeToString([]byte(hiddenKey)) + `"`)
	for _, typeURL := range slices.Sorted(maps.Keys(x)) {
		for _, name := range slices.Sorted(maps.Keys(x[typeURL])) {
			var m proto.Message
			switch typeURL {
			case envoy.KindListener.URL():
				l := &listenerv3.Listener{}
				out.listeners, m = append(out.listeners, l), l
			case envoy.KindCluster.URL():
				c := &clusterv3.Cluster{}
				out.clusters, m = append(out.clusters, c), c
			case envoy.KindSecret.URL():
				s := &tlsv3.Secret{}
				out.secrets, m = append(out.secrets, s), s
			case envoy.KindEndpoint.URL():
				a := &endpointv3.ClusterLoadAssignment{}
				out.endpoints[name], m = a, a
			case envoy.KindRoute.URL():
				c := &routev3.RouteConfiguration{}
				out.routes[name], m = c, c
			default:
				return nil, fmt.Errorf("resources of type %s are not known", typeURL)
			}
			text := bytes.ReplaceAll(x[typeURL][name], []byte(`"`+redact.Redacted+`"`), hidden)
			if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, m); err != nil {
				return nil, fmt.Errorf("%s %s: %w", typeURL, name, err)
			}
		}
	}
	return out, nil
}
