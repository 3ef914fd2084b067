package mesh

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// Instance is one inbound of the mesh at the address where its own node has it, ready or not.
type Instance struct {
	Dataplane resource.Key
	Service   string // value of kuma.io/service
	Protocol  Protocol
	At        netip.AddrPort
}

// Instances returns those of some values of kuma.io/service, with "*" those of all, in the order of dataplane names. They are
// dialled where they are: not at an address that they are advertised at, and not in a zone that is behind an ingress.
func (v *View) Instances(services []string) []Instance {
	all := slices.Contains(services, "*")
	var out []Instance
	for _, in := range v.inbounds.all {
		if in.behind || !all && !slices.Contains(services, in.service) {
			continue
		}
		spec, ok := in.dp.Spec.(*resource.Dataplane)
		if !ok {
			continue
		}
		addr, err := netip.ParseAddr(cmp.Or(in.spec.Address, spec.Networking.Address))
		if err != nil {
			continue // nobody dials a name as if it were an address
		}
		out = append(out, Instance{Dataplane: in.dp.Key, Service: in.service, Protocol: in.proto, At: netip.AddrPortFrom(addr, uint16(in.spec.Port))})
	}
	return out
}
