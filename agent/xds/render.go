package xds

import (
	"bytes"
	"encoding/json"
	"fmt"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/draft"
)

// newMessage returns an empty message of each type, by rank.
func newMessage(rank int) proto.Message {
	switch draft.Types[rank] {
	case draft.TypeSecret:
		return &tlsv3.Secret{}
	case draft.TypeCluster:
		return &clusterv3.Cluster{}
	case draft.TypeEndpoint:
		return &endpointv3.ClusterLoadAssignment{}
	case draft.TypeListener:
		return &listenerv3.Listener{}
	default:
		return &routev3.RouteConfiguration{}
	}
}

// JSON renders the config as {type URL: {resource name: resource}} with proto field names in lowerCamelCase. Private
// keys and other secret bytes are replaced. The output is the same for the same config.
func (p *Proxy) JSON() (map[string]map[string]json.RawMessage, error) {
	out := map[string]map[string]json.RawMessage{}
	for rank, list := range p.Sealed.Resources {
		if len(list) == 0 {
			continue
		}
		m := make(map[string]json.RawMessage, len(list))
		for _, r := range list {
			j, err := RenderJSON(rank, r)
			if err != nil {
				return nil, fmt.Errorf("%s %q: %w", draft.Types[rank], r.Name, err)
			}
			m[r.Name] = j
		}
		out[draft.Types[rank]] = m
	}
	return out, nil
}

// RenderJSON renders one resource, whose type has that rank, as [Proxy.JSON] does.
func RenderJSON(rank int, r *draft.Resource) (json.RawMessage, error) {
	m := newMessage(rank)
	if err := proto.Unmarshal(r.Body, m); err != nil {
		return nil, err
	}
	redact(m.ProtoReflect())
	j, err := protojson.Marshal(m)
	if err != nil {
		return nil, err
	}
	// protojson varies its white space on purpose; compacting makes it stable.
	var b bytes.Buffer
	if err := json.Compact(&b, j); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
