package xds

import (
	"encoding/json"
	"fmt"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/redact"
)

// messageType returns the message type of a rank.
func messageType(rank int) protoreflect.MessageType {
	switch draft.Types[rank] {
	case draft.TypeSecret:
		return (*tlsv3.Secret)(nil).ProtoReflect().Type()
	case draft.TypeCluster:
		return (*clusterv3.Cluster)(nil).ProtoReflect().Type()
	case draft.TypeEndpoint:
		return (*endpointv3.ClusterLoadAssignment)(nil).ProtoReflect().Type()
	case draft.TypeListener:
		return (*listenerv3.Listener)(nil).ProtoReflect().Type()
	default:
		return (*routev3.RouteConfiguration)(nil).ProtoReflect().Type()
	}
}

// RenderKey names the content of a resource.
type RenderKey struct{ TypeURL, Version string }

// RenderCache remembers rendered resources. Nobody may change what it returns.
type RenderCache interface {
	Get(RenderKey) json.RawMessage // nil: not known
	Put(RenderKey, json.RawMessage)
}

// Renderer renders resources as JSON, with proto field names in lowerCamelCase. Private keys and other secret values are
// replaced. The output is the same for the same resource. It must not be used by two goroutines at once.
type Renderer struct {
	redact *redact.Renderer
	cache  RenderCache
}

// NewRenderer returns a renderer that remembers resources in a cache; nil: nowhere. It fails when the program cannot tell
// which values are secret.
func NewRenderer(cache RenderCache) (*Renderer, error) {
	secrecy, err := secrets()
	if err != nil {
		return nil, err
	}
	return &Renderer{redact: redact.New(secrecy), cache: cache}, nil
}

// Render renders a resource of the type that has that rank. The error names both.
func (r *Renderer) Render(rank int, res *draft.Resource) (json.RawMessage, error) {
	key := RenderKey{draft.Types[rank], res.Version}
	if r.cache != nil {
		if out := r.cache.Get(key); out != nil {
			return out, nil
		}
	}
	out, err := r.redact.JSON(messageType(rank), res.Body)
	if err != nil {
		return nil, fmt.Errorf("%s %q: %w", draft.Types[rank], res.Name, err)
	}
	if r.cache != nil {
		r.cache.Put(key, out)
	}
	return out, nil
}

// JSON is [Renderer.Config] without a cache.
func (p *Proxy) JSON() (map[string]map[string]json.RawMessage, error) {
	r, err := NewRenderer(nil)
	if err != nil {
		return nil, err
	}
	return r.Config(p)
}

// Config renders a config as {type URL: {resource name: resource}}.
func (r *Renderer) Config(p *Proxy) (map[string]map[string]json.RawMessage, error) {
	out := map[string]map[string]json.RawMessage{}
	for rank, list := range p.Sealed.Resources {
		if len(list) == 0 {
			continue
		}
		m := make(map[string]json.RawMessage, len(list))
		for _, res := range list {
			var err error
			if m[res.Name], err = r.Render(rank, res); err != nil {
				return nil, err
			}
		}
		out[draft.Types[rank]] = m
	}
	return out, nil
}
