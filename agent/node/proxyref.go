package node

import (
	"fmt"
	"strings"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// ProxyType says what a proxy is there for.
type Type string

// The types. Those at the border of a zone belong to no mesh.
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

// ProxyRef names one proxy.
type Ref struct {
	Type Type
	Mesh string // "" for those at the border of a zone
	Name string // of the resource
}

// Key is that of the resource that the proxy is made of.
func (r Ref) Key() resource.Key {
	return resource.Key{Kind: r.Type.Kind(), Mesh: r.Mesh, Name: r.Name}
}

// NodeID is the xDS node id of the proxy: MESH.NAME of a Dataplane, .egress.NAME and .ingress.NAME of the others. No
// mesh has an empty name, so that they are never taken for one another.
func (r Ref) NodeID() string {
	if r.Type == ProxyDataplane {
		return r.Mesh + "." + r.Name
	}
	return "." + string(r.Type) + "." + r.Name
}

// maxResourceName is the longest name of a resource, in bytes.
const maxResourceName = 253

// ParseProxyRef reads an xDS node id. It fails as [ParseNodeID] does, and when an id without a mesh has none of the forms
// of NodeID.
func ParseRef(id string) (Ref, error) {
	rest, zone := strings.CutPrefix(id, ".")
	if !zone {
		mesh, name, err := ParseID(id)
		return Ref{Mesh: mesh, Name: name}, err
	}
	typ, name, ok := strings.Cut(rest, ".")
	r := Ref{Type: Type(typ), Name: name}
	if !ok || name == "" || r.Type != ProxyEgress && r.Type != ProxyIngress {
		return Ref{}, fmt.Errorf("node id %s: want <mesh>.<name of the Dataplane>, .egress.<name of the ZoneEgress> or .ingress.<name of the ZoneIngress>", quoteID(id))
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

// remedy says what to do about a proxy whose resource does not exist.
func (r Ref) Remedy() string {
	if r.Type == ProxyDataplane {
		return fmt.Sprintf("apply a Dataplane named %q in mesh %q, or start the proxy with its Dataplane in the node metadata (nearside bootstrap --dataplane FILE)", r.Name, r.Mesh)
	}
	return fmt.Sprintf("apply a %s named %q", r.Type.Kind(), r.Name)
}
