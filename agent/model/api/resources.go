package api

import (
	"encoding/json"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
)

// Info identifies the agent.
type Info struct {
	Product  string    `json:"product"` // "nearside"
	Version  string    `json:"version"`
	Node     string    `json:"node"`
	Zone     string    `json:"zone"`
	Instance string    `json:"instance"` // unique per process start
	Started  time.Time `json:"started"`
	PID      int       `json:"pid"`
}

// Index is GET /.
type Index struct {
	Info           // the version with a suffix for kumactl
	Tagline string `json:"tagline"`
	// Shown by kumactl.
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

// Item is a resource with its metadata: meta=true.
type Item struct {
	Meta     Meta            `json:"meta"`
	Resource json.RawMessage `json:"resource"` // in universal form
}

// Meta is the agent's metadata of a resource.
type Meta struct {
	Revision uint64    `json:"revision"`
	ETag     string    `json:"etag"` // for If-Match
	Source   string    `json:"source"`
	Author   string    `json:"author,omitempty"`
	Commit   string    `json:"commit,omitempty"`  // of the published directory that contains it
	SignedBy Author    `json:"signedBy,omitzero"` // the author, with the signature
	Created  time.Time `json:"created"`
	Modified time.Time `json:"modified"`
}

// Change is what a write did to one resource, or would do in a dry run.
type Change struct {
	Type     string `json:"type"`
	Mesh     string `json:"mesh,omitempty"`
	Name     string `json:"name"`
	Action   string `json:"action"`
	Revision uint64 `json:"revision,omitempty"` // 0 in a dry run
	// Fields are those that a dry run would change; at most 64.
	Fields []jsonpatch.FieldChange `json:"fields,omitempty"`
}

// Written answers PUT, DELETE, POST /v1/apply, and POST /v1/rollback.
type Written struct {
	Changes  []Change `json:"changes"` // in the order of the request
	Warnings []string `json:"warnings"`
	DryRun   bool     `json:"dryRun,omitempty"`
	// in a dry run, what would change on proxies; absent if unknown
	Diff *Diff `json:"diff,omitempty"`
}

// Rollback is the body of POST /v1/rollback.
type Rollback struct {
	Type     string `json:"type"` // any name of the kind
	Mesh     string `json:"mesh,omitempty"`
	Name     string `json:"name"`
	Revision uint64 `json:"revision"` // revision to restore, as a new revision
	DryRun   bool   `json:"dryRun,omitempty"`
}

// History is GET /v1/history/{plural}/[{mesh}/]{name}: the latest revisions, oldest first.
type History struct {
	Type  string     `json:"type"`
	Mesh  string     `json:"mesh,omitempty"`
	Name  string     `json:"name"`
	Items []Revision `json:"items"`
}

// Revision is one revision of a resource.
type Revision struct {
	Revision uint64    `json:"revision"`
	Time     time.Time `json:"time"`
	Source   string    `json:"source"`
	Author   string    `json:"author,omitempty"`
	SignedBy Author    `json:"signedBy,omitzero"` // the author, with the signature
	// created, changed, or deleted; "" if unknown, for the oldest revision
	Action   string          `json:"action"`
	Resource json.RawMessage `json:"resource,omitempty"` // null if it was deleted
	// changed fields, compared with the previous revision; at most 64
	Fields []jsonpatch.FieldChange `json:"fields,omitempty"`
}

// HistoryItem is an item of GET /v1/history, the newest first.
type HistoryItem struct {
	Type string `json:"type"`
	Mesh string `json:"mesh,omitempty"`
	Name string `json:"name"`
	Revision
}

// XDS is a proxy's config: {type URL: {resource name: resource}}.
type XDS map[string]map[string]json.RawMessage

// Config is GET /meshes/{mesh}/dataplanes/{name}/_config.
type Config struct {
	XDS XDS `json:"xds"`
	// only with include=diff: from the published config to XDS
	Diff []jsonpatch.Operation `json:"diff,omitzero"`
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
