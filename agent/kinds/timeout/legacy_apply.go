package timeout

import (
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// applyLegacy applies Timeout to the outbounds and their clusters.
func applyLegacy(c *policy.Context, d *draft.Draft) {
	if !c.Rules.Legacy(legacyKind) {
		return
	}
	a := &legacyApplier{
		rules: c.Rules, http: c.Rules.Kind(kindHTTPRoute), tcp: c.Rules.Kind(kindTCPRoute),
		made: map[*resource.Resource]*legacyLimits{},
	}
	for _, l := range d.Listeners {
		if l.Kind != draft.Outbound {
			continue
		}
		if lim := a.of(l.Service); lim != nil {
			for _, ch := range l.Chains {
				lim.chain(ch, mesh.Protocol(l.Service.Protocol))
			}
		}
	}
	for _, cl := range d.Clusters {
		if cl.Kind != draft.OutboundCluster {
			continue
		}
		if lim := a.of(cl.Service); lim != nil {
			lim.cluster(cl)
		}
	}
}

// legacyApplier finds what Timeout says about destinations.
type legacyApplier struct {
	rules     *policy.Rules
	http, tcp *policy.KindRules
	made      map[*resource.Resource]*legacyLimits
}

// of returns the limits for a destination, nil for none. Where a MeshHTTPRoute or MeshTCPRoute leads, the legacy
// generation says nothing.
func (a *legacyApplier) of(s draft.Service) *legacyLimits {
	if s.Kind != mesh.KindTag || a.http.Outbound(s) != nil || a.tcp.Outbound(s) != nil {
		return nil
	}
	p := a.rules.LegacyOutbound(legacyKind, s.Name)
	if p == nil {
		return nil
	}
	lim := a.made[p]
	if lim == nil {
		lim = legacyLimitsOf(p)
		a.made[p] = lim
	}
	return lim
}

// legacyLimits is a conf as Envoy's messages, which many listeners and clusters share and nobody changes. Nil is what
// the policy leaves open.
type legacyLimits struct {
	connect, tcpIdle                     *durationpb.Duration
	request, idle, streamIdle, maxStream *durationpb.Duration
	grpcStreamIdle, grpcMaxStream        *durationpb.Duration
}

func legacyLimitsOf(p *resource.Resource) *legacyLimits {
	out := &legacyLimits{}
	spec, ok := p.Spec.(*resource.LegacyPolicy)
	if !ok {
		return out
	}
	conf, ok := spec.Conf.(*LegacyConf)
	if !ok {
		return out
	}
	out.connect = span(conf.ConnectTimeout)
	if t := conf.TCP; t != nil {
		out.tcpIdle = span(t.IdleTimeout)
	}
	if h := conf.HTTP; h != nil {
		out.request, out.idle = span(h.RequestTimeout), span(h.IdleTimeout)
		out.streamIdle, out.maxStream = span(h.StreamIdleTimeout), span(h.MaxStreamDuration)
	}
	out.grpcStreamIdle, out.grpcMaxStream = out.streamIdle, out.maxStream
	if g := conf.GRPC; g != nil {
		if out.grpcStreamIdle == nil {
			out.grpcStreamIdle = span(g.StreamIdleTimeout)
		}
		if out.grpcMaxStream == nil {
			out.grpcMaxStream = span(g.MaxStreamDuration)
		}
	}
	return out
}

func span(d *resource.Duration) *durationpb.Duration {
	if d == nil {
		return nil
	}
	return durationpb.New(d.Duration)
}

// set puts a span where there is one.
func set(field **durationpb.Duration, d *durationpb.Duration) {
	if d != nil {
		*field = d
	}
}

// chain limits the connections and requests of clients.
func (l *legacyLimits) chain(ch *draft.Chain, p mesh.Protocol) {
	switch {
	case ch.HTTP != nil:
		m := ch.HTTP.Message
		if l.idle != nil {
			setIdle(ch.HTTP, l.idle)
		}
		if p == mesh.ProtocolGRPC {
			set(&m.StreamIdleTimeout, l.grpcStreamIdle)
		} else {
			set(&m.StreamIdleTimeout, l.streamIdle)
		}
		eachRoute(ch.HTTP, func(_ string, r *routev3.RouteAction) { set(&r.Timeout, l.request) })
	case ch.TCP != nil:
		set(&ch.TCP.IdleTimeout, l.tcpIdle)
	}
}

// cluster limits the connections to a cluster.
func (l *legacyLimits) cluster(c *draft.Cluster) {
	set(&c.Message.ConnectTimeout, l.connect)
	p := mesh.Protocol(c.Service.Protocol)
	if c.HTTP == nil || !p.HTTP() {
		return
	}
	maxStream := l.maxStream
	if p == mesh.ProtocolGRPC {
		maxStream = l.grpcMaxStream
	}
	if l.idle == nil && maxStream == nil {
		return
	}
	o := commonOptions(c)
	set(&o.IdleTimeout, l.idle)
	if maxStream.AsDuration() > 0 { // 0s is how a Timeout leaves it open
		o.MaxStreamDuration = maxStream
	}
}
