package timeout

import "github.com/nearside-mesh/nearside/agent/resource"

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
	if c.ConnectionTimeout == nil && c.IdleTimeout == nil && c.HTTP == nil {
		v.Faultf("no timeout is given: give connectionTimeout, idleTimeout or http")
	}
	v.Field("connectionTimeout").Positive(c.ConnectionTimeout)
	v.Field("idleTimeout").Timeout(c.IdleTimeout)
	if c.HTTP == nil {
		return
	}
	h := v.Field("http")
	if *c.HTTP == (HTTP{}) {
		h.Faultf("no timeout is given: give requestTimeout, streamIdleTimeout, maxStreamDuration, maxConnectionDuration or requestHeadersTimeout")
	}
	h.Field("requestTimeout").Timeout(c.HTTP.RequestTimeout)
	h.Field("streamIdleTimeout").Timeout(c.HTTP.StreamIdleTimeout)
	h.Field("maxStreamDuration").Timeout(c.HTTP.MaxStreamDuration)
	h.Field("maxConnectionDuration").Timeout(c.HTTP.MaxConnectionDuration)
	h.Field("requestHeadersTimeout").Timeout(c.HTTP.RequestHeadersTimeout)
}

// http returns what is said about requests; nothing when the conf is silent.
func (c *Conf) http() HTTP {
	if c.HTTP == nil {
		return HTTP{}
	}
	return *c.HTTP
}

// check refuses what has no meaning together: destinations under a targetRef that names a gateway or a route, and
// timeouts of connections where single routes are meant.
func check(p *resource.Policy, v *resource.Validator) {
	top := ""
	if p.TargetRef != nil {
		top = p.TargetRef.Kind
	}
	for i := range p.To {
		item := v.Field("to").Index(i)
		to := p.To[i].TargetRef.Kind
		if top == kindGateway || top == kindHTTPRoute {
			item.Field("targetRef").Field("kind").OneOf(to, "Mesh", "MeshExternalService")
		}
		if c, ok := p.To[i].Conf.(*Conf); ok && (top == kindHTTPRoute || to == kindHTTPRoute) {
			c.checkRoute(item.Field("default"))
		}
	}
}

// checkRoute refuses timeouts that belong to a connection, which requests of many routes share.
func (c *Conf) checkRoute(v *resource.Validator) {
	const reason = "a connection serves the requests of many routes, so this does not go with kind MeshHTTPRoute: remove it, or give it for a service"
	http := c.http()
	for _, f := range []struct {
		at  *resource.Validator
		set bool
	}{
		{v.Field("connectionTimeout"), c.ConnectionTimeout != nil},
		{v.Field("idleTimeout"), c.IdleTimeout != nil},
		{v.Field("http").Field("maxStreamDuration"), http.MaxStreamDuration != nil},
		{v.Field("http").Field("maxConnectionDuration"), http.MaxConnectionDuration != nil},
	} {
		if f.set {
			f.at.Faultf(reason)
		}
	}
}
