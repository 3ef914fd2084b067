package explain

import (
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
)

// What becomes of a connection or request.
const (
	VerdictAllowed = "allowed"
	VerdictDenied  = "denied" // a filter chain takes it, and a filter or a route denies it
	VerdictClosed  = "closed" // nothing takes it: the client sees the connection refused, closed or reset
	// Before any connection: no service has the name, and the dataplane has no outbound for the
	// service of that name.
	VerdictUnknownHost = "unknown host"
	VerdictUnreachable = "unreachable"
)

// Target is what a question is about: who dials what.
type Target struct {
	Mesh string `json:"mesh"`         // "" means default
	From string `json:"from"`         // the dataplane whose workload dials
	To   string `json:"to"`           // HOST:PORT; the host is an IP or a name
	IP   string `json:"ip,omitempty"` // what the client dials where the host is a name
	// Shadow asks for the answer with the shadow policies in force too.
	Shadow bool `json:"shadow,omitempty"`
}

// ConnectionQuestion asks about a connection: plain bytes that are not HTTP, or TLS.
type ConnectionQuestion struct {
	Target
	TLS bool `json:"tls,omitempty"`
	// Silent is a client that waits for the server to speak, as those of MySQL and SMTP.
	Silent bool `json:"silent,omitempty"`
	// SNI is the server name of the TLS handshake: nil for the host, where it is a name; "" for none.
	SNI  *string  `json:"sni,omitempty"`
	ALPN []string `json:"alpn,omitempty"` // of the TLS handshake, the preferred first
}

// RequestQuestion asks about an HTTP request without TLS.
type RequestQuestion struct {
	Target
	Method  string   `json:"method,omitempty"`  // "" means GET
	Path    string   `json:"path,omitempty"`    // with the query; "" means /
	Headers []Header `json:"headers,omitempty"` // one named host takes the place of HOST:PORT
	HTTP2   bool     `json:"http2,omitempty"`
	HTTP10  bool     `json:"http10,omitempty"` // HTTP/1.0
}

// Header is a header of a request.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Flow is what becomes of a connection or request, and why. The way is that through the proxy of
// the client; verdict, reason, flag and policies are about all of it.
type Flow struct {
	Way
	// Servers are the ends of it in the mesh whose config is known here, and the egresses by which it
	// leaves, at most maxServers: where all of them say no, the verdict is theirs.
	Servers []Way `json:"servers"`
	// Suggest is the smallest change of a policy with which the verdict is another, as YAML; "" for
	// none.
	Suggest string `json:"suggest"`
	// Wildcard is a match for all hosts of the domain that the suggested match is for one host of,
	// as *.example.com; "" where there is none that leaves the names of the meshes alone.
	Wildcard string `json:"wildcard,omitempty"`
	// Shadow is the same with the shadow policies in force, and Parts the first difference: the step
	// of which the two have another outcome, "" for none.
	Shadow *Flow  `json:"shadow,omitempty"`
	Parts  string `json:"parts,omitempty"`

	// Bypasses are services of the mesh at an address that the dataplane dials without an outbound for
	// them: nothing that policies say of them applies to what leaves.
	Bypasses []string `json:"bypasses,omitempty"`

	// Beyond says who else decides, and that what it decides is not known here; "" for nobody.
	Beyond string `json:"beyond,omitempty"`

	missed  *mesh.Service   // that is dialled and that the dataplane does not reach; nil for none
	outside *policy.Outside // that no permission lets the dataplane use; nil for none
	closed  bool            // no policy would let it reach that
}

// Way is the way through one proxy. Lists are never null; those that most ways do not have are left
// out where they are empty.
type Way struct {
	Verdict     string        `json:"verdict"`
	Reason      string        `json:"reason"`
	Dataplane   api.Ref       `json:"dataplane"` // whose proxy it is; a ZoneEgress where it leaves through one
	Address     string        `json:"address"`   // that is dialled
	Listener    string        `json:"listener"`
	FilterChain string        `json:"filterChain"`
	VirtualHost string        `json:"virtualHost"`
	Route       string        `json:"route"`
	Clusters    []FlowCluster `json:"clusters"` // that may get it
	// ClosedAt is the level of the choice of a filter chain at which nothing fitted, "" for none.
	ClosedAt   string           `json:"closedAt"`
	Flag       string           `json:"flag,omitempty"`   // the response flag that Envoy logs
	Status     uint32           `json:"status,omitempty"` // of the response that Envoy gives itself
	Steps      []FlowStep       `json:"steps"`
	Policies   []api.FlowPolicy `json:"policies"` // those of the steps, each once
	AccessLogs []api.FlowLog    `json:"accessLogs"`

	Location string       `json:"location,omitempty"` // of a redirect
	Effects  []FlowEffect `json:"effects,omitempty"`  // faults, limits, timeouts and retries on the way
	Mirrors  []FlowMirror `json:"mirrors,omitempty"`
	// Wait is of a client that waits for the server to speak, for connections of plain bytes: nil
	// where nothing holds it up.
	Wait *FlowWait `json:"wait,omitempty"`
	// Accepted is true where the answer is that of what the Envoy has, and Held what of it is not as
	// it was made. Else the config that is made decides.
	Accepted bool       `json:"accepted,omitempty"`
	Held     []FlowHeld `json:"held,omitempty"`
	// OldUntil is until when connections from before a change of the listener may use its old filter
	// chains, nil where none is known.
	OldUntil *time.Time `json:"oldUntil,omitempty"`

	about *about
}

// FlowCluster is a cluster that may get a connection or request.
type FlowCluster struct {
	Name   string `json:"name"`
	Weight uint32 `json:"weight"` // of Total
	Total  uint32 `json:"total"`
	// Pinned is true where the cluster finds its addresses by itself: the one that the client has
	// dialled does not matter.
	Pinned    bool     `json:"pinned"`
	Missing   bool     `json:"missing,omitempty"` // the config has no such cluster
	Endpoints int      `json:"endpoints"`         // how many
	Addresses []string `json:"addresses"`         // the first of them
	// Request is the request as the cluster gets it, but for what Envoy adds by itself; nil for a
	// connection.
	Request *Upstream `json:"request,omitempty"`
}

// FlowStep is the answer to one question on the way.
type FlowStep struct {
	At         string           `json:"at"`
	Saw        string           `json:"saw,omitempty"` // what was looked up
	Chose      string           `json:"chose"`         // "" where nothing fitted
	Candidates []string         `json:"candidates,omitempty"`
	Eliminated []Eliminated     `json:"eliminated"`
	More       int              `json:"more,omitempty"` // candidates that are not listed
	Note       string           `json:"note,omitempty"`
	Policies   []api.FlowPolicy `json:"policies"`
}

// Eliminated is a candidate that fell.
type Eliminated struct {
	Name string `json:"name"`
	Why  string `json:"why"`
}

// QuestionError says what is wrong with a question.
type QuestionError struct {
	Field  string // "to"
	Reason string
}

// Error names the field.
func (e *QuestionError) Error() string { return e.Field + ": " + e.Reason }
