package generate

import (
	"crypto/sha256"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/encode"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// egress builds the config of an egress. Its destinations are either outside a mesh, and proxies of
// the mesh connect to them with mutual TLS, or in another zone, and the proxies' TLS passes through
// to the ingress there.
type egress struct {
	*border
	spec *resource.ZoneEgress
}

// egressMesh holds the inputs of one mesh for an egress.
type egressMesh struct {
	*Mesh
	view   *mesh.View
	tls    *meshTLS
	chosen *policy.Choices
	exits  []egressExit
	beyond []arrival // in other zones
	used   bool      // a chain belongs to this mesh
}

// egressChainParts holds the messages of a chain, allocated at once.
type egressChainParts struct {
	chain   draft.Chain
	message listenerv3.FilterChain
	match   listenerv3.FilterChainMatch
}

func (b *border) egress(spec *resource.ZoneEgress, prev *Proxy) (*Proxy, error) {
	var meshes []*egressMesh
	for _, m := range b.in.Meshes {
		if m.View.Spec.MTLSEnabled() == nil {
			continue // no client could prove that it belongs to the mesh
		}
		one := &egressMesh{Mesh: m, view: m.View, chosen: choicesOf(m), exits: exitsOf(m)}
		for _, s := range m.View.Services() {
			if s.Beyond != nil {
				one.beyond = appendArrivals(one.beyond, m.View.Name, s, s.Beyond.List, one.chosen)
			}
		}
		meshes = append(meshes, one)
	}
	state := b.p.border
	state.fingerprint = egressFingerprint(b.in, meshes)
	if p, err := prev.reuseZone(b.in, state.fingerprint, b.memo); p != nil || err != nil {
		return p, err
	}
	e := &egress{b, spec}
	for _, m := range meshes {
		if err := e.mesh(m); err != nil {
			return nil, err
		}
	}
	state.secrets = b.in.secretsFor(state.meshes)
	var err error
	b.d.Ready[draft.RankSecret], err = zoneSecrets(state.meshes, state.secrets, b.memo)
	return b.seal(), err
}

// mesh adds the destinations of a mesh that are reached through the egress.
func (e *egress) mesh(m *egressMesh) (err error) {
	if m.tls, err = newMeshTLS(m.view); err != nil {
		return err
	}
	for _, s := range m.view.Services() {
		if s.Egress {
			e.external(m, s)
		}
	}
	if at := m.chosen.Cut; at != (resource.Key{}) {
		e.warn(e.in.Resource.Key, tooManyChoices, m.view.Name, at)
	}
	for i := range m.exits {
		e.exit(m, &m.exits[i])
	}
	var enc encode.Assignment
	for i := range m.beyond {
		e.arrival(&m.beyond[i], &enc)
	}
	if len(e.listener.Chains) > 0 {
		e.listener.Message.ListenerFilters = []*listenerv3.ListenerFilter{m.tls.inspector}
	}
	if m.used {
		e.p.border.meshes = append(e.p.border.meshes, m.view.Name)
	}
	return nil
}

// egressFingerprint returns a hash of all inputs of an egress except the secrets.
func egressFingerprint(in *ZoneInput, meshes []*egressMesh) [sha256.Size]byte {
	d := newZoneDigest(in)
	d.add(in.SystemCA)
	for _, m := range meshes {
		rules := m.Policies.OutsideDigest()
		d.add(m.view.Name, m.chosen.Cut.String(), string(rules[:]))
		for i := range m.exits {
			x := &m.exits[i]
			d.add(x.ServerName, x.Name, x.Host, x.Within.String(), x.owner.Name)
			d.number(int(x.Port))
		}
		d.add("")
		d.arrivals(m.beyond)
		d.add("")
		for _, s := range m.view.Services() {
			if !s.Egress {
				continue
			}
			d.add(s.ID.Kind, s.ID.Name, string(s.Protocol))
			for i := range s.Outside.List {
				ep := &s.Outside.List[i]
				d.add(ep.Resource.Name)
				d.b = append(d.b, ep.Resource.Digest[:]...)
			}
			for _, choice := range m.subsets(s) {
				d.add(mesh.TagString(single(choice)))
			}
			d.add("")
		}
	}
	return d.sum()
}

func single(tags map[string]string) map[string][]string {
	out := make(map[string][]string, len(tags))
	for k, v := range tags {
		out[k] = []string{v}
	}
	return out
}
