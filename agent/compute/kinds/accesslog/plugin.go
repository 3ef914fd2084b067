// Package accesslog implements MeshAccessLog and the backends that it refers to: which connections
// and requests a proxy logs, their destinations, and their format.
//
// The agent writes files below the log directories of its node, and files whose backend has
// rotation; Envoy writes the other ones. Lines for the agent pass through a FIFO in its run
// directory, like those for a TCP collector. Each proxy has a separate FIFO for each file and
// collector. Records for an OpenTelemetry collector go to a socket of the agent. The
// config contains the destinations of the FIFOs and the socket as [draft.Pipe] values.
//
// Formats are validated by Envoy's grammar when a policy is stored, so that an error in a format
// rejects the policy and not the listener. Errors that depend on other resources, such as an
// unresolved reference, drop only the backend, with a warning for the policy.
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

// Kind is the policy kind of the plugin.
const Kind = "MeshAccessLog"

const (
	kindBackend       = "MeshAccessLogBackend"
	kindGlobalBackend = "GlobalAccessLogBackend"
)

// Plugin declares the kind and its backends with the legacy kinds that it replaces.
func Plugin(legacy ...policy.LegacyKind) policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(Kind, "meshaccesslogs", "mal", resource.PolicyShape{
			Top:         toolkit.Proxies("MeshGateway"),
			TopFromOnly: []string{"MeshHTTPRoute", "MeshGatewayRoute"},
			MeshName:    true,
			From:        toolkit.Clients(),
			To:          toolkit.Destinations("MeshHTTPRoute"),
			Rules:       true, RuleMatches: true, RulesApart: true, FromAsRules: true,
			NewConf: func() resource.Conf { return new(Conf) },
		})},
		Legacy: legacy,
		Refers: []resource.Descriptor{
			{Kind: kindBackend, Plural: "meshaccesslogbackends", Scope: resource.ScopeMesh, New: newBackendSpec},
			{Kind: kindGlobalBackend, Plural: "globalaccesslogbackends", Scope: resource.ScopeGlobal, New: newBackendSpec},
			toolkit.OTelBackends(),
		},
		Shapes: []match.Level{match.LevelAccessLog},
		Apply:  apply,
		Reads:  policy.ReadsDataplane,
	}
}

// Kuma's names for destinations that are not services.
const (
	passThrough = "pass_through" // in rules
	external    = "external"     // in entries
)

// writer adds the access logs of one part of a config.
type writer struct {
	c        *policy.Context
	d        *draft.Draft
	rules    *policy.KindRules
	resolver resolver
	proxy    values
	service  string // of the proxy
	byRoute  bool   // some rule applies to requests of a route
	plans    map[*policy.Rule]*plan
	scratch  []byte
	closed   map[string]bool // passthrough clusters without endpoints
	// collectors are the numbered OpenTelemetry collectors of the proxy.
	collectors map[toolkit.OTLP]int
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

// LogServices logs outbound traffic to backends of Mesh.logging for source-destination policies. of
// returns the backend for a service with its policy, or nil. As in Kuma, lines for a collector
// begin with its address.
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

// outbounds logs outbound traffic: to services by service, and to other addresses by plan, which
// policies can select only by the whole mesh.
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

// notes warns about items for clients that cannot be distinguished.
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
				w.c.Host.Warn(p.Key, "from[%d] has no effect, because mesh %s has no mTLS and clients cannot be identified by %s; "+
					"enable mtls of the Mesh, or use kind Mesh", i, w.c.View.Name, k)
			}
		}
	}
}

// fileNotes warns about files with contradicting rotation.
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
			now := way{rotated: s.rotated(w.c.Paths)}
			if now.rotated {
				now.limits = s.rotate.limits()
			}
			switch before, known := files[s.path]; {
			case !known:
				files[s.path] = now
			case before.rotated != now.rotated:
				w.c.Host.Warn(toolkit.Strongest(rule).Key,
					"Envoy writes the file %s for one backend and the agent rotates it for another, so Envoy continues to write to "+
						"the rotated file; use the same rotation for both, or another path", toolkit.Clip(s.path))
			case before != now:
				w.c.Host.Warn(toolkit.Strongest(rule).Key, "two backends set different rotation limits for the file %s, so one "+
					"of them has no effect; use the same rotation for both, or another path", toolkit.Clip(s.path))
			}
		}
	})
}

// plan returns the plan of a rule; nil for no rule.
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

// outbound logs outbound traffic to a service.
func (w *writer) outbound(l *draft.Listener, v *values) {
	rule := w.rules.Outbound(l.Service)
	p := w.plan(rule, "to")
	for _, ch := range l.Chains {
		if !w.byRoute || ch.HTTP == nil {
			w.log(ch, p, v)
			continue
		}
		specific, names := w.routes(l.Service, ch.HTTP, rule)
		var rest *accesslogv3.AccessLogFilter
		if len(names) > 0 {
			rest = ofRoutes(names, true)
		}
		w.log(ch, p, v, rest)
		for _, o := range specific {
			w.log(ch, w.plan(o.rule, "to"), v, ofRoutes(o.names, false))
		}
	}
}

// inbound logs inbound traffic.
func (w *writer) inbound(l *draft.Listener) {
	in := w.rules.Inbound(l.Inbound)
	if in == nil {
		return
	}
	v := w.proxy
	v.source, v.destination, v.direction = unknownService, l.Service.Name, DirectionInbound
	w.refused(l, w.plan(onlyMesh(in.Rules), "from"), &v)
	all := slices.Clone(in.Matched)
	for _, m := range in.Matched {
		if m.Match == (resource.ClientMatch{}) {
			w.refused(l, w.plan(&m.Rule, "from"), &v)
		}
	}
	for i := range in.Routes {
		all = append(all, in.Routes[i].Matched...)
	}
	toolkit.WarnNoMTLS(w.c, all, l)
	toolkit.InspectServerName(w.c, l, all)
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
				w.c.Host.Warn(owner, "%s does not use HTTP, so the log of requests of %s has no effect there",
					l.Message.GetName(), r.Route.Key)
				continue
			}
			path, ok := byPath(r.Route, l.Service.Name)
			if !ok {
				w.c.Host.Warn(owner, "the log of requests of %s was dropped, because it has no paths that identify requests",
					r.Route.Key)
				continue
			}
			w.clients(ch, r.Matched, r.Rules, &v, path...)
		}
	}
}

// clients logs inbound traffic: for each entry of rules the clients that it matches, and for from
// each group of clients. Without client certificates, only rules for all clients apply.
func (w *writer) clients(ch *draft.Chain, matched []*policy.MatchRule, rules []*policy.Rule, v *values,
	conditions ...*accesslogv3.AccessLogFilter) {
	of := *v
	of.peer = ch.TLS
	v = &of
	conditions = slices.Clip(conditions)
	for _, m := range matched {
		if ch.TLS || m.Match == (resource.ClientMatch{}) {
			w.log(ch, w.plan(&m.Rule, "from"), v, append(conditions, ofMatch(&m.Match, ch.HTTP != nil)...)...)
		}
	}
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
			if subset, unknown = forConnections(subset); unknown != "" {
				w.c.Host.Warn(p.owner, "clients of TCP connections cannot be identified by the tag %s, "+
					"so items that require it have no effect there; use only %s", unknown, resource.TagService)
				continue
			}
		}
		who := ofClients(w.c.View.Name, subset)
		w.log(ch, p, v, append(conditions, who)...)
	}
}
