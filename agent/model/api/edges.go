package api

import "time"

// Permissions of an edge.
const (
	EdgeAllowed = "allowed"
	EdgeDenied  = "denied"
	EdgePartly  = "partly" // some proxies of the client service, or some ports, are denied
)

// Edges is GET /v1/edges: the services of the meshes, and which of them may call which others. It
// follows from resources alone, so it needs no traffic.
type Edges struct {
	// Services are all services of the requested meshes, sorted by mesh and name, at most 10,000.
	// They are on the first page only.
	Services     []EdgeService `json:"services"`
	MoreServices int           `json:"moreServices,omitempty"` // omitted ones
	// Edges are a page, sorted by mesh, client, and destination. Without all=true, it has only the
	// pairs between which a proxy has an outbound: those that policies allow, and denied ones that
	// a dataplane lists or that had traffic.
	Edges []Edge `json:"edges"`
	// Refused are the refused connections of the last hour, most recent first. They are on the
	// first page only.
	Refused  []EdgeRefusal `json:"refused"`
	Counters EdgeCounters  `json:"counters"`
	Total    int           `json:"total"` // edges of all pages
	Next     *string       `json:"next"`  // path and query of the next page, null on the last
}

// EdgeService is a service of a mesh. The MeshServices of a kuma.io/service value are the same
// service as the value. Other service resources are separate services.
type EdgeService struct {
	Mesh string `json:"mesh"`
	// Name is the value of kuma.io/service, or KIND/NAME of a service resource.
	Name string `json:"name"`
	// Kind is [KindServiceTag], or the kind of the resource.
	Kind      string            `json:"kind"`
	Protocol  string            `json:"protocol"`  // of its first port
	Namespace string            `json:"namespace"` // Kubernetes namespace; "" if unknown
	Zones     []string          `json:"zones"`     // of its instances, sorted
	Tags      map[string]string `json:"tags"`      // that all of its dataplanes have
	// Outside is true for a destination outside the mesh, which has no dataplanes.
	Outside bool `json:"outside"`
	// Gateway is true for a service of gateways, which other services cannot call.
	Gateway    bool `json:"gateway"`
	Dataplanes int  `json:"dataplanes"`
	Connected  int  `json:"connected"` // dataplanes whose proxy is connected to this node
	// Destinations are the names by which `explain` and the backends of a dataplane refer to it:
	// one for each port. At most 16.
	Destinations []string `json:"destinations"`
	// Calls and CalledBy count its edges as a client and as a destination.
	Calls    int `json:"calls"`
	CalledBy int `json:"calledBy"`
}

// Edge is a pair of a client service and a destination.
type Edge struct {
	Mesh string `json:"mesh"`
	From string `json:"from"` // name of an [EdgeService]
	To   string `json:"to"`
	// Permission is one of the Edge* constants.
	Permission string `json:"permission"`
	// Reach is true if a proxy of the client has an outbound to the destination.
	Reach bool `json:"reach"`
	// Policy decides about the permission. It is null without mTLS and if no policy selects the
	// client.
	Policy *EdgePolicy `json:"policy"`
	Why    string      `json:"why"` // about permission and reach, in words
	// Listed is true if a dataplane of the client names the destination: in an outbound,
	// reachableServices, or reachableBackends.
	Listed bool `json:"listed"`
	// Requests counts HTTP requests, or connections if the outbound is not HTTP. Failed counts
	// requests with a status of 500 to 599, or failed attempts to connect to an instance. Refused
	// counts responses with status 403, by which an HTTP service refuses a client. Only the Envoys
	// of this node count, each since its start.
	Requests uint64 `json:"requests"`
	Failed   uint64 `json:"failed"`
	Refused  uint64 `json:"refused"`
	Proxies  int    `json:"proxies"` // of the client
	Counted  int    `json:"counted"` // proxies whose counters are included
}

// OutboundCounts are counters of an Envoy about one outbound since it started.
type OutboundCounts struct {
	Connections, Requests uint64 // accepted connections, and HTTP requests with a response
	Failed                uint64 // of the requests, those with a status of 500 to 599
}

// ClusterCounts are counters of an Envoy about one cluster since it started.
type ClusterCounts struct {
	Refused     uint64 // responses with status 403
	Unconnected uint64 // failed attempts to connect to an instance
}

// EdgePolicy is the policy that decides about an edge, and its field.
type EdgePolicy struct {
	Type  string `json:"type"`
	Mesh  string `json:"mesh"`
	Name  string `json:"name"`
	Field string `json:"field"` // such as spec.from[0].default
}

// EdgeRefusal counts the refused connections of a service to one destination.
type EdgeRefusal struct {
	Mesh        string     `json:"mesh"`
	From        string     `json:"from"`        // name of an [EdgeService]; "" if unknown
	Destination string     `json:"destination"` // service, or HOST:PORT outside the mesh; "" if unknown
	Count       uint64     `json:"count"`
	Last        *time.Time `json:"last"` // null if the time is unknown
	Reason      string     `json:"reason"`
}

// EdgeCounters describes the counters of the edges.
type EdgeCounters struct {
	// Since is the start of the Envoy that counts for the longest time; null without counters.
	Since *time.Time `json:"since"`
	// Complete is false if an Envoy that is connected to this node does not report its counters.
	Complete bool `json:"complete"`
	Silent   int  `json:"silent"` // the number of such Envoys
	Pods     int  `json:"pods"`   // how many of them are in pods, where the agent cannot reach their admin sockets
	// Why says what is missing; "" if complete.
	Why string `json:"why,omitempty"`
}
