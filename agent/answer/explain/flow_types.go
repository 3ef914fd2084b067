package explain

import (
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
)

// Verdicts about a connection or request.
const (
	VerdictAllowed = "allowed"
	VerdictDenied  = "denied" // a filter chain matches, but a filter or route denies it
	VerdictClosed  = "closed" // nothing accepts it: the client's connection is refused, closed, or reset
	// Verdicts before a connection: no service has the name, or the dataplane has no outbound for
	// the service with the name.
	VerdictUnknownHost = "unknown host"
	VerdictUnreachable = "unreachable"
)

// Target identifies the client and the destination of a question.
type Target struct {
	Mesh string `json:"mesh"`         // "" means default
	From string `json:"from"`         // dataplane of the client
	To   string `json:"to"`           // HOST:PORT; the host is an IP address or a name
	IP   string `json:"ip,omitempty"` // the address that the client dials if the host is a name
	// Shadow also asks for the result with shadow policies active.
	Shadow bool `json:"shadow,omitempty"`
}

// ConnectionQuestion asks about a connection that carries TLS or plain bytes other than HTTP.
type ConnectionQuestion struct {
	Target
	TLS bool `json:"tls,omitempty"`
	// Silent means that the client waits for the server to send first, as MySQL and SMTP clients
	// do.
	Silent bool `json:"silent,omitempty"`
	// SNI is the server name in the TLS handshake. Null means the host if it is a name; "" means
	// none.
	SNI  *string  `json:"sni,omitempty"`
	ALPN []string `json:"alpn,omitempty"` // ALPN protocols in the TLS handshake, in order of preference
}

// RequestQuestion asks about an HTTP request without TLS.
type RequestQuestion struct {
	Target
	Method  string   `json:"method,omitempty"`  // "" means GET
	Path    string   `json:"path,omitempty"`    // including the query; "" means /
	Headers []Header `json:"headers,omitempty"` // a header named host replaces HOST:PORT
	HTTP2   bool     `json:"http2,omitempty"`
	HTTP10  bool     `json:"http10,omitempty"` // HTTP/1.0
}

// Header is a header of a request.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Flow explains the path of a connection or request. The Way is the path through the client's
// proxy; its verdict, reason, flag, and policies apply to the whole flow.
type Flow struct {
	Way
	// Servers are the paths through the proxies of the servers whose config is known and through
	// the egresses, at most maxServers. The verdict is
	// denied if all of them deny the flow.
	Servers []Way `json:"servers"`
	// Suggest is a minimal policy, as YAML, that would allow the flow; "" if there is none.
	Suggest string `json:"suggest"`
	// Wildcard is a match such as *.example.com for all hosts of the domain of the suggested match;
	// "" if none is possible without also matching names of a mesh.
	Wildcard string `json:"wildcard,omitempty"`
	// Shadow is the flow with shadow policies active. Parts is the first step at which the two
	// differ; "" if they do not.
	Shadow *Flow  `json:"shadow,omitempty"`
	Parts  string `json:"parts,omitempty"`

	// Bypasses are services of the mesh at the dialed address if the dataplane has no outbound for
	// them. Their policies do not apply to the connection.
	Bypasses []string `json:"bypasses,omitempty"`

	// Beyond says which other proxies decide whose config is unknown here; "" if there are none.
	Beyond string `json:"beyond,omitempty"`

	missed  *mesh.Service   // dialed service that the dataplane does not reach; nil if none
	outside *policy.Outside // dialed destination that no permission lets the dataplane use; nil if none
	closed  bool            // no policy could make the destination reachable
}

// Way is the path through one proxy. Lists are never null, except for those that are usually empty;
// these are omitted if empty.
type Way struct {
	Verdict     string        `json:"verdict"`
	Reason      string        `json:"reason"`
	Dataplane   api.Ref       `json:"dataplane"` // whose proxy it is, or a ZoneEgress
	Address     string        `json:"address"`   // the dialed address
	Listener    string        `json:"listener"`
	FilterChain string        `json:"filterChain"`
	VirtualHost string        `json:"virtualHost"`
	Route       string        `json:"route"`
	Clusters    []FlowCluster `json:"clusters"` // possible destinations
	// ClosedAt is the filter chain criterion at which no chain matches; "" if a chain matches.
	ClosedAt   string           `json:"closedAt"`
	Flag       string           `json:"flag,omitempty"`   // response flag that Envoy logs
	Status     uint32           `json:"status,omitempty"` // status of a response that Envoy generates
	Steps      []FlowStep       `json:"steps"`
	Policies   []api.FlowPolicy `json:"policies"` // of all steps, without duplicates
	AccessLogs []api.FlowLog    `json:"accessLogs"`

	Location string       `json:"location,omitempty"` // of a redirect
	Effects  []FlowEffect `json:"effects,omitempty"`  // faults, limits, timeouts, and retries
	Mirrors  []FlowMirror `json:"mirrors,omitempty"`
	// Wait says how long a client waits that sends nothing, such as one that expects the server to
	// send first; null if nothing waits for its bytes.
	Wait *FlowWait `json:"wait,omitempty"`
	// Accepted is true if the explanation uses the config that Envoy has, and Held lists its
	// differences from the computed config. Otherwise the explanation uses the computed config.
	Accepted bool       `json:"accepted,omitempty"`
	Held     []FlowHeld `json:"held,omitempty"`
	// OldUntil is the time until which older connections may use the previous filter chains of the
	// listener; null if unknown.
	OldUntil *time.Time `json:"oldUntil,omitempty"`

	about *about
}

// FlowCluster is a cluster that may receive the connection or request.
type FlowCluster struct {
	Name   string `json:"name"`
	Weight uint32 `json:"weight"` // out of Total
	Total  uint32 `json:"total"`
	// Pinned is true if the cluster resolves its own addresses, so the dialed address is not used.
	Pinned    bool     `json:"pinned"`
	Missing   bool     `json:"missing,omitempty"` // the config has no such cluster
	Endpoints int      `json:"endpoints"`         // number of endpoints
	Addresses []string `json:"addresses"`         // the first endpoints
	// Request is the request as sent to the cluster, without the headers that Envoy always adds;
	// null for a connection.
	Request *Upstream `json:"request,omitempty"`
}

// FlowStep is one decision on the path.
type FlowStep struct {
	At         string           `json:"at"`
	Saw        string           `json:"saw,omitempty"` // the value that was matched
	Chose      string           `json:"chose"`         // "" if nothing matched
	Candidates []string         `json:"candidates,omitempty"`
	Eliminated []Eliminated     `json:"eliminated"`
	More       int              `json:"more,omitempty"` // candidates that are not listed
	Note       string           `json:"note,omitempty"`
	Policies   []api.FlowPolicy `json:"policies"`
}

// Eliminated is a candidate that did not match.
type Eliminated struct {
	Name string `json:"name"`
	Why  string `json:"why"`
}

// QuestionError reports an invalid question.
type QuestionError struct {
	Field  string // name of the field, such as "to"
	Reason string
}

// Error returns the field and the reason.
func (e *QuestionError) Error() string { return e.Field + ": " + e.Reason }
