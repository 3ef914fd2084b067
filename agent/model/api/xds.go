package api

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// States of a [ProxyStatus], in addition to StateUnknown and StateDisconnected.
const (
	StateWaiting = "waiting-for-state" // the agent has not loaded its state yet
	StateServing = "serving"
)

// ProxyStatus is the server's state of one node, connected or recently connected.
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
	InSync      bool         `json:"inSync"` // every subscribed type is sent, acknowledged, and not held
	Types       []TypeStatus `json:"types"`  // requested types, in make-before-break order
	Events      []Event      `json:"events"` // oldest first
}

// TypeStatus is the state of one resource type of a node.
type TypeStatus struct {
	TypeURL      string    `json:"typeUrl"`
	Resources    int       `json:"resources"` // of the client after the last response
	SentVersion  string    `json:"sentVersion,omitempty"`
	SentAt       time.Time `json:"sentAt,omitzero"`
	AckedVersion string    `json:"ackedVersion,omitempty"`
	AckedAt      time.Time `json:"ackedAt,omitzero"`
	// Reported is how many resources the client already had when its newest stream began, for
	// example after a restart of the agent, and ReportedAt when it said so. If all are up to date,
	// AckedVersion is their version.
	Reported   int       `json:"reported,omitempty"`
	ReportedAt time.Time `json:"reportedAt,omitzero"`
	// Responses, and how many of them the client acknowledged and rejected, since the agent started
	// or has known the client.
	Responses    uint64         `json:"responses"`
	Acknowledged uint64         `json:"acknowledged"`
	Rejections   uint64         `json:"rejections"`
	NACK         *NACK          `json:"nack"` // of the last response, if it was rejected
	Held         []HeldResource `json:"held"` // sorted by name
}

// NACK is the rejection of a response.
type NACK struct {
	Version   string    `json:"version"`
	Time      time.Time `json:"time"`
	Reason    string    `json:"reason"`
	Resources []string  `json:"resources"` // presumed rejected; at most 64 are named
	// that shape them, most likely cause first; empty until they are found
	Policies []Blame `json:"policies"`
}

// Values of HeldResource.By.
const (
	HeldByProxy = "proxy" // the client rejected it
	HeldByCheck = "check" // the agent's check withheld it
	HeldByAgent = "agent" // the agent left it out, because its destination is not ready
)

// HeldResource is a resource whose current version the client rejected, or the check withheld.
type HeldResource struct {
	Name            string `json:"name"`
	RejectedVersion string `json:"rejectedVersion"`
	// in force instead; "" if none was ever accepted
	AcceptedVersion string    `json:"acceptedVersion,omitempty"`
	By              string    `json:"by"`             // HeldByProxy or HeldByCheck
	Rule            int       `json:"rule,omitempty"` // of the check
	Reason          string    `json:"reason"`
	Time            time.Time `json:"time"`
	// when it is sent again without a change; zero for never
	Retry time.Time `json:"retry,omitzero"`
	// that shape it, most likely cause first; empty until they are found
	Policies []Blame `json:"policies"`
	// policies whose effect the form that is sent instead lacks; empty if no such form is sent
	Without []Omitted `json:"without,omitempty"`
}

// Omitted names a policy whose effect a resource lacks, because the resource was rejected with it.
type Omitted struct {
	Type string `json:"type"`
	Mesh string `json:"mesh"`
	Name string `json:"name"`
	// Revision is the earlier revision of the policy that is in force instead; 0 for none.
	Revision uint64 `json:"revision,omitempty"`
}

// OmittedText describes the form of a resource without policies, such as "the version without
// MeshProxyPatch/default/x".
func OmittedText(list []Omitted) string {
	var without, earlier []string
	for _, o := range list {
		name := o.Type + "/" + o.Mesh + "/" + o.Name
		if o.Revision > 0 {
			earlier = append(earlier, fmt.Sprintf("revision %d of %s", o.Revision, name))
		} else {
			without = append(without, name)
		}
	}
	var parts []string
	if len(earlier) > 0 {
		parts = append(parts, "with "+strings.Join(earlier, ", "))
	}
	if len(without) > 0 {
		parts = append(parts, "without "+strings.Join(without, ", "))
	}
	return "the version " + strings.Join(parts, " and ")
}

