package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/mesh"
)

// meshNameReason says what a name is that belongs to a mesh or is reserved for meshes, and why the
// dataplane does not reach it; "" if the name may be external. Such a name must not be suggested as
// an external domain: the traffic would leave the mesh and have no destination.
func (t *Traffic) meshNameReason(p *flowProxy, host string, port uint16) string {
	v := t.mesh.View
	name, err := t.classify(p, host)
	if err != nil {
		return ""
	}
	isNamed := p.serviceNamed(&dialled{host: host, is: name})
	if name.Owner != nil {
		isNamed = t.outboundsOf(name.Owner)
	}
	if isNamed == nil {
		isNamed = func(*mesh.Outbound) bool { return false }
	}
	var is *mesh.Service
	for _, s := range v.Services() {
		if (is == nil || s.Port == uint32(port) && is.Port != s.Port) && isNamed(&mesh.Outbound{Service: s}) {
			is = s
		}
	}
	has := p.nearestOutbound(port, isNamed)
	switch {
	case has != nil:
		return fmt.Sprintf("%s is a name of the mesh %s: dial %s, the address of its outbound, "+
			"instead of permitting an external host", host, v.Name, netip.AddrPortFrom(has.Address, uint16(has.Port)))
	case is != nil:
		why := "the dataplane has no outbound for it"
		if t.mesh.Policies != nil {
			if r := t.mesh.Policies.Reach(p.dataplane).Of(is); !r.Reachable {
				about := &Proxy{index: t.mesh.Policies, dataplane: p.dataplane, spec: p.spec}
				why = WhyReach(about.index, about.spec, is, r).Reason
			}
		}
		return fmt.Sprintf("%s is a name of %s in the mesh %s, which the dataplane does not reach: %s",
			host, destinationOf(is), v.Name, why)
	case name.Owner != nil && name.Owner.Mesh != v.Name: // the user may not be permitted to see more
		return fmt.Sprintf("%s is a name of a mesh that the dataplane does not belong to", host)
	case name.Owner != nil && name.Owner.Origin != mesh.OriginPolicy && name.Owner.Origin != mesh.OriginHost:
		return fmt.Sprintf("%s is a name of %s in the mesh %s, and the dataplane has no outbound for it",
			host, name.Owner.Resource, v.Name)
	}
	known := t.meshNameOf(p, host, port)
	for _, suffix := range append(t.classifierOf(p).OwnedSuffixes(), meshSuffix[1:]) {
		if host == suffix || below(host, suffix) {
			reason := fmt.Sprintf("no service of the mesh %s has the name %s, and names below %s are reserved for meshes",
				v.Name, host, suffix)
			if known != "" {
				reason += "; " + known
			}
			return reason
		}
	}
	if known != "" {
		known += ": use that name instead of permitting an external host"
	}
	return known
}

// below reports whether a name is a subdomain of a domain.
func below(name, domain string) bool { return strings.HasSuffix(name, "."+domain) }

// wildcard returns a match for all hosts in the domain of host. It returns "" if the match would
// include a top-level domain or a name that belongs to a mesh or is reserved for meshes.
func (t *Traffic) wildcard(p *flowProxy, host string) string {
	_, domain, _ := strings.Cut(host, ".")
	if !strings.Contains(domain, ".") {
		return ""
	}
	v, table := t.mesh.View, t.classifierOf(p)
	for _, suffix := range append(table.OwnedSuffixes(), meshSuffix[1:]) {
		if domain == suffix || below(domain, suffix) || below(suffix, domain) {
			return ""
		}
	}
	for _, n := range table.Table.Names {
		if below(n.Name, domain) {
			return ""
		}
	}
	for _, h := range v.Hostnames() {
		if below(h.Name, domain) {
			return ""
		}
	}
	for _, s := range v.Services() {
		if slices.ContainsFunc(namesOf(&mesh.Outbound{Service: s}), func(name string) bool { return below(name, domain) }) ||
			s.Outside != nil &&
				slices.ContainsFunc(s.Outside.List, func(e mesh.Endpoint) bool { return below(e.Address, domain) }) {
			return ""
		}
	}
	return "*." + domain
}
