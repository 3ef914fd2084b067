package match

import (
	"time"

	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// Level is a question that is answered on the way of a connection or request.
type Level uint8

// The levels in the order in which they are asked. Those from LevelDestinationPort to
// LevelSourcePort are the levels of a filter_chain_match; a listener with a filter_chain_matcher
// asks LevelMatcher instead.
const (
	LevelListener            Level = iota // which listener takes the connection
	LevelOriginalDst                      // whether it is handed to another one
	LevelInspection                       // what the listener filters find out
	LevelDestinationPort                  //
	LevelDestinationIP                    //
	LevelServerName                       //
	LevelTransportProtocol                //
	LevelApplicationProtocol              //
	LevelDirectSourceIP                   //
	LevelSourceType                       //
	LevelSourceIP                         //
	LevelSourcePort                       //
	LevelMatcher                          // one input of a matcher tree
	LevelChain                            // the filter chain, as the outcome of the levels above
	LevelTransportSocket                  // the TLS handshake
	LevelNetworkFilter                    //
	LevelHTTPFilter                       //
	LevelVirtualHost                      //
	LevelRoute                            //
	LevelCluster                          //
	LevelEndpoints                        // for those who follow a target further
	LevelAccessLog                        // likewise: a trace lists its logs apart
	numLevels
)

var levelNames = [numLevels]string{
	"listener", "original_dst", "listener_filters", "destination_port", "destination_ip", "server_names",
	"transport_protocol", "application_protocols", "direct_source_ip", "source_type", "source_ip", "source_ports",
	"filter_chain_matcher", "filter_chain", "transport_socket", "network_filter", "http_filter", "virtual_host", "route",
	"cluster", "endpoints", "access_log",
}

// String names the level by Envoy's name of the field where there is one.
func (l Level) String() string {
	if l < numLevels {
		return levelNames[l]
	}
	return "unknown"
}

// MarshalText is String, so that a level is a word in JSON.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// Eliminated is a candidate that fell, and why.
type Eliminated struct {
	Name string `json:"name"` // of the chain, virtual host or route, else its index
	Why  string `json:"why"`
}

// Step is the answer to one question.
type Step struct {
	Level Level  `json:"level"`
	Input string `json:"input,omitempty"` // what was looked up, as Envoy sees it; "" for nothing
	// Candidates are the values that were there to be chosen, the most specific first. Long lists are
	// cut; More counts what they and Eliminated leave out.
	Candidates []string       `json:"candidates,omitempty"`
	Choice     string         `json:"choice,omitempty"` // "" where nothing fitted
	Eliminated []Eliminated   `json:"eliminated,omitempty"`
	More       int            `json:"more,omitempty"`
	Place      *finding.Place `json:"place,omitempty"` // what was chosen, where it is a part of the config
	Note       string         `json:"note,omitempty"`  // what else is worth knowing
}

// Outcome says what becomes of a connection or request.
type Outcome uint8

const (
	// an HTTP connection manager takes the connection; what becomes of requests depends on them
	Accepted     Outcome = iota
	Forwarded            // a cluster gets it
	Answered             // Envoy answers it itself: a direct response, a redirect
	Denied               // a filter refuses it
	NoListener           // nothing listens there
	NoChain              // no filter chain matches: closed
	HandshakeEnd         // TLS does not come about: closed
	TimedOut             // the listener filters wait for bytes that do not come: closed
	NoHost               // no virtual host
	NoRoute              // no route
	NoCluster            // the cluster does not exist, or has no endpoint
	Broken               // the chain cannot serve a connection, as one without filters: closed
	numOutcomes
)

var outcomeNames = [numOutcomes]string{"accepted", "forwarded", "answered", "denied", "no_listener", "no_chain",
	"handshake_failed", "timed_out", "no_virtual_host", "no_route", "no_cluster", "broken"}

// String names the outcome.
func (o Outcome) String() string {
	if o < numOutcomes {
		return outcomeNames[o]
	}
	return "unknown"
}

// MarshalText is String, so that an outcome is a word in JSON.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// Target is a cluster that may get a connection or request.
type Target struct {
	Cluster string         `json:"cluster"`
	Weight  uint32         `json:"weight"` // of Total
	Total   uint32         `json:"total"`
	Place   *finding.Place `json:"place,omitempty"` // of the cluster, nil where it does not exist
	// Endpoints are the addresses it would dial, at most 64; for a cluster that dials the original
	// destination, that.
	Endpoints []string `json:"endpoints,omitempty"`
	More      int      `json:"more,omitempty"` // further endpoints
	// Request is the request as it gets there, nil for a connection.
	Request *Upstream `json:"request,omitempty"`
}

// Wait is what becomes of a client that waits for the server to speak, where a listener filter
// waits for bytes of the client.
type Wait struct {
	Filter string        `json:"filter"`
	After  time.Duration `json:"after"`  // 0: without an end
	Closes bool          `json:"closes"` // and does not go on without what the filter would have found
}

// Trace is the whole way of a connection or request through a config. It is the same for the same
// input.
type Trace struct {
	Outcome Outcome `json:"outcome"`
	// At is the level that decided, for outcomes other than Forwarded.
	At Level `json:"at"`
	// Flag is the response flag that Envoy logs, "" for none: NR, NC, UH, UAEX…
	Flag   string `json:"flag,omitempty"`
	Status uint32 `json:"status,omitempty"` // of the HTTP response that Envoy gives itself, 0 for none
	Policy string `json:"policy,omitempty"` // the RBAC policy that decided, "" for none
	Reason string `json:"reason,omitempty"` // one sentence about the outcome
	Steps  []Step `json:"steps"`

	Listener *finding.Place `json:"listener,omitempty"`
	Chain    *finding.Place `json:"chain,omitempty"`
	Route    *finding.Place `json:"route,omitempty"`
	Targets  []Target       `json:"targets,omitempty"`
	Mirrors  []Mirror       `json:"mirrors,omitempty"`
	Logs     []Log          `json:"logs,omitempty"` // the access logs that would be written

	// Effects are what may happen on the way, as faults and timeouts, in the order of the way.
	Effects  []Effect `json:"effects,omitempty"`
	Location string   `json:"location,omitempty"` // of a redirect
	// Wait is of a client that waits for the server, nil where nothing holds it up.
	Wait *Wait `json:"wait,omitempty"`
}
