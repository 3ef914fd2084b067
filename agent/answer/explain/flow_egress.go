package explain

import (
	"net/netip"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/match"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// anyCA is the file of trusted authorities of an egress. Explanations do not depend on it.
const anyCA = "/"

// egressAt returns the zone egress at an address with the config for this mesh; nil if there is
// none.
func (t *Traffic) egressAt(at netip.AddrPort) *flowProxy {
	if p, ok := t.egresses[at]; ok {
		return p
	}
	if t.egresses == nil {
		t.egresses = map[netip.AddrPort]*flowProxy{}
	}
	var p *flowProxy
	for i := range t.mesh.View.Egresses().List {
		e := &t.mesh.View.Egresses().List[i]
		addr, err := netip.ParseAddr(e.Address)
		if err != nil || netip.AddrPortFrom(addr, uint16(e.Port)) != at {
			continue
		}
		cfg, err := generate.GenerateZone(generate.ZoneInput{
			Resource: e.Resource, Zone: t.mesh.View.Zone, Meshes: []*generate.Mesh{t.mesh}, Flavor: node.FlavorEnvoy,
			SystemCA: anyCA,
		}, nil, t.memo)
		if err == nil {
			p = &flowProxy{dataplane: e.Resource, spec: &resource.Dataplane{}, snapshot: cfg.Snapshot(),
				clusters: map[string]*clusterFacts{}}
			p.config = match.Open(p.snapshot, &finding.Facts{})
			break
		}
	}
	t.egresses[at] = p
	return p
}

// throughEgress follows a connection from a client's proxy through an egress to a service outside
// the mesh.
func (t *Traffic) throughEgress(client, egress *flowProxy, at netip.AddrPort, facts *clusterFacts, in *inquiry,
	passed *match.Upstream, to mesh.Outbound) *Way {
	as := *egress
	for _, e := range to.Service.Outside.Subset(to.Subset) {
		if o := t.mesh.Policies.Outside(e.Resource.Key); o != nil {
			as.rules = o.Rules // the rules treat the service as inbound 0
			break
		}
	}
	conn, in := t.serverConn(client, &as, at, facts, in, passed)
	a := &about{t: t, p: &as, trace: as.trace(conn, in.req), dst: at, in: in, client: client, egress: true}
	return a.way(conn)
}
