package api

import "time"

// Names of the events of GET /v1/events.
const (
	EventHello   = "hello"   // the first one: read everything that you show again
	EventChange  = "change"  // a resource was created, changed, or deleted
	EventProxy   = "proxy"   // the first stream of a proxy was opened, or its last one has ended
	EventAck     = "ack"     // a proxy acknowledged a version
	EventNack    = "nack"    // a proxy rejected resources
	EventProblem = "problem" // a problem of the status is new, or has ended
	EventLost    = "lost"    // the reader was too slow: read everything again
	EventEnd     = "end"     // the last one: the stream ends
)

// EventTypes lists the events that a reader can select. Hello, lost, and end always come.
var EventTypes = []string{EventChange, EventProxy, EventAck, EventNack, EventProblem}

// Hello is the data of the event hello.
type Hello struct {
	Instance string    `json:"instance"` // of the agent; a restart changes it
	Started  time.Time `json:"started"`
	Revision uint64    `json:"revision"` // of the store; all later changes follow as events
}

// ChangeEvent is the data of the event change.
type ChangeEvent struct {
	Type     string    `json:"type"`
	Mesh     string    `json:"mesh,omitempty"`
	Name     string    `json:"name"`
	Action   string    `json:"action"` // created, changed, or deleted
	Revision uint64    `json:"revision"`
	Source   string    `json:"source"`
	Author   string    `json:"author,omitempty"`
	Time     time.Time `json:"time"`
}

// ProxyOf is the proxy of an event, and the time.
type ProxyOf struct {
	Kind string    `json:"kind"` // Dataplane, ZoneEgress, or ZoneIngress
	Mesh string    `json:"mesh,omitempty"`
	Name string    `json:"name"`
	Time time.Time `json:"time"`
}

// ProxyEvent is the data of the event proxy.
type ProxyEvent struct {
	ProxyOf
	State string `json:"state"` // connected or disconnected
}

// AckEvent is the data of the event ack.
type AckEvent struct {
	ProxyOf
	XDSType string `json:"xdsType"` // type URL of the resources
	Version string `json:"version"`
}

// NackEvent is the data of the event nack. It comes at once, and again when Policies is known.
type NackEvent struct {
	AckEvent
	Error     string   `json:"error"`     // of the proxy
	Resource  string   `json:"resource"`  // the first of Resources; "" if the error names none
	Resources []string `json:"resources"` // rejected; at most 16
	// Policies that affect the resources, the most likely cause first; empty until they are known.
	Policies []Blame `json:"policies"`
}

// States of a problem in an event.
const (
	ProblemNew   = "new"
	ProblemEnded = "ended"
)

// ProblemEvent is the data of the event problem. A problem whose reason changes ends, and is new
// with the other reason.
type ProblemEvent struct {
	State   string  `json:"state"` // new or ended
	Problem Problem `json:"problem"`
}

// Lost is the data of the event lost.
type Lost struct {
	Events int `json:"events"` // that the reader missed, or more: those that it may not see count too
}

// End is the data of the event end.
type End struct {
	Reason string `json:"reason"`
}
