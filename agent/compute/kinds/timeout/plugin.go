// Package timeout is the plugin of MeshTimeout: how long connections and requests may take or stay
// idle.
//
// Its policies act on outbounds and their clusters, on single routes, and on inbounds and the
// clusters that lead to the workload. What a MeshTimeout leaves open gets the defaults of Kuma as
// soon as a MeshTimeout selects the proxy. A proxy that no policy selects is not changed.
package timeout

import (
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/match"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Kind is the kind of the plugin's policies.
const Kind = "MeshTimeout"

// Plugin declares the kind and its effect, beside the kinds that it replaces.
func Plugin(legacy ...policy.LegacyKind) policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(Kind, "meshtimeouts", "mt", resource.PolicyShape{
			Top:       toolkit.Proxies(),
			TopToOnly: []string{"MeshGateway", "MeshHTTPRoute"},
			From:      []string{"Mesh"},
			To:        toolkit.Destinations("MeshHTTPRoute"),
			Rules:     true,
			NoMatches: "all clients of an inbound share its connections and its cluster, " +
				"where these limits are: for some clients write to in a policy whose targetRef selects their proxies",
			NewConf: func() resource.Conf { return new(Conf) },
			Check:   func(p *resource.Policy, v *resource.Validator) { toolkit.RouteItems(p, v, (*Conf).checkRoute) },
		})},
		Legacy:  legacy,
		Shapes:  []match.Level{match.LevelRoute, match.LevelCluster},
		Effects: []match.EffectKind{match.EffectTimeout},
		Apply:   apply,
	}
}

func apply(c *policy.Context, d *draft.Draft) {
	k := c.Rules.Kind(Kind)
	if k == nil || len(k.To) == 0 && len(k.ToResources) == 0 && len(k.From) == 0 {
		return // no policy, or what the policies are about does not exist
	}
	a := &applier{rules: k, memo: map[*Conf]*limits{}}
	for l := range toolkit.Listeners(d, draft.Inbound) {
		a.inbound(l)
	}
	for l := range toolkit.Listeners(d, draft.Outbound) {
		a.outbound(l)
	}
	for cl := range toolkit.Clusters(d, draft.InboundCluster) {
		a.ofInbound(cl.Inbound).cluster(cl)
	}
	for cl := range toolkit.Clusters(d, draft.OutboundCluster) {
		a.ofService(cl.Service).cluster(cl)
	}
}

// applier applies the rules of MeshTimeout to a draft.
type applier struct {
	rules *policy.KindRules
	memo  map[*Conf]*limits
	open  *limits // of a policy that leaves all open
}

func (a *applier) ofRule(r *policy.Rule) *limits {
	return toolkit.Once(a.memo, toolkit.Conf[Conf](r), limitsOf)
}

// defaults is what is in force where the policies that select the proxy say nothing about a whole
// side of it.
func (a *applier) defaults() *limits {
	if a.open == nil {
		a.open = limitsOf(&Conf{})
	}
	return a.open
}

// ofService returns the limits for a destination, nil when the rules are about other destinations
// alone.
func (a *applier) ofService(s draft.Service) *limits {
	if l := a.ofRule(a.rules.Outbound(s)); l != nil {
		return l
	}
	if s.Kind != mesh.KindTag && len(a.rules.ToResources) == 0 {
		return a.defaults()
	}
	return nil
}

// ofInbound returns the limits for an inbound by its index.
func (a *applier) ofInbound(i int) *limits {
	if a.rules.Inbound(i) == nil {
		return a.defaults()
	}
	return a.ofRule(a.rules.InboundAll(i))
}

func (a *applier) inbound(l *draft.Listener) {
	lim := a.ofInbound(l.Inbound)
	if lim == nil {
		return
	}
	for _, ch := range l.Chains {
		switch {
		case ch.HTTP != nil:
			ch.HTTP.Message.RequestHeadersTimeout = lim.headers.span
			noIdle(ch.HTTP)
			for r := range toolkit.Routes(ch.HTTP) {
				lim.route(r.GetRoute())
			}
		case ch.TCP != nil:
			ch.TCP.IdleTimeout = lim.idle.span
		}
	}
}

func (a *applier) outbound(l *draft.Listener) {
	lim := a.ofService(l.Service)
	for _, ch := range l.Chains {
		switch {
		case ch.HTTP != nil:
			a.outboundHTTP(l.Service, ch.HTTP, lim)
		case ch.TCP != nil && lim != nil:
			ch.TCP.IdleTimeout = lim.idle.span
		}
	}
}

