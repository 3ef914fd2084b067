package timeout

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

func apply(c *policy.Context, d *draft.Draft) {
	k := c.Rules.Kind(kind)
	if k == nil {
		applyLegacy(c, d)
		return
	}
	if len(k.To) == 0 && len(k.ToResources) == 0 && len(k.From) == 0 {
		return // what the policies are about does not exist
	}
	a := &applier{c: c, rules: k, made: map[resource.Conf]*limits{}}
	for _, l := range d.Listeners {
		switch l.Kind {
		case draft.Inbound:
			a.inbound(l)
		case draft.Outbound:
			a.outbound(l)
		}
	}
	for _, cl := range d.Clusters {
		switch cl.Kind {
		case draft.InboundCluster:
			a.cluster(cl, a.ofInbound(a.inboundAt(cl.Port)))
		case draft.OutboundCluster:
			a.cluster(cl, a.ofService(cl.Service))
		}
	}
}

// applier applies the rules of MeshTimeout to a draft.
type applier struct {
	c     *policy.Context
	rules *policy.KindRules
	made  map[resource.Conf]*limits // by the conf, which is one pointer for all that a rule is about
	open  *limits                   // of a policy that leaves all open
}

func (a *applier) limits(conf *Conf) *limits {
	l := a.made[conf]
	if l == nil {
		l = limitsOf(conf)
		a.made[conf] = l
	}
	return l
}

func (a *applier) ofRule(r *policy.Rule) *limits {
	if r == nil {
		return nil
	}
	conf, ok := r.Conf.(*Conf)
	if !ok {
		return nil
	}
	return a.limits(conf)
}

// defaults is what is in force where the policies that select the proxy say nothing about a whole side of it.
func (a *applier) defaults() *limits {
	if a.open == nil {
		a.open = limitsOf(&Conf{})
	}
	return a.open
}

// ofService returns the limits for a destination, nil when the rules are about other destinations alone.
func (a *applier) ofService(s draft.Service) *limits {
	if l := a.ofRule(a.rules.Outbound(s)); l != nil {
		return l
	}
	if s.Kind == mesh.KindTag && len(a.rules.To) == 0 || s.Kind != mesh.KindTag && len(a.rules.ToResources) == 0 {
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

// inboundAt returns the index of the first inbound at a port, -1 for none.
func (a *applier) inboundAt(port uint32) int {
	in := a.c.Dataplane.Networking.Inbound
	for i := range in {
		if in[i].Port == port {
			return i
		}
	}
	return -1
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
			eachRoute(ch.HTTP, func(_ string, r *routev3.RouteAction) { lim.route(r) })
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
	eachRoute(h, func(name string, r *routev3.RouteAction) {
		switch own := a.ofRule(a.rules.Route(s, name, h.Origins[name])); {
		case own == nil && lim == nil:
		case own == nil || own == lim:
			lim.route(r)
		case lim == nil:
			own.route(r)
		default: // what is open for the route is as for the destination
			(&limits{request: own.request.or(lim.request), streamIdle: own.streamIdle.or(lim.streamIdle)}).route(r)
		}
	})
}

// noIdle takes the limit off idle connections of clients: MeshTimeout limits them at the cluster, and the other side
// closes what it finds idle.
func noIdle(h *draft.HTTP) { setIdle(h, noLimit) }

// setIdle limits idle connections of clients. The options may be shared with other listeners, so they are replaced.
func setIdle(h *draft.HTTP, d *durationpb.Duration) {
	o := &corev3.HttpProtocolOptions{}
	if old := h.Message.CommonHttpProtocolOptions; old != nil {
		o = proto.Clone(old).(*corev3.HttpProtocolOptions)
	}
	o.IdleTimeout = d
	h.Message.CommonHttpProtocolOptions = o
}

// eachRoute calls f for the routes that lead to a cluster.
func eachRoute(h *draft.HTTP, f func(name string, r *routev3.RouteAction)) {
	for _, vh := range h.Routes.GetVirtualHosts() {
		for _, r := range vh.GetRoutes() {
			if action := r.GetRoute(); action != nil {
				f(r.GetName(), action)
			}
		}
	}
}

// route limits a request. What another policy has said about its idle time stays when this one is silent.
func (l *limits) route(r *routev3.RouteAction) {
	r.Timeout = l.request.span
	if l.streamIdle.given || r.IdleTimeout == nil {
		r.IdleTimeout = l.streamIdle.span
	}
}

// cluster limits the connections to a cluster.
func (a *applier) cluster(c *draft.Cluster, l *limits) {
	if l == nil {
		return
	}
	c.Message.ConnectTimeout = l.connect.span
	if c.HTTP == nil {
		return
	}
	switch mesh.Protocol(c.Service.Protocol) {
	case mesh.ProtocolHTTP, mesh.ProtocolHTTP2:
		o := commonOptions(c)
		o.IdleTimeout, o.MaxStreamDuration, o.MaxConnectionDuration = l.idle.span, l.maxStream.span, l.maxConnection.span
	case mesh.ProtocolGRPC:
		// Kuma has no defaults here: the streams of gRPC may be as long as its clients want.
		if !l.idle.given && !l.maxStream.given && !l.maxConnection.given {
			return
		}
		o := commonOptions(c)
		l.idle.put(&o.IdleTimeout)
		l.maxStream.put(&o.MaxStreamDuration)
		l.maxConnection.put(&o.MaxConnectionDuration)
	}
}

// put sets a field when the policy gives it.
func (l limit) put(field **durationpb.Duration) {
	if l.given {
		*field = l.span
	}
}

// commonOptions returns the options of a cluster's connections for changing.
func commonOptions(c *draft.Cluster) *corev3.HttpProtocolOptions {
	http := c.EditHTTP()
	if http.CommonHttpProtocolOptions == nil {
		http.CommonHttpProtocolOptions = &corev3.HttpProtocolOptions{}
	}
	return http.CommonHttpProtocolOptions
}
