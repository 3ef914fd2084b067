package retry

import (
	"encoding/json"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Conf is the conf of a MeshRetry, by the protocol of the service.
type Conf struct {
	TCP  *TCP  `json:"tcp,omitempty"`
	HTTP *HTTP `json:"http,omitempty"` // HTTP and HTTP/2
	GRPC *GRPC `json:"grpc,omitempty"`
}

// TCP configures connections.
type TCP struct {
	MaxConnectAttempt *uint32 `json:"maxConnectAttempt,omitempty" check:"atLeastOne"` // Default 1
}

// Requests holds the fields that HTTP and GRPC have in common.
type Requests struct {
	NumRetries *uint32 `json:"numRetries,omitempty"` // Default 1; 0 disables retries
	// PerTryTimeout is the timeout of one attempt. Default 0s, which means only the timeout of the
	// route applies.
	PerTryTimeout      *resource.Duration  `json:"perTryTimeout,omitempty" check:"timeout"`
	BackOff            *BackOff            `json:"backOff,omitempty"`
	RateLimitedBackOff *RateLimitedBackOff `json:"rateLimitedBackOff,omitempty"`
	// RetryOn lists the conditions; one is sufficient.
	RetryOn []Condition `json:"retryOn,omitempty"`
}

// HTTP configures requests.
type HTTP struct {
	Requests
	// RetriableResponseHeaders match responses to retry; one match is sufficient.
	RetriableResponseHeaders []toolkit.HeaderMatch `json:"retriableResponseHeaders,omitempty"`
	// RetriableRequestHeaders match requests that may be retried; one match is sufficient.
	RetriableRequestHeaders []toolkit.HeaderMatch `json:"retriableRequestHeaders,omitempty"`
	HostSelection           []Predicate           `json:"hostSelection,omitempty"`
	// HostSelectionMaxAttempts is the maximum number of attempts to select another endpoint.
	// Default 1.
	HostSelectionMaxAttempts *uint32 `json:"hostSelectionMaxAttempts,omitempty" check:"atLeastOne"`
}

// GRPC configures gRPC calls.
type GRPC struct {
	Requests
}

// BackOff is the delay before a retry. It is random and grows with each retry.
type BackOff struct {
	BaseInterval *resource.Duration `json:"baseInterval,omitempty"`                 // Default 25ms
	MaxInterval  *resource.Duration `json:"maxInterval,omitempty" check:"positive"` // Default 10 times the base
}

// RateLimitedBackOff is the delay that a response requests.
type RateLimitedBackOff struct {
	ResetHeaders []ResetHeader      `json:"resetHeaders,omitempty"`                 // the first valid one applies
	MaxInterval  *resource.Duration `json:"maxInterval,omitempty" check:"positive"` // Default 300s
}

// ResetHeader is a response header such as retry-after.
type ResetHeader struct {
	Name   string `json:"name"`
	Format string `json:"format"` // Seconds or UnixTimestamp
}

// Predicate excludes endpoints from a retry.
type Predicate struct {
	Predicate       string            `json:"predicate"` // OmitPreviousHosts, OmitHostsWithTags or OmitPreviousPriorities
	Tags            map[string]string `json:"tags,omitempty"`
	UpdateFrequency *int32            `json:"updateFrequency,omitempty"` // attempts between updates of the priorities
}

// Condition is a keyword or an HTTP status, which may be a JSON number.
type Condition struct{ resource.Raw }

// text returns the condition without JSON quotes; "" if it is neither a string nor a number.
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

// MarshalJSON encodes the condition as a string, even if it is a number.
func (c Condition) MarshalJSON() ([]byte, error) { return json.Marshal(c.text()) }

// Limits of a conf.
const (
	maxConditions = 64
	maxHeaders    = 64 // of each list
	maxPredicates = 16
	maxTags       = 64 // of a predicate
	maxText       = 1024
)

// Conditions converts keywords to conditions.
func Conditions(words ...string) []Condition {
	out := make([]Condition, len(words))
	for i, w := range words {
		out[i].JSON, _ = json.Marshal(w) // encoding a string never fails
	}
	return out
}

// defaultBase is Envoy's default delay before the first retry.
const defaultBase = 25 * time.Millisecond

// Validate checks that the conf is not empty and that Envoy accepts it.
func (c *Conf) Validate(v *resource.Validator) {
	if c.TCP == nil && c.HTTP == nil && c.GRPC == nil {
		v.Faultf("the conf is empty: give at least one of tcp, http, grpc")
	}
	if c.TCP != nil && c.TCP.MaxConnectAttempt == nil {
		v.Field("tcp").Faultf("no field is set: give maxConnectAttempt")
	}
	if c.HTTP != nil {
		c.HTTP.validate(v.Field("http"))
	}
	if c.GRPC != nil {
		at := v.Field("grpc")
		if c.GRPC.empty() {
			at.Faultf("no field is set: give numRetries, perTryTimeout, backOff, rateLimitedBackOff or retryOn")
		}
		c.GRPC.validate(at, grpcConditions, grpcChoices)
	}
}

func (r *Requests) empty() bool {
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

// Check validates the delays. It accepts nil.
func (b *BackOff) Check(v *resource.Validator) {
	if b == nil {
		return
	}
	if b.BaseInterval == nil && b.MaxInterval == nil {
		v.Faultf("no field is set: give baseInterval, maxInterval or both")
	}
	if b.BaseInterval != nil && b.BaseInterval.Duration <= 0 {
		v.Field("baseInterval").Faultf("%s is too short: give more than 0s", b.BaseInterval)
	}
	if base, limit := b.base(), b.MaxInterval; limit != nil && limit.Duration >= time.Millisecond &&
		limit.Duration < base {
		v.Field("maxInterval").Faultf("%s is shorter than the baseInterval of %s: give at least that", limit, base)
	}
}

// base returns the delay before the first retry. Envoy's unit is 1 ms, which is also the minimum.
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
		at.Faultf("no header is given: give at least one with the time to wait")
	}
	if toolkit.AtMost(at, len(b.ResetHeaders), maxHeaders, "headers") {
		for i, h := range b.ResetHeaders {
			at.Index(i).Field("name").HeaderName(h.Name)
			at.Index(i).Field("format").OneOf(h.Format, "Seconds", "UnixTimestamp")
		}
	}
}

