package node

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// Flavor says which kind of xDS client a config is made for.
type Flavor string

// The flavors that are served.
const (
	// FlavorEnvoy is for Envoy proxies.
	FlavorEnvoy Flavor = "envoy"
	// FlavorGRPC is for gRPC libraries that speak xDS themselves (gRFC A27): API listeners by name, no tcp_proxy.
	FlavorGRPC Flavor = "grpc"
)

// NodeKey names one config: a proxy, in the form that one kind of client takes.
type Key struct {
	ID     string // see ProxyRef.NodeID
	Flavor Flavor
}

// maxNodeID bounds a node id in bytes: a mesh name of 63, a dot and a DNS name of 253.
const MaxNodeID = 63 + 1 + 253

// ParseNodeID splits an xDS node id into the mesh (up to the first dot) and the name of the Dataplane (the rest, which
// may hold dots). It fails when a half is empty, when the id is longer than 317 bytes, or when it holds a slash, a
// space or a character that does not print.
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

// flavorOf tells the kind of client from the user agent that it gives; gRPC libraries say "gRPC Go", "gRPC C-core" …
func FlavorOf(n *core.Node) Flavor {
	if strings.HasPrefix(n.GetUserAgentName(), "gRPC") {
		return FlavorGRPC
	}
	return FlavorEnvoy
}
