package mesh

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Instance is one inbound of the mesh, ready or not, at its address on its own node.
type Instance struct {
	Dataplane resource.Key
	Service   string // value of kuma.io/service
	Protocol  Protocol
	At        netip.AddrPort
}

// Instances returns the inbounds of some values of kuma.io/service, or of all for "*", in the order
// of dataplane names. It uses their real addresses and not the advertised ones, and skips zones
// behind an ingress. Ignored inbounds are included because they have a listener.
func (v *View) Instances(services []string) []Instance {
	all := slices.Contains(services, "*")
	var out []Instance
	for _, d := range v.dataplanes {
		spec, ok := d.Spec.(*resource.Dataplane)
		if !ok {
			continue
		}
		for i := range spec.Networking.Inbound {
			in := &spec.Networking.Inbound[i]
			service := in.Tags[resource.TagService]
			if !all && !slices.Contains(services, service) ||
				v.behindIngress(cmp.Or(in.Tags[resource.TagZone], v.Zone)) {
				continue
			}
			addr, err := netip.ParseAddr(cmp.Or(in.Address, spec.Networking.Address))
			if err != nil {
				continue // only an IP can be dialed
			}
			out = append(out, Instance{Dataplane: d.Key, Service: service, Protocol: ParseProtocol(in.Speaks()),
				At: netip.AddrPortFrom(addr, uint16(in.Port))})
		}
	}
	return out
}
