package access

import (
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/nearside-mesh/nearside/agent/model/node"
)

// Stream describes one xDS stream that a peer opened under a node ID.
type Stream struct {
	ID int64 // unique in the process
	// node of the first request, reduced to the used fields; nil after the stream closes. Callers
	// must not modify or retain it.
	Node  *core.Node
	Key   node.Key
	Peer  Peer
	Grant Grant // permissions of the peer under the node ID
	Delta bool
	// Refused is set when a stream closes because its first request was refused, or because its peer
	// may no longer use the node ID.
	Refused bool
}
