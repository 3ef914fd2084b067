package api

// States of a [Drain], in the order in which a proxy passes through them.
const (
	DrainLeaving   = "leaving"   // proxies or nodes still have its endpoints
	DrainDraining  = "draining"  // nothing sends it new requests, and some may be in progress
	DrainDrained   = "drained"   // it has no requests in progress
	DrainReturning = "returning" // the drain has been undone, and proxies or nodes lack its endpoints
	DrainUndone    = "serving"   // the drain has been undone
)

// DrainRequest is POST /v1/dataplanes/{mesh}/{name}/drain, and a part of [OwnDrain].
type DrainRequest struct {
	Undo bool `json:"undo,omitempty"` // the dataplane serves again
	// UntilUndo keeps the drain when the Envoy is started again. Otherwise, that ends it.
	UntilUndo bool `json:"untilUndo,omitempty"`
	// Wait waits also until the Envoy has no requests and TCP connections at its inbounds. With Undo,
	// it waits until all proxies have the endpoints again.
	Wait bool `json:"wait,omitempty"`
	// Timeout is how long one answer may take, as a duration of at most 25s, which is the default.
	Timeout string `json:"timeout,omitempty"`
}

// Drain is the answer to a [DrainRequest]. Lists of late proxies and nodes have a limit.
type Drain struct {
	Mesh  string `json:"mesh"`
	Name  string `json:"name"`
	State string `json:"state"`
	// Proxies have acknowledged that the endpoints are gone, on Nodes nodes of the pool. After Undo
	// with Wait, they have acknowledged that the endpoints are back.
	Proxies   int         `json:"proxies"`
	Nodes     int         `json:"nodes,omitempty"`
	Late      []LateProxy `json:"late,omitempty"`
	LateTotal int         `json:"lateTotal,omitempty"`
	LateNodes []LateNode  `json:"lateNodes,omitempty"`
	Unasked   []string    `json:"unasked,omitempty"` // dead nodes, whose proxies are unknown
	Reason    string      `json:"reason,omitempty"`  // why it is late, if neither a proxy nor a node is
	// Active is the number of requests and TCP connections at the inbounds, or null if it is
	// unknown.
	Active *int `json:"active"`
	// Envoy is why the Envoy could not be asked to fail its health checks, or to pass them, or "".
	Envoy string `json:"envoy,omitempty"`
}

// OwnDrain is the request of [DrainMethod]: a proxy drains itself. The peer of the connection must
// be permitted to use the node id.
type OwnDrain struct {
	NodeID string `json:"nodeID"`
	DrainRequest
}

// DrainMethod is the gRPC method on the xDS socket that a proxy calls to drain itself. Its request
// is an [OwnDrain] and its answer a [Drain], both as JSON in a BytesValue. The agent does not
// change the Envoy, because the caller can.
const (
	DrainService = "nearside.v1.Proxy"
	DrainMethod  = "Drain"
)
