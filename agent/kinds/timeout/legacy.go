package timeout

import "github.com/nearside-mesh/nearside/agent/resource"

// LegacyConf is what a Timeout says about connections and requests. What it leaves open stays as it is.
type LegacyConf struct {
	ConnectTimeout *resource.Duration `json:"connectTimeout,omitempty"`
	TCP            *LegacyTCP         `json:"tcp,omitempty"`
	HTTP           *LegacyHTTP        `json:"http,omitempty"`
	GRPC           *LegacyGRPC        `json:"grpc,omitempty"`
}

// LegacyTCP is about connections whose protocol is not understood.
type LegacyTCP struct {
	IdleTimeout *resource.Duration `json:"idleTimeout,omitempty"`
}

// LegacyHTTP is about connections that carry requests, and about the requests.
type LegacyHTTP struct {
	RequestTimeout    *resource.Duration `json:"requestTimeout,omitempty"`
	IdleTimeout       *resource.Duration `json:"idleTimeout,omitempty"`
	StreamIdleTimeout *resource.Duration `json:"streamIdleTimeout,omitempty"`
	MaxStreamDuration *resource.Duration `json:"maxStreamDuration,omitempty"`
}

// LegacyGRPC is about streams of gRPC where LegacyHTTP does not say it.
type LegacyGRPC struct {
	StreamIdleTimeout *resource.Duration `json:"streamIdleTimeout,omitempty"`
	MaxStreamDuration *resource.Duration `json:"maxStreamDuration,omitempty"`
}

// Validate checks that every part says something, and the spans of time.
func (c *LegacyConf) Validate(v *resource.Validator) {
	v.Field("connectTimeout").Positive(c.ConnectTimeout)
	if c.TCP != nil {
		at := v.Field("tcp")
		if *c.TCP == (LegacyTCP{}) {
			at.Faultf("no timeout is given: give idleTimeout")
		}
		at.Field("idleTimeout").Positive(c.TCP.IdleTimeout)
	}
	if c.HTTP != nil {
		at := v.Field("http")
		if *c.HTTP == (LegacyHTTP{}) {
			at.Faultf("no timeout is given: give requestTimeout, idleTimeout, streamIdleTimeout or maxStreamDuration")
		}
		at.Field("requestTimeout").Positive(c.HTTP.RequestTimeout)
		at.Field("idleTimeout").Positive(c.HTTP.IdleTimeout)
		at.Field("streamIdleTimeout").Timeout(c.HTTP.StreamIdleTimeout)
		at.Field("maxStreamDuration").Timeout(c.HTTP.MaxStreamDuration)
	}
	if c.GRPC != nil {
		at := v.Field("grpc")
		if *c.GRPC == (LegacyGRPC{}) {
			at.Faultf("no timeout is given: give streamIdleTimeout or maxStreamDuration")
		}
		at.Field("streamIdleTimeout").Positive(c.GRPC.StreamIdleTimeout)
		at.Field("maxStreamDuration").Positive(c.GRPC.MaxStreamDuration)
	}
}
