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
	Error    string   `json:"error,omitempty"`
	Policies []Ref    `json:"policies"` // the resources that cause something of it, sorted
	Config   PartDiff `json:"config"`
	Rules    PartDiff `json:"rules"`
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
	Type    string      `json:"type"`   // URL, or kind of policy
	Name    string      `json:"name"`   // of the resource, or whom the rule is about
	Action  string      `json:"action"` // created, changed or deleted
	Changes []FieldDiff `json:"changes"`
	By      []Ref       `json:"by"` // the resources that cause it, sorted
}

// FieldDiff is a value that would change.
type FieldDiff struct {
	jsonpatch.FieldChange
	By []Ref `json:"by"` // the resources that cause it, sorted
}

// Finding is something that the check has to say about a change, told once for all proxies on which
// it is alike. Lists are never null.
type Finding struct {
	Severity string `json:"severity"` // reject, unusable or warning
	Rule     int    `json:"rule"`     // its number in package finding; 0 with By "envoy"
	Title    string `json:"title"`    // what holds of a good config
	By       string `json:"by"`       // FoundByCheck or FoundByEnvoy
	finding.Place
	Message string          `json:"message"` // the value, the bound and the remedy
	Others  []finding.Place `json:"others"`  // what has a part in it
	// Proxies are the first of those on which it is found, as MESH/NAME; Total is how many there are.
	// Type, name and message are those of the first.
	Proxies []string `json:"proxies"`
	Total   int      `json:"total"`
	Causes  []Cause  `json:"causes"` // empty where none was found
}

// Who has found something.
const (
	FoundByCheck = "check"
	FoundByEnvoy = "envoy" // the real one
)

// Cause is a resource without which something would not be found.
type Cause struct {
	Ref
	Field  string `json:"field,omitempty"` // the innermost that holds all of it
	Change bool   `json:"change"`          // it is part of the change
}

// Blocks reports whether Envoy refuses the resource or cannot use it.
func (f *Finding) Blocks() bool { return f.Severity != finding.Warning.String() }

// String is the finding in one line, without its causes.
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

// Reason is the finding in one line with its causes after the first; place says where one of these
// is, "" for nothing.
func (f *Finding) Reason(place func(Ref) string) string {
	out, lead := f.String(), "; together with "
	for _, c := range f.Causes[min(len(f.Causes), 1):] {
		out += lead + c.Ref.String()
		if lead = ", "; c.Field != "" {
			out += " " + c.Field
		}
		out += place(c.Ref)
	}
	return out
}

// Parts returns the first cause of the finding, the field of it, and the reason.
func (f *Finding) Parts() (cause, field, reason string) {
	reason = f.Reason(func(Ref) string { return "" })
	if len(f.Causes) == 0 {
		return "", "", reason
	}
	return f.Causes[0].Ref.String(), f.Causes[0].Field, reason
}

// Line is the finding in one line with its causes.
func (f *Finding) Line() string { return f.Intro("") }

// Intro is the line with something more before what was found.
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
