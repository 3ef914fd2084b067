package match

import (
	"time"

	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// Level is a decision on the path of a connection or request.
type Level uint8

// Levels in the order of decisions. Those from LevelDestinationPort to LevelSourcePort belong to
// filter_chain_match. A listener with a filter_chain_matcher has LevelMatcher instead.
const (
	LevelListener            Level = iota // the listener that accepts the connection
	LevelOriginalDst                      // whether another listener takes over the connection
	LevelInspection                       // the results of the listener filters
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
	LevelChain                            // the filter chain, as the result of the levels above
	LevelTransportSocket                  // the TLS handshake
	LevelNetworkFilter                    //
	LevelHTTPFilter                       //
	LevelVirtualHost                      //
	LevelRoute                            //
	LevelCluster                          //
	LevelEndpoints                        // for callers that examine a target further
	LevelAccessLog                        // for callers; a trace lists its logs separately
	numLevels
)

var levelNames = [numLevels]string{
	"listener", "original_dst", "listener_filters", "destination_port", "destination_ip", "server_names",
	"transport_protocol", "application_protocols", "direct_source_ip", "source_type", "source_ip", "source_ports",
	"filter_chain_matcher", "filter_chain", "transport_socket", "network_filter", "http_filter", "virtual_host", "route",
	"cluster", "endpoints", "access_log",
}

// String returns Envoy's name of the field, if there is one.
func (l Level) String() string {
	if l < numLevels {
		return levelNames[l]
	}
	return "unknown"
}

// MarshalText returns String, so that a level is a word in JSON.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// Eliminated is a candidate that was not chosen, and the reason.
type Eliminated struct {
	Name string `json:"name"` // of the chain, virtual host, or route, or else its index
	Why  string `json:"why"`
}

// Step is the result of one decision.
type Step struct {
	Level Level  `json:"level"`
	Input string `json:"input,omitempty"` // the looked-up value as Envoy sees it, or ""
	// Candidates lists the available values, the most specific first. Long lists are cut; More counts
	// the omitted items of this list and of Eliminated.
	Candidates []string          `json:"candidates,omitempty"`
	Choice     string            `json:"choice,omitempty"` // "" if nothing matched
	Eliminated []Eliminated      `json:"eliminated,omitempty"`
	More       int               `json:"more,omitempty"`
	Place      *finding.Position `json:"place,omitempty"` // location of the choice in the config
	Note       string            `json:"note,omitempty"`  // additional information
}

// Outcome is what happens to a connection or request.
type Outcome uint8

const (
	// an HTTP connection manager accepts the connection; requests decide the rest
	Accepted     Outcome = iota
	Forwarded            // a cluster receives it
	Answered             // Envoy answers with a direct response or a redirect
	Denied               // a filter rejects it
	NoListener           // no listener at the address
	NoChain              // no filter chain matches: closed
	HandshakeEnd         // the TLS handshake fails: closed
	TimedOut             // the listener filters do not receive enough bytes in time: closed
	NoHost               // no virtual host
	NoRoute              // no route
	NoCluster            // the cluster does not exist or has no endpoints
	Broken               // the chain cannot serve connections, for example without filters: closed
	numOutcomes
)

var outcomeNames = [numOutcomes]string{"accepted", "forwarded", "answered", "denied", "no_listener", "no_chain",
	"handshake_failed", "timed_out", "no_virtual_host", "no_route", "no_cluster", "broken"}

// String returns the name of the outcome.
func (o Outcome) String() string {
	if o < numOutcomes {
		return outcomeNames[o]
	}
	return "unknown"
}

// MarshalText returns String, so that an outcome is a word in JSON.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// Target is a cluster that may receive a connection or request.
type Target struct {
	Cluster string            `json:"cluster"`
	Weight  uint32            `json:"weight"` // of Total
	Total   uint32            `json:"total"`
	Place   *finding.Position `json:"place,omitempty"` // of the cluster, or nil if it does not exist
	// Endpoints lists the cluster's addresses, at most 64. For an original destination cluster, it
	// holds that destination.
	Endpoints []string `json:"endpoints,omitempty"`
	More      int      `json:"more,omitempty"` // number of further endpoints
	// Request is the request that the cluster receives, or nil for a connection.
	Request *Upstream `json:"request,omitempty"`
}

// Wait describes a client that waits for the server to speak while a listener filter waits for the
// client's bytes.
type Wait struct {
	Filter string        `json:"filter"`
	After  time.Duration `json:"after"`  // 0 means forever
	Closes bool          `json:"closes"` // instead of continuing without the filter's result
}

// Trace is the path of a connection or request through a config. It is deterministic.
type Trace struct {
	Outcome Outcome `json:"outcome"`
	// At is the deciding level, unless the outcome is Forwarded.
	At Level `json:"at"`
	// Flag is Envoy's response flag, such as NR, NC, UH, or UAEX, or "".
	Flag   string `json:"flag,omitempty"`
	Status uint32 `json:"status,omitempty"` // of Envoy's own HTTP response, or 0
	Policy string `json:"policy,omitempty"` // the deciding RBAC policy, or ""
	Reason string `json:"reason,omitempty"` // one sentence about the outcome
	Steps  []Step `json:"steps"`

	Listener *finding.Position `json:"listener,omitempty"`
	Chain    *finding.Position `json:"chain,omitempty"`
	Route    *finding.Position `json:"route,omitempty"`
	Targets  []Target          `json:"targets,omitempty"`
	Mirrors  []Mirror          `json:"mirrors,omitempty"`
	Logs     []Log             `json:"logs,omitempty"` // access logs that would be written

	// Effects lists possible effects on the path, such as faults and timeouts, in order.
	Effects  []Effect `json:"effects,omitempty"`
	Location string   `json:"location,omitempty"` // of a redirect
	// Wait applies to a client that waits for the server. It is nil if nothing delays it.
	Wait *Wait `json:"wait,omitempty"`
}
