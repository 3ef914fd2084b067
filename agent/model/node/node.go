// Package node names xDS clients: the proxy that a node ID stands for, and the form of config that
// a client takes.
package node

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Flavor says which kind of xDS client a config is made for.
type Flavor string

// The flavors that are served.
const (
	// FlavorEnvoy is for Envoy proxies.
	FlavorEnvoy Flavor = "envoy"
	// FlavorGRPC is for gRPC libraries that speak xDS themselves (gRFC A27): API listeners by name, no
	// tcp_proxy.
	FlavorGRPC Flavor = "grpc"
)

// Key names one config: a proxy, in the form that one kind of client takes.
type Key struct {
	ID     string // see [Ref.NodeID]
	Flavor Flavor
}

// MaxNodeID bounds a node id in bytes: a mesh name of 63, a dot and a DNS name of 253.
const MaxNodeID = 63 + 1 + 253

// ParseID splits an xDS node id into the mesh (up to the first dot) and the name of the Dataplane
// (the rest, which may hold dots). It fails when a half is empty, when the id is longer than 317
// bytes, or when it holds a slash, a space or a character that does not print.
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

// checkNodeID refuses characters that no node id has.
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

// FlavorOf tells the kind of client from the user agent that it gives; gRPC libraries say "gRPC
// Go", "gRPC C-core" …
func FlavorOf(n *core.Node) Flavor {
	if strings.HasPrefix(n.GetUserAgentName(), "gRPC") {
		return FlavorGRPC
	}
	return FlavorEnvoy
}

// Type says what a proxy is there for.
type Type string

// The types. Zone proxies belong to no mesh.
const (
	ProxyDataplane Type = ""        // beside a workload
	ProxyEgress    Type = "egress"  // what leaves the zone goes through it
	ProxyIngress   Type = "ingress" // what other zones send comes in through it
)

// Kind is the kind of the resource that such a proxy is made of.
func (t Type) Kind() string {
	switch t {
	case ProxyEgress:
		return "ZoneEgress"
	case ProxyIngress:
		return "ZoneIngress"
	}
	return "Dataplane"
}

// Ref names one proxy.
type Ref struct {
	Type Type
	Mesh string // "" for zone proxies
	Name string // of the resource
}

// Key is that of the resource that the proxy is made of.
func (r Ref) Key() resource.Key {
	return resource.Key{Kind: r.Type.Kind(), Mesh: r.Mesh, Name: r.Name}
}

// NodeID is the xDS node id of the proxy: MESH.NAME of a Dataplane, .egress.NAME and .ingress.NAME
// of the others. No mesh has an empty name, so that they are never taken for one another.
func (r Ref) NodeID() string {
	if r.Type == ProxyDataplane {
		return r.Mesh + "." + r.Name
	}
	return "." + string(r.Type) + "." + r.Name
}

// maxResourceName is the longest name of a resource, in bytes.
const maxResourceName = 253

// ParseRef reads an xDS node id. It fails as [ParseID] does, and when an id without a mesh has none
// of the forms of NodeID.
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

// quoteID quotes a node id that may be of any length.
func quoteID(id string) string {
	if len(id) > MaxNodeID {
		return fmt.Sprintf("%q…", id[:MaxNodeID])
	}
	return fmt.Sprintf("%q", id)
}

// Remedy says what to do about a proxy whose resource does not exist.
func (r Ref) Remedy() string {
	if r.Type == ProxyDataplane {
		return fmt.Sprintf("apply a Dataplane named %q in mesh %q, or start the proxy with its Dataplane in the node "+
			"metadata (nearside bootstrap --dataplane FILE)", r.Name, r.Mesh)
	}
	return fmt.Sprintf("apply a %s named %q", r.Type.Kind(), r.Name)
}
