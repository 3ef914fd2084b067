package api

import (
	"time"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// LogLevel is GET and PUT /v1/debug/loglevel.
type LogLevel struct {
	Level string `json:"level"` // debug, info, warn, or error
}

// FileStatus is the state of one resource file.
type FileStatus struct {
	Path      string    `json:"path"`
	Resources int       `json:"resources"`       // active resources of this file
	Loaded    time.Time `json:"loaded,omitzero"` // when its content was last applied
	// the active content is older than the file, because of Faults or Missing
	Stale bool `json:"stale,omitempty"`
	// MissingVanished or MissingEmpty, while its content is retained
	Missing string `json:"missing,omitempty"`
	// when the content is removed, unless the file returns; zero: not before the directory can be
	// read
	KeptUntil time.Time         `json:"keptUntil,omitzero"`
	Faults    []resource.Fault  `json:"faults,omitempty"`    // faults of the current file
	Conflicts map[string]string `json:"conflicts,omitempty"` // Kind/mesh/name: the source that owns it
	// the file contains a secret that other users can read: the remedy
	Exposed string `json:"exposed,omitempty"`
}

// Values of FileStatus.Missing.
const (
	MissingVanished = "vanished"
	MissingEmpty    = "empty"
)

// Check is one named condition of health.
type Check struct {
	Name     string `json:"name"`
	OK       bool   `json:"ok"`
	Degraded bool   `json:"degraded,omitempty"` // OK, but needs attention
	Error    bool   `json:"error,omitempty"`    // degraded by an error that does not make the node unready
	Reason   string `json:"reason,omitempty"`   // problem and remedy, or the good state
	// Command is the first command to run if the check is not OK or degraded; empty: the command of
	// the class of problems with this name.
	Command string `json:"command,omitempty"`
}

// Status is GET /v1/status.
type Status struct {
	Info      Info             `json:"info"`
	Ready     bool             `json:"ready"`
	Checks    []Check          `json:"checks"`
	Store     StoreStatus      `json:"store"`
	Reconcile *ReconcileStatus `json:"reconcile"` // null before the first pass
	Files     []FileStatus     `json:"files"`     // of the resource directory
	Proxies   map[string]int   `json:"proxies"`   // by state
	Refused   Refusals         `json:"refused"`   // xDS streams
	// RefusedConnections are the proxies that have refused connections, most first. Never null.
	RefusedConnections []ProxyRefusals `json:"refusedConnections"`
	// InspectionTimeouts are the proxies with clients that did not send enough bytes in time. Never
	// null.
	InspectionTimeouts []ProxyTimeouts `json:"inspectionTimeouts"`
	// Old are the proxies whose older connections may use previous filters.
	Old []OldProxy `json:"old,omitempty"`
	// Holders maps a holder to the number of access-log FIFOs that it holds while the agent is
	// down; "" means no holder. It is empty without FIFOs.
	Holders map[string]int `json:"fifoHolders,omitempty"`
	// LogLines sums up the lines of the access logs that the sender may see. It is absent without
	// streams.
	LogLines *LogLines `json:"accessLogLines,omitempty"`
	// DNS is the resolver; absent if it is off.
	DNS    *DNSLine      `json:"dns,omitempty"`
	Memory *MemoryStatus `json:"memory,omitempty"`
	// Problems is the one list of problems that the sender may see: failed and degraded checks,
	// faults of files, and errors and warnings of resources and proxies, including disconnected
	// proxies of this node that the agent has checked so far. Errors come first.
	Problems []Problem `json:"problems"`
	// Unchecked is how many disconnected proxies are not checked yet; the next request continues
	// with them.
	Unchecked int `json:"unchecked"`
	// Unexamined is how many policies may have no effect, which is not known yet; the next request
	// continues with them.
	Unexamined int `json:"unexamined"`
}

// MemoryStatus is the memory use of the agent, in bytes.
type MemoryStatus struct {
	Limit    uint64 `json:"limit"`    // limit of the agent; 0: none
	InUse    uint64 `json:"inUse"`    // at the last garbage collection
	Resident uint64 `json:"resident"` // memory from the system, including garbage and free memory
	Sheds    uint64 `json:"sheds"`    // how often caches were dropped
	// ShortSince is when the agent began to refuse new proxies because memory is short; absent: it
	// accepts them.
	ShortSince time.Time `json:"shortSince,omitzero"`
	Refused    int       `json:"refused"` // proxies that are refused because memory is short
}

// ProxyCounts are counters of an Envoy since it started.
type ProxyCounts struct {
	Refused       uint64 // refused connections to destinations outside the mesh
	WritesFailed  uint64 // failed writes to access logs, each with some lost lines
	ReopensFailed uint64 // failed attempts to reopen an access log
	WritesDone    uint64 // successful writes to access logs
	Logged        uint64 // lines that file loggers have written
	// Listeners holds the traffic of listeners by name. Listeners without traffic are absent.
	Listeners map[string]ListenerTraffic
	// Outbounds holds the traffic of outbounds by the name of the listener, and Clusters that of
	// clusters. Those without traffic are absent.
	Outbounds map[string]OutboundCounts
	Clusters  map[string]ClusterCounts
	// Denied counts connections by the port of the inbound, if it is not HTTP, that permissions
	// denied.
	Denied map[string]uint64
	Uptime time.Duration // of the Envoy; 0 if unknown
	// TimedOut counts connections by listener whose clients did not send enough bytes before the
	// timeout of the listener filters. Listeners without such connections are absent.
	TimedOut map[string]uint64
	// Failing is set if writes to access logs have failed between the last two queries, or since then
	// no write has succeeded.
	Failing bool
}

// ProxyRefusals is how many connections to destinations outside the mesh a proxy has refused since
// its Envoy started.
type ProxyRefusals struct {
	Mesh  string `json:"mesh"`
	Name  string `json:"name"`
	Count uint64 `json:"count"`
}

// ListenerTimeouts is how many connections of a listener had clients that did not send enough bytes
// before the timeout of the listener filters, since the Envoy started.
type ListenerTimeouts struct {
	Listener string `json:"listener"`
	Count    uint64 `json:"count"`
}

// ProxyTimeouts are the listeners of a proxy with such connections, most first.
type ProxyTimeouts struct {
	Mesh      string             `json:"mesh"`
	Name      string             `json:"name"`
	Listeners []ListenerTimeouts `json:"listeners"`
}

// StoreStatus is the state of the store.
type StoreStatus struct {
	Revision  uint64         `json:"revision"`
	Resources map[string]int `json:"resources"`       // by kind
	Sources   map[string]int `json:"sources"`         // by kind of source
	Inert     map[string]int `json:"inert,omitempty"` // by kind, those that this version ignores
	// Persistent is true while writes reach the disk; Error says why they do not.
	Persistent  bool          `json:"persistent"`
	Error       string        `json:"error,omitempty"`
	Pending     int           `json:"pending,omitempty"`  // resources that differ from their copy on disk
	SetAside    string        `json:"setAside,omitempty"` // new name of a damaged state file
	Quarantined []Quarantined `json:"quarantined,omitempty"`
	// Damaged are resources that cannot be read, until they are written or deleted. Proxies of their
	// meshes keep their config.
	Damaged []Damaged `json:"damaged,omitempty"`
}

// Damaged is a resource that cannot be read from the state file.
type Damaged struct {
	Type   string    `json:"type"`
	Mesh   string    `json:"mesh,omitempty"`
	Name   string    `json:"name"`
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
}

// Quarantined is a value of the state file that could not be loaded.
type Quarantined struct {
	Bucket   string `json:"bucket"`
	Key      string `json:"key"`
	Reason   string `json:"reason"`
	Restored bool   `json:"restored,omitempty"` // from its history
}

// ReconcileStatus is the last pass.
type ReconcileStatus struct {
	Revision uint64    `json:"revision"` // store revision that it used
	At       time.Time `json:"at"`
	Seconds  float64   `json:"seconds"`
	Behind   int       `json:"behind,omitempty"` // connected proxies that it has not reached yet
}

// Health is GET /livez and /readyz. It has checks with verbose, and always if one failed.
type Health struct {
	Status string  `json:"status"` // "ok" or "failed"
	Checks []Check `json:"checks,omitempty"`
	// Problems counts the entries of [Status].Problems by class. Only /readyz with verbose has it.
	Problems []ProblemCount `json:"problems,omitempty"`
}
