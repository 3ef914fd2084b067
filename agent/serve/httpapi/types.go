package httpapi

import (
	"encoding/json"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/change"
	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/deliver/ads"
)

// These are the documents of the API, and of `-o json`. Fields are added, never renamed or removed.

// Index is GET /.
type Index struct {
	Info           // the version with a mark for kumactl
	Tagline string `json:"tagline"`
	// What kumactl shows.
	Hostname   string `json:"hostname"`
	ClusterID  string `json:"clusterId"` // the zone
	InstanceID string `json:"instanceId"`
	GUI        string `json:"gui"`
}

// List is a page of resources: GET /{plural}, /meshes/{mesh}/{plural}. Each item is the resource in
// its universal form with creationTime and modificationTime, or with meta=true an [Item].
type List struct {
	Total int               `json:"total"` // of all pages
	Items []json.RawMessage `json:"items"`
	Next  *string           `json:"next"` // path and query of the next page, null on the last
}

// Item is a resource with what the agent knows about it: meta=true.
type Item struct {
	Meta     Meta            `json:"meta"`
	Resource json.RawMessage `json:"resource"` // its universal form
}

// Meta is what the agent knows about a resource beside its content.
type Meta struct {
	Revision uint64    `json:"revision"`
	ETag     string    `json:"etag"` // for If-Match
	Source   string    `json:"source"`
	Author   string    `json:"author,omitempty"`
	Created  time.Time `json:"created"`
	Modified time.Time `json:"modified"`
}

// Change is what a write did to one resource, or with dryRun would do.
type Change struct {
	Type     string `json:"type"`
	Mesh     string `json:"mesh,omitempty"`
	Name     string `json:"name"`
	Action   string `json:"action"`
	Revision uint64 `json:"revision,omitempty"` // 0 in a dry run
	// Fields are those that a dry run would change; at most 64.
	Fields []jsonpatch.FieldChange `json:"fields,omitempty"`
}

// Written answers PUT, DELETE, POST /v1/apply and POST /v1/rollback.
type Written struct {
	Changes  []Change `json:"changes"` // in the order of the request
	Warnings []string `json:"warnings"`
	DryRun   bool     `json:"dryRun,omitempty"`
	// of a dry run: what would change on proxies; absent while that cannot be said
	Diff *change.Diff `json:"diff,omitempty"`
}

// Rollback is the body of POST /v1/rollback.
type Rollback struct {
	Type     string `json:"type"` // any name of the kind
	Mesh     string `json:"mesh,omitempty"`
	Name     string `json:"name"`
	Revision uint64 `json:"revision"` // whose content comes back, as a new revision
	DryRun   bool   `json:"dryRun,omitempty"`
}

// History is GET /v1/history/{plural}/[{mesh}/]{name}: the latest revisions, oldest first.
type History struct {
	Type  string     `json:"type"`
	Mesh  string     `json:"mesh,omitempty"`
	Name  string     `json:"name"`
	Items []Revision `json:"items"`
}

// Revision is one state that a resource was in.
type Revision struct {
	Revision uint64    `json:"revision"`
	Time     time.Time `json:"time"`
	Source   string    `json:"source"`
	Author   string    `json:"author,omitempty"`
	// created, changed or deleted; of the oldest that is kept, "" when not known
	Action   string          `json:"action"`
	Resource json.RawMessage `json:"resource,omitempty"` // nil when it was deleted
	// of changed: those that differ from the revision before; at most 64
	Fields []jsonpatch.FieldChange `json:"fields,omitempty"`
}

// XDS is a proxy's config: {type URL: {resource name: resource}}.
type XDS map[string]map[string]json.RawMessage

// Config is GET /meshes/{mesh}/dataplanes/{name}/_config.
type Config struct {
	XDS  XDS         `json:"xds"`
	Diff []Operation `json:"diff,omitzero"` // only with include=diff: from the current config to XDS
}

// Operation is one step of an RFC 6902 patch.
type Operation = jsonpatch.Operation

// Status is GET /v1/status.
type Status struct {
	Info      Info             `json:"info"`
	Ready     bool             `json:"ready"`
	Checks    []Check          `json:"checks"`
	Store     StoreStatus      `json:"store"`
	Reconcile *ReconcileStatus `json:"reconcile"` // null before the first
	Files     []FileStatus     `json:"files"`     // of the resource directory
	Proxies   map[string]int   `json:"proxies"`   // by state
	Refused   ads.Refusals     `json:"refused"`   // xDS streams
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

// Names is GET /v1/names: for completion.
type Names struct {
	Names []string `json:"names"`
}

// Kinds is GET /v1/kinds, in the order in which policies act.
type Kinds struct {
	Items []Kind `json:"items"`
}

// Kind is one kind of resource.
type Kind struct {
	Kind   string `json:"kind"`
	Plural string `json:"plural"`
	Short  string `json:"short,omitempty"`
	Global bool   `json:"global,omitempty"` // belongs to no mesh
	Policy bool   `json:"policy,omitempty"`
	Legacy bool   `json:"legacy,omitempty"`
}
