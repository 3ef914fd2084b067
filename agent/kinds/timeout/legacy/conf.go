package legacy

import "github.com/nearside-mesh/nearside/agent/resource"

// Conf is what a Timeout says about connections and requests. What it leaves open stays as it is.
type Conf struct {
	ConnectTimeout *resource.Duration `json:"connectTimeout,omitempty"`
	TCP            *TCP               `json:"tcp,omitempty"`
	HTTP           *HTTP              `json:"http,omitempty"`
	GRPC           *GRPC              `json:"grpc,omitempty"`
}

// TCP is about connections whose protocol is not understood.
type TCP struct {
	IdleTimeout *resource.Duration `json:"idleTimeout,omitempty"`
}

// HTTP is about connections that carry requests, and about the requests.
type HTTP struct {
	RequestTimeout    *resource.Duration `json:"requestTimeout,omitempty"`
	IdleTimeout       *resource.Duration `json:"idleTimeout,omitempty"`
	StreamIdleTimeout *resource.Duration `json:"streamIdleTimeout,omitempty"`
	MaxStreamDuration *resource.Duration `json:"maxStreamDuration,omitempty"`
}

// GRPC is about streams of gRPC where HTTP does not say it.
type GRPC struct {
	StreamIdleTimeout *resource.Duration `json:"streamIdleTimeout,omitempty"`
	MaxStreamDuration *resource.Duration `json:"maxStreamDuration,omitempty"`
}

// Validate checks that every part says something, and the spans of time.
func (c *Conf) Validate(v *resource.Validator) {
	v.Field("connectTimeout").Positive(c.ConnectTimeout)
	if t, at := c.TCP, v.Field("tcp"); t != nil {
		if *t == (TCP{}) {
			at.Faultf("no timeout is given: give idleTimeout")
		}
		at.Field("idleTimeout").Positive(t.IdleTimeout)
	}
	if h, at := c.HTTP, v.Field("http"); h != nil {
		if *h == (HTTP{}) {
			at.Faultf("no timeout is given: give requestTimeout, idleTimeout, streamIdleTimeout or maxStreamDuration")
		}
		at.Field("requestTimeout").Positive(h.RequestTimeout)
		at.Field("idleTimeout").Positive(h.IdleTimeout)
		at.Field("streamIdleTimeout").Timeout(h.StreamIdleTimeout)
		at.Field("maxStreamDuration").Timeout(h.MaxStreamDuration)
	}
	if g, at := c.GRPC, v.Field("grpc"); g != nil {
		if *g == (GRPC{}) {
			at.Faultf("no timeout is given: give streamIdleTimeout or maxStreamDuration")
		}
		at.Field("streamIdleTimeout").Positive(g.StreamIdleTimeout)
		at.Field("maxStreamDuration").Positive(g.MaxStreamDuration)
	}
}
