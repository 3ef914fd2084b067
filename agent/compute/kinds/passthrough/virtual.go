package passthrough

import (
	"net/netip"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/dns/table"
)

// Connections other than TLS and HTTP requests do not contain a domain. With the label, a domain on
// a port gets a virtual address: the agent's resolver returns it to workloads of the selected
// proxies, the proxy accepts connections to it, and resolves the real addresses of the domain with
// a special name ([table.Past]). The resolver filters out addresses to which the domain must not
// lead.

// virtual returns the domain of a match if it has a virtual address, otherwise "".
func (m *Match) virtual() string {
	if m.Type != typeDomain || m.protocol() != tcp.String() || m.Port == nil || *m.Port == 0 || *m.Port > maxPort {
		return ""
	}
	t, err := parseTarget(m.Type, m.Value)
	if err != nil || t.kind != domainTarget || t.never() || len(table.Passthrough(t.domain)) > maxDomain {
		return ""
	}
	return t.domain
}

// checkLabels rejects matches that require the label.
func checkLabels(p *resource.Policy, labels map[string]string, v *resource.Validator) {
	c, ok := p.Default.(*Conf)
	if pinned, _ := pins(labels); !ok || pinned {
		return
	}
	for i := range c.AppendMatch {
		if m := &c.AppendMatch[i]; m.Type == typeDomain && m.protocol() == tcp.String() {
			v.Field("default").Field("appendMatch").Index(i).Field("protocol").Faultf("%s cannot be combined with a domain, "+
				"because such connections contain none: use tls, http, http2, or grpc, or type %s or %s; with the label %s: "+
				"\"true\", the agent's resolver assigns the domain a virtual address at which the proxy accepts connections",
				m.protocol(), typeIP, typeCIDR, labelPinned)
		}
	}
}

// domains returns the domains of a policy that have virtual addresses.
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

// virtual returns the rules of a match whose domain has a virtual address, one for each address
// family.
func (e *effect) virtual(c *policy.Context, m *Match, from source) (out []*rule) {
	t, _ := parseTarget(m.Type, m.Value)
	name := resourceName(tcp, t.text, *m.Port)
	of := func(a netip.Addr) *rule {
		return &rule{target: target{kind: addressTarget, prefix: netip.PrefixFrom(a, a.BitLen()), text: t.text,
			addr: a.String()}, resolved: t.domain,
			protocol: tcp, port: *m.Port, sources: []source{from}, pin: true, name: name, stat: toolkit.StatName(name)}
	}
	if c.View.ThroughEgress() {
		e.notes.say(from.policy, "appendMatch[%d] (tcp %s, port %d) has no effect, "+
			"because external traffic leaves through the ZoneEgress, which does not support domains for plain TCP",
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
		e.notes.say(from.policy, "appendMatch[%d] (tcp %s, port %d) has no effect, because all virtual addresses are in use",
			from.index, toolkit.Clip(t.text), *m.Port)
	}
	return out
}

// virtual reports whether the rule is for the virtual address of a domain.
func (r *rule) virtual() bool { return r.kind == addressTarget && r.resolved != "" }

// resolveAll makes the other pinned rules of a domain with a virtual address resolve its real
// addresses, because the agent's resolver returns the virtual address.
func (e *effect) resolveAll(list []*rule) {
	virtual := map[string]*rule{}
	for _, r := range list {
		if r.virtual() {
			virtual[r.resolved] = r
		}
	}
	if len(virtual) == 0 {
		return
	}
	for _, r := range list {
		v := virtual[r.domain]
		switch {
		case r.virtual() || v == nil:
		case r.pinned():
			r.resolved = r.domain
		default:
			e.notes.add(r, "does not lead to %s: the workload gets a virtual address for it, because of %s; "+
				"also give the port to make the proxy resolve the domain", toolkit.Clip(r.text), v.location())
		}
	}
}