func (h *HTTP) validate(v *resource.Validator) {
	if h.empty() && len(h.RetriableResponseHeaders) == 0 && len(h.RetriableRequestHeaders) == 0 &&
		len(h.HostSelection) == 0 {
		v.Faultf("no field is set: give numRetries, perTryTimeout, backOff, rateLimitedBackOff, retryOn, " +
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
				at.Index(i).Field("predicate").Faultf("%s is given twice: remove one", p.Predicate)
			}
			priorities = true
		}
	}
}

func checkHeader(v *resource.Validator, h toolkit.HeaderMatch) {
	v.Field("name").HeaderName(h.Name)
	value := v.Field("value")
	if len(h.Value) > maxText {
		value.Faultf("the value has %d bytes, and at most %d are allowed", len(h.Value), maxText)
		return
	}
	switch h.Type {
	case toolkit.MatchRegex:
		value.Pattern(h.Value)
	case toolkit.MatchPrefix:
		if h.Value == "" {
			value.Faultf("the prefix is empty: give a prefix, or the type %s", toolkit.MatchPresent)
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
			at.Faultf("no tag is given: give the tags of endpoints to exclude")
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

// checkRoute rejects settings of connections if the policy applies to requests of a route.
func (c *Conf) checkRoute(v *resource.Validator) {
	if c.TCP != nil {
		v.Field("tcp").Faultf("a route applies to requests, so this field is not allowed with kind " +
			"MeshHTTPRoute: remove it, or set it for a service")
	}
}
