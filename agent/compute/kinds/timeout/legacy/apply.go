// Package legacy implements Timeout, which MeshTimeout replaces: its conf, effect, and migration.
//
// Timeout policies affect only outbounds and their clusters. Unset fields leave the config
// unchanged.
package legacy

import (
	"cmp"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/timeout"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

const kind = "Timeout"

// Kind declares the kind and its effect.
func Kind() policy.LegacyKind {
	return toolkit.LegacyOutbound[Conf](kind, "timeouts", timeout.Kind, apply, migrate)
}

func apply(c *policy.Context, d *draft.Draft) {
	if !c.Rules.Legacy(kind) {
		return
	}
	memo := map[*Conf]*limits{}
	of := func(s draft.Service) *limits {
		if s.Kind != mesh.KindTag || toolkit.SupersedingRoute(c.Rules, s) != nil {
			return nil
		}
		return toolkit.Once(memo, toolkit.LegacyConf[Conf](c.Rules.LegacyOutbound(kind, s.Name)), limitsOf)
	}
	for l := range toolkit.Listeners(d, draft.Outbound) {
		if lim := of(l.Service); lim != nil {
			for _, ch := range l.Chains {
				lim.chain(ch, mesh.Protocol(l.Service.Protocol))
			}
		}
	}
	for cl := range toolkit.Clusters(d, draft.OutboundCluster) {
		if lim := of(cl.Service); lim != nil {
			lim.cluster(cl)
		}
	}
}

// limits is a conf converted to Envoy's messages, which listeners and clusters share and must not
// modify. Unset timeouts are nil.
type limits struct {
	connect, tcpIdle, request, idle *durationpb.Duration
	// streamIdle and maxStream are keyed by whether the protocol is gRPC.
	streamIdle, maxStream map[bool]*durationpb.Duration
}

func limitsOf(c *Conf) *limits {
	t, h, g := toolkit.Or(c.TCP, TCP{}), toolkit.Or(c.HTTP, HTTP{}), toolkit.Or(c.GRPC, GRPC{})
	both := func(http, grpc *resource.Duration) map[bool]*durationpb.Duration {
		return map[bool]*durationpb.Duration{false: toolkit.Duration(http), true: toolkit.Duration(cmp.Or(http, grpc))}
	}
	return &limits{
		connect: toolkit.Duration(c.ConnectTimeout), tcpIdle: toolkit.Duration(t.IdleTimeout),
		request: toolkit.Duration(h.RequestTimeout), idle: toolkit.Duration(h.IdleTimeout),
		streamIdle: both(h.StreamIdleTimeout, g.StreamIdleTimeout), maxStream: both(h.MaxStreamDuration, g.MaxStreamDuration),
	}
}

// set sets a field unless d is nil.
func set(field **durationpb.Duration, d *durationpb.Duration) { *field = cmp.Or(d, *field) }

// chain sets the timeouts of client connections and requests.
func (l *limits) chain(ch *draft.Chain, p mesh.Protocol) {
	switch {
	case ch.HTTP != nil:
		if l.idle != nil {
			toolkit.EditClientConnections(ch.HTTP).IdleTimeout = l.idle
		}
		set(&ch.HTTP.Message.StreamIdleTimeout, l.streamIdle[p == mesh.ProtocolGRPC])
		for r := range toolkit.Routes(ch.HTTP) {
			if action := r.GetRoute(); action != nil {
				set(&action.Timeout, l.request)
			}
		}
	case ch.TCP != nil:
		set(&ch.TCP.IdleTimeout, l.tcpIdle)
	}
}

// cluster sets the timeouts of connections to a cluster.
func (l *limits) cluster(c *draft.Cluster) {
	set(&c.Message.ConnectTimeout, l.connect)
	p := mesh.Protocol(c.Service.Protocol)
	maxStream := l.maxStream[p == mesh.ProtocolGRPC]
	if c.HTTP == nil || !p.HTTP() || l.idle == nil && maxStream == nil {
		return
	}
	o := toolkit.EditConnections(c)
	set(&o.IdleTimeout, l.idle)
	if maxStream.AsDuration() > 0 { // a Timeout does not set 0s
		o.MaxStreamDuration = maxStream
	}
}

// Conf is the conf of a Timeout. Unset fields leave the config unchanged.
type Conf struct {
	ConnectTimeout *resource.Duration `json:"connectTimeout,omitempty" check:"positive"`
	TCP            *TCP               `json:"tcp,omitempty"`
	HTTP           *HTTP              `json:"http,omitempty"`
	GRPC           *GRPC              `json:"grpc,omitempty"`
}

// Fits reports whether a field applies to a protocol.
func (*Conf) Fits(path string, p mesh.Protocol) bool {
	switch policy.SectionOf(path) {
	case "http":
		return p.HTTP()
	case "grpc":
		return p == mesh.ProtocolGRPC
	case "tcp":
		return !p.HTTP()
	}
	return true
}

// Idle says why other fields make a field ineffective.
func (c *Conf) Idle(path string) string {
	h := toolkit.Or(c.HTTP, HTTP{})
	switch {
	case path == "grpc.streamIdleTimeout" && h.StreamIdleTimeout != nil:
		return "http.streamIdleTimeout takes precedence over it"
	case path == "grpc.maxStreamDuration" && h.MaxStreamDuration != nil:
		return "http.maxStreamDuration takes precedence over it"
	}
	return ""
}

// TCP holds the timeouts of connections with an unknown protocol.
type TCP struct {
	IdleTimeout *resource.Duration `json:"idleTimeout,omitempty" check:"positive"`
}

// HTTP holds the timeouts of HTTP connections and requests.
type HTTP struct {
	RequestTimeout    *resource.Duration `json:"requestTimeout,omitempty" check:"positive"`
	IdleTimeout       *resource.Duration `json:"idleTimeout,omitempty" check:"positive"`
	StreamIdleTimeout *resource.Duration `json:"streamIdleTimeout,omitempty" check:"timeout"`
	MaxStreamDuration *resource.Duration `json:"maxStreamDuration,omitempty" check:"timeout"`
}

// GRPC holds the timeouts of gRPC streams. Fields of HTTP take precedence.
type GRPC struct {
	StreamIdleTimeout *resource.Duration `json:"streamIdleTimeout,omitempty" check:"positive"`
	MaxStreamDuration *resource.Duration `json:"maxStreamDuration,omitempty" check:"positive"`
}

// Validate checks that every section sets a timeout.
func (c *Conf) Validate(v *resource.Validator) {
	if t := c.TCP; t != nil && *t == (TCP{}) {
		v.Field("tcp").Faultf("no timeout is given: give idleTimeout")
	}
	if h := c.HTTP; h != nil && *h == (HTTP{}) {
		v.Field("http").
			Faultf("no timeout is given: give requestTimeout, idleTimeout, streamIdleTimeout or maxStreamDuration")
	}
	if g := c.GRPC; g != nil && *g == (GRPC{}) {
		v.Field("grpc").Faultf("no timeout is given: give streamIdleTimeout or maxStreamDuration")
	}
}
