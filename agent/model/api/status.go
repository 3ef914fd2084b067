package api

import (
	"time"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Problem is one thing that the agent could not do with a resource, or did in part.
type Problem struct {
	Resource string `json:"resource"` // Kind/mesh/name
	Severity string `json:"severity"` // SeverityError or SeverityWarning
	Reason   string `json:"reason"`
}

// Severities of problems.
const (
	SeverityError   = "error"
	SeverityWarning = "warning"
)

// LogLevel is GET and PUT /v1/debug/loglevel.
type LogLevel struct {
	Level string `json:"level"` // debug, info, warn or error
}

// FileStatus is the state of one resource file.
type FileStatus struct {
	Path      string    `json:"path"`
	Resources int       `json:"resources"`       // in force from this file
	Loaded    time.Time `json:"loaded,omitzero"` // when its content was last taken over
	// the content in force is older than the file, because of Faults or Missing
	Stale bool `json:"stale,omitempty"`
	// MissingVanished or MissingEmpty, while what the file had is still in force
	Missing string `json:"missing,omitempty"`
	// when that ends, unless the file comes back; zero: not before the directory can be read
	KeptUntil time.Time         `json:"keptUntil,omitzero"`
	Faults    []resource.Fault  `json:"faults,omitempty"`    // what is wrong with the file as it is now
	Conflicts map[string]string `json:"conflicts,omitempty"` // Kind/mesh/name: the source that owns it
	// it holds a secret that others than its owner can read: what to do
	Exposed string `json:"exposed,omitempty"`
}

// How a file whose content is still in force can be missing.
const (
	MissingVanished = "vanished"
	MissingEmpty    = "empty"
)

// Check is one named condition of health.
type Check struct {
	Name     string `json:"name"`
	OK       bool   `json:"ok"`
	Degraded bool   `json:"degraded,omitempty"` // OK, and still something needs a look
	Reason   string `json:"reason,omitempty"`   // what is wrong and what to do, or what is well
}

// Status is GET /v1/status.
type Status struct {
	Info      Info             `json:"info"`
	Ready     bool             `json:"ready"`
	Checks    []Check          `json:"checks"`
	Store     StoreStatus      `json:"store"`
	Reconcile *ReconcileStatus `json:"reconcile"` // null before the first
	Files     []FileStatus     `json:"files"`     // of the resource directory
	Proxies   map[string]int   `json:"proxies"`   // by state
	Refused   Refusals         `json:"refused"`   // xDS streams
	// RefusedConnections are the proxies that have refused some, the one with the most first. Never
	// null.
	RefusedConnections []ProxyRefusals `json:"refusedConnections"`
	// Holders say how many FIFOs of access logs are kept open by whom while the agent is away; "" is
	// nobody. Empty without FIFOs.
	Holders map[string]int `json:"fifoHolders,omitempty"`
	// LogLines sum up the lines of the access logs that the sender may see. Absent without streams.
	LogLines *LogLines `json:"accessLogLines,omitempty"`
	// DNS is the resolver; absent where there is none.
	DNS    *DNSLine      `json:"dns,omitempty"`
	Memory *MemoryStatus `json:"memory,omitempty"`
	// Problems are what the agent could not do, did in part, or finds odd: of resources, of the
	// proxies that are connected, and of those of this node that are not, as far as there was time to
	// look at them.
	Problems []Problem `json:"problems"`
	// Unchecked is how many proxies that are not connected were not looked at yet; the next request
	// goes on with them.
	Unchecked int `json:"unchecked"`
}

// MemoryStatus is what memory the agent takes, in bytes.
type MemoryStatus struct {
	Limit    uint64 `json:"limit"`    // that it keeps to; 0: none
	InUse    uint64 `json:"inUse"`    // as of the last collection of garbage
	Resident uint64 `json:"resident"` // what it has from the system, with garbage and what waits to be used again
	Sheds    uint64 `json:"sheds"`    // how often caches were given up
	// ShortSince is since when no more proxies are taken for want of memory; absent: there is room.
	ShortSince time.Time `json:"shortSince,omitzero"`
	Refused    int       `json:"refused"` // proxies that are refused for want of memory
}

// ProxyCounts are what an Envoy has counted since it started.
type ProxyCounts struct {
	Refused       uint64 // connections to destinations outside of the mesh
	WritesFailed  uint64 // writes to access logs, each with some lines, which are lost
	ReopensFailed uint64 // attempts to open an access log anew, until which its lines are lost
}

// ProxyRefusals says how many connections to destinations outside of the mesh a proxy has refused
// since its Envoy started.
type ProxyRefusals struct {
	Mesh  string `json:"mesh"`
	Name  string `json:"name"`
	Count uint64 `json:"count"`
}

// StoreStatus is what is stored.
type StoreStatus struct {
	Revision  uint64         `json:"revision"`
	Resources map[string]int `json:"resources"`       // by kind
	Sources   map[string]int `json:"sources"`         // by kind of source
	Inert     map[string]int `json:"inert,omitempty"` // by kind, those that this version does not act on
	// Persistent is true while writes reach the disk; Error says why they do not.
	Persistent  bool          `json:"persistent"`
	Error       string        `json:"error,omitempty"`
	Pending     int           `json:"pending,omitempty"`  // resources that differ from what is on disk
	SetAside    string        `json:"setAside,omitempty"` // new name of a damaged state file
	Quarantined []Quarantined `json:"quarantined,omitempty"`
	// Damaged are resources that cannot be read and are not in force, until somebody writes or deletes
	// them.
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

// ReconcileStatus is the last recomputation.
type ReconcileStatus struct {
	Revision uint64    `json:"revision"` // of the store that it has taken in
	At       time.Time `json:"at"`
	Seconds  float64   `json:"seconds"`
	Behind   int       `json:"behind,omitempty"` // connected proxies that it has yet to come to
}

// Health is GET /livez and /readyz. The checks are there with verbose, and always when one failed.
type Health struct {
	Status string  `json:"status"` // "ok" or "failed"
	Checks []Check `json:"checks,omitempty"`
}
