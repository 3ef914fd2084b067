// Package accesslog is the plugin of MeshAccessLog with the backends that it refers to: which
// connections and requests a proxy logs, where to, and in what words.
//
// A file is written by Envoy itself, unless the backend asks for rotation: then the lines go
// through a FIFO in the agent's run directory to the agent, as those for a TCP collector do. Each
// proxy has a FIFO of its own for each file and collector. The records for an OpenTelemetry
// collector go to a socket of the agent. What lies behind FIFOs and the socket is in the config, as
// its [draft.Pipe] values.
//
// What a policy writes is checked when it is written: formats by Envoy's own grammar, so that a
// slip in one of them costs the policy and not the listener. What can be seen only beside other
// resources, such as a reference that leads nowhere, costs the backend alone and is a warning that
// names the policy.
package accesslog

import (
	"slices"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/match"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/rotation"
)

// Kind is the kind of the plugin's policies.
const Kind = "MeshAccessLog"

const (
	kindBackend       = "MeshAccessLogBackend"
	kindGlobalBackend = "GlobalAccessLogBackend"
)

// Plugin declares the kinds and their effect, beside the kinds that they replace.
func Plugin(legacy ...policy.LegacyKind) policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(Kind, "meshaccesslogs", "mal", resource.PolicyShape{
			Top:         toolkit.Proxies("MeshGateway"),
			TopFromOnly: []string{"MeshHTTPRoute", "MeshGatewayRoute"},
			MeshName:    true,
			From:        toolkit.Clients(),
			To:          toolkit.Destinations("MeshHTTPRoute"),
			Rules:       true, RuleMatches: true,
			NewConf: func() resource.Conf { return new(Conf) },
		})},
		Legacy: legacy,
		Refers: []resource.Descriptor{
			{Kind: kindBackend, Plural: "meshaccesslogbackends", Scope: resource.ScopeMesh, New: newBackendSpec},
			{Kind: kindGlobalBackend, Plural: "globalaccesslogbackends", Scope: resource.ScopeGlobal, New: newBackendSpec},
		},
		Shapes: []match.Level{match.LevelAccessLog},
		Apply:  apply,
		Reads:  policy.ReadsDataplane,
	}
}

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
	scratch  []byte
	closed   map[string]bool // clusters of the passthrough that lead nowhere
	// collectors are those of OpenTelemetry that the proxy sends to, numbered.
	collectors map[toolkit.Collector]int
}

func newWriter(c *policy.Context, d *draft.Draft, rules *policy.KindRules) *writer {
	return &writer{
		c: c, d: d, rules: rules, proxy: valuesOf(c), service: serviceOf(c.Dataplane()), byRoute: aboutRoutes(rules),
		resolver: resolver{c: c, warn: c.Host.Warn}, plans: map[*policy.Rule]*plan{},
	}
}

// apply adds the access logs to the listeners of a draft.
func apply(c *policy.Context, d *draft.Draft) {
	rules := c.Rules.Kind(Kind)
	if rules == nil {
		return
	}
	w := newWriter(c, d, rules)
	w.closed = closedClusters(d)
	if c.Last {
		w.notes()
		w.fileNotes()
	}
	for l := range toolkit.Listeners(d, draft.Inbound) {
		w.inbound(l)
	}
	w.outbounds(w.outbound, func(string) *plan { return w.plan(rules.Outbound(draft.Service{Name: passThrough}), "to") })
}

// LogServices logs what the workload sends to backends of Mesh.logging, as source-destination
// policies have it: of returns the backend for a service with the policy that names it, nil for
// none. The lines for a collector carry its address, as those of the reference do.
func LogServices(c *policy.Context, d *draft.Draft, of func(service string) (resource.Key, *resource.LoggingBackend)) {
	w := newWriter(c, d, nil)
	plans := map[resource.Key]*plan{}
	plan := func(service string) *plan {
		owner, b := of(service)
		if b != nil && plans[owner] == nil {
			plans[owner] = w.newPlan(owner, []sink{legacySink(b)}, nil)
		}
		return plans[owner]
	}
	w.outbounds(func(l *draft.Listener, v *values) { w.logAll(l, plan(l.Service.Name), v) }, plan)
}

// outbounds logs what the workload sends: to services by one function, and to addresses that belong
// to none by a plan, which policies speak of only by speaking of the whole mesh.
func (w *writer) outbounds(service func(*draft.Listener, *values), plan func(service string) *plan) {
	for _, l := range w.d.Listeners {
		v := w.proxy
		v.source, v.destination, v.direction = w.service, l.Message.GetName(), DirectionOutbound
		switch l.Kind {
		case draft.Outbound:
			v.destination = l.Service.Name
			if l.Service.Kind != "" {
				v.destination = l.Service.Resource.Name
			}
			service(l, &v)
			continue
		case draft.OutboundPassthrough:
			v.destination = external
			if w.rules == nil {
				v.direction = DirectionNone
			}
		case draft.DirectAccess:
		default:
			continue
		}
		p := plan(passThrough)
		w.logAll(l, p, &v)
		w.refused(l, p, &v)
	}
}

// logAll adds the loggers of a plan to every chain of a listener.
func (w *writer) logAll(l *draft.Listener, p *plan, v *values) {
	for _, ch := range l.Chains {
		w.log(ch, p, v)
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
				w.c.Host.Warn(p.Key, "from[%d]: mesh %s has no mTLS, so clients cannot be told by %s: the item is without "+
					"effect; enable mtls of the Mesh, or give kind Mesh", i, w.c.View.Name, k)
			}
		}
	}
}

