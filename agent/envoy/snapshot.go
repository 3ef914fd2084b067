package envoy

import "google.golang.org/protobuf/proto"

// Kind is the type of an xDS resource. The kinds are in make-before-break order: what is referred to comes before what
// refers to it.
type Kind uint8

const (
	KindSecret Kind = iota
	KindCluster
	KindEndpoint
	KindListener
	KindRoute
	// NumKinds is the number of kinds.
	NumKinds
)

var kindURLs = [NumKinds]string{
	"type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
	"type.googleapis.com/envoy.config.cluster.v3.Cluster",
	"type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
	"type.googleapis.com/envoy.config.listener.v3.Listener",
	"type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
}

// URL is the type URL of the kind.
func (k Kind) URL() string {
	if k < NumKinds {
		return kindURLs[k]
	}
	return ""
}

// Resource is one resource of a proxy, immutable. It has the layout of a sealed resource of package draft, so that one
// pointer converts to the other.
type Resource struct {
	Name    string
	Version string // a hash over Body: resources of one kind and version are equal
	Body    []byte // wire form
}

// NewResource makes a resource of a message, for patches and tests. The name is that of the message's own field.
func NewResource(m proto.Message) (*Resource, error) { return newResource(m) }

// Snapshot is the config of one proxy: its resources by kind, in any order. The lists are not changed.
type Snapshot [NumKinds][]*Resource
