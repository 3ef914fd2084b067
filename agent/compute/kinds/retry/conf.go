package retry

import (
	"encoding/json"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Conf says what is tried again, by the protocol of the service.
type Conf struct {
	TCP  *TCP  `json:"tcp,omitempty"`
	HTTP *HTTP `json:"http,omitempty"` // HTTP and HTTP/2
	GRPC *GRPC `json:"grpc,omitempty"`
}

// TCP is about connections.
type TCP struct {
	MaxConnectAttempt *uint32 `json:"maxConnectAttempt,omitempty" check:"atLeastOne"` // default 1
}

// Requests is what HTTP and gRPC have in common.
type Requests struct {
	NumRetries *uint32 `json:"numRetries,omitempty"` // default 1; 0 for none
	// PerTryTimeout is the time for one attempt, 0s for no other limit than that of the route, which
	// is the default.
	PerTryTimeout      *resource.Duration  `json:"perTryTimeout,omitempty" check:"timeout"`
	BackOff            *BackOff            `json:"backOff,omitempty"`
	RateLimitedBackOff *RateLimitedBackOff `json:"rateLimitedBackOff,omitempty"`
	// RetryOn are the conditions, one of which is enough.
	RetryOn []Condition `json:"retryOn,omitempty"`
}

// HTTP is about requests.
type HTTP struct {
	Requests
	// RetriableResponseHeaders make a response one to try again for; one is enough.
	RetriableResponseHeaders []toolkit.HeaderMatch `json:"retriableResponseHeaders,omitempty"`
	// RetriableRequestHeaders make a request one that may be tried again; one is enough.
	RetriableRequestHeaders []toolkit.HeaderMatch `json:"retriableRequestHeaders,omitempty"`
	HostSelection           []Predicate           `json:"hostSelection,omitempty"`
	// HostSelectionMaxAttempts is how often another endpoint is looked for. Default 1.
	HostSelectionMaxAttempts *uint32 `json:"hostSelectionMaxAttempts,omitempty" check:"atLeastOne"`
}

// GRPC is about calls.
type GRPC struct {
	Requests
}

// BackOff is the pause before a retry, random and longer each time.
type BackOff struct {
	BaseInterval *resource.Duration `json:"baseInterval,omitempty"`                 // default 25ms
	MaxInterval  *resource.Duration `json:"maxInterval,omitempty" check:"positive"` // default 10 times the base
}

// RateLimitedBackOff is the pause that a response asks for.
type RateLimitedBackOff struct {
	ResetHeaders []ResetHeader      `json:"resetHeaders,omitempty"`                 // the first that can be read counts
	MaxInterval  *resource.Duration `json:"maxInterval,omitempty" check:"positive"` // default 300s
}

// ResetHeader is a header of a response, such as retry-after.
type ResetHeader struct {
	Name   string `json:"name"`
	Format string `json:"format"` // Seconds or UnixTimestamp
}

// Predicate leaves endpoints out of a retry.
type Predicate struct {
	Predicate       string            `json:"predicate"` // OmitPreviousHosts, OmitHostsWithTags or OmitPreviousPriorities
	Tags            map[string]string `json:"tags,omitempty"`
	UpdateFrequency *int32            `json:"updateFrequency,omitempty"` // of priorities, in attempts
}

// Condition is a word, or an HTTP status, which may be written as a number.
type Condition struct{ resource.Raw }

// text returns the condition without the quotes of JSON; "" for what is neither a string nor a
// number.
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

// Bounds of a conf.
const (
	maxConditions = 64
	maxHeaders    = 64 // of each list
	maxPredicates = 16
	maxTags       = 64 // of a predicate
	maxText       = 1024
)

// Conditions makes conditions of words.
func Conditions(words ...string) []Condition {
	out := make([]Condition, len(words))
	for i, w := range words {
		out[i].JSON, _ = json.Marshal(w) // a string always can
	}
	return out
}

// defaultBase is Envoy's pause before the first retry, which a policy without a base interval has.
const defaultBase = 25 * time.Millisecond

// Validate checks that something is said, and what Envoy makes of it.
func (c *Conf) Validate(v *resource.Validator) {
	if c.TCP == nil && c.HTTP == nil && c.GRPC == nil {
		v.Faultf("the policy says nothing: give at least one of tcp, http, grpc")
	}
	if c.TCP != nil && c.TCP.MaxConnectAttempt == nil {
		v.Field("tcp").Faultf("nothing is given: give maxConnectAttempt")
	}
	if c.HTTP != nil {
		c.HTTP.validate(v.Field("http"))
	}
	if c.GRPC != nil {
		at := v.Field("grpc")
		if c.GRPC.silent() {
			at.Faultf("nothing is given: give numRetries, perTryTimeout, backOff, rateLimitedBackOff or retryOn")
		}
		c.GRPC.validate(at, grpcConditions, grpcChoices)
	}
}

func (r *Requests) silent() bool {
	return r.NumRetries == nil && r.PerTryTimeout == nil && r.BackOff == nil && r.RateLimitedBackOff == nil &&
		len(r.RetryOn) == 0
}

func (r *Requests) validate(v *resource.Validator, read func([]Condition) (conditions, int), choices func() string) {
	r.BackOff.Check(v.Field("backOff"))
	r.RateLimitedBackOff.validate(v.Field("rateLimitedBackOff"))
	at := v.Field("retryOn")
	if toolkit.AtMost(at, len(r.RetryOn), maxConditions, "conditions") {
		for i := range r.RetryOn {
			if _, bad := read(r.RetryOn[i : i+1]); bad >= 0 {
				at.Index(i).Faultf("%q is not a condition: give one of %s", toolkit.Clip(r.RetryOn[i].text()), choices())
			}
		}
	}
}

// Check checks the pause, nil for none.
func (b *BackOff) Check(v *resource.Validator) {
	if b == nil {
		return
	}
	if b.BaseInterval == nil && b.MaxInterval == nil {
		v.Faultf("nothing is given: give baseInterval, maxInterval or both")
	}
	if b.BaseInterval != nil && b.BaseInterval.Duration <= 0 {
		v.Field("baseInterval").Faultf("%s is too short: give more than 0s", b.BaseInterval)
	}
	if base, longest := b.base(), b.MaxInterval; longest != nil && longest.Duration >= time.Millisecond &&
		longest.Duration < base {
		v.Field("maxInterval").Faultf("%s is shorter than the baseInterval of %s: give at least as much", longest, base)
	}
}

// base returns the pause before the first retry. Envoy counts milliseconds, and rounds up to one.
func (b *BackOff) base() time.Duration {
	if b.BaseInterval == nil {
		return defaultBase
	}
	return max(b.BaseInterval.Duration, time.Millisecond)
}

func (b *RateLimitedBackOff) validate(v *resource.Validator) {
	if b == nil {
		return
	}
	at := v.Field("resetHeaders")
	if len(b.ResetHeaders) == 0 {
		at.Faultf("no header is given: give at least one that says how long to wait")
	}
	if toolkit.AtMost(at, len(b.ResetHeaders), maxHeaders, "headers") {
		for i, h := range b.ResetHeaders {
			at.Index(i).Field("name").HeaderName(h.Name)
			at.Index(i).Field("format").OneOf(h.Format, "Seconds", "UnixTimestamp")
		}
	}
}

func (h *HTTP) validate(v *resource.Validator) {
	if h.silent() && len(h.RetriableResponseHeaders) == 0 && len(h.RetriableRequestHeaders) == 0 &&
		len(h.HostSelection) == 0 {
		v.Faultf("nothing is given: give numRetries, perTryTimeout, backOff, rateLimitedBackOff, retryOn, " +
			"retriableResponseHeaders, retriableRequestHeaders or hostSelection")
	}
	h.Requests.validate(v, httpConditions, httpChoices)
	for _, list := range []struct {
		name    string
		headers []toolkit.HeaderMatch
	}{{"retriableResponseHeaders", h.RetriableResponseHeaders}, {"retriableRequestHeaders", h.RetriableRequestHeaders}} {
		at := v.Field(list.name)
		if toolkit.AtMost(at, len(list.headers), maxHeaders, "headers") {
			for i := range list.headers {
				checkHeader(at.Index(i), list.headers[i])
			}
		}
	}
	at := v.Field("hostSelection")
	if !toolkit.AtMost(at, len(h.HostSelection), maxPredicates, "predicates") {
		return
	}
	priorities := false
	for i := range h.HostSelection {
		p := &h.HostSelection[i]
		p.validate(at.Index(i))
		if p.Predicate == omitPreviousPriorities {
			if priorities {
				at.Index(i).Field("predicate").Faultf("%s is given twice: once is enough", p.Predicate)
			}
			priorities = true
		}
	}
}

func checkHeader(v *resource.Validator, h toolkit.HeaderMatch) {
	v.Field("name").HeaderName(h.Name)
	value := v.Field("value")
	if len(h.Value) > maxText {
		value.Faultf("the value has %d bytes, at most %d are allowed", len(h.Value), maxText)
		return
	}
	switch h.Type {
	case toolkit.MatchRegex:
		value.Pattern(h.Value)
	case toolkit.MatchPrefix:
		if h.Value == "" {
			value.Faultf("the prefix is empty: give one, or the type %s", toolkit.MatchPresent)
		}
	case "":
	default:
		v.Field("type").OneOf(h.Type, toolkit.MatchExact, toolkit.MatchPrefix, toolkit.MatchRegex, toolkit.MatchPresent,
			toolkit.MatchAbsent)
	}
}

func (p *Predicate) validate(v *resource.Validator) {
	switch p.Predicate {
	case omitHostsWithTags:
		at := v.Field("tags")
		if len(p.Tags) == 0 {
			at.Faultf("no tag is given: give those of the endpoints to leave out")
		}
		toolkit.AtMost(at, len(p.Tags), maxTags, "tags")
	case omitPreviousPriorities:
		if p.UpdateFrequency == nil || *p.UpdateFrequency < 1 {
			v.Field("updateFrequency").Faultf("updateFrequency is required with %s and must be at least 1", p.Predicate)
		}
	default:
		v.Field("predicate").OneOf(p.Predicate, omitPreviousHosts, omitHostsWithTags, omitPreviousPriorities)
	}
}

// checkRoute refuses what is about connections where requests of a route are meant.
func (c *Conf) checkRoute(v *resource.Validator) {
	if c.TCP != nil {
		v.Field("tcp").Faultf("a route is about requests, so this does not go with kind MeshHTTPRoute: remove it, " +
			"or give it for a service")
	}
}
