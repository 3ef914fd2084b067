package legacy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/timeout"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/compute/successor"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

const kindTrafficRoute = "TrafficRoute"

// Effective timeouts of fields that a Timeout does not set. On outbounds these are Envoy's
// defaults, except that a TrafficRoute disables idle timeouts. On inbounds these are the agent's
// defaults, which differ from those of a MeshTimeout.
const (
	openConnect    = 5 * time.Second
	openIdle       = time.Hour
	openStreamIdle = 5 * time.Minute

	inboundConnect    = 10 * time.Second
	inboundIdle       = 2 * time.Hour
	inboundStreamIdle = time.Hour
)

// class groups the protocols for which a Timeout has the same fields.
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

// migration converts Timeouts to MeshTimeouts.
type migration struct {
	in   *policy.MigrateInput
	plan *successor.Plan
	// services are the kuma.io/service values of the mesh. most is the class of most of them.
	services []*mesh.Service
	most     class
	// unlimited is true if TrafficRoutes apply everywhere, partlyUnlimited if only to some
	// connections.
	unlimited, partlyUnlimited bool
}

// migrate returns a MeshTimeout for each Timeout.
func migrate(in *policy.MigrateInput) policy.Migration {
	m := &migration{in: in, plan: successor.NewPlan(in, successor.PlanOptions{Kinds: []string{timeout.Kind},
		SupersededBy: toolkit.SupersededByAny(in, timeout.Kind)})}
	m.facts()
	out := policy.Migration{Without: m.plan.Without, Changes: changes()}
	// If one policy selects the whole mesh, it sets the timeouts of all inbounds. Otherwise each
	// policy sets those of the inbounds that it selects.
	whole := slices.IndexFunc(m.plan.Units, func(u *successor.Unit) bool { return len(u.Match) == 0 })
	for i, u := range m.plan.Units {
		old := toolkit.LegacyConf[Conf](u.Policy)
		if old == nil {
			continue
		}
		spec := &resource.Policy{TargetRef: &u.Target, To: m.to(u, old)}
		if whole < 0 || i == whole {
			spec.From = inbounds()
		}
		successor.AddNote(&u.Notes, successor.Reach(in, u))
		successor.AddNote(&u.Notes, successor.Routed(in))
		out.Policies = append(out.Policies,
			policy.Migrated{Kind: timeout.Kind, Name: u.Name, From: []resource.Key{u.Policy.Key}, Notes: u.Notes, Spec: spec})
	}
	if whole < 0 {
		out.Policies = append(out.Policies, m.otherInbounds(out.Policies)...)
	}
	return out
}

// facts collects facts about the mesh.
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
	for _, r := range m.in.Index.Policies(kindTrafficRoute) {
		if spec, ok := r.Spec.(*resource.LegacyPolicy); ok && toolkit.SelectsAll(spec.Sources) &&
			toolkit.SelectsAll(spec.Destinations) {
			m.unlimited = true
		} else {
			m.partlyUnlimited = true
		}
	}
	m.partlyUnlimited = m.partlyUnlimited && !m.unlimited
}

// to returns the to items of a unit. The item for all destinations fits the protocol of most
// services. Services of other protocols get items with their differences.
func (m *migration) to(u *successor.Unit, old *Conf) []resource.PolicyItem {
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
		successor.AddNote(&u.Notes, fmt.Sprintf("MeshTimeout has one field for all protocols where Timeout has several, so "+
			"the item for all destinations is for %s; existing services of %s have separate items, and a new one needs one too",
			m.most, strings.Join(others, " or ")))
	}
	return out
}

func item(service string, c *timeout.Conf) resource.PolicyItem {
	return resource.PolicyItem{TargetRef: resource.TargetRef{Kind: mesh.KindMeshService, Name: service}, Conf: c}
}

// classOf returns the class of a service. For an unknown service it derives the class from the
// policy.
func (m *migration) classOf(service string, old *Conf) class {
	if s := m.in.Index.View.Service(mesh.ServiceID{Kind: mesh.KindTag, Name: service}); s != nil {
		return classOf(s.Protocol)
	}
	if old.TCP != nil && old.HTTP == nil {
		return tcp
	}
	return http
}

