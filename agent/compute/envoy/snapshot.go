package envoy

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
)

// Kind is the type of an xDS resource. The kinds are in make-before-break order: what is referred
// to comes before what refers to it.
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

// TypePrefix begins every type URL.
const TypePrefix = "type.googleapis.com/"

var KindURLs = [NumKinds]string{
	"type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
	"type.googleapis.com/envoy.config.cluster.v3.Cluster",
	"type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
	"type.googleapis.com/envoy.config.listener.v3.Listener",
	"type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
}

// New returns an empty message of the kind.
func (k Kind) New() proto.Message {
	return [NumKinds]proto.Message{&tlsv3.Secret{}, &clusterv3.Cluster{}, &endpointv3.ClusterLoadAssignment{},
		&listenerv3.Listener{}, &routev3.RouteConfiguration{}}[k]
}

// URL is the type URL of the kind.
func (k Kind) URL() string {
	if k < NumKinds {
		return KindURLs[k]
	}
	return ""
}

// Resource is one resource of a proxy, immutable.
type Resource struct {
	Name    string
	Version string // a hash over the body: resources of one kind and version are equal

	body []byte    // wire form or, with a base, what makes it of that one's; see packed.go
	base *Resource // has no base itself
}

// Raw makes a resource of its wire form, which must not be changed afterwards.
func Raw(name, version string, body []byte) *Resource {
	return &Resource{Name: name, Version: version, body: body}
}

// Body returns the wire form, which must not be changed. It may be made anew each time: who reads
// it more than once keeps it.
func (r *Resource) Body() []byte {
	if r.base == nil {
		return r.body
	}
	return unpack(make([]byte, 0, r.Len()), r.base.body, r.body)
}

// AppendBody appends the wire form.
func (r *Resource) AppendBody(b []byte) []byte {
	if r.base == nil {
		return append(b, r.body...)
	}
	return unpack(b, r.base.body, r.body)
}

// IsPacked says whether the wire form is kept as what differs from that of another resource.
func (r *Resource) IsPacked() bool { return r.base != nil }

// Kept returns how many bytes the resource keeps of its own for the wire form.
func (r *Resource) Kept() int { return len(r.body) }

// Len returns how many bytes the wire form has.
func (r *Resource) Len() int {
	if r.base == nil {
		return len(r.body)
	}
	n, _ := binary.Uvarint(r.body)
	return int(n)
}

// NewResource makes a resource of a message, for patches and tests. The name is that of the
// message's own field.
func NewResource(m proto.Message) (*Resource, error) {
	url := TypePrefix + string(m.ProtoReflect().Descriptor().FullName())
	if !slices.Contains(KindURLs[:], url) {
		return nil, fmt.Errorf("%s is not served as a resource", url)
	}
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(body)
	return Raw(ResourceName(m), hex.EncodeToString(sum[:16]), body), nil
}

// ResourceName is the name that a resource has in itself.
func ResourceName(m proto.Message) string {
	switch m := m.(type) {
	case interface{ GetName() string }:
		return m.GetName()
	case interface{ GetClusterName() string }:
		return m.GetClusterName()
	}
	return ""
}

// Snapshot is the config of one proxy: its resources by kind, in any order. The lists are not
// changed.
type Snapshot [NumKinds][]*Resource

// Find returns the resource of a name, nil for none.
func (s *Snapshot) Find(k Kind, name string) *Resource {
	if i := slices.IndexFunc(s[k], func(r *Resource) bool { return r.Name == name }); i >= 0 {
		return s[k][i]
	}
	return nil
}
