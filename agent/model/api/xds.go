package api

import (
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// States of a [ProxyStatus], beside StateUnknown and StateDisconnected.
const (
	StateWaiting = "waiting-for-state" // the agent has not loaded its state yet
	StateServing = "serving"
)

// ProxyStatus is what the server knows of one node, connected or recently so.
type ProxyStatus struct {
	Type        node.Type    `json:"type,omitempty"`
	Mesh        string       `json:"mesh"`
	Name        string       `json:"name"`
	NodeID      string       `json:"nodeID"`
	Flavor      node.Flavor  `json:"flavor"`
	UserAgent   string       `json:"userAgent,omitempty"`
	Version     string       `json:"version,omitempty"` // of the user agent
	Peer        access.Peer  `json:"peer"`              // of the newest stream
	ConnectedAt time.Time    `json:"connectedAt"`
	Streams     int          `json:"streams"` // open now
	Delta       bool         `json:"delta"`
	State       string       `json:"state"`
	InSync      bool         `json:"inSync"` // every subscribed type is sent, acknowledged and not held
	Types       []TypeStatus `json:"types"`  // those asked for, in make-before-break order
	Events      []Event      `json:"events"` // the oldest first
}

// TypeStatus is the state of one resource type of a node.
type TypeStatus struct {
	TypeURL      string         `json:"typeUrl"`
	Resources    int            `json:"resources"` // that the client has after the last response
	SentVersion  string         `json:"sentVersion,omitempty"`
	SentAt       time.Time      `json:"sentAt,omitzero"`
	AckedVersion string         `json:"ackedVersion,omitempty"`
	AckedAt      time.Time      `json:"ackedAt,omitzero"`
	NACK         *NACK          `json:"nack"` // the last response, when it was rejected
	Held         []HeldResource `json:"held"` // sorted by name
}

// NACK is the rejection of a response.
type NACK struct {
	Version   string    `json:"version"`
	Time      time.Time `json:"time"`
	Reason    string    `json:"reason"`
	Resources []string  `json:"resources"` // taken to be rejected; at most 64 are named
	Policies  []Blame   `json:"policies"`  // that shape these, the most likely cause first; empty until they are found
}

// Who found a resource unfit.
const (
	HeldByProxy = "proxy" // the client rejected it
	HeldByCheck = "check" // the agent's own check, so that the client was not sent it
)

// HeldResource is a resource whose current bytes the client rejected, or was not sent because it
// would.
type HeldResource struct {
	Name            string    `json:"name"`
	RejectedVersion string    `json:"rejectedVersion"`
	AcceptedVersion string    `json:"acceptedVersion,omitempty"` // in force instead; "" when none ever was
	By              string    `json:"by"`                        // HeldByProxy or HeldByCheck
	Rule            int       `json:"rule,omitempty"`            // of the check
	Reason          string    `json:"reason"`
	Time            time.Time `json:"time"`
	Retry           time.Time `json:"retry,omitzero"` // when it is sent again without any change; zero for never
	// that shape it, the most likely cause first; empty until they are found
	Policies []Blame `json:"policies"`
}

// Blame names a policy that shapes a resource which a client rejected.
type Blame struct {
	Type string `json:"type"`
	Mesh string `json:"mesh"`
	Name string `json:"name"`
	// Field is the innermost field of the policy that holds all of what shapes the resource.
	Field string `json:"field,omitempty"`
	// Evidence is BlameAlone, BlameChanged, BlameShapes or BlameHost.
	Evidence string `json:"evidence"`
	// Paths are the places in the resource that the policy shapes, as JSON Pointers; at most 8.
	Paths []string `json:"paths"`
}

// How much speaks for it that a policy is what made a client reject a resource.
const (
	BlameAlone   = "alone"   // without it the resource would have the bytes that were accepted last
	BlameChanged = "changed" // it shapes the resource and was changed since that was accepted last
	BlameShapes  = "shapes"  // it shapes the resource
	BlameHost    = "host"    // it shapes the resource, and the reason lies on the host of the client: it is not the cause
)

// Event is one step of the dialogue with a client.
type Event struct {
	Time      time.Time `json:"time"`
	Kind      string    `json:"kind"` // "connected", "disconnected", "held", "sent", "ack", "nack"
	TypeURL   string    `json:"typeUrl,omitempty"`
	Version   string    `json:"version,omitempty"`
	Nonce     string    `json:"nonce,omitempty"`
	Reason    string    `json:"reason,omitempty"`
	Resources []string  `json:"resources,omitempty"` // at most 16 are named
	Count     int       `json:"count,omitempty"`     // of all resources concerned
}

// OfHost says whether what was rejected has its reason on the host of the client: a port that is in
// use, a file that is not there.
func OfHost(blame []Blame) bool {
	return slices.ContainsFunc(blame, func(b Blame) bool { return b.Evidence == BlameHost })
}

// Causes returns those who are most likely the cause of a rejection: all that something speaks for
// beside the fact that they shape the resource, else the first. What lies on the host of the client
// has no policy as its cause.
func Causes(blame []Blame) []Blame {
	if OfHost(blame) {
		return nil
	}
	out := slices.DeleteFunc(slices.Clone(blame), func(b Blame) bool { return b.Evidence == BlameShapes })
	if len(out) == 0 {
		out = append(out, blame[:min(len(blame), 1)]...)
	}
	return out
}

// Refusals are the streams that were refused since the start because of who asked.
type Refusals struct {
	Total  uint64    `json:"total"`
	At     time.Time `json:"at,omitzero"` // of the latest, as all below
	Peer   string    `json:"peer,omitempty"`
	NodeID string    `json:"nodeID,omitempty"` // "" when the token was wrong
	Reason string    `json:"reason,omitempty"`
}