// conf returns all effective timeouts of a Timeout for services of a class, so that neither the
// defaults of MeshTimeout nor a policy with lower precedence applies.
func (m *migration) conf(u *successor.Unit, old *Conf, c class) *timeout.Conf {
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
	if m.partlyUnlimited && (h.IdleTimeout == nil || h.StreamIdleTimeout == nil || t.IdleTimeout == nil) {
		successor.AddNote(&u.Notes, fmt.Sprintf("%s does not set all idle timeouts, so this policy sets Envoy's defaults; "+
			"connections routed by a TrafficRoute had none, so set 0s for these", u.Policy.Key))
	}
	return out
}

// first returns the first duration that is not nil, or otherwise.
func first(otherwise time.Duration, list ...*resource.Duration) *resource.Duration {
	for _, d := range list {
		if d != nil {
			return d
		}
	}
	return &resource.Duration{Duration: otherwise}
}

// difference returns the fields of other that differ from main and matter for a class, or nil if
// there are none.
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

// inbounds returns the from items that preserve the timeouts of inbounds without a MeshTimeout,
// because MeshTimeout has other defaults.
func inbounds() []resource.PolicyItem {
	return []resource.PolicyItem{{TargetRef: resource.TargetRef{Kind: "Mesh"}, Conf: &timeout.Conf{
		ConnectionTimeout: first(inboundConnect),
		IdleTimeout:       first(inboundIdle),
		HTTP: &timeout.HTTP{RequestTimeout: first(0), StreamIdleTimeout: first(inboundStreamIdle),
			MaxStreamDuration: first(0)},
	}}}
}

// otherInbounds returns policies for dataplanes of which only some inbounds are selected. The other
// inbounds would otherwise get the defaults of MeshTimeout.
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
			Kind: timeout.Kind, From: slices.Compact(from),
			Name: m.in.FreeName(policy.ClipName("inbounds-of-"+d.Name, policy.MaxName), used, timeout.Kind),
			Notes: []string{"a MeshTimeout that selects one inbound of a dataplane applies its defaults to all of them; this " +
				"policy preserves the timeouts of the others, and new dataplanes with several inbounds need the same"},
			Spec: &resource.Policy{TargetRef: &resource.TargetRef{Kind: "Dataplane", Name: d.Name}, From: inbounds()},
		})
	}
	return out
}

// changes explains the differences between the config of MeshTimeout and Timeout.
func changes() []policy.Change {
	const (
		manager = "Listener/*/filterChains/*/filters/envoy.filters.network.http_connection_manager/typedConfig/"
		options = "Cluster/*/typedExtensionProtocolOptions/envoy.extensions.upstreams.http.v3.HttpProtocolOptions/" +
			"commonHttpProtocolOptions/"
		explicit = "Envoy's default, written out"
		noLimits = "MeshTimeout sets it to 0s, which means no limit, as with Timeout"
	)
	return []policy.Change{
		{Path: manager + "commonHttpProtocolOptions/idleTimeout", Before: policy.Any, After: `"0s"`,
			Why: "idleTimeout applies at the cluster instead of the listener"},
		{Path: manager + "requestHeadersTimeout", After: `"0s"`, Same: true, Why: noLimits},
		{Path: "RouteConfiguration/*/virtualHosts/*/routes/*/route/idleTimeout", After: policy.Any, Same: true,
			Why: "streamIdleTimeout is also set on each route"},
		{Path: manager + "streamIdleTimeout", Before: policy.Any,
			Why: "streamIdleTimeout is set on each route instead of the listener"},
		{Path: "Listener/*/filterChains/*/filters/envoy.filters.network.tcp_proxy/typedConfig/idleTimeout", After: `"3600s"`,
			Same: true, Why: explicit},
		{Path: options + "maxConnectionDuration", After: `"0s"`, Same: true, Why: noLimits},
		{Path: options + "maxStreamDuration", After: `"0s"`, Same: true,
			Why: "MeshTimeout sets it to 0s, which means no limit"},
		{Path: options + "idleTimeout", After: `"3600s"`, Same: true, Why: explicit},
		{Path: "Cluster/*/connectTimeout", After: `"5s"`, Same: true, Why: explicit},
	}
}