// Blame names a policy that shapes a rejected resource.
type Blame struct {
	Type string `json:"type"`
	Mesh string `json:"mesh"`
	Name string `json:"name"`
	// Field is the innermost field of the policy that contains everything that shapes the resource.
	Field string `json:"field,omitempty"`
	// Evidence is BlameAlone, BlameChanged, BlameShapes, or BlameHost.
	Evidence string `json:"evidence"`
	// Paths are the JSON pointers into the resource that the policy shapes; at most 8.
	Paths []string `json:"paths"`
}

// Evidence that a policy caused a rejection.
const (
	BlameAlone   = "alone"   // without it, the resource equals the last accepted version
	BlameChanged = "changed" // it shapes the resource, and changed after the last accepted version
	BlameShapes  = "shapes"  // it shapes the resource
	BlameHost    = "host"    // it shapes the resource, but the cause is on the host of the client
)

// Event is one step of the exchange with a client.
type Event struct {
	Time      time.Time `json:"time"`
	Kind      string    `json:"kind"` // "connected", "disconnected", "held", "sent", "ack", "nack"
	TypeURL   string    `json:"typeUrl,omitempty"`
	Version   string    `json:"version,omitempty"`
	Nonce     string    `json:"nonce,omitempty"`
	Reason    string    `json:"reason,omitempty"`
	Resources []string  `json:"resources,omitempty"` // at most 16 are named
	Count     int       `json:"count,omitempty"`     // of all affected resources
}

// OfHost reports whether the cause of a rejection is on the host of the client, such as a port in
// use or a missing file.
func OfHost(blame []Blame) bool {
	return slices.ContainsFunc(blame, func(b Blame) bool { return b.Evidence == BlameHost })
}

// Causes returns the most likely causes of a rejection: the policies with evidence beyond shaping
// the resource, else the first policy. It returns nil if the cause is on the host of the client.
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

// Refusals counts the streams that were refused since the start because of their sender.
type Refusals struct {
	Total  uint64    `json:"total"`
	At     time.Time `json:"at,omitzero"` // of the latest one, like the fields below
	Peer   string    `json:"peer,omitempty"`
	NodeID string    `json:"nodeID,omitempty"` // "" if the token was wrong
	Reason string    `json:"reason,omitempty"`
	// Streams are the clients that are refused now, the latest first. A client leaves the list when
	// it is accepted, and 3 minutes after its last attempt.
	Streams []RefusedStream `json:"streams"`
	// Left is how many clients have left the list because it was full.
	Left uint64 `json:"left,omitempty"`
}

// RefusedStream is a client whose streams are refused: a node id of one user or address.
type RefusedStream struct {
	// NodeID is what the client sent. It is "" if the client was refused before its first request,
	// for example because of its token.
	NodeID string      `json:"nodeID,omitempty"`
	User   string      `json:"user"` // user or address of the client, with the name of the user
	Peer   access.Peer `json:"peer"` // of the last attempt
	// Cause is the reason in the metric nearside_xds_streams_refused_total, such as "denied".
	Cause  string    `json:"cause"`
	Reason string    `json:"reason"` // sentence with the remedy, as sent to the client
	Since  time.Time `json:"since"`  // first attempt
	Last   time.Time `json:"last"`
	Count  uint64    `json:"count"` // refused streams
	// Command explains the refusal to the operator; only in answers of the API.
	Command string `json:"command,omitempty"`
}

// Admission is the answer to a client that asks over the xDS socket, without a stream, whether it
// may be a proxy. Nothing is stored.
type Admission struct {
	Allowed bool   `json:"allowed"`
	Reason  string `json:"reason,omitempty"` // why it is refused, as in the error of a stream
	Rule    string `json:"rule,omitempty"`   // of xds.access, or the default that allows it
	// Untested are pins and rules that depend on the cgroup of the Envoy, which the client does not
	// have.
	Untested []string `json:"untested,omitempty"`
	// Stored means that the resource of the proxy exists, and Brought that the node metadata has a
	// valid one.
	Stored  bool `json:"stored"`
	Brought bool `json:"brought,omitempty"`
	// Nearest are similar node ids that exist and that the client may use.
	Nearest []string `json:"nearest,omitempty"`
}

// AdmissionMethod is the gRPC method on the xDS socket that answers with an [Admission] as JSON in
// a BytesValue. Its request is a DeltaDiscoveryRequest with the node.
const (
	AdmissionService = "nearside.v1.Admission"
	AdmissionMethod  = "Test"
)
