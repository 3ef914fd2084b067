package api

import (
	"time"

	"github.com/nearside-mesh/nearside/agent/model/node"
)

// States of a [Proxy], best first.
const (
	StateSynced = "synced" // every requested type is sent and acknowledged
	// the Dataplane belongs to another node of the pool, whose agent serves its client
	StateElsewhere    = "elsewhere"
	StateDisconnected = "disconnected" // the Dataplane exists, but has no client on this node
	StatePending      = "pending"      // the answer to a config is outstanding
	// the client keeps an older config, because no new one can be computed
	StateStale    = "stale"
	StateRejected = "rejected" // the client rejected something and keeps its previous config
	StateRefused  = "refused"  // the agent refuses the client; see Proxy.Refused
	StateUnknown  = "unknown"  // a client requests a Dataplane that does not exist
)

// Proxies is GET /v1/dataplanes, sorted by mesh and name.
type Proxies struct {
	Total int     `json:"total"`
	Items []Proxy `json:"items"`
}

// Proxy is GET /v1/dataplanes/{mesh}/{name}/status: one proxy and its sync status.
type Proxy struct {
	Type      node.Type `json:"type,omitempty"` // of zone proxies, which have no mesh
	Mesh      string    `json:"mesh"`
	Name      string    `json:"name"`
	State     string    `json:"state"`
	Reason    string    `json:"reason,omitempty"` // why it is in this state, and the remedy
	Dataplane bool      `json:"dataplane"`        // a Dataplane with this name exists
	// node of the pool that owns the Dataplane, if it is another one
	Node     string `json:"node,omitempty"`
	Liveness string `json:"liveness,omitempty"` // of that node; see [resource.LabelLiveness]
	// Endpoints is why inbounds of the Dataplane receive no traffic; null if all do.
	Endpoints *EndpointState `json:"endpoints"`
	// at most one per flavor, connected or recently connected
	Clients  []ProxyStatus `json:"clients"`
	Problems []Problem     `json:"problems"` // with its Dataplane
	// clients with its node id whose streams are refused, the latest first
	Refused []RefusedStream `json:"refused,omitempty"`
	// RefusedConnections is how many connections to destinations outside the mesh its Envoy has
	// refused since it started. It is null if the Envoy does not report it.
	RefusedConnections *uint64 `json:"refusedConnections"`
	// InspectionTimeouts are the listeners with clients that did not send enough bytes before the
	// timeout of the listener filters, most connections first.
	InspectionTimeouts []ListenerTimeouts `json:"inspectionTimeouts,omitempty"`
	// LogWritesFailed is how many writes to access logs have failed since the Envoy started, each
	// with the loss of some lines, and LogReopensFailed is how often reopening a log failed. They
	// are null if the Envoy does not report them.
	LogWritesFailed  *uint64 `json:"logWritesFailed"`
	LogReopensFailed *uint64 `json:"logReopensFailed"`
	// AccessLogs are the accounts of its access logs that the agent reads, by destination. LogGaps
	// are its listeners without their logger.
	AccessLogs []ProxyLog `json:"accessLogs,omitempty"`
	LogGaps    []LogGap   `json:"logGaps,omitempty"`
	// InForce is what policies let the proxy do as a whole, in the order in which they act. Lists
	// of proxies omit it.
	InForce []InForce `json:"inForce,omitempty"`
	Reach   *Saving   `json:"reach,omitempty"` // with include=reach, for a Dataplane that exists
}

// EndpointState is the state of inbounds that receive no traffic.
type EndpointState struct {
	State    string    `json:"state"` // unready, draining, or ended
	Reason   string    `json:"reason"`
	Inbounds []uint32  `json:"inbounds"` // their ports; empty: all
	Since    time.Time `json:"since"`
}

// Saving is what a proxy saves because it does not reach all services.
type Saving struct {
	Clusters int `json:"clusters"` // services that it reaches; each port of a MeshService resource counts
	Of       int `json:"of"`       // services that it would reach without lists and permissions
	// Bytes estimates how much larger its config would be, from the mean size of some services of
	// each sort.
	Bytes int `json:"bytes"`
}

// InForce is what the policies of one kind let a proxy do as a whole.
type InForce struct {
	Type    string     `json:"type"`
	Mode    string     `json:"mode"`    // in the words of the kind
	Decides FlowPolicy `json:"decides"` // the policy that sets the mode
	// Permits lists the allowed destinations, if the mode depends on them; never null.
	Permits []Permit `json:"permits"`
}

// Permit is a destination outside the mesh that a proxy may reach. Lists are never null.
type Permit struct {
	Protocol string `json:"protocol"`
	Value    string `json:"value"`          // the destination, in the form of the policy
	Port     uint32 `json:"port,omitempty"` // 0: all ports
	Cluster  string `json:"cluster"`        // whose statistics count it
	// Pinned is true if the proxy itself resolves the destination; Reaches describes where it
	// leads.
	Pinned     bool         `json:"pinned"`
	Reaches    string       `json:"reaches"`
	IPv4       bool         `json:"ipv4"` // the address families in which it applies
	IPv6       bool         `json:"ipv6"`
	AccessLogs []FlowLog    `json:"accessLogs"`
	Policies   []FlowPolicy `json:"policies"` // that request it
}

// Loggers is GET and PUT /v1/dataplanes/{mesh}/{name}/loggers: levels by logger. In PUT, "" stands
// for all loggers.
type Loggers struct {
	Levels map[string]string `json:"levels"`
}

// LoggerLevels are the levels of an Envoy's loggers, most verbose first.
var LoggerLevels = []string{"trace", "debug", "info", "warning", "error", "critical", "off"}
