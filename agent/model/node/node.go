// Package node identifies xDS clients: the proxy that a node ID names, and the form of config that
// a client accepts.
package node

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Flavor is the kind of xDS client that a config is generated for.
type Flavor string

// Supported flavors.
const (
	// FlavorEnvoy is for Envoy proxies.
	FlavorEnvoy Flavor = "envoy"
	// FlavorGRPC is for gRPC libraries with built-in xDS (gRFC A27): API listeners by name, no
	// tcp_proxy.
	FlavorGRPC Flavor = "grpc"
)

// Key identifies one config: a proxy, and the flavor of the client.
type Key struct {
	ID     string // see [Ref.NodeID]
	Flavor Flavor
}

// MaxNodeID is the maximum length of a node id in bytes: a mesh name of 63, a dot, and a DNS name
// of 253.
const MaxNodeID = 63 + 1 + 253

// ParseID splits an xDS node id into the mesh (up to the first dot) and the name of the Dataplane
// (the rest, which may contain dots). It fails if a half is empty, if the id is longer than 317
// bytes, or if it contains a slash, a space, or a character that is not printable.
func ParseID(id string) (mesh, name string, err error) {
	if len(id) > MaxNodeID {
		return "", "", fmt.Errorf("node id of %d bytes: at most %d are allowed", len(id), MaxNodeID)
	}
	mesh, name, ok := strings.Cut(id, ".")
	if !ok || mesh == "" || name == "" {
		return "", "", fmt.Errorf("node id %q: want <mesh>.<name of the Dataplane>", id)
	}
	if err := checkNodeID(id); err != nil {
		return "", "", err
	}
	return mesh, name, nil
}

// checkNodeID rejects characters that node ids must not contain.
func checkNodeID(id string) error {
	if !utf8.ValidString(id) {
		return fmt.Errorf("node id %q: not UTF-8", id)
	}
	if i := strings.IndexFunc(id, func(r rune) bool {
		return r == '/' || unicode.IsSpace(r) || !unicode.IsPrint(r)
	}); i >= 0 {
		r, _ := utf8.DecodeRuneInString(id[i:])
		return fmt.Errorf("node id %q: the character %q is not allowed", id, r)
	}
	return nil
}

// FlavorOf derives the flavor from the user agent of the client. gRPC libraries send "gRPC Go",
// "gRPC C-core", and similar names.
func FlavorOf(n *core.Node) Flavor {
	if strings.HasPrefix(n.GetUserAgentName(), "gRPC") {
		return FlavorGRPC
	}
	return FlavorEnvoy
}

// Type is the role of a proxy.
type Type string

// Types of proxies. Zone proxies belong to no mesh.
const (
	ProxyDataplane Type = ""        // next to a workload
	ProxyEgress    Type = "egress"  // for traffic that leaves the zone
	ProxyIngress   Type = "ingress" // for traffic from other zones
)

// Kind returns the kind of resource that defines such a proxy.
func (t Type) Kind() string {
	switch t {
	case ProxyEgress:
		return "ZoneEgress"
	case ProxyIngress:
		return "ZoneIngress"
	}
	return "Dataplane"
}

// Ref identifies one proxy.
type Ref struct {
	Type Type
	Mesh string // "" for zone proxies
	Name string // name of the resource
}

// Key returns the key of the resource that defines the proxy.
func (r Ref) Key() resource.Key {
	return resource.Key{Kind: r.Type.Kind(), Mesh: r.Mesh, Name: r.Name}
}

// NodeID returns the xDS node id of the proxy: MESH.NAME for a Dataplane, .egress.NAME or
// .ingress.NAME for a zone proxy. No mesh has an empty name, so the forms cannot collide.
func (r Ref) NodeID() string {
	if r.Type == ProxyDataplane {
		return r.Mesh + "." + r.Name
	}
	return "." + string(r.Type) + "." + r.Name
}

// maxResourceName is the maximum length of a resource name, in bytes.
const maxResourceName = 253

// ParseRef parses an xDS node id. It fails like [ParseID], and if an id without a mesh has none of
// the forms of NodeID.
func ParseRef(id string) (Ref, error) {
	rest, zone := strings.CutPrefix(id, ".")
	if !zone {
		mesh, name, err := ParseID(id)
		return Ref{Mesh: mesh, Name: name}, err
	}
	typ, name, ok := strings.Cut(rest, ".")
	r := Ref{Type: Type(typ), Name: name}
	if !ok || name == "" || r.Type != ProxyEgress && r.Type != ProxyIngress {
		return Ref{}, fmt.Errorf("node id %s: want <mesh>.<name of the Dataplane>, .egress.<name of the ZoneEgress> or "+
			".ingress.<name of the ZoneIngress>", quoteID(id))
	}
	if len(name) > maxResourceName {
		return Ref{}, fmt.Errorf("node id of %d bytes: a name has at most %d", len(id), maxResourceName)
	}
	return r, checkNodeID(id)
}

// quoteID quotes a node id of any length.
func quoteID(id string) string {
	if len(id) > MaxNodeID {
		return fmt.Sprintf("%q…", id[:MaxNodeID])
	}
	return fmt.Sprintf("%q", id)
}

// Remedy returns the remedy for a proxy whose resource does not exist.
func (r Ref) Remedy() string {
	if r.Type == ProxyDataplane {
		return fmt.Sprintf("apply a Dataplane named %q in mesh %q, or start the proxy with its Dataplane in the node "+
			"metadata (nearside bootstrap --dataplane FILE)", r.Name, r.Mesh)
	}
	return fmt.Sprintf("apply a %s named %q", r.Type.Kind(), r.Name)
}
