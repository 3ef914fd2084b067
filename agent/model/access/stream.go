package access

import (
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/nearside-mesh/nearside/agent/model/node"
)

// Stream describes one xDS stream that a peer opened under a node ID.
type Stream struct {
	ID int64 // unique in the process
	// of the first request, as far as it is used; nil once the stream closes. It must be neither
	// changed nor kept.
	Node  *core.Node
	Key   node.Key
	Peer  Peer
	Grant Grant // what the peer may do under the node ID
	Delta bool
}
