package timeout

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// What a MeshTimeout leaves open, as Kuma has it. 0 is no limit.
const (
	defaultConnect       = 5 * time.Second
	defaultIdle          = time.Hour
	defaultRequest       = 15 * time.Second
	defaultStreamIdle    = 30 * time.Minute
	defaultMaxStream     = 0
	defaultMaxConnection = 0
	defaultHeaders       = 0
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
	h := c.http()
	return &limits{
		connect:       limitOf(c.ConnectionTimeout, defaultConnect),
		idle:          limitOf(c.IdleTimeout, defaultIdle),
		request:       limitOf(h.RequestTimeout, defaultRequest),
		streamIdle:    limitOf(h.StreamIdleTimeout, defaultStreamIdle),
		maxStream:     limitOf(h.MaxStreamDuration, defaultMaxStream),
		maxConnection: limitOf(h.MaxConnectionDuration, defaultMaxConnection),
		headers:       limitOf(h.RequestHeadersTimeout, defaultHeaders),
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
