package generate

import (
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// Weigh returns the size in bytes of a dataplane's config for an Envoy that reaches only the given
// services at their virtual addresses. This includes all resources but TLS secrets.
func (m *Mesh) Weigh(name string, services []*mesh.Service) (int, error) {
	outbounds := make([]mesh.Outbound, 0, len(services))
	for _, s := range services {
		if s.VIP.IsValid() {
			outbounds = append(outbounds, m.View.VirtualOutbound(s))
		}
	}
	p, err := Generate(Input{Mesh: m.Only(outbounds), Name: name, Flavor: node.FlavorEnvoy}, nil, nil)
	if err != nil {
		return 0, err
	}
	return p.Bytes(), nil
}

// Bytes returns the size of all resources of the config.
func (p *Proxy) Bytes() int {
	n := 0
	for _, list := range p.Sealed.Resources {
		for _, r := range list {
			n += r.Len()
		}
	}
	return n
}
