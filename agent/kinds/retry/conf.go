package retry

import (
	"encoding/json"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// Conf says what is tried again, by the protocol of the service.
type Conf struct {
	TCP  *TCP  `json:"tcp,omitempty"`
	HTTP *HTTP `json:"http,omitempty"` // HTTP and HTTP/2
	GRPC *GRPC `json:"grpc,omitempty"`
}

// TCP is about connections.
type TCP struct {
	MaxConnectAttempt *uint32 `json:"maxConnectAttempt,omitempty"` // default 1
}

// Requests is what HTTP and gRPC have in common.
type Requests struct {
	NumRetries *uint32 `json:"numRetries,omitempty"` // default 1; 0 for none
	// PerTryTimeout is the time for one attempt, 0s for no other limit than that of the route, which is the default.
	PerTryTimeout      *resource.Duration  `json:"perTryTimeout,omitempty"`
	BackOff            *BackOff            `json:"backOff,omitempty"`
	RateLimitedBackOff *RateLimitedBackOff `json:"rateLimitedBackOff,omitempty"`
	// RetryOn are the conditions, one of which is enough.
	RetryOn []Condition `json:"retryOn,omitempty"`
}

// HTTP is about requests.
type HTTP struct {
	Requests
	// RetriableResponseHeaders make a response one to try again for; one is enough.
	RetriableResponseHeaders []HeaderMatch `json:"retriableResponseHeaders,omitempty"`
	// RetriableRequestHeaders make a request one that may be tried again; one is enough.
	RetriableRequestHeaders []HeaderMatch `json:"retriableRequestHeaders,omitempty"`
	HostSelection           []Predicate   `json:"hostSelection,omitempty"`
	// HostSelectionMaxAttempts is how often another endpoint is looked for. Default 1.
	HostSelectionMaxAttempts *uint32 `json:"hostSelectionMaxAttempts,omitempty"`
}

// GRPC is about calls.
type GRPC struct {
	Requests
}

// BackOff is the pause before a retry, random and longer each time.
type BackOff struct {
	BaseInterval *resource.Duration `json:"baseInterval,omitempty"` // default 25ms
	MaxInterval  *resource.Duration `json:"maxInterval,omitempty"`  // default 10 times the base
}

// RateLimitedBackOff is the pause that a response asks for.
type RateLimitedBackOff struct {
	ResetHeaders []ResetHeader      `json:"resetHeaders,omitempty"` // the first that can be read counts
	MaxInterval  *resource.Duration `json:"maxInterval,omitempty"`  // default 300s
}

// ResetHeader is a header of a response, such as retry-after.
type ResetHeader struct {
	Name   string `json:"name"`
	Format string `json:"format"` // Seconds or UnixTimestamp
}

// HeaderMatch matches one header.
type HeaderMatch struct {
	Type  string `json:"type,omitempty"` // Exact (the default), Prefix, RegularExpression, Present or Absent
	Name  string `json:"name"`
	Value string `json:"value,omitempty"`
}

// Predicate leaves endpoints out of a retry.
type Predicate struct {
	Predicate       string            `json:"predicate"` // OmitPreviousHosts, OmitHostsWithTags or OmitPreviousPriorities
	Tags            map[string]string `json:"tags,omitempty"`
	UpdateFrequency *int32            `json:"updateFrequency,omitempty"` // of priorities, in attempts
}

// Condition is a word, or an HTTP status, which may be written as a number.
type Condition struct{ resource.Raw }

// text returns the condition without the quotes of JSON; "" for what is neither a string nor a number.
func (c Condition) text() string {
	var s string
	if json.Unmarshal(c.JSON, &s) == nil {
		return s
	}
	if len(c.JSON) > 0 && (c.JSON[0] == '-' || c.JSON[0] >= '0' && c.JSON[0] <= '9') {
		return string(c.JSON)
	}
	return ""
}

// MarshalJSON writes the condition as a string, numbers too.
func (c Condition) MarshalJSON() ([]byte, error) { return json.Marshal(c.text()) }
