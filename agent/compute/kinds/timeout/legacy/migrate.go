package legacy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/timeout"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

const kindTrafficRoute = "TrafficRoute"

// What is in force where a Timeout is silent: Envoy's defaults, but that a TrafficRoute takes the
// limits off what is idle; and on inbounds what the agent gives them, where a MeshTimeout has other
// defaults.
const (
	openConnect    = 5 * time.Second
	openIdle       = time.Hour
	openStreamIdle = 5 * time.Minute

	inboundConnect    = 10 * time.Second
	inboundIdle       = 2 * time.Hour
	inboundStreamIdle = time.Hour
)

// class is a group of protocols for which a Timeout means different fields.
type class int

const (
	tcp class = iota
	http
	grpc
)

func classOf(p mesh.Protocol) class {
	switch {
	case p == mesh.ProtocolGRPC:
		return grpc
	case p.HTTP():
		return http
	}
	return tcp
}

func (c class) String() string { return [...]string{"tcp", "http", "grpc"}[c] }

// migration makes MeshTimeouts.
type migration struct {
	in   *policy.MigrateInput
	plan *policy.Plan
	// services are the values of kuma.io/service with what they speak, and most is what the most of
	// them do.
	services []*mesh.Service
	most     class
	// unlimited is true where TrafficRoutes lead everywhere, odd where they lead somewhere.
	unlimited, odd bool
}

// migrate makes a MeshTimeout of each Timeout.
func migrate(in *policy.MigrateInput) policy.Migration {
	m := &migration{in: in, plan: in.Plan(policy.PlanOptions{Kinds: []string{timeout.Kind},
		SupersededBy: toolkit.SupersededByAny(in, timeout.Kind)})}
	m.facts()
	out := policy.Migration{Without: m.plan.Without, Changes: changes()}
	// One policy about the whole mesh says for all what arrives at inbounds; without it each has to.
	whole := slices.IndexFunc(m.plan.Units, func(u *policy.Unit) bool { return len(u.Match) == 0 })
	for i, u := range m.plan.Units {
		old := toolkit.LegacyConf[Conf](u.Policy)
		if old == nil {
			continue
		}
		spec := &resource.Policy{TargetRef: &u.Target, To: m.to(u, old)}
		if whole < 0 || i == whole {
			spec.From = inbounds()
		}
		policy.AddNote(&u.Notes, in.Reach(u))
		policy.AddNote(&u.Notes, in.Routed())
		out.Policies = append(out.Policies,
			policy.Migrated{Kind: timeout.Kind, Name: u.Name, From: []resource.Key{u.Policy.Key}, Notes: u.Notes, Spec: spec})
	}
	if whole < 0 {
		out.Policies = append(out.Policies, m.otherInbounds(out.Policies)...)
	}
	return out
}

// facts looks at the mesh.
func (m *migration) facts() {
	var n [3]int
	for _, s := range m.in.Index.View.Services() {
		if s.ID.Kind == mesh.KindTag {
			m.services = append(m.services, s)
			n[classOf(s.Protocol)]++
		}
	}
	m.most = http
	if n[tcp] > n[http]+n[grpc] {
		m.most = tcp
	} else if n[grpc] > n[http] {
		m.most = grpc
	}
	any := func(list []resource.LegacySelector) bool {
		return slices.ContainsFunc(list, func(s resource.LegacySelector) bool {
			return len(s.Match) == 1 && s.Match[resource.TagService] == "*"
		})
	}
	for _, r := range m.in.Index.Policies(kindTrafficRoute) {
		if spec, ok := r.Spec.(*resource.LegacyPolicy); ok && any(spec.Sources) && any(spec.Destinations) {
			m.unlimited = true
		} else {
			m.odd = true
		}
	}
	m.odd = m.odd && !m.unlimited
}

