package api

import (
	"fmt"
	"time"
)

// States of an [Applied], beside StatePending and StateRejected.
const (
	StateApplied    = "applied"    // every connected proxy that it touches has acknowledged it; none may be touched
	StateGone       = "gone"       // it does not exist, and every connected proxy that it touched has acknowledged that
	StateShadow     = "shadow"     // a policy labelled kuma.io/effect: shadow, which touches no proxy
	StateInert      = "inert"      // of a kind that this version does not act on
	StateReplaced   = "replaced"   // a legacy policy that targetRef policies have ended wherever it would act
	StateUnselected = "unselected" // a policy that selects no dataplane of the mesh
)

// AppliedList is GET /v1/applied/{plural}: all resources of a kind, sorted by mesh and name.
type AppliedList struct {
	Total int       `json:"total"`
	Items []Applied `json:"items"`
}

// Applied says how far a resource is in force on the proxies that take their config from this
// agent. Lists are never null.
type Applied struct {
	Type     string `json:"type"`
	Mesh     string `json:"mesh,omitempty"`
	Name     string `json:"name"`
	Revision uint64 `json:"revision"` // of its last change, which may be its deletion
	State    string `json:"state"`
	Reason   string `json:"reason,omitempty"` // why it is in that state, where that is not to be seen from the lists
	// Selected is how many dataplanes of the mesh a policy selects, wherever their proxies are.
	Selected int `json:"selected,omitempty"`
	// Proxies is how many connected proxies it touches, Acknowledged how many of these have it.
	Proxies      int `json:"proxies"`
	Acknowledged int `json:"acknowledged"`
	// Late are those that have not answered, Rejected what clients refuse of it. LateTotal and
	// RejectedTotal count all, also where the lists are cut short.
	LateTotal     int                `json:"lateTotal"`
	Late          []LateProxy        `json:"late"`
	RejectedTotal int                `json:"rejectedTotal"`
	Rejected      []RejectedResource `json:"rejected"`
	// OldUntil is when connections have drained that may be on filter chains from before its last
	// change; zero where none is.
	OldUntil time.Time `json:"oldUntil,omitzero"`
	// Nodes is how many nodes were asked with ScopeMesh, this one among them. LateNodes are those that
	// do not have it yet or do not answer, Unasked those that are not alive.
	Nodes     int        `json:"nodes,omitempty"`
	LateNodes []LateNode `json:"lateNodes,omitempty"`
	Unasked   []string   `json:"unasked,omitempty"`
}

// LateNode is a node of the pool that is waited for.
type LateNode struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// LateProxy is a proxy that has not answered yet.
type LateProxy struct {
	Mesh   string `json:"mesh"`
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// RejectedResource is a resource of a proxy's config that its client refused, or the check before
// it.
type RejectedResource struct {
	Mesh     string `json:"mesh"`
	Name     string `json:"name"` // of the dataplane
	TypeURL  string `json:"typeUrl"`
	Resource string `json:"resource"`
	By       string `json:"by"` // "proxy", or "check": the agent's own check, so that the client was not sent it
	Reason   string `json:"reason"`
	// Retry is when the client is sent it again without any change, since the reason may pass; zero
	// for never.
	Retry    time.Time `json:"retry,omitzero"`
	Policies []Blame   `json:"policies"` // that shape it, the most likely cause first
}

// Wait is the body of POST /v1/wait.
type Wait struct {
	Type string `json:"type"` // any name of the kind
	Mesh string `json:"mesh,omitempty"`
	Name string `json:"name"`
	For  string `json:"for,omitempty"` // ForApplied, which "" means too, or ForGone
	// Scope is ScopeNode, which "" means too, or ScopeMesh for the living nodes of the pool.
	Scope string `json:"scope,omitempty"`
	// Timeout is how long the answer may take; at most 25 s, which "" means too. "0s" asks how it
	// stands now.
	Timeout string `json:"timeout,omitempty"`
	// Late are proxies, as MESH/NAME, that were late in the last answer: they are waited for although
	// they are not connected, as after a restart of the agent.
	Late []string `json:"late,omitempty"`
}

// What can be waited for, and where.
const (
	ForApplied = "applied"
	ForGone    = "gone"

	ScopeNode = "node"
	ScopeMesh = "mesh"
)

// RetrySaid says when a client is sent something again that it rejected for a reason that may pass;
// "" for never.
func RetrySaid(at, now time.Time) string {
	switch wait := at.Sub(now).Round(time.Second); {
	case at.IsZero():
		return ""
	case wait <= 0:
		return "; it is tried again now"
	default:
		return fmt.Sprintf("; it is tried again in %d s", wait/time.Second)
	}
}
