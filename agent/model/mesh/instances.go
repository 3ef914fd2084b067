package mesh

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Instance is one inbound of the mesh at the address where its own node has it, ready or not.
type Instance struct {
	Dataplane resource.Key
	Service   string // value of kuma.io/service
	Protocol  Protocol
	At        netip.AddrPort
}

// Instances returns those of some values of kuma.io/service, with "*" those of all, in the order of
// dataplane names. They are dialled where they are: not at an address that they are advertised at,
// and not in a zone that is behind an ingress. Those that are ignored have their listener too.
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
			if service == "" || !all && !slices.Contains(services, service) ||
				v.behindIngress(cmp.Or(in.Tags[resource.TagZone], v.Zone)) {
				continue
			}
			addr, err := netip.ParseAddr(cmp.Or(in.Address, spec.Networking.Address))
			if err != nil {
				continue // nobody dials a name as if it were an address
			}
			out = append(out, Instance{Dataplane: d.Key, Service: service, Protocol: ParseProtocol(in.Speaks()),
				At: netip.AddrPortFrom(addr, uint16(in.Port))})
		}
	}
	return out
}
