package api

import (
	"fmt"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// Diff answers POST /v1/diff: what would change on the proxies. Lists are never null.
type Diff struct {
	Changed   bool           `json:"changed"`   // the config of some proxy would change
	Resources []DiffResource `json:"resources"` // that differ between the two states, sorted
	Scope     string         `json:"scope"`     // which proxies were compared
	Compared  int            `json:"compared"`  // how many
	Proxies   []ProxyDiff    `json:"proxies"`   // whose config or rules would change, sorted by mesh and name
	Warnings  []Problem      `json:"warnings"`  // that the change would add, sorted
	// Findings are the findings of the check that the change would add. If one blocks, the change
	// would be refused. The diff in the answer to a write has none, because the answer has them
	// itself.
	Findings []Finding `json:"findings"`
}

// Values of Diff.Scope.
const (
	ScopeNamed     = "named"     // the requested dataplane
	ScopeConnected = "connected" // proxies that are connected to this agent
	ScopeAll       = "all"       // every dataplane: none is connected, or there is no agent
)

// Actions on a resource, a proxy's config, or an item of it.
const (
	ActionCreated   = "created"
	ActionChanged   = "changed"
	ActionUnchanged = "unchanged"
	ActionDeleted   = "deleted"
	ActionActivated = "activated" // a stored shadow policy, if shadow policies are included
	ActionFailed    = "failed"    // no new config can be computed
)

// DiffResource is a resource that differs between the two states, or that was given and is
// unchanged.
type DiffResource struct {
	Type   string `json:"type"`
	Mesh   string `json:"mesh,omitempty"`
	Name   string `json:"name"`
	Action string `json:"action"`          // created, changed, unchanged, deleted, or activated
	Shadow bool   `json:"shadow"`          // a shadow policy, which acts only if shadow policies are included
	Owner  string `json:"owner,omitempty"` // source that manages the resource, unless it is the API
	// Fields are the changed fields, at most 64.
	Fields []jsonpatch.FieldChange `json:"fields,omitempty"`
}

// ProxyDiff is what would change on one proxy.
type ProxyDiff struct {
	Mesh   string `json:"mesh"`
	Name   string `json:"name"`
	Action string `json:"action"` // of the config: created, changed, unchanged, deleted, or failed
	// Error says why no new config can be computed, if Action is failed. The proxy would keep its
	// current config.
	Error    string   `json:"error,omitempty"`
	Policies []Ref    `json:"policies"` // resources that cause the changes, sorted
	Config   PartDiff `json:"config"`
	Rules    PartDiff `json:"rules"`
	// Truncated is true if the changes are too large: patch and items are empty. Unattributed is
	// true if there were too many resources to find the cause of each change. A request for only
	// this dataplane returns more.
	Truncated    bool `json:"truncated,omitempty"`
	Unattributed bool `json:"unattributed,omitempty"`
}

// PartDiff is what would change in a proxy's config or rules.
type PartDiff struct {
	Summary []TypeDiff `json:"summary"` // sorted by type
	// Patch (RFC 6902) leads from the current to the new document. For the config, it is the
	// document of _config: {type URL: {name: resource}}. For the rules, it has the entries of
	// _rules by kind, without warnings.
	Patch []jsonpatch.Operation `json:"patch"`
	// the changes for people, sorted by type, and for rules in rule order
	Items []ItemDiff `json:"items"`
}

// TypeDiff counts the resources of a type, or the rules of a kind.
type TypeDiff struct {
	Type    string `json:"type"` // type URL, or policy kind
	Added   int    `json:"added"`
	Changed int    `json:"changed"`
	Removed int    `json:"removed"`
}

// ItemDiff is a resource of the config, or a rule, that would change.
type ItemDiff struct {
	Type    string      `json:"type"`   // type URL, or policy kind
	Name    string      `json:"name"`   // of the resource, or the clients or destinations of the rule
	Action  string      `json:"action"` // created, changed, or deleted
	Changes []FieldDiff `json:"changes"`
	By      []Ref       `json:"by"` // resources that cause the change, sorted
}

// FieldDiff is a value that would change.
type FieldDiff struct {
	jsonpatch.FieldChange
	By []Ref `json:"by"` // resources that cause the change, sorted
}

// Finding is a finding of the check about a change. Identical findings on several proxies are one.
// Lists are never null.
type Finding struct {
	Severity string `json:"severity"` // reject, unusable, or warning
	Rule     int    `json:"rule"`     // number of the rule in package finding; 0 if By is "envoy"
	Title    string `json:"title"`    // the rule that a valid config satisfies
	By       string `json:"by"`       // FoundByCheck or FoundByEnvoy
	finding.Position
	Message string             `json:"message"` // the value, the bound, and the remedy
	Others  []finding.Position `json:"others"`  // other contributing positions
	// Proxies are the first affected proxies, as MESH/NAME, and Total is how many there are. Type,
	// name, and message are those of the first one.
	Proxies []string `json:"proxies"`
	Total   int      `json:"total"`
	Causes  []Cause  `json:"causes"` // empty if none was found
}

// Values of Finding.By.
const (
	FoundByCheck = "check"
	FoundByEnvoy = "envoy" // the Envoy binary
)

// Cause is a resource that the finding depends on.
type Cause struct {
	Ref
	Field  string `json:"field,omitempty"` // innermost field that contains the cause
	Change bool   `json:"change"`          // the resource is part of the change
}

// Blocks reports whether Envoy rejects the resource or cannot use it.
func (f *Finding) Blocks() bool { return f.Severity != finding.Warning.String() }

// String returns the finding in one line, without its causes.
func (f *Finding) String() string {
	var b strings.Builder
	if f.Type != "" {
		b.WriteString(f.Type[strings.LastIndexByte(f.Type, '.')+1:] + " " + f.Resource)
		if f.Pointer != "" {
			b.WriteString(" at " + f.Pointer)
		}
		b.WriteString(": ")
	}
	b.WriteString(f.Message)
	if f.By == FoundByEnvoy {
		b.WriteString(" (said by Envoy)")
	} else {
		fmt.Fprintf(&b, " (rule %d: %s)", f.Rule, f.Title)
	}
	b.WriteString(", on " + strings.Join(f.Proxies, ", "))
	if more := f.Total - len(f.Proxies); more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	return b.String()
}

// Reason returns the finding in one line with its second and further causes. place returns the
// location of a cause, or "".
func (f *Finding) Reason(position func(Ref) string) string {
	out, lead := f.String(), "; together with "
	for _, c := range f.Causes[min(len(f.Causes), 1):] {
		out += lead + c.Ref.String()
		if lead = ", "; c.Field != "" {
			out += " " + c.Field
		}
		out += position(c.Ref)
	}
	return out
}

// Parts returns the first cause of the finding, its field, and the reason.
func (f *Finding) Parts() (cause, field, reason string) {
	reason = f.Reason(func(Ref) string { return "" })
	if len(f.Causes) == 0 {
		return "", "", reason
	}
	return f.Causes[0].Ref.String(), f.Causes[0].Field, reason
}

// Line returns the finding in one line with its causes.
func (f *Finding) Line() string { return f.Intro("") }

// Intro is [Finding.Line] with a text before the finding.
func (f *Finding) Intro(intro string) string {
	who, field, reason := f.Parts()
	if field != "" {
		who += " " + field
	}
	if who != "" {
		who += ": "
	}
	return who + intro + reason
}
