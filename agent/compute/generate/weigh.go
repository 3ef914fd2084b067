package generate

import (
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// Weigh returns how many bytes the config of a dataplane for an Envoy has, in all resources and
// without TLS secrets of its own, if it reached services at virtual addresses and nothing else.
func (m *Mesh) Weigh(name string, services []*mesh.Service) (int, error) {
	outbounds := make([]mesh.Outbound, 0, len(services))
	for _, s := range services {
		if s.VIP.IsValid() {
			outbounds = append(outbounds, m.View.VirtualOutbound(s))
		}
	}
	only := *m
	only.only = &outbounds
	p, err := Generate(Input{Mesh: &only, Name: name, Flavor: node.FlavorEnvoy}, nil, nil)
	if err != nil {
		return 0, err
	}
	return p.Bytes(), nil
}

// Bytes is the size of all resources of the config.
func (p *Proxy) Bytes() int {
	n := 0
	for _, list := range p.Sealed.Resources {
		for _, r := range list {
			n += r.Len()
		}
	}
	return n
}
