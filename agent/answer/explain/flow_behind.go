package explain

import (
	"cmp"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/answer/attribute"
	"github.com/nearside-mesh/nearside/agent/answer/effect"
	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/match"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

const kindMesh = "Mesh"

// policiesBehind lists the policies and fields that a step follows from.
func (a *about) policiesBehind(s *match.Step) []api.FlowPolicy {
	out := []api.FlowPolicy{}
	switch {
	case s.Level == match.LevelListener || s.Level == match.LevelOriginalDst:
		out = append(out, a.destination()...)
	case a.toOutside() && (s.Level == match.LevelChain || s.Level == a.trace.At || s.Level == match.LevelVirtualHost ||
		s.Level == match.LevelCluster):
		out = append(out, a.outside()...)
	case s.Level == match.LevelTransportSocket:
		out = append(out, a.mesh("mtls.enabledBackend"))
	}
	f := a.flow()
	f.Step, f.Owners = s, func() []resource.Key { return a.p.ownersOf(a.t.mesh, s) }
	filter := s.Level == match.LevelNetworkFilter || s.Level == match.LevelHTTPFilter
	for p := range a.t.plugins() {
		if p.Causes != nil {
			out = append(out, originsOf(p.Causes(f))...)
		}
		if slices.Contains(p.Shapes, s.Level) ||
			filter && slices.ContainsFunc(p.Filters, func(n string) bool { return clip.Value(n) == s.Input }) {
			for _, d := range p.Kinds {
				out = append(out, originsOf(a.merged(d.Kind))...)
			}
			for _, l := range p.Legacy {
				out = append(out, originsOf(a.merged(l.Kind))...)
			}
		}
	}
	return unique(out)
}

// outside lists the policies that decide about a destination outside the mesh, or the Mesh if there
// are none.
func (a *about) outside() []api.FlowPolicy {
	for p := range a.t.plugins() {
		if p.Outside != nil {
			if by := p.Outside(a.flow()); len(by) > 0 {
				return originsOf(by)
			}
		}
	}
	return []api.FlowPolicy{a.mesh("networking.outbound.passthrough")}
}

// flow returns the path as plugins see it.
func (a *about) flow() *policy.Flow {
	f := &policy.Flow{
		Context:  *(&policy.Context{View: a.t.mesh.View, Rules: a.p.rules}).WithDataplane(a.p.dataplane, a.p.spec),
		Outbound: a.outbound, Inbound: a.inbound, Destination: a.dst, Host: strings.ToLower(a.in.sni), First: a.in.first,
		Request: a.in.req, Trace: a.trace, Merged: a.merged,
	}
	if f.Request != nil {
		f.Host = hostOf(f.Request.Host)
	}
	return f
}

// plugins iterates over the plugins of the mesh; there are none if it has no policies.
func (t *Traffic) plugins() iter.Seq[*policy.Plugin] {
	return func(yield func(*policy.Plugin) bool) {
		if x := t.mesh.Policies; x != nil {
			for i := range x.Plugins {
				if !yield(&x.Plugins[i]) {
					return
				}
			}
		}
	}
}

// ownersOf returns the policies that shape the listener or cluster of a step. They are computed
// once per proxy.
func (p *flowProxy) ownersOf(m *generate.Mesh, s *match.Step) []resource.Key {
	if s.Place == nil || s.Level != match.LevelListener && s.Level != match.LevelCluster {
		return nil
	}
	if p.owners == nil {
		id := generate.ProxyID{Mesh: m.View.Name, Name: p.dataplane.Name, Flavor: node.FlavorEnvoy}
		owners, err := attribute.Owners(m, id, func(id draft.ResourceID) bool {
			return id.TypeURL == envoy.KindListener.URL() || id.TypeURL == envoy.KindCluster.URL()
		})
		if err != nil {
			return nil // unreachable: the same generation has succeeded before
		}
		p.owners = owners
	}
	return p.owners[draft.ResourceID{TypeURL: s.Place.Type, Name: s.Place.Resource}]
}

// toOutside reports whether the connection goes to a destination outside the mesh.
func (a *about) toOutside() bool {
	return a.trace.Listener != nil && isPassthrough(a.trace.Listener.Resource) &&
		!slices.ContainsFunc(a.trace.Targets, func(t match.Target) bool { return t.Cluster == draft.VirtualCluster })
}

func unique(list []api.FlowPolicy) []api.FlowPolicy {
	out := list[:0]
	for _, p := range list {
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

func (a *about) mesh(field string) api.FlowPolicy {
	return api.FlowPolicy{Ref: api.Ref{Type: kindMesh, Name: a.t.mesh.View.Name}, Field: field}
}

func policyOf(k resource.Key, field string) api.FlowPolicy {
	return api.FlowPolicy{Ref: api.RefOf(k), Field: field}
}

func originsOf(list []policy.FieldRef) []api.FlowPolicy {
	out := make([]api.FlowPolicy, len(list))
	for i, w := range list {
		out[i] = writtenIn(w)
	}
	return out
}

// destination returns the fields that define the outbound or inbound, never nil.
func (a *about) destination() []api.FlowPolicy {
	none := []api.FlowPolicy{}
	n := &a.p.spec.Networking
	switch {
	case a.egress:
		return []api.FlowPolicy{policyOf(a.p.dataplane.Key, "networking")}
	case a.inbound >= 0:
		return []api.FlowPolicy{policyOf(a.p.dataplane.Key, fmt.Sprintf("networking.inbound[%d]", a.inbound))}
	case a.outbound == nil:
		return none
	}
	for i := range n.Outbound {
		o := &n.Outbound[i]
		addr, err := netip.ParseAddr(cmp.Or(o.Address, "127.0.0.1"))
		if err == nil && addr == a.outbound.Address && o.Port == a.outbound.Port {
			return []api.FlowPolicy{policyOf(a.p.dataplane.Key, fmt.Sprintf("networking.outbound[%d]", i))}
		}
	}
	if k := a.outbound.Service.Resource; k != (resource.Key{}) {
		return []api.FlowPolicy{policyOf(k, "spec.ports")}
	}
	return none // a virtual address of a tag service
}

// merged lists the policy items of a kind that are merged into the rule for the flow, or the legacy
// policies that apply to it.
func (a *about) merged(kind string) []policy.FieldRef {
	var out []policy.FieldRef
	rules, k := a.p.rules, a.p.rules.Kind(kind)
	items := func(r *policy.Rule, list List) {
		if r == nil {
			return
		}
		for _, o := range r.Origins {
			_, source := effect.ItemOf(o.Policy, list, o.Item)
			out = append(out, policy.FieldRef{Resource: o.Policy.Key, Field: source.Field})
		}
	}
	if k != nil {
		items(k.Proxy, Default)
	}
	if a.outbound != nil {
		s := a.outbound.Service
		items(k.ServiceRule(s), To)
		if s.ID.Kind == mesh.KindTag {
			if p := rules.LegacyOutbound(kind, s.ID.Name); p != nil {
				out = append(out, policy.FieldRef{Resource: p.Key, Field: effect.LegacyField})
			}
		}
	}
	if a.toOutside() {
		items(k.ServiceRule(&mesh.Service{}), To) // the rule for all destinations
	}
	if a.inbound < 0 {
		return out
	}
	plugin, _, legacy := effect.KindOf(a.t.mesh.Policies, kind)
	rule, separate := a.clientRule(k)
	for _, r := range separate {
		items(r, From)
	}
	if decided, by := a.entry(plugin, k); decided == policy.Denied ||
		decided == policy.Admitted && (rule == nil || plugin.Admits(rule.Conf)) {
		rule = by // otherwise from decides: rules cannot allow a client that it denies
	}
	items(rule, From)
	for i, p := range rules.LegacyInbound(kind, a.inbound) {
		if i > 0 && !legacy.AllApply {
			break // only the strongest applies
		}
		field := effect.LegacyField
		if spec, ok := p.Spec.(*resource.LegacyPolicy); ok && spec.Conf == nil {
			field = "sources"
		}
		out = append(out, policy.FieldRef{Resource: p.Key, Field: field})
	}
	if len(out) == 0 && plugin.Admits != nil && k.Inbound(a.inbound) != nil {
		for _, p := range k.Policies { // none of them matches the client
			if spec, ok := p.Spec.(*resource.Policy); ok && len(k.Inbound(a.inbound).Entries) > 0 && len(spec.Rules) == 0 {
				continue // rules decide alone
			}
			out = append(out, policy.FieldRef{Resource: p.Key, Field: arrivingOf(p)})
		}
	}
	return out
}

// clientRule returns the rule of a kind for the client of an inbound, and the rules that act
// separately on it.
func (a *about) clientRule(k *policy.KindRules) (rule *policy.Rule, separate []*policy.Rule) {
	in := k.Inbound(a.inbound)
	if in == nil || a.client == nil {
		return nil, nil
	}
	var client policy.Subset
	for key, values := range a.t.mesh.View.ProxyTags(a.client.spec) {
		for _, v := range values {
			client = append(client, policy.Tag{Key: key, Value: v})
		}
	}
	ids := a.t.mesh.CertificateNames(a.client.dataplane)
	for _, m := range in.Matched {
		switch everyone := m.Match == (resource.ClientMatch{}); {
		case everyone, in.Apart && m.Match.Holds(ids, a.serverName):
			separate = append(separate, &m.Rule)
		case m.Match.Holds(ids, a.serverName):
			return &m.Rule, nil
		}
	}
	for _, r := range in.Rules {
		if holds(r.Subset, client) {
			return r, separate
		}
	}
	return nil, separate
}

// holds reports whether a proxy with these tags is in a subset.
func holds(s policy.Subset, tags policy.Subset) bool {
	for _, t := range s {
		if slices.Contains(tags, policy.Tag{Key: t.Key, Value: t.Value}) == t.Not {
			return false
		}
	}
	return true
}

// entry returns the entry of rules that decides about the client of an inbound, for kinds whose
// entries are not merged.
func (a *about) entry(plugin *policy.Plugin, k *policy.KindRules) (policy.Decision, *policy.Rule) {
	in := k.Inbound(a.inbound)
	if in == nil || len(in.Entries) == 0 || a.client == nil || plugin == nil || plugin.Decide == nil {
		return policy.Undecided, nil
	}
	confs := make([]resource.Conf, len(in.Entries))
	for i := range confs {
		confs[i] = in.Entries[i].Conf
	}
	d, i := plugin.Decide(confs, policy.Client{
		IDs: a.t.mesh.CertificateNames(a.client.dataplane), ServerName: a.serverName})
	if d == policy.Undecided {
		return d, nil
	}
	return d, in.Entries[i]
}

// arrivingOf returns the name of a policy's list for clients.
func arrivingOf(r *resource.Resource) string {
	if spec, ok := r.Spec.(*resource.Policy); ok {
		return "spec." + spec.InboundField()
	}
	return "spec.from"
}