func (a *applier) outboundHTTP(s draft.Service, h *draft.HTTP, lim *limits) {
	if lim != nil || s.Kind == mesh.KindTag {
		noIdle(h)
	}
	if lim != nil {
		h.Message.RequestHeadersTimeout = lim.headers.span
		if lim.streamIdle.given && h.Message.StreamIdleTimeout != nil {
			h.Message.StreamIdleTimeout = lim.streamIdle.span
		}
	}
	for r := range toolkit.Routes(h) {
		switch own := a.ofRule(a.rules.Route(s, r.GetName(), h.Origins[r.GetName()])); {
		case own == nil && lim == nil:
		case own == nil || own == lim:
			lim.route(r.GetRoute())
		case lim == nil:
			own.route(r.GetRoute())
		default: // what is open for the route is as for the destination
			(&limits{request: own.request.or(lim.request), streamIdle: own.streamIdle.or(lim.streamIdle)}).route(r.GetRoute())
		}
	}
}

// noIdle takes the limit off idle connections of clients: MeshTimeout limits them at the cluster,
// and the other side closes what it finds idle.
func noIdle(h *draft.HTTP) { toolkit.EditClientConnections(h).IdleTimeout = noLimit }

// route limits a request that is led to a cluster. What another policy has said about its idle time
// stays when this one is silent.
func (l *limits) route(r *routev3.RouteAction) {
	if r == nil {
		return
	}
	r.Timeout = l.request.span
	if l.streamIdle.given || r.IdleTimeout == nil {
		r.IdleTimeout = l.streamIdle.span
	}
}

// cluster limits the connections to a cluster; nil leaves it as it is.
func (l *limits) cluster(c *draft.Cluster) {
	if l == nil {
		return
	}
	c.Message.ConnectTimeout = l.connect.span
	if c.HTTP == nil {
		return
	}
	switch mesh.Protocol(c.Service.Protocol) {
	case mesh.ProtocolHTTP, mesh.ProtocolHTTP2:
		o := toolkit.EditConnections(c)
		o.IdleTimeout, o.MaxStreamDuration, o.MaxConnectionDuration = l.idle.span, l.maxStream.span, l.maxConnection.span
	case mesh.ProtocolGRPC:
		// Kuma has no defaults here: the streams of gRPC may be as long as its clients want.
		if l.idle.given || l.maxStream.given || l.maxConnection.given {
			o := toolkit.EditConnections(c)
			l.idle.put(&o.IdleTimeout)
			l.maxStream.put(&o.MaxStreamDuration)
			l.maxConnection.put(&o.MaxConnectionDuration)
		}
	}
}

// Conf is what a MeshTimeout says about connections and requests. 0s means no limit.
type Conf struct {
	// ConnectionTimeout is the time to establish a connection. Default 5s.
	ConnectionTimeout *resource.Duration `json:"connectionTimeout,omitempty" check:"positive"`
	// IdleTimeout is how long a connection may be without traffic. Default 1h.
	IdleTimeout *resource.Duration `json:"idleTimeout,omitempty" check:"timeout"`
	HTTP        *HTTP              `json:"http,omitempty"`
}

// HTTP is about requests.
type HTTP struct {
	// RequestTimeout is the time for a whole response. Default 15s.
	RequestTimeout *resource.Duration `json:"requestTimeout,omitempty" check:"timeout"`
	// StreamIdleTimeout is how long a request may be without traffic. Default 30m.
	StreamIdleTimeout *resource.Duration `json:"streamIdleTimeout,omitempty" check:"timeout"`
	// MaxStreamDuration is the life of a stream. Default none.
	MaxStreamDuration *resource.Duration `json:"maxStreamDuration,omitempty" check:"timeout"`
	// MaxConnectionDuration is the life of a connection. Default none.
	MaxConnectionDuration *resource.Duration `json:"maxConnectionDuration,omitempty" check:"timeout"`
	// RequestHeadersTimeout is the time for the headers of a request. Default none.
	RequestHeadersTimeout *resource.Duration `json:"requestHeadersTimeout,omitempty" check:"timeout"`
}

// Validate checks that something is said.
func (c *Conf) Validate(v *resource.Validator) {
	if *c == (Conf{}) {
		v.Faultf("no timeout is given: give connectionTimeout, idleTimeout or http")
	}
	if c.HTTP != nil && *c.HTTP == (HTTP{}) {
		v.Field("http").Faultf("no timeout is given: give requestTimeout, streamIdleTimeout, maxStreamDuration, " +
			"maxConnectionDuration or requestHeadersTimeout")
	}
}

// checkRoute refuses timeouts that belong to a connection, which requests of many routes share.
func (c *Conf) checkRoute(v *resource.Validator) {
	const reason = "a connection serves the requests of many routes, " +
		"so this does not go with kind MeshHTTPRoute: remove it, or give it for a service"
	http, at := toolkit.Or(c.HTTP, HTTP{}), v.Field("http")
	for _, f := range []struct {
		at    *resource.Validator
		given *resource.Duration
	}{
		{v.Field("connectionTimeout"), c.ConnectionTimeout}, {v.Field("idleTimeout"), c.IdleTimeout},
		{at.Field("maxStreamDuration"), http.MaxStreamDuration},
		{at.Field("maxConnectionDuration"), http.MaxConnectionDuration},
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
