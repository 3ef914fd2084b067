package ratelimit

import (
	"strings"
	"time"

	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// Conf holds the limits that a proxy counts by itself, which are all there are.
type Conf struct {
	Local *Local `json:"local,omitempty"`
}

// Local is the limits of requests and of connections.
type Local struct {
	HTTP *HTTP `json:"http,omitempty"`
	TCP  *TCP  `json:"tcp,omitempty"`
}

// HTTP limits requests.
type HTTP struct {
	Disabled    *bool        `json:"disabled,omitempty"` // takes the limit of weaker policies away
	RequestRate *Rate        `json:"requestRate,omitempty"`
	OnRateLimit *OnRateLimit `json:"onRateLimit,omitempty"`
}

// TCP limits connections.
type TCP struct {
	Disabled       *bool `json:"disabled,omitempty"`
	ConnectionRate *Rate `json:"connectionRate,omitempty"`
}

// Rate is a number in a span of time.
type Rate struct {
	Num      *uint32            `json:"num,omitempty"`
	Interval *resource.Duration `json:"interval,omitempty"`
}

// OnRateLimit is the answer to a request beyond the limit.
type OnRateLimit struct {
	Status  *uint32               `json:"status,omitempty"` // 429 when there is none
	Headers *toolkit.HeaderValues `json:"headers,omitempty"`
}

const (
	// minInterval is what Envoy's limit on how often tokens are added leaves out.
	minInterval = 50 * time.Millisecond
	// maxHeaders bounds the headers of an answer, by the rules of Envoy's LocalRateLimit.
	maxHeaders = 10
	// maxHeaderValue bounds the value of a header in bytes, by the rules of Envoy's HeaderValue.
	maxHeaderValue = 16384
)

// Validate checks the limits.
func (c *Conf) Validate(v *resource.Validator) {
	v = v.Field("local")
	switch l := c.Local; {
	case l == nil:
		v.Faultf("the limits are missing: give http, tcp or both")
	case l.HTTP == nil && l.TCP == nil:
		v.Faultf("the policy limits nothing: give http, tcp or both")
	default:
		l.HTTP.validate(v.Field("http"))
		l.TCP.validate(v.Field("tcp"))
	}
}

func (h *HTTP) validate(v *resource.Validator) {
	if h == nil {
		return
	}
	if h.Disabled == nil && h.RequestRate == nil && h.OnRateLimit == nil {
		v.Faultf("nothing is given: give requestRate, onRateLimit or disabled")
	}
	h.RequestRate.validate(v.Field("requestRate"))
	if o := h.OnRateLimit; o != nil {
		o.validate(v.Field("onRateLimit"))
	}
}

func (t *TCP) validate(v *resource.Validator) {
	if t == nil {
		return
	}
	if t.Disabled == nil && t.ConnectionRate == nil {
		v.Faultf("nothing is given: give connectionRate or disabled")
	}
	t.ConnectionRate.validate(v.Field("connectionRate"))
}

func (r *Rate) validate(v *resource.Validator) {
	if r == nil {
		return
	}
	if r.Num == nil {
		v.Field("num").Faultf("the number is missing: give 1 or more")
	}
	v.Field("num").AtLeastOne(r.Num)
	switch at := v.Field("interval"); {
	case r.Interval == nil:
		at.Faultf(`the interval is missing: give a duration like "1s"`)
	case r.Interval.Duration <= minInterval:
		at.Faultf("%s is too short: an interval is longer than %s", r.Interval, minInterval)
	}
}

func (o *OnRateLimit) validate(v *resource.Validator) {
	if o.Status != nil && !status(*o.Status) {
		v.Field("status").Faultf("%d is not a status that Envoy refuses requests with: give one of 400 to 599 that RFC 9110 or its extensions define, for example 429", *o.Status)
	}
	if o.Headers == nil {
		return
	}
	v = v.Field("headers")
	if n := len(o.Headers.Set) + len(o.Headers.Add); n > maxHeaders {
		v.Faultf("%d headers are given, Envoy takes at most %d in set and add together", n, maxHeaders)
	}
	o.Headers.Check(v, "an answer has no header host", func(at *resource.Validator, s string) {
		switch {
		case s == "":
			at.Faultf("the value is empty: give one or remove the header")
		case len(s) > maxHeaderValue:
			at.Faultf("the value has %d bytes, at most %d are allowed", len(s), maxHeaderValue)
		case strings.Contains(strings.ReplaceAll(s, "%%", ""), "%"):
			at.Faultf("a single %% begins a command of Envoy, which has no place here: write %%%% for a percent sign")
		}
	})
}

// status reports whether Envoy answers with a status when a request is beyond the limit: its StatusCode knows it and it
// is an error. With any other Envoy answers 429.
func status(code uint32) bool {
	_, known := typev3.StatusCode_name[int32(min(code, 1000))]
	return known && code >= 400
}
