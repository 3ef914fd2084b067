package api

import (
	"fmt"
	"time"
)

// States of an [Applied], in addition to StatePending, StateStale, and StateRejected.
const (
	StateApplied = "applied" // every affected connected proxy has acknowledged it; there may be none
	// the resource does not exist, and every affected connected proxy has acknowledged that
	StateGone       = "gone"
	StateShadow     = "shadow"     // a policy with the label kuma.io/effect: shadow, which affects no proxy
	StateInert      = "inert"      // of a kind that this version ignores
	StateReplaced   = "replaced"   // a legacy policy that targetRef policies replace wherever it would act
	StateUnselected = "unselected" // a policy that selects no dataplane of the mesh
	StateNoEffect   = "no-effect"  // a policy without effect on any dataplane that it selects
)

// AppliedList is GET /v1/applied/{plural}: all resources of a kind, sorted by mesh and name.
type AppliedList struct {
	Total int       `json:"total"`
	Items []Applied `json:"items"`
}

// Applied says how far the proxies connected to this agent have applied a resource. Lists are never
// null.
type Applied struct {
	Type     string `json:"type"`
	Mesh     string `json:"mesh,omitempty"`
	Name     string `json:"name"`
	Revision uint64 `json:"revision"` // of the last change, which may be the deletion
	State    string `json:"state"`
	Reason   string `json:"reason,omitempty"` // why it is in this state, unless the lists show it
	// Effect is one of the Effect constants, of a policy that selects dataplanes: whether it is in
	// force on any of them.
	Effect string `json:"effect,omitempty"`
	// Warnings are about a policy that has less effect than specified, such as references that
	// lead nowhere.
	Warnings []string `json:"warnings,omitempty"`
	// Selected is how many dataplanes of the mesh a policy selects, on all nodes.
	Selected int `json:"selected,omitempty"`
	// Proxies is how many connected proxies the resource affects, and Acknowledged how many of them
	// have acknowledged it.
	Proxies      int `json:"proxies"`
	Acknowledged int `json:"acknowledged"`
	// Late are proxies that have not answered or keep an older config (StateStale), and Rejected
	// are resources that clients rejected.
	// LateTotal and RejectedTotal count all of them, even if the lists are truncated.
	LateTotal     int                `json:"lateTotal"`
	Late          []LateProxy        `json:"late"`
	RejectedTotal int                `json:"rejectedTotal"`
	Rejected      []RejectedResource `json:"rejected"`
	// OldUntil is when connections on previous filter chains have drained. It is zero if there are
	// none. Old are the proxies that may have some. OldTotal counts all of them, even if the list is
	// truncated.
	OldUntil time.Time  `json:"oldUntil,omitzero"`
	OldTotal int        `json:"oldTotal,omitempty"`
	Old      []OldProxy `json:"old,omitempty"`
	// Effective is the Effective of the question.
	Effective bool `json:"effective,omitempty"`
	// Nodes is how many nodes were asked with ScopeMesh, including this one. LateNodes have not
	// applied the resource or do not respond. Unasked are not alive.
	Nodes     int        `json:"nodes,omitempty"`
	LateNodes []LateNode `json:"lateNodes,omitempty"`
	Unasked   []string   `json:"unasked,omitempty"`
}

// LateNode is a node of the pool that has not applied the resource.
type LateNode struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// LateProxy is a proxy that has not answered.
type LateProxy struct {
	Mesh   string `json:"mesh"`
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// RejectedResource is a part of a proxy's config that is not in force: a resource that its client
// rejected or the check withheld, or an access log without a destination.
type RejectedResource struct {
	Mesh     string `json:"mesh"`
	Name     string `json:"name"` // of the dataplane
	TypeURL  string `json:"typeUrl"`
	Resource string `json:"resource"`
	// By is "proxy", "check" if the agent's check withheld it, or "agent" if the agent left it out
	// because the destination of an access log is not ready.
	By     string `json:"by"`
	Reason string `json:"reason"`
	// Retry is when the agent sends the resource again without a change, because the cause may be
	// temporary. It is zero for never.
	Retry    time.Time `json:"retry,omitzero"`
	Policies []Blame   `json:"policies"` // that shape it, most likely cause first
	// Without lists the policies whose effect the form that Envoy gets instead lacks; empty if no
	// such form is sent.
	Without []Omitted `json:"without,omitempty"`
}

// Wait is the body of POST /v1/wait.
type Wait struct {
	Type string `json:"type"` // any name of the kind
	Mesh string `json:"mesh,omitempty"`
	Name string `json:"name"`
	For  string `json:"for,omitempty"` // ForApplied (the default) or ForGone
	// Scope is ScopeNode (the default), or ScopeMesh for the living nodes of the pool.
	Scope string `json:"scope,omitempty"`
	// Effective waits also until connections that use the previous filters have ended. Until then,
	// the state is StateDraining.
	Effective bool `json:"effective,omitempty"`
	// Timeout bounds the time until the answer. The default and maximum is 25 s; "0s" returns the
	// current state.
	Timeout string `json:"timeout,omitempty"`
	// Late are the proxies, as MESH/NAME, that were late in the last answer. The agent waits for
	// them even if they are disconnected, for example after a restart of the agent.
	Late []string `json:"late,omitempty"`
}

// Values of Wait.For and Wait.Scope.
const (
	ForApplied = "applied"
	ForGone    = "gone"

	ScopeNode = "node"
	ScopeMesh = "mesh"
)

// RetrySaid says when the agent sends a rejected resource again; "" for never.
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