// to makes the items of a unit. What is said to all destinations is for the protocol that most
// services speak; others have items with what is different for them.
func (m *migration) to(u *policy.Unit, old *Conf) []resource.PolicyItem {
	if !u.All {
		var out []resource.PolicyItem
		for _, s := range u.To {
			out = append(out, item(s, m.conf(u, old, m.classOf(s, old))))
		}
		return out
	}
	main := m.conf(u, old, m.most)
	out := []resource.PolicyItem{{TargetRef: resource.TargetRef{Kind: "Mesh"}, Conf: main}}
	var others []string
	for c := range grpc + 1 {
		d := difference(main, m.conf(u, old, c), c)
		if d == nil {
			continue
		}
		others = append(others, c.String())
		for _, s := range m.services {
			if classOf(s.Protocol) == c && !m.plan.Dominated(u, s.Tag) {
				out = append(out, item(s.Tag, d))
			}
		}
	}
	if len(others) > 0 {
		policy.AddNote(&u.Notes, fmt.Sprintf("MeshTimeout has one field for all protocols where Timeout has several: what "+
			"is said to all destinations is for %s; a service of %s needs an item of its own, as those that exist have it",
			m.most, strings.Join(others, " or ")))
	}
	return out
}

func item(service string, c *timeout.Conf) resource.PolicyItem {
	return resource.PolicyItem{TargetRef: resource.TargetRef{Kind: mesh.KindMeshService, Name: service}, Conf: c}
}

// classOf returns what a service speaks; of one that nothing offers, what the policy speaks of.
func (m *migration) classOf(service string, old *Conf) class {
	if s := m.in.Index.View.Service(mesh.ServiceID{Kind: mesh.KindTag, Name: service}); s != nil {
		return classOf(s.Protocol)
	}
	if old.TCP != nil && old.HTTP == nil {
		return tcp
	}
	return http
}

// conf says all that is in force by a Timeout for services of a class, so that neither the defaults
// of MeshTimeout nor a weaker policy take effect.
func (m *migration) conf(u *policy.Unit, old *Conf, c class) *timeout.Conf {
	idle, streamIdle := openIdle, openStreamIdle
	if m.unlimited {
		idle, streamIdle = 0, 0
	}
	h, t, g := toolkit.Or(old.HTTP, HTTP{}), toolkit.Or(old.TCP, TCP{}), GRPC{}
	if c == grpc {
		g = toolkit.Or(old.GRPC, GRPC{})
	}
	out := &timeout.Conf{
		ConnectionTimeout: first(openConnect, old.ConnectTimeout),
		IdleTimeout:       first(idle, h.IdleTimeout),
		HTTP: &timeout.HTTP{
			RequestTimeout:    first(0, h.RequestTimeout),
			StreamIdleTimeout: first(streamIdle, h.StreamIdleTimeout, g.StreamIdleTimeout),
			MaxStreamDuration: first(0, h.MaxStreamDuration, g.MaxStreamDuration),
		},
	}
	if c == tcp {
		out.IdleTimeout = first(idle, t.IdleTimeout)
	}
	if m.odd && (h.IdleTimeout == nil || h.StreamIdleTimeout == nil || t.IdleTimeout == nil) {
		policy.AddNote(&u.Notes, fmt.Sprintf("%s leaves limits of what is idle open: Envoy's own are written down, "+
			"but where a TrafficRoute leads there was none; give 0s there", u.Policy.Key))
	}
	return out
}

// first returns the first that is given, or what is in force without.
func first(otherwise time.Duration, list ...*resource.Duration) *resource.Duration {
	for _, d := range list {
		if d != nil {
			return d
		}
	}
	return &resource.Duration{Duration: otherwise}
}

// difference returns what one conf says otherwise than another, of what counts for a class; nil for
// nothing.
func difference(main, other *timeout.Conf, c class) *timeout.Conf {
	out, http := &timeout.Conf{}, &timeout.HTTP{}
	pick := func(field **resource.Duration, a, b *resource.Duration) {
		if a.Duration != b.Duration {
			*field = b
		}
	}
	pick(&out.IdleTimeout, main.IdleTimeout, other.IdleTimeout)
	if c != tcp {
		pick(&http.StreamIdleTimeout, main.HTTP.StreamIdleTimeout, other.HTTP.StreamIdleTimeout)
		pick(&http.MaxStreamDuration, main.HTTP.MaxStreamDuration, other.HTTP.MaxStreamDuration)
	}
	if *http != (timeout.HTTP{}) {
		out.HTTP = http
	}
	if *out == (timeout.Conf{}) {
		return nil
	}
	return out
}