// fileNotes warns of files that are to be written in two ways.
func (w *writer) fileNotes() {
	type way struct {
		rotated bool
		limits  rotation.Limits
	}
	files := map[string]way{}
	quiet := resolver{c: w.c}
	quiet.eachRule(func(rule *policy.Rule, list string) {
		for _, s := range quiet.sinks(rule, list) {
			if s.kind != sinkFile {
				continue
			}
			now := way{rotated: s.rotate != nil}
			if now.rotated {
				now.limits = s.rotate.limits()
			}
			switch before, known := files[s.path]; {
			case !known:
				files[s.path] = now
			case before.rotated != now.rotated:
				w.c.Host.Warn(toolkit.Strongest(rule).Key,
					"the file %s is written by Envoy for one backend and, with rotation, by the agent for another one: Envoy goes "+
						"on with the file that was rotated; give both the same rotation, or another path", toolkit.Clip(s.path))
			case before != now:
				w.c.Host.Warn(toolkit.Strongest(rule).Key, "two backends ask for different rotation of the file %s: one of them "+
					"has no effect; give both the same, or another path", toolkit.Clip(s.path))
			}
		}
	})
}

// plan returns what a rule writes; nil for no rule.
func (w *writer) plan(r *policy.Rule, list string) *plan {
	p, ok := w.plans[r]
	if !ok {
		if conf := toolkit.Conf[Conf](r); conf != nil && len(r.Origins) > 0 {
			p = w.newPlan(toolkit.Strongest(r).Key, w.resolver.sinks(r, list), conf.Filtering)
		}
		w.plans[r] = p
	}
	return p
}

// outbound logs what the workload sends to a service.
func (w *writer) outbound(l *draft.Listener, v *values) {
	rule := w.rules.Outbound(l.Service)
	p := w.plan(rule, "to")
	for _, ch := range l.Chains {
		if !w.byRoute || ch.HTTP == nil {
			w.log(ch, p, v)
			continue
		}
		own, names := w.routes(l.Service, ch.HTTP, rule)
		var rest *accesslogv3.AccessLogFilter
		if len(names) > 0 {
			rest = ofRoutes(names, true)
		}
		w.log(ch, p, v, rest)
		for _, o := range own {
			w.log(ch, w.plan(o.rule, "to"), v, ofRoutes(o.names, false))
		}
	}
}

// inbound logs what arrives for the workload.
func (w *writer) inbound(l *draft.Listener) {
	in := w.rules.Inbound(l.Inbound)
	if in == nil {
		return
	}
	v := w.proxy
	v.source, v.destination, v.direction = unknownService, l.Service.Name, DirectionInbound
	w.refused(l, w.plan(onlyMesh(in.Rules), "from"), &v)
	if len(in.Matched) > 0 ||
		slices.ContainsFunc(in.Routes, func(r policy.RouteRules) bool { return len(r.Matched) > 0 }) {
		toolkit.WarnUntold(w.c, w.rules, l)
	}
	for _, ch := range l.Chains {
		w.clients(ch, in.Matched, in.Rules, &v)
		for i := range in.Routes {
			r := &in.Routes[i]
			var owner resource.Key
			switch {
			case len(r.Rules) > 0:
				owner = toolkit.Strongest(r.Rules[0]).Key
			case len(r.Matched) > 0:
				owner = toolkit.Strongest(&r.Matched[0].Rule).Key
			default:
				continue
			}
			if ch.HTTP == nil {
				w.c.Host.Warn(owner, "%s takes no HTTP, so the log of requests by %s is without effect there",
					l.Message.GetName(), r.Route.Key)
				continue
			}
			path, ok := byPath(r.Route, l.Service.Name)
			if !ok {
				w.c.Host.Warn(owner, "%s has no paths that requests could be told by: their log is left out", r.Route.Key)
				continue
			}
			w.clients(ch, r.Matched, r.Rules, &v, path...)
		}
	}
}

// clients logs what arrives from each group of clients: those who are told by matches, and the
// others. Where they show no certificate only what is said of the whole mesh holds.
func (w *writer) clients(ch *draft.Chain, matched []*policy.MatchRule, rules []*policy.Rule, v *values,
	conditions ...*accesslogv3.AccessLogFilter) {
	of := *v
	of.peer = ch.TLS
	v = &of
	if !ch.TLS {
		w.log(ch, w.plan(onlyMesh(rules), "from"), v, conditions...)
		return
	}
	conditions = slices.Clip(conditions)
	for _, m := range matched {
		w.log(ch, w.plan(&m.Rule, "from"), v, append(conditions, ofMatch(&m.Match, false, ch.HTTP != nil))...)
		conditions = slices.Clip(append(conditions, ofMatch(&m.Match, true, ch.HTTP != nil))) // the others
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
				w.c.Host.Warn(p.owner, "clients of TCP connections cannot be told by the tag %s: what is said of those that have "+
					"it is without effect there; tell them by %s alone", unknown, resource.TagService)
				continue
			}
		}
		who := ofClients(w.c.View.Name, subset)
		w.log(ch, p, v, append(conditions, who)...)
	}
}
