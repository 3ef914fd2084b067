package timeout

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/resource"
)

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
