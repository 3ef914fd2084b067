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
	"github.com/nearside-mesh/nearside/agent/model/suffix"
	"github.com/nearside-mesh/nearside/agent/model/virtualip"
	"github.com/nearside-mesh/nearside/dns/table"
)

// addExternalHosts gives the hosts of ExternalServices virtual addresses, as Kuma does: with the
// ports of the ExternalServices, and with port 80 if the host is one service. Workloads whose
// proxies listen there resolve the host to these addresses. If services claim one port, the first
// ExternalService by name wins. Names of VirtualOutbounds and domains of policies are left out.
func (v *View) addExternalHosts(external []*resource.Resource, domains []string) {
	if v.Spec.ServicesMode() == resource.MeshServicesExclusive {
		return // no proxy listens for tag services
	}
	var all []candidate
	for r, es := range resource.Specs[*resource.ExternalService](external) {
		name, port := externalHost(es)
		_, virtual := slices.BinarySearchFunc(v.hosts, name, func(h virtualHost, name string) int {
			return strings.Compare(h.name, name)
		})
		_, pinned := slices.BinarySearch(domains, name)
		if name == "" || virtual || pinned {
			continue
		}
		all = append(all, candidate{host: name, virtualPort: virtualPort{number: port, by: r.Key,
			tags: map[string]string{resource.TagService: es.Tags[resource.TagService]}}})
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(strings.Compare(a.host, b.host), cmp.Compare(a.number, b.number), a.by.Compare(b.by))
	})
	for i := range all {
		c := &all[i]
		if i == 0 || all[i-1].host != c.host {
			v.hosts = append(v.hosts, virtualHost{name: c.host, external: true})
		}
		h := &v.hosts[len(v.hosts)-1]
		switch n := len(h.ports) - 1; {
		case n < 0 || h.ports[n].number != c.number:
			h.ports = append(h.ports, c.virtualPort)
		case !maps.Equal(h.ports[n].tags, c.tags):
			v.warnf(c.by, "networking.address: %s:%d leads workloads to the service %s of %s, and not to %s; "+
				"give both the same service, or set networking.disableHostDNSEntry: true on one of them", c.host, c.number,
				h.ports[n].tags[resource.TagService], h.ports[n].by.Name, c.tags[resource.TagService])
		}
	}
	for i := range v.hosts {
		h := &v.hosts[i]
		if !h.external {
			continue
		}
		v.ExternalHosts = append(v.ExternalHosts, h.name)
		p := h.ports[0]
		if !slices.ContainsFunc(h.ports, func(o virtualPort) bool {
			return o.number == vipPort || !maps.Equal(o.tags, p.tags)
		}) {
			p.number = vipPort
			h.ports = append(h.ports, p)
			slices.SortFunc(h.ports, func(a, b virtualPort) int { return cmp.Compare(a.number, b.number) })
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
	name, invalid := suffix.Hostname(host)
	_, notAddr := netip.ParseAddr(host)
	if es.Networking.DisableHostDNSEntry || err != nil || notPort != nil || invalid != "" || notAddr == nil ||
		name == "localhost" || strings.HasSuffix(name, ".localhost") || table.ProxySpelling(name) == "" {
		return "", 0
	}
	return name, uint32(n)
}

// ExternalHostsIn returns the hosts of ExternalServices of which an outbound has an address,
// sorted.
func (v *View) ExternalHostsIn(list []Outbound) (out []string) {
	at := make(map[netip.Addr]bool, len(list))
	for i := range list {
		at[list[i].Address] = true
	}
	for i := range v.hosts {
		if h := &v.hosts[i]; h.external && (at[h.addr[virtualip.V4]] || at[h.addr[virtualip.V6]]) {
			out = append(out, h.name)
		}
	}
	return out
}
