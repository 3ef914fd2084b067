// Package timeout implements MeshTimeout: timeouts of connections and requests.
//
// MeshTimeout policies affect outbounds and their clusters, individual routes, and inbounds and the
// clusters of the workload. If a MeshTimeout selects a proxy, unset fields have Kuma's defaults.
// Other proxies are not changed.
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

// Kind is the policy kind of the plugin.
const Kind = "MeshTimeout"

// Plugin declares the kind with the legacy kinds that it replaces.
func Plugin(legacy ...policy.LegacyKind) policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(Kind, "meshtimeouts", "mt", resource.PolicyShape{
			Top:       toolkit.Proxies(),
			TopToOnly: []string{"MeshGateway", "MeshHTTPRoute"},
			From:      []string{"Mesh"},
			To:        toolkit.Destinations("MeshHTTPRoute"),
			Rules:     true, RuleMatches: true, FromAsRules: true,
			NewConf: func() resource.Conf { return new(Conf) },
			Check: func(p *resource.Policy, v *resource.Validator) {
				toolkit.RouteItems(p, v, (*Conf).checkRoute)
				checkMatched(p, v)
			},
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
		return // no policy, or none whose targets exist
	}
	a := &applier{rules: k, memo: map[*Conf]*limits{}}
	for l := range toolkit.Listeners(d, draft.Inbound) {
		a.inbound(l)
		if in := k.Inbound(l.Inbound); in != nil && len(in.Matched) > 0 {
			a.clients(c, in.Matched, l)
		}
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
	open  *limits // for policies that set nothing
}

func (a *applier) ofRule(r *policy.Rule) *limits {
	return toolkit.Once(a.memo, toolkit.Conf[Conf](r), limitsOf)
}

// defaults returns the limits that apply if the policies that select the proxy have no from or no
// to at all.
func (a *applier) defaults() *limits {
	if a.open == nil {
		a.open = limitsOf(&Conf{})
	}
	return a.open
}

// ofService returns the limits for a destination, or nil if the rules apply only to other
// destinations.
func (a *applier) ofService(s draft.Service) *limits {
	if l := a.ofRule(a.rules.Outbound(s)); l != nil {
		return l
	}
	if s.Kind != mesh.KindTag && len(a.rules.ToResources) == 0 {
		return a.defaults()
	}
	return nil
}

// ofInbound returns the limits for an inbound, given by index.
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

// clients adds routes with the timeouts of clients that matches select.
func (a *applier) clients(c *policy.Context, matched []*policy.MatchRule, l *draft.Listener) {
	toolkit.WarnNoMTLS(c, matched, l)
	toolkit.RecordServerName(c, l, matched)
	for _, ch := range l.Chains {
		if ch.HTTP == nil || !ch.TLS {
			continue
		}
		toolkit.DivideRoutes(ch.HTTP, len(matched), func(i int, r *routev3.Route) {
			toolkit.NarrowRoute(r.Match, &matched[i].Match)
			if lim := a.ofRule(&matched[i].Rule); lim != nil {
				lim.route(r.GetRoute())
			}
		})
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
		switch specific := a.ofRule(a.rules.Route(s, r.GetName(), h.Origins[r.GetName()])); {
		case specific == nil && lim == nil:
		case specific == nil || specific == lim:
			lim.route(r.GetRoute())
		case lim == nil:
			specific.route(r.GetRoute())
		default: // unset fields of the route's rule fall back to the destination's
			(&limits{request: specific.request.or(lim.request), streamIdle: specific.streamIdle.or(lim.streamIdle)}).route(
				r.GetRoute())
		}
	}
}

// noIdle disables the idle timeout of client connections: MeshTimeout applies it at the cluster.
func noIdle(h *draft.HTTP) { toolkit.EditClientConnections(h).IdleTimeout = noLimit }

// route sets the timeouts of a request. If streamIdleTimeout is unset, it preserves the idle
// timeout set by another policy.
func (l *limits) route(r *routev3.RouteAction) {
	if r == nil {
		return
	}
	r.Timeout = l.request.span
	if l.streamIdle.given || r.IdleTimeout == nil {
		r.IdleTimeout = l.streamIdle.span
	}
}

// cluster sets the timeouts of connections to a cluster. It may be called on nil.
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
		// Kuma has no defaults here: gRPC streams may be arbitrarily long.
		if l.idle.given || l.maxStream.given || l.maxConnection.given {
			o := toolkit.EditConnections(c)
			l.idle.put(&o.IdleTimeout)
			l.maxStream.put(&o.MaxStreamDuration)
			l.maxConnection.put(&o.MaxConnectionDuration)
		}
	}
}

