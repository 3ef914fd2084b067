package api

import "github.com/nearside-mesh/nearside/agent/model/node"

// States of a [Proxy], from the best to the one that most needs a look.
const (
	StateSynced       = "synced"       // every type that was asked for is sent and acknowledged
	StateElsewhere    = "elsewhere"    // the Dataplane belongs to another node of the pool, whose agent serves its client
	StateDisconnected = "disconnected" // the Dataplane exists, but no client on this node takes its config
	StatePending      = "pending"      // an answer to a config is outstanding
	StateRejected     = "rejected"     // the client refused something and keeps what it had
	StateUnknown      = "unknown"      // a client asks for a Dataplane that does not exist
)

// Proxies is GET /v1/dataplanes, sorted by mesh and name.
type Proxies struct {
	Total int     `json:"total"`
	Items []Proxy `json:"items"`
}

// Proxy is GET /v1/dataplanes/{mesh}/{name}/status: one proxy and how far it is with its config.
type Proxy struct {
	Type      node.Type `json:"type,omitempty"` // of proxies at the border of a zone, which have no mesh
	Mesh      string    `json:"mesh"`
	Name      string    `json:"name"`
	State     string    `json:"state"`
	Reason    string    `json:"reason,omitempty"` // why it is in that state, and what to do
	Dataplane bool      `json:"dataplane"`        // a Dataplane of that name exists
	// of the pool that the Dataplane belongs to, when that is another one
	Node     string        `json:"node,omitempty"`
	Liveness string        `json:"liveness,omitempty"` // of that node: see [resource.LabelLiveness]
	Clients  []ProxyStatus `json:"clients"`            // at most one per flavor, connected or recently so
	Problems []Problem     `json:"problems"`           // with its Dataplane
	// RefusedConnections is how many connections to destinations outside of the mesh its Envoy has
	// refused since it started; null where the Envoy does not tell.
	RefusedConnections *uint64 `json:"refusedConnections"`
	// LogWritesFailed is how many writes to access logs its Envoy has not been able to make since it
	// started, each with the loss of some lines, and LogReopensFailed how often it could not open a
	// log anew; null where the Envoy does not tell.
	LogWritesFailed  *uint64 `json:"logWritesFailed"`
	LogReopensFailed *uint64 `json:"logReopensFailed"`
	// InForce is what policies let the proxy do as a whole, in the order in which they act. Not in
	// lists of proxies.
	InForce []InForce `json:"inForce,omitempty"`
	Reach   *Saving   `json:"reach,omitempty"` // with include=reach, of a Dataplane that exists
}

// Saving is what it saves a proxy that it does not reach all services.
type Saving struct {
	Clusters int `json:"clusters"` // services that it reaches; of real services, each port
	Of       int `json:"of"`       // services that it would reach without lists and permissions
	// Bytes is about how much larger its config would be: for each sort of service the mean size of
	// some is taken.
	Bytes int `json:"bytes"`
}

// InForce is what the policies of one kind let a proxy do as a whole.
type InForce struct {
	Type    string     `json:"type"`
	Mode    string     `json:"mode"`    // in the words of the kind
	Decides FlowPolicy `json:"decides"` // what gives the mode
	// Permits are what may be done where the mode leaves that to be said; never null.
	Permits []Permit `json:"permits"`
}

// Permit is one thing that a proxy may do. Lists are never null.
type Permit struct {
	Protocol string `json:"protocol"`
	Value    string `json:"value"`          // the destination, as policies write it
	Port     uint32 `json:"port,omitempty"` // 0: all ports
	Cluster  string `json:"cluster"`        // whose statistics count it
	// Pinned is true where the proxy looks the destination up by itself; Reaches says in words where
	// it leads.
	Pinned     bool         `json:"pinned"`
	Reaches    string       `json:"reaches"`
	IPv4       bool         `json:"ipv4"` // the address families in which it acts
	IPv6       bool         `json:"ipv6"`
	AccessLogs []FlowLog    `json:"accessLogs"`
	Policies   []FlowPolicy `json:"policies"` // that ask for it
}

// Loggers is GET and PUT /v1/dataplanes/{mesh}/{name}/loggers: levels by the names of loggers; in
// PUT, "" is for all.
type Loggers struct {
	Levels map[string]string `json:"levels"`
}

// LoggerLevels are the levels of an Envoy's loggers, from the one that says most.
var LoggerLevels = []string{"trace", "debug", "info", "warning", "error", "critical", "off"}