// inbounds says about all inbounds what they have without a MeshTimeout, whose own defaults are
// others.
func inbounds() []resource.PolicyItem {
	return []resource.PolicyItem{{TargetRef: resource.TargetRef{Kind: "Mesh"}, Conf: &timeout.Conf{
		ConnectionTimeout: first(inboundConnect),
		IdleTimeout:       first(inboundIdle),
		HTTP: &timeout.HTTP{RequestTimeout: first(0), StreamIdleTimeout: first(inboundStreamIdle),
			MaxStreamDuration: first(0)},
	}}}
}

// otherInbounds makes policies for dataplanes of which some inbounds are selected and others not:
// these would get the defaults of MeshTimeout.
func (m *migration) otherInbounds(policies []policy.Migrated) []policy.Migrated {
	var out []policy.Migrated
	used := map[string]bool{}
	for _, p := range policies {
		used[p.Name] = true
	}
	for _, d := range m.in.Index.View.Dataplanes() {
		dp, ok := d.Spec.(*resource.Dataplane)
		if !ok || len(dp.Networking.Inbound) < 2 {
			continue
		}
		seen := map[int]bool{}
		var from []resource.Key
		for i := range policies {
			sel := m.in.Index.Select(&resource.Resource{Key: resource.Key{Kind: timeout.Kind, Mesh: d.Mesh,
				Name: policies[i].Name}, Spec: policies[i].Spec}, d)
			for _, in := range sel.Inbounds {
				seen[in] = true
			}
			if sel.Proxy {
				from = append(from, policies[i].From...)
			}
		}
		served := 0
		for i := range dp.Networking.Inbound {
			if dp.Networking.Inbound[i].State != resource.InboundIgnored {
				served++
			}
		}
		if len(seen) == 0 || len(seen) == served {
			continue
		}
		slices.SortFunc(from, resource.Key.Compare)
		out = append(out, policy.Migrated{
			Kind: timeout.Kind, Name: m.in.FreeName(timeout.Kind, "inbounds-of-"+d.Name, used), From: slices.Compact(from),
			Notes: []string{"MeshTimeout has defaults for all inbounds of a dataplane that a policy selects by one of " +
				"them: this keeps the others as they are; dataplanes with several inbounds that come later need the same"},
			Spec: &resource.Policy{TargetRef: &resource.TargetRef{Kind: "Dataplane", Name: d.Name}, From: inbounds()},
		})
	}
	return out
}

// changes explains what MeshTimeout writes otherwise than Timeout.
func changes() []policy.Change {
	const (
		manager = "Listener/*/filterChains/*/filters/envoy.filters.network.http_connection_manager/typedConfig/"
		options = "Cluster/*/typedExtensionProtocolOptions/envoy.extensions.upstreams.http.v3.HttpProtocolOptions/" +
			"commonHttpProtocolOptions/"
		explicit = "Envoy's default, written out"
		noLimits = "MeshTimeout writes it; 0s is no limit, which Timeout could not set either"
	)
	return []policy.Change{
		{Path: manager + "commonHttpProtocolOptions/idleTimeout", Before: policy.Any, After: `"0s"`,
			Why: "idleTimeout moves: idle connections are limited at the cluster, no longer at the listener"},
		{Path: manager + "requestHeadersTimeout", After: `"0s"`, Same: true, Why: noLimits},
		{Path: "RouteConfiguration/*/virtualHosts/*/routes/*/route/idleTimeout", After: policy.Any, Same: true,
			Why: "streamIdleTimeout is given for each route, too"},
		{Path: manager + "streamIdleTimeout", Before: policy.Any,
			Why: "streamIdleTimeout moves: it is given for each route, no longer for the listener"},
		{Path: "Listener/*/filterChains/*/filters/envoy.filters.network.tcp_proxy/typedConfig/idleTimeout", After: `"3600s"`,
			Same: true, Why: explicit},
		{Path: options + "maxConnectionDuration", After: `"0s"`, Same: true, Why: noLimits},
		{Path: options + "maxStreamDuration", After: `"0s"`, Same: true, Why: "MeshTimeout writes it; 0s is no limit"},
		{Path: options + "idleTimeout", After: `"3600s"`, Same: true, Why: explicit},
		{Path: "Cluster/*/connectTimeout", After: `"5s"`, Same: true, Why: explicit},
	}
}
