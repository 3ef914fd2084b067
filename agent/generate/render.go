package generate

import (
	"bytes"
	"encoding/json"
	"fmt"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/wirejson"
)

// descriptor returns the message type of each rank.
func descriptor(rank int) protoreflect.MessageDescriptor {
	switch draft.Types[rank] {
	case draft.TypeSecret:
		return (*tlsv3.Secret)(nil).ProtoReflect().Descriptor()
	case draft.TypeCluster:
		return (*clusterv3.Cluster)(nil).ProtoReflect().Descriptor()
	case draft.TypeEndpoint:
		return (*endpointv3.ClusterLoadAssignment)(nil).ProtoReflect().Descriptor()
	case draft.TypeListener:
		return (*listenerv3.Listener)(nil).ProtoReflect().Descriptor()
	default:
		return (*routev3.RouteConfiguration)(nil).ProtoReflect().Descriptor()
	}
}

// Renderer renders resources as JSON, with proto field names in lowerCamelCase. Private keys and other secret values are
// replaced. The output is the same for the same resource. It must not be used by two goroutines at once.
type Renderer struct {
	wire    *wirejson.Renderer
	scratch []byte
}

// NewRenderer returns a renderer. It is worth keeping for all resources of a config. It fails when the program cannot
// tell which values are secret.
func NewRenderer() (*Renderer, error) {
	secrecy, err := secrets()
	if err != nil {
		return nil, err
	}
	return &Renderer{wire: wirejson.New(secrecy)}, nil
}

// Render renders a resource of the type that has that rank. The error names both, and the path of the field.
func (r *Renderer) Render(rank int, res *draft.Resource) (json.RawMessage, error) {
	var err error
	if r.scratch, err = r.wire.Append(r.scratch[:0], descriptor(rank), res.Body); err != nil {
		return nil, fmt.Errorf("%s %q: %w", draft.Types[rank], res.Name, err)
	}
	return bytes.Clone(r.scratch), nil
}

// JSON renders the config as {type URL: {resource name: resource}}; see [Renderer].
func (p *Proxy) JSON() (map[string]map[string]json.RawMessage, error) {
	r, err := NewRenderer()
	if err != nil {
		return nil, err
	}
	out := map[string]map[string]json.RawMessage{}
	for rank, list := range p.Sealed.Resources {
		if len(list) == 0 {
			continue
		}
		m := make(map[string]json.RawMessage, len(list))
		for _, res := range list {
			if m[res.Name], err = r.Render(rank, res); err != nil {
				return nil, err
			}
		}
		out[draft.Types[rank]] = m
	}
	return out, nil
}
