package change

import (
	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
)

// Diff answers POST /v1/diff: what would change on the proxies. Lists are never null.
type Diff struct {
	Changed   bool           `json:"changed"`   // the config of some proxy would change
	Resources []DiffResource `json:"resources"` // what is new between the two states, sorted
	Scope     string         `json:"scope"`     // which proxies were compared
	Compared  int            `json:"compared"`  // how many
	Proxies   []ProxyDiff    `json:"proxies"`   // those whose config or rules would change, sorted by mesh and name
	Warnings  []Problem      `json:"warnings"`  // that there would be and are not now, sorted
	// Findings are what the check would have to say, and has not now: where one blocks, the change
	// would be refused. The comparison inside the answer to a write has none, since that says them
	// itself.
	Findings []Finding `json:"findings"`
}

// Which proxies a [Diff] is about.
const (
	ScopeNamed     = "named"     // the dataplane that was asked for
	ScopeConnected = "connected" // those that take their config from this agent now
	ScopeAll       = "all"       // every dataplane: none is connected, or there is no agent
)

// What becomes of a resource, of the config of a proxy, or of a part of it.
const (
	ActionCreated   = "created"
	ActionChanged   = "changed"
	ActionUnchanged = "unchanged"
	ActionDeleted   = "deleted"
	ActionActivated = "activated" // a stored shadow policy, when shadow policies are counted in
	ActionFailed    = "failed"    // no new config of a proxy can be made
)

// DiffResource is a resource that differs between the two states, or was given and does not.
type DiffResource struct {
	Type   string `json:"type"`
	Mesh   string `json:"mesh,omitempty"`
	Name   string `json:"name"`
	Action string `json:"action"`          // created, changed, unchanged, deleted or activated
	Shadow bool   `json:"shadow"`          // it is a shadow policy: it acts where shadow policies are counted in
	Owner  string `json:"owner,omitempty"` // the source that alone may change it, when that is not the API
	// Fields are those that differ, when it changes; at most 64.
	Fields []jsonpatch.FieldChange `json:"fields,omitempty"`
}

// ProxyDiff is what would change on one proxy.
type ProxyDiff struct {
	Mesh   string `json:"mesh"`
	Name   string `json:"name"`
	Action string `json:"action"` // what becomes of its config: created, changed, unchanged, deleted, or failed
	// Error says why no new config could be made, when Action is failed: the proxy would keep the one
	// that it has.
	Error    string        `json:"error,omitempty"`
	Policies []explain.Ref `json:"policies"` // the resources that cause something of it, sorted
	Config   PartDiff      `json:"config"`
	Rules    PartDiff      `json:"rules"`
	// Truncated is true when there was too much to tell: patch and items are empty. Unattributed is
	// true when there were too many resources to find out which of them causes what. Asking for this
	// dataplane alone tells more.
	Truncated    bool `json:"truncated,omitempty"`
	Unattributed bool `json:"unattributed,omitempty"`
}

// PartDiff is what would change in the config of a proxy or in its rules.
type PartDiff struct {
	Summary []TypeDiff `json:"summary"` // sorted by type
	// Patch (RFC 6902) leads from the present document to the new one. The document of the config is
	// that of _config: {type URL: {name: resource}}. That of the rules has the entries of _rules by
	// kind, without their warnings.
	Patch []jsonpatch.Operation `json:"patch"`
	Items []ItemDiff            `json:"items"` // the same for people, sorted by type; those of the rules in their order
}

// TypeDiff counts the resources of a type, or the rules of a kind.
type TypeDiff struct {
	Type    string `json:"type"` // URL, or kind of policy
	Added   int    `json:"added"`
	Changed int    `json:"changed"`
	Removed int    `json:"removed"`
}

// ItemDiff is a resource of the config, or a rule, that would change.
type ItemDiff struct {
	Type    string        `json:"type"`   // URL, or kind of policy
	Name    string        `json:"name"`   // of the resource, or whom the rule is about
	Action  string        `json:"action"` // created, changed or deleted
	Changes []FieldDiff   `json:"changes"`
	By      []explain.Ref `json:"by"` // the resources that cause it, sorted
}

// FieldDiff is a value that would change.
type FieldDiff struct {
	jsonpatch.FieldChange
	By []explain.Ref `json:"by"` // the resources that cause it, sorted
}

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
