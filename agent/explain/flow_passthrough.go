package explain

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/envoy/match"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// passthroughConf is what MeshPassthrough says, as documents have it.
type passthroughConf struct {
	Mode        *string            `json:"passthroughMode"`
	Enabled     *bool              `json:"enabled"`
	AppendMatch []passthroughMatch `json:"appendMatch"`
}

type passthroughMatch struct {
	Type     string  `json:"type"`
	Value    string  `json:"value"`
	Port     *uint32 `json:"port"`
	Protocol string  `json:"protocol"`
}

// passthrough lists what decides about destinations outside of the mesh: the entries that are about this one, else what
// says that the others do not pass, or all.
func (a *about) passthrough() []FlowPolicy {
	var k *policy.KindRules
	if rules := a.p.rules(); rules != nil {
		k = rules.Kind(kindPassthrough)
	}
	if k == nil || k.Proxy == nil {
		return []FlowPolicy{a.mesh("networking.outbound.passthrough")}
	}
	var entries, named, modes []FlowPolicy
	for _, o := range a.p.passing(k.Proxy) {
		conf := o.conf
		for i := range conf.AppendMatch {
			m, entry := &conf.AppendMatch[i], policyOf(o.policy, fmt.Sprintf("spec.default.appendMatch[%d]", i))
			if m.admits(a) {
				entries = append(entries, entry)
			}
			// Where nothing is inspected, an entry for plain bytes lets TLS pass too.
			if slices.ContainsFunc(a.trace.Targets, func(t match.Target) bool { return m.names(t.Cluster) }) {
				named = append(named, entry)
			}
		}
		switch {
		case conf.Mode != nil:
			modes = []FlowPolicy{policyOf(o.policy, "spec.default.passthroughMode")} // over those before
		case conf.Enabled != nil:
			modes = []FlowPolicy{policyOf(o.policy, "spec.default.enabled")}
		}
	}
	switch {
	case len(named) > 0:
		return named
	case len(entries) > 0 && a.trace.Outcome != match.NoChain:
		return entries
	case len(modes) > 0:
		return modes
	}
	var all []FlowPolicy
	for _, p := range k.Policies {
		all = append(all, policyOf(p, "spec.default"))
	}
	return all
}

// passthroughOf is what one policy says.
type passthroughOf struct {
	policy *resource.Resource
	conf   passthroughConf
}

// passing reads the policies of a rule, once for the proxy.
func (p *flowProxy) passing(r *policy.Rule) []passthroughOf {
	if p.passed != nil {
		return p.passed
	}
	p.passed = []passthroughOf{}
	for _, o := range r.Origins {
		spec, ok := o.Policy.Spec.(*resource.Policy)
		if !ok || spec.Default == nil {
			continue
		}
		one := passthroughOf{policy: o.Policy}
		if json.Unmarshal(jsonOf(spec.Default), &one.conf) == nil {
			p.passed = append(p.passed, one)
		}
	}
	return p.passed
}

// admits reports whether an entry is about the destination.
func (m *passthroughMatch) admits(a *about) bool {
	if m.Port != nil && *m.Port != uint32(a.dst.Port()) {
		return false
	}
	http := a.in.req != nil
	switch cmp.Or(m.Protocol, "tcp") {
	case "tls":
		if a.in.first != match.TLSHello {
			return false
		}
	case "http", "http2", "grpc":
		if !http {
			return false
		}
	default:
		if a.in.first == match.TLSHello {
			return false
		}
	}
	switch m.Type {
	case "IP":
		addr, err := parseIP(m.Value)
		return err == nil && addr == a.dst.Addr()
	case "CIDR":
		p, err := netip.ParsePrefix(m.Value)
		return err == nil && p.Masked().Contains(a.dst.Addr())
	}
	name := a.in.sni
	if http {
		name = a.in.req.Host
		if i := strings.LastIndexByte(name, ':'); i >= 0 && !strings.HasSuffix(name, "]") {
			name = name[:i]
		}
	}
	return domainHolds(strings.ToLower(m.Value), strings.ToLower(name))
}

// domainHolds reports whether a domain of an entry holds a name: "*" holds all, "*." all below it.
func domainHolds(domain, name string) bool {
	domain = strings.TrimSuffix(domain, ".")
	if suffix, ok := strings.CutPrefix(domain, "*"); ok {
		return strings.HasSuffix(name, suffix) && len(name) > len(suffix) || suffix == ""
	}
	return domain == name
}

// names reports whether a cluster is that of an entry: meshpassthrough_PROTOCOL_VALUE_PORT. Addresses are compared as
// networks, in which an address is one of its own.
func (m *passthroughMatch) names(cluster string) bool {
	rest, ok := strings.CutPrefix(cluster, "meshpassthrough_")
	if !ok {
		return false
	}
	protocol, rest, _ := strings.Cut(rest, "_")
	i := strings.LastIndexByte(rest, '_')
	if i < 0 || protocol != strings.Replace(cmp.Or(m.Protocol, "tcp"), "mysql", "tcp", 1) || rest[i+1:] != m.on() {
		return false
	}
	value := rest[:i]
	a, b := networkOf(value), networkOf(m.Value)
	if a.IsValid() || b.IsValid() {
		return a == b
	}
	return strings.EqualFold(strings.TrimSuffix(value, "."), strings.TrimSuffix(m.Value, "."))
}

// on is the port in the name of the cluster.
func (m *passthroughMatch) on() string {
	if m.Port == nil {
		return "*"
	}
	return strconv.FormatUint(uint64(*m.Port), 10)
}

// networkOf reads an address or a network, the zero value for neither.
func networkOf(s string) netip.Prefix {
	if last := len(s) - 1; last < 0 || !strings.Contains(s, ":") && (s[last] < '0' || s[last] > '9') {
		return netip.Prefix{} // a name, as most are: nothing needs parsing
	}
	if a, err := parseIP(s); err == nil {
		return netip.PrefixFrom(a, a.BitLen())
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}
	}
	return p.Masked()
}
