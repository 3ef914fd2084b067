package envoy

import (
	"crypto/sha256"
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

// Kind is the type of an xDS resource. The kinds are in make-before-break order: a resource
// precedes those that refer to it.
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

// URL returns the type URL of the kind.
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

	edits string // from the wire form of base to that of the resource; "": they are equal. See packed.go
	base  *Base
	refs  *Refs // of a resource with edits
}

// Base is an immutable wire form with its references. Resources of one name that differ little
// share one.
type Base struct {
	name string
	body []byte
	refs *Refs
}

// Raw returns a resource in its wire form, which must not be changed afterwards.
func Raw(k Kind, name, version string, body []byte) *Resource {
	return Whole(name, version, body, new(RefFinder).Find(k, name, body))
}

// Whole returns a resource in its wire form with its references. The body must not be changed
// afterwards.
func Whole(name, version string, body []byte, refs *Refs) *Resource {
	return &Resource{Name: name, Version: version, base: &Base{name: name, body: body, refs: refs}}
}

// Edited returns the resource in another wire form, which has the same references.
func (r *Resource) Edited(version string, body []byte) *Resource {
	return Whole(r.Name, version, body, r.Refs())
}

// Refs returns the names of the resources that the resource refers to.
func (r *Resource) Refs() *Refs {
	if r.base == nil {
		return nil
	}
	if r.edits != "" {
		return r.refs
	}
	return r.base.refs
}

// Base returns the wire form against which other resources of the same name can be packed; nil for
// a resource that is packed.
func (r *Resource) Base() *Base {
	if r.edits != "" {
		return nil
	}
	return r.base
}

// Body returns the wire form, which must not be changed. A packed resource is unpacked by each
// call.
func (r *Resource) Body() []byte {
	switch {
	case r.base == nil:
		return nil
	case r.edits == "":
		return r.base.body
	}
	return unpack(make([]byte, 0, r.Len()), r.base.body, r.edits)
}

// AppendBody appends the wire form.
func (r *Resource) AppendBody(b []byte) []byte {
	if r.edits == "" {
		return append(b, r.Body()...)
	}
	return unpack(b, r.base.body, r.edits)
}

// IsPacked reports whether the resource stores only its difference to another resource.
func (r *Resource) IsPacked() bool { return r.edits != "" }

// Kept returns the size in bytes of what the resource stores for its wire form.
func (r *Resource) Kept() int {
	if r.edits == "" {
		return r.Len()
	}
	return len(r.edits)
}

// Len returns the size of the wire form in bytes.
func (r *Resource) Len() int {
	if r.edits == "" {
		return len(r.Body())
	}
	n, _ := uvarint(r.edits)
	return n
}

// NewResource encodes a message as a resource, for patches and tests. The name is the one in the
// message. It fails for a message of a type that is not served.
func NewResource(m proto.Message) (*Resource, error) {
	url := TypePrefix + string(m.ProtoReflect().Descriptor().FullName())
	k := slices.Index(KindURLs[:], url)
	if k < 0 {
		return nil, fmt.Errorf("%s is not served as a resource", url)
	}
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(body)
	return Raw(Kind(k), ResourceName(m), hex.EncodeToString(sum[:16]), body), nil
}

// ResourceName returns the name of a resource that its message contains, "" for none.
func ResourceName(m proto.Message) string {
	switch m := m.(type) {
	case interface{ GetName() string }:
		return m.GetName()
	case interface{ GetClusterName() string }:
		return m.GetClusterName()
	}
	return ""
}

// Snapshot is the config of one proxy: its resources by kind, in any order. The lists must not be
// changed.
type Snapshot [NumKinds][]*Resource

// Find returns the resource with the name, nil for none.
func (s *Snapshot) Find(k Kind, name string) *Resource {
	if i := slices.IndexFunc(s[k], func(r *Resource) bool { return r.Name == name }); i >= 0 {
		return s[k][i]
	}
	return nil
}
