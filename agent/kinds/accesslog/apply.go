package accesslog

import (
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// What the reference calls destinations that are not services.
const (
	passThrough = "pass_through" // in rules
	external    = "external"     // in entries
)

// writer makes the access logs of one part of a config.
type writer struct {
	c        *policy.Context
	d        *draft.Draft
	rules    *policy.KindRules
	resolver resolver
	proxy    values
	service  string // that the proxy is known as
	byRoute  bool   // some rule is about requests of a route
	plans    map[*policy.Rule]*plan
	legacy   map[*resource.Resource]*plan
	scratch  []byte
	// collectors are those of OpenTelemetry that the proxy sends to, numbered.
	collectors map[collector]int
}

// apply adds the access logs to the listeners of a draft.
func apply(c *policy.Context, d *draft.Draft) {
	rules := c.Rules.Kind(kind)
	if rules == nil && !c.Rules.Legacy(legacyKind) {
		return
	}
	w := &writer{
		c: c, d: d, rules: rules, proxy: valuesOf(c), service: serviceOf(c.Dataplane),
		resolver: resolver{c: c, warn: c.Host.Warn},
		plans:    map[*policy.Rule]*plan{}, legacy: map[*resource.Resource]*plan{},
		byRoute: aboutRoutes(rules),
	}
	if c.Last && rules != nil {
		w.notes()
	}
	for _, l := range d.Listeners {
		switch l.Kind {
		case draft.Inbound:
			w.inbound(l)
		case draft.Outbound:
			w.outbound(l)
		case draft.OutboundPassthrough:
			w.passthrough(l, external, noDirection)
		case draft.DirectAccess:
			w.passthrough(l, l.Message.GetName(), outboundDirection)
		}
	}
}

// notes warns of items about clients that cannot be told apart.
func (w *writer) notes() {
	if w.c.View.Spec.MTLSEnabled() != nil {
		return
	}
	for _, p := range w.rules.Policies {
		spec, ok := p.Spec.(*resource.Policy)
		if !ok {
			continue
		}
		for i := range spec.From {
			if k := spec.From[i].TargetRef.Kind; k != "Mesh" {
				w.c.Host.Warn(p.Key, "from[%d]: mesh %s has no mTLS, so clients cannot be told by %s: the item is without effect; enable mtls of the Mesh, or give kind Mesh", i, w.c.View.Name, k)
			}
		}
	}
}

// plan returns what a rule writes; nil for no rule.
func (w *writer) plan(r *policy.Rule, list string) *plan {
	if r == nil {
		return nil
	}
	p, ok := w.plans[r]
	if !ok {
		if conf, is := r.Conf.(*Conf); is && len(r.Origins) > 0 {
			p = w.newPlan(r.Origins[len(r.Origins)-1].Policy.Key, w.resolver.sinks(r, list), conf.Filtering)
		}
		w.plans[r] = p
	}
	return p
}

// outbound logs what the workload sends to a service.
func (w *writer) outbound(l *draft.Listener) {
	v := w.proxy
	v.source, v.destination, v.direction = w.service, l.Service.Name, outboundDirection
	if l.Service.Kind != "" {
		v.destination = l.Service.Resource.Name
	}
	if w.rules == nil {
		p := w.legacyPlan(l.Service.Name)
		for _, ch := range l.Chains {
			w.log(ch, p, &v)
		}
		return
	}
	rule := w.rules.Outbound(l.Service)
	p := w.plan(rule, "to")
	for _, ch := range l.Chains {
		if !w.byRoute || ch.HTTP == nil {
			w.log(ch, p, &v)
			continue
		}
		own, names := w.routes(l.Service, ch.HTTP, rule)
		var rest *accesslogv3.AccessLogFilter
		if len(names) > 0 {
			rest = ofRoutes(names, true)
		}
		w.log(ch, p, &v, rest)
		for _, o := range own {
			w.log(ch, w.plan(o.rule, "to"), &v, ofRoutes(o.names, false))
		}
	}
}

// passthrough logs what the workload sends to addresses that belong to no outbound. Policies speak of them only by
// speaking of the whole mesh.
func (w *writer) passthrough(l *draft.Listener, to, legacyDirection string) {
	v := w.proxy
	v.source, v.destination, v.direction = w.service, to, outboundDirection
	var p *plan
	if w.rules == nil {
		p = w.legacyPlan(passThrough)
		v.direction = legacyDirection
	} else {
		p = w.plan(w.rules.Outbound(draft.Service{Name: passThrough}), "to")
	}
	for _, ch := range l.Chains {
		w.log(ch, p, &v)
	}
}

// inbound logs what arrives for the workload.
func (w *writer) inbound(l *draft.Listener) {
	in := w.rules.Inbound(l.Inbound)
	if in == nil {
		return
	}
	v := w.proxy
	v.source, v.destination, v.direction = unknownService, l.Service.Name, inboundDirection
	for _, ch := range l.Chains {
		w.clients(ch, in.Rules, &v)
		for i := range in.Routes {
			r := &in.Routes[i]
			if len(r.Rules) == 0 {
				continue
			}
			owner := r.Rules[0].Origins[len(r.Rules[0].Origins)-1].Policy.Key
			if ch.HTTP == nil {
				w.c.Host.Warn(owner, "%s takes no HTTP, so the log of requests by %s is without effect there", l.Message.GetName(), r.Route.Key)
				continue
			}
			path, ok := byPath(r.Route, l.Service.Name)
			if !ok {
				w.c.Host.Warn(owner, "%s has no paths that requests could be told by: their log is left out", r.Route.Key)
				continue
			}
			w.clients(ch, r.Rules, &v, path...)
		}
	}
}

// clients logs what arrives from each group of clients. Where they show no certificate only what is said of the whole
// mesh holds.
func (w *writer) clients(ch *draft.Chain, rules []*policy.Rule, v *values, conditions ...*accesslogv3.AccessLogFilter) {
	if !ch.TLS {
		w.log(ch, w.plan(onlyMesh(rules), "from"), v, conditions...)
		return
	}
	for _, r := range rules {
		p := w.plan(r, "from")
		if p == nil || len(p.loggers) == 0 {
			continue
		}
		subset := r.Subset
		if ch.HTTP == nil {
			var unknown string
			if subset, unknown = tellable(subset); unknown != "" {
				w.c.Host.Warn(p.owner, "clients of TCP connections cannot be told by the tag %s: what is said of those that have it is without effect there; tell them by %s alone", unknown, resource.TagService)
				continue
			}
		}
		who := ofClients(w.c.View.Name, subset)
		w.log(ch, p, v, append(conditions[:len(conditions):len(conditions)], who)...)
	}
}
