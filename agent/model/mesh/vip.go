package mesh

import (
	"net/netip"
	"slices"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/virtualip"
)

// VIPs returns the addresses to pass to the next view. It is the pointer from the Known field of
// [Options.VIPs] if nothing changed.
func (v *View) VIPs() *virtualip.Set { return v.vips }

// Domain returns the virtual addresses of one of the Domains of [Options.VIPs]. For any other name
// both are invalid.
func (v *View) Domain(name string) (ipv4, ipv6 netip.Addr) {
	if i, ok := slices.BinarySearch(v.Domains, name); ok {
		return v.domains[i][virtualip.V4], v.domains[i][virtualip.V6]
	}
	return netip.Addr{}, netip.Addr{}
}

// domainKey returns the owner of a domain's addresses. No resource has such a name.
func domainKey(name string) virtualip.Owner {
	return virtualip.Owner{Kind: KindMeshExternalService, Name: "domain " + name}
}

// someIPv6 reports whether the transparent proxy of some dataplane uses only IPv6, so that it needs
// IPv6 addresses of services.
func (v *View) someIPv6() bool {
	for _, dp := range resource.Specs[*resource.Dataplane](v.dataplanes) {
		if tp := dp.Networking.TransparentProxying; tp != nil && tp.IPFamilyMode == resource.IPFamilyIPv6 {
			return true
		}
	}
	return false
}

// claim is a claim of addresses with what receives them: services (the ports of one resource), a
// host, or neither, which is a domain.
type claim struct {
	virtualip.Claim
	ports []*Service
	host  *virtualHost
}

// assignVIPs assigns virtual addresses to every service, virtual host, and domain. It lists only
// services without known addresses as claims, unless a status can take an address from any of them.
func (v *View) assignVIPs(o *virtualip.Options) {
	a := virtualip.NewAssigner(v.Name, o)
	all := slices.ContainsFunc(v.services, func(s *Service) bool { return s.ID.Kind != KindTag && len(s.claimed) > 0 })
	n := len(v.services)
	if !all {
		n = max(0, n-a.Known())
	}
	claims := make([]claim, 0, n+len(v.hosts)+len(o.Domains)+16)
	var status []string // of all claims
	for from, to := 0, 0; from < len(v.services); from = to {
		s := v.services[from]
		key := s.key()
		to = from + 1
		for s.ID.Kind != KindTag && to < len(v.services) && v.services[to].key() == key {
			to++
		}
		ports := v.services[from:to]
		if !all {
			if addr, ok := a.Settled(key); ok {
				setVIPs(ports, addr)
				continue
			}
		}
		c := virtualip.Claim{Owner: key, Cluster: s.Labels[resource.LabelNamespace] != ""}
		from := len(status)
		for _, vip := range s.claimed {
			status = append(status, vip.IP)
		}
		c.Status = status[from:len(status):len(status)]
		claims = append(claims, claim{Claim: c, ports: ports})
	}
	for i := range v.hosts {
		claims = append(claims, claim{Claim: virtualip.Claim{Owner: hostKey(v.hosts[i].name)}, host: &v.hosts[i]})
	}
	for _, name := range o.Domains {
		claims = append(claims, claim{Claim: virtualip.Claim{Owner: domainKey(name)}})
	}
	for i := range claims {
		a.Claim(&claims[i].Claim)
	}
	var of map[*virtualip.Claim]*claim // warnings are rare
	a.Warn = func(c *virtualip.Claim, reason string) {
		if of == nil {
			of = make(map[*virtualip.Claim]*claim, len(claims))
			for i := range claims {
				of[&claims[i].Claim] = &claims[i]
			}
		}
		k := v.mesh.Key // of a tag service too
		if c := of[c]; c != nil && len(c.ports) > 0 && c.ports[0].Resource != (resource.Key{}) {
			k = c.ports[0].Resource
		}
		v.warnf(k, "%s", reason)
	}
	next, complete := a.Assign()
	for i := range claims {
		switch c := &claims[i]; {
		case c.host != nil:
			c.host.addr = c.Addr
		case len(c.ports) == 0:
			v.domains = append(v.domains, c.Addr)
		default:
			setVIPs(c.ports, c.Addr)
		}
	}
	v.Domains, v.Unaddressed = o.Domains, !complete
	v.IPv6, v.vips = o.IPv6 || v.someIPv6(), next
}

func setVIPs(ports []*Service, addr virtualip.Addresses) {
	for _, s := range ports {
		s.VIP, s.VIP6 = addr[virtualip.V4], addr[virtualip.V6]
	}
}
