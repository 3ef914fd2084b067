package passthrough

import (
	"net/netip"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/dns/table"
)

// Connections that are no TLS and no requests name no domain. With the label, a domain on a port
// gets a virtual address: the resolver of the agent tells it to the workloads that the policy
// selects, the proxy takes connections to it, and the proxy resolves the domain itself, past that
// answer ([table.Past]). What that must not lead to the resolver leaves out.

// virtual returns the domain of a match that has a virtual address, "" for others.
func (m *Match) virtual() string {
	if m.Type != typeDomain || m.Protocol != tcp.String() || m.Port == nil || *m.Port == 0 || *m.Port > maxPort {
		return ""
	}
	t, err := parseTarget(m.Type, m.Value)
	if err != nil || t.kind != domainTarget || t.never() || len(table.Past(t.domain)) > maxDomain {
		return ""
	}
	return t.domain
}

// checkLabels refuses what acts with the label alone.
func checkLabels(p *resource.Policy, labels map[string]string, v *resource.Validator) {
	c, ok := p.Default.(*Conf)
	if pinned, _ := pins(labels); !ok || pinned {
		return
	}
	for i := range c.AppendMatch {
		if m := &c.AppendMatch[i]; m.Type == typeDomain && m.Protocol == tcp.String() {
			v.Field("default").Field("appendMatch").Index(i).Field("protocol").Faultf("%s does not go with a domain, "+
				"which such connections do not name: give tls, http, http2 or grpc, or the type %s or %s; "+
				"with the label %s: \"true\" on the policy the resolver of the agent gives the domain a virtual address, "+
				"where the proxy takes its connections", m.Protocol, typeIP, typeCIDR, labelPinned)
		}
	}
}

// domains are those of a policy that have virtual addresses.
func domains(p *resource.Resource) (out []string) {
	conf := confOf(p)
	if pinned, _ := pins(p.Labels); conf == nil || !pinned {
		return nil
	}
	for i := range conf.AppendMatch {
		if d := conf.AppendMatch[i].virtual(); d != "" {
			out = append(out, d)
		}
	}
	return out
}

// virtual returns the rules of a match whose domain has a virtual address, one for each family.
func (e *effect) virtual(c *policy.Context, m *Match, from source) (out []*rule) {
	t, _ := parseTarget(m.Type, m.Value)
	name := resourceName(tcp, t.text, *m.Port)
	of := func(a netip.Addr) *rule {
		return &rule{target: target{kind: addressTarget, prefix: netip.PrefixFrom(a, a.BitLen()), text: t.text,
			addr: a.String()}, past: t.domain,
			protocol: tcp, port: *m.Port, sources: []source{from}, pin: true, name: name, stat: toolkit.StatName(name)}
	}
	if c.View.ThroughEgress() {
		e.notes.say(from.policy, "appendMatch[%d] (tcp %s, port %d) has no effect: what leaves does so through the "+
			"ZoneEgress, which is not asked for domains that connections do not name",
			from.index, toolkit.Clip(t.text), *m.Port)
		return nil
	}
	v4, v6 := c.View.Domain(t.domain)
	if v4.IsValid() {
		out = append(out, of(v4))
	}
	if v6.IsValid() {
		out = append(out, of(v6))
	}
	if len(out) == 0 {
		e.notes.say(from.policy, "appendMatch[%d] (tcp %s, port %d) has no effect: no virtual address is free",
			from.index, toolkit.Clip(t.text), *m.Port)
	}
	return out
}

// virtual reports whether the rule is about the virtual address of a domain.
func (r *rule) virtual() bool { return r.kind == addressTarget && r.past != "" }

// goPast has the other rules about a domain with a virtual address resolve it past that: who asks
// as everybody does gets that address.
func (e *effect) goPast(asked []*rule) {
	virtual := map[string]*rule{}
	for _, r := range asked {
		if r.virtual() {
			virtual[r.past] = r
		}
	}
	if len(virtual) == 0 {
		return
	}
	for _, r := range asked {
		v := virtual[r.domain]
		switch {
		case r.virtual() || v == nil:
		case r.pinned():
			r.past = r.domain
		default:
			e.notes.add(r, "does not lead to %s: the workload gets a virtual address for it, since %s is there; "+
				"give the port too, and the proxy resolves the domain itself", toolkit.Clip(r.text), v.place())
		}
	}
}
