package passthrough

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/match"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// outside lists the matches for a destination, otherwise the field that sets the mode, otherwise
// all policies.
func outside(f *policy.Flow) []policy.FieldRef {
	e := newEffect(&f.Context)
	if e == nil {
		return nil
	}
	var reached, admitting []policy.FieldRef
	if e.v4 != nil {
		for _, r := range slices.Concat(e.v4.rules, e.v6.rules) {
			// Without inspection, a plain match also permits TLS.
			if slices.ContainsFunc(f.Trace.Targets, func(t match.Target) bool { return t.Cluster == r.name }) {
				reached = append(reached, r.matches()...)
			}
			if r.admits(f) {
				admitting = append(admitting, r.matches()...)
			}
		}
	}
	k := f.Rules.Kind(kind)
	mode := decides(k.Proxy.Origins)
	switch {
	case len(reached) > 0:
		return reached
	case len(admitting) > 0 && f.Trace.Outcome != match.NoChain:
		return admitting
	case mode.Field != "spec.default":
		return []policy.FieldRef{mode}
	}
	var all []policy.FieldRef
	for _, p := range k.Policies {
		all = append(all, policy.FieldRef{Resource: p.Key, Field: "spec.default"})
	}
	return all
}

// admits reports whether a rule matches the destination of a connection or request.
func (r *rule) admits(f *policy.Flow) bool {
	if r.port != 0 && r.port != uint32(f.Destination.Port()) {
		return false
	}
	switch tls := f.First == match.TLSHello; r.protocol.class() {
	case secure:
		if !tls {
			return false
		}
	case requests:
		if f.Request == nil {
			return false
		}
	}
	switch r.kind {
	case anyTarget:
		return true
	case domainTarget:
		return f.Host == r.domain
	case wildcardTarget:
		return strings.HasSuffix(f.Host, r.domain) && len(f.Host) > len(r.domain)
	}
	return r.prefix.Contains(f.Destination.Addr())
}

// suggest returns a policy whose match permits a destination outside the mesh.
func suggest(d *policy.Denial) []*resource.Resource {
	if d.Reason != policy.NotLetOut {
		return nil
	}
	port, mode := uint32(d.Destination.Port()), ModeMatched
	m := Match{Type: typeIP, Value: d.Destination.Addr().String(), Port: &port, Protocol: tcp.String()}
	switch {
	case d.First == match.TLSHello:
		m.Protocol = tls.String()
	case d.Request != nil && d.First == match.H2C:
		m.Protocol = http2.String()
	case d.Request != nil:
		m.Protocol = http.String()
	}
	if _, err := netip.ParseAddr(d.Host); d.Host != "" && err != nil {
		m.Type, m.Value = typeDomain, d.Host
	} else if d.AnyAddress {
		return nil // a match for a placeholder address permits nothing
	}
	return []*resource.Resource{d.NewPolicy(kind, "allow-"+m.Value, &resource.Policy{
		TargetRef: &resource.TargetRef{Kind: kindDataplane, Name: d.Proxy().Name},
		Default:   &Conf{PassthroughMode: &mode, AppendMatch: []Match{m}},
	})}
}
