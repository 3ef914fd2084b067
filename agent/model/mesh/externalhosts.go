package mesh

import (
	"cmp"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/dns/table"
)

// addExternalHosts gives the hosts of ExternalServices virtual addresses, as Kuma does: with the
// ports of the ExternalServices, and with port 80 if the whole host is one service. The workloads
// whose proxies listen there get these addresses instead of the real ones. If several services claim
// one port of a host, the first ExternalService by name wins. Names with another virtual address keep
// it: those of VirtualOutbounds, and domains of policies.
func (v *View) addExternalHosts(external []*resource.Resource, domains []string) {
	if v.Spec.ServicesMode() == resource.MeshServicesExclusive {
		return // no proxy listens for tag services
	}
	var all []candidate
	for r, es := range resource.Specs[*resource.ExternalService](external) {
		name, port := externalHost(es)
		if name == "" || slices.ContainsFunc(v.hosts, func(h virtualHost) bool { return h.name == name }) {
			continue
		}
		if _, pinned := slices.BinarySearch(domains, name); pinned {
			continue
		}
		tags := map[string]string{resource.TagService: es.Tags[resource.TagService]}
		all = append(all, candidate{host: name, virtualPort: virtualPort{number: port, tags: tags, by: r.Key}})
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(strings.Compare(a.host, b.host), cmp.Compare(a.number, b.number), a.by.Compare(b.by))
	})
	for i := range all {
		c := &all[i]
		if n := len(v.hosts) - 1; i == 0 || v.hosts[n].name != c.host {
			v.hosts = append(v.hosts, virtualHost{name: c.host, external: true})
		}
		h := &v.hosts[len(v.hosts)-1]
		switch n := len(h.ports) - 1; {
		case n < 0 || h.ports[n].number != c.number:
			h.ports = append(h.ports, c.virtualPort)
		case !maps.Equal(h.ports[n].tags, c.tags):
			v.warnf(c.by, "networking.address: %s:%d leads workloads to the service %s of %s, and not to %s; give both the same "+
				"service, or set networking.disableHostDNSEntry: true on one of them", c.host, c.number,
				h.ports[n].tags[resource.TagService], h.ports[n].by.Name, c.tags[resource.TagService])
		}
	}
	for i := range v.hosts {
		if h := &v.hosts[i]; h.external {
			h.addDefaultPort()
		}
	}
	slices.SortFunc(v.hosts, func(a, b virtualHost) int { return strings.Compare(a.name, b.name) })
}

// externalHost returns the host of an ExternalService in lower case and its port. The host is "" if
// it gets no virtual address: it is an address or this machine, no query can ask for its real
// addresses, or the resource disables it.
func externalHost(es *resource.ExternalService) (name string, port uint32) {
	host, text, err := net.SplitHostPort(es.Networking.Address)
	n, notPort := strconv.ParseUint(text, 10, 16)
	name, invalid := dnsName(host)
	_, notAddr := netip.ParseAddr(host)
	switch {
	case es.Networking.DisableHostDNSEntry, err != nil, notPort != nil, invalid != "", notAddr == nil:
		return "", 0
	case name == "localhost", strings.HasSuffix(name, ".localhost"), table.ProxySpelling(name) == "":
		return "", 0
	}
	return name, uint32(n)
}

// addDefaultPort adds the port of tag services if all ports lead to one service.
func (h *virtualHost) addDefaultPort() {
	for _, p := range h.ports {
		if p.number == vipPort || !maps.Equal(p.tags, h.ports[0].tags) {
			return
		}
	}
	p := h.ports[0]
	p.number = vipPort
	h.ports = append(h.ports, p)
	slices.SortFunc(h.ports, func(a, b virtualPort) int { return cmp.Compare(a.number, b.number) })
}

// AskedHost reports whether a proxy must ask for the real addresses of a name in lower case, by
// [table.ProxySpelling], because the resolver of the node answers it with virtual addresses.
func (v *View) AskedHost(name string) bool {
	i, ok := slices.BinarySearchFunc(v.hosts, name, func(h virtualHost, name string) int {
		return strings.Compare(h.name, name)
	})
	return ok && v.resolver && v.hosts[i].external
}

// AskedHosts returns the names of [View.AskedHost], sorted.
func (v *View) AskedHosts() []string {
	if !v.resolver {
		return nil
	}
	return v.ExternalHosts()
}

// ExternalHosts returns the hosts of ExternalServices with virtual addresses, sorted.
func (v *View) ExternalHosts() (out []string) {
	for i := range v.hosts {
		if v.hosts[i].external {
			out = append(out, v.hosts[i].name)
		}
	}
	return out
}

// HasExternalHosts reports whether hosts of ExternalServices have virtual addresses.
func (v *View) HasExternalHosts() bool {
	return slices.ContainsFunc(v.hosts, func(h virtualHost) bool { return h.external })
}

// ExternalHostsIn returns the hosts of ExternalServices of which a list of outbounds has an address,
// sorted.
func (v *View) ExternalHostsIn(list []Outbound) (out []string) {
	at := make(map[netip.Addr]bool, len(list))
	for i := range list {
		at[list[i].Address] = true
	}
	for i := range v.hosts {
		if h := &v.hosts[i]; h.external && (at[h.addr[v4]] || at[h.addr[v6]]) {
			out = append(out, h.name)
		}
	}
	return out
}