// Conf is the conf of a MeshTimeout. 0s means no limit.
type Conf struct {
	// ConnectionTimeout is the time to establish a connection. Default 5s.
	ConnectionTimeout *resource.Duration `json:"connectionTimeout,omitempty" check:"positive"`
	// IdleTimeout is the maximum time without traffic on a connection. Default 1h.
	IdleTimeout *resource.Duration `json:"idleTimeout,omitempty" check:"timeout"`
	HTTP        *HTTP              `json:"http,omitempty"`
}

// Fits reports whether a field applies to a protocol.
func (*Conf) Fits(path string, p mesh.Protocol) bool {
	return p.HTTP() || policy.SectionOf(path) == ""
}

// HTTP holds the timeouts of requests.
type HTTP struct {
	// RequestTimeout is the maximum time until the response is complete. Default 15s.
	RequestTimeout *resource.Duration `json:"requestTimeout,omitempty" check:"timeout"`
	// StreamIdleTimeout is the maximum time without traffic on a request. Default 30m.
	StreamIdleTimeout *resource.Duration `json:"streamIdleTimeout,omitempty" check:"timeout"`
	// MaxStreamDuration is the maximum lifetime of a stream. Default none.
	MaxStreamDuration *resource.Duration `json:"maxStreamDuration,omitempty" check:"timeout"`
	// MaxConnectionDuration is the maximum lifetime of a connection. Default none.
	MaxConnectionDuration *resource.Duration `json:"maxConnectionDuration,omitempty" check:"timeout"`
	// RequestHeadersTimeout is the maximum time until the request headers are complete. Default
	// none.
	RequestHeadersTimeout *resource.Duration `json:"requestHeadersTimeout,omitempty" check:"timeout"`
}

// Validate checks that a timeout is set.
func (c *Conf) Validate(v *resource.Validator) {
	if *c == (Conf{}) {
		v.Faultf("no timeout is given: give connectionTimeout, idleTimeout or http")
	}
	if c.HTTP != nil && *c.HTTP == (HTTP{}) {
		v.Field("http").Faultf("no timeout is given: give requestTimeout, streamIdleTimeout, maxStreamDuration, " +
			"maxConnectionDuration or requestHeadersTimeout")
	}
}

// checkRoute rejects timeouts of connections, because a connection carries requests of many routes.
func (c *Conf) checkRoute(v *resource.Validator) {
	c.connections(v, "a connection carries the requests of many routes, so this field is not allowed with kind "+
		"MeshHTTPRoute: remove it, or set it for a service")
}

// checkMatched rejects timeouts of connections in entries with matches.
func checkMatched(p *resource.Policy, v *resource.Validator) {
	for i := range p.Rules {
		c, ok := p.Rules[i].Conf.(*Conf)
		if !ok || len(p.Rules[i].Matches) == 0 {
			continue
		}
		const reason = "all clients of an inbound share its connections and its cluster, to which this timeout applies: " +
			"set it in an entry without matches, or give only http.requestTimeout and http.streamIdleTimeout"
		at := v.Field("rules").Index(i).Field("default")
		c.connections(at, reason)
		if c.HTTP != nil && c.HTTP.RequestHeadersTimeout != nil {
			at.Field("http").Field("requestHeadersTimeout").Faultf("%s", reason)
		}
	}
}

// connections rejects timeouts of connections.
func (c *Conf) connections(v *resource.Validator, reason string) {
	http, at := toolkit.Or(c.HTTP, HTTP{}), v.Field("http")
	for _, f := range []struct {
		at    *resource.Validator
		given *resource.Duration
	}{
		{v.Field("connectionTimeout"), c.ConnectionTimeout}, {v.Field("idleTimeout"), c.IdleTimeout},
		{at.Field("maxStreamDuration"), http.MaxStreamDuration},
		{at.Field("maxConnectionDuration"), http.MaxConnectionDuration},
		{at.Field("requestHeadersTimeout"), http.RequestHeadersTimeout},
	} {
		if f.given != nil {
			f.at.Faultf("%s", reason)
		}
	}
}

// Kuma's defaults for unset fields. Other timeouts default to 0s, which means no limit.
const (
	defaultConnect    = 5 * time.Second
	defaultIdle       = time.Hour
	defaultRequest    = 15 * time.Second
	defaultStreamIdle = 30 * time.Minute
)

// noLimit is 0s. It is shared and must not be modified.
var noLimit = &durationpb.Duration{}

// limits is a conf converted to Envoy's messages, which listeners and clusters share and must not
// modify.
type limits struct {
	connect, idle, request, streamIdle, maxStream, maxConnection, headers limit
}

// limit is a timeout and whether the policy sets it.
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

// or returns l if the policy sets it, otherwise other.
func (l limit) or(other limit) limit {
	if l.given {
		return l
	}
	return other
}

// put sets a field if the policy sets the limit.
func (l limit) put(field **durationpb.Duration) {
	if l.given {
		*field = l.span
	}
}
