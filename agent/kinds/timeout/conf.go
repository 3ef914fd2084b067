package timeout

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// Conf is what a MeshTimeout says about connections and requests. 0s means no limit.
type Conf struct {
	// ConnectionTimeout is the time to establish a connection. Default 5s.
	ConnectionTimeout *resource.Duration `json:"connectionTimeout,omitempty"`
	// IdleTimeout is how long a connection may be without traffic. Default 1h.
	IdleTimeout *resource.Duration `json:"idleTimeout,omitempty"`
	HTTP        *HTTP              `json:"http,omitempty"`
}

// HTTP is about requests.
type HTTP struct {
	// RequestTimeout is the time for a whole response. Default 15s.
	RequestTimeout *resource.Duration `json:"requestTimeout,omitempty"`
	// StreamIdleTimeout is how long a request may be without traffic. Default 30m.
	StreamIdleTimeout *resource.Duration `json:"streamIdleTimeout,omitempty"`
	// MaxStreamDuration is the life of a stream. Default none.
	MaxStreamDuration *resource.Duration `json:"maxStreamDuration,omitempty"`
	// MaxConnectionDuration is the life of a connection. Default none.
	MaxConnectionDuration *resource.Duration `json:"maxConnectionDuration,omitempty"`
	// RequestHeadersTimeout is the time for the headers of a request. Default none.
	RequestHeadersTimeout *resource.Duration `json:"requestHeadersTimeout,omitempty"`
}

// Validate checks that something is said, and the spans of time.
func (c *Conf) Validate(v *resource.Validator) {
	if *c == (Conf{}) {
		v.Faultf("no timeout is given: give connectionTimeout, idleTimeout or http")
	}
	v.Field("connectionTimeout").Positive(c.ConnectionTimeout)
	v.Field("idleTimeout").Timeout(c.IdleTimeout)
	if c.HTTP == nil {
		return
	}
	v = v.Field("http")
	if *c.HTTP == (HTTP{}) {
		v.Faultf("no timeout is given: give requestTimeout, streamIdleTimeout, maxStreamDuration, maxConnectionDuration or requestHeadersTimeout")
	}
	v.Field("requestTimeout").Timeout(c.HTTP.RequestTimeout)
	v.Field("streamIdleTimeout").Timeout(c.HTTP.StreamIdleTimeout)
	v.Field("maxStreamDuration").Timeout(c.HTTP.MaxStreamDuration)
	v.Field("maxConnectionDuration").Timeout(c.HTTP.MaxConnectionDuration)
	v.Field("requestHeadersTimeout").Timeout(c.HTTP.RequestHeadersTimeout)
}

// checkRoute refuses timeouts that belong to a connection, which requests of many routes share.
func (c *Conf) checkRoute(v *resource.Validator) {
	const reason = "a connection serves the requests of many routes, so this does not go with kind MeshHTTPRoute: remove it, or give it for a service"
	http, at := toolkit.Or(c.HTTP, HTTP{}), v.Field("http")
	for _, f := range []struct {
		at    *resource.Validator
		given *resource.Duration
	}{
		{v.Field("connectionTimeout"), c.ConnectionTimeout}, {v.Field("idleTimeout"), c.IdleTimeout},
		{at.Field("maxStreamDuration"), http.MaxStreamDuration}, {at.Field("maxConnectionDuration"), http.MaxConnectionDuration},
	} {
		if f.given != nil {
			f.at.Faultf(reason)
		}
	}
}

// What a MeshTimeout leaves open, as Kuma has it. Other limits are 0s then, which is none.
const (
	defaultConnect    = 5 * time.Second
	defaultIdle       = time.Hour
	defaultRequest    = 15 * time.Second
	defaultStreamIdle = 30 * time.Minute
)

// noLimit is 0s, which many messages share and nobody changes.
var noLimit = &durationpb.Duration{}

// limits is a conf as Envoy's messages, which many listeners and clusters share and nobody changes.
type limits struct {
	connect, idle, request, streamIdle, maxStream, maxConnection, headers limit
}

// limit is one span of time, and whether the policy gives it.
type limit struct {
	span  *durationpb.Duration
	given bool
}

func limitsOf(c *Conf) *limits {
	h := toolkit.Or(c.HTTP, HTTP{})
	return &limits{
		connect:       limitOf(c.ConnectionTimeout, defaultConnect),
		idle:          limitOf(c.IdleTimeout, defaultIdle),
		request:       limitOf(h.RequestTimeout, defaultRequest),
		streamIdle:    limitOf(h.StreamIdleTimeout, defaultStreamIdle),
		maxStream:     limitOf(h.MaxStreamDuration, 0),
		maxConnection: limitOf(h.MaxConnectionDuration, 0),
		headers:       limitOf(h.RequestHeadersTimeout, 0),
	}
}

func limitOf(d *resource.Duration, otherwise time.Duration) limit {
	if d == nil {
		return limit{span: durationpb.New(otherwise)}
	}
	return limit{span: durationpb.New(d.Duration), given: true}
}

// or returns the limit, or another one where the policy leaves it open.
func (l limit) or(other limit) limit {
	if l.given {
		return l
	}
	return other
}

// put sets a field when the policy gives it.
func (l limit) put(field **durationpb.Duration) {
	if l.given {
		*field = l.span
	}
}
