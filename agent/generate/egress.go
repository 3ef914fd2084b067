package generate

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// egress makes the config of one egress: a listener with a filter chain for each destination outside a mesh, told by the
// server name that the proxies of the mesh ask for with mutual TLS, and the clusters of these destinations.
type egress struct {
	in       *ZoneInput
	spec     *resource.ZoneEgress
	d        *draft.Draft
	p        *Proxy
	listener *draft.Listener
	names    map[string]resource.Key // server names that are taken, in lower case
	noted    map[mesh.Warning]bool
	full     bool
}

// egressMesh is one mesh as an egress sees it.
type egressMesh struct {
	*Mesh
	view   *mesh.View
	tls    *meshTLS
	chosen *policy.Choices
	exits  []egressExit
	used   bool // some chain is of this mesh
}

// egressChainParts are the messages of a chain, allocated together.
type egressChainParts struct {
	chain   draft.Chain
	message listenerv3.FilterChain
	match   listenerv3.FilterChainMatch
}

func generateEgress(in ZoneInput, spec *resource.ZoneEgress, prev *Proxy, memo *Memo) (*Proxy, error) {
	addr, err := netip.ParseAddr(spec.Networking.Address)
	if err != nil {
		return nil, fmt.Errorf("%s: networking.address: an egress cannot listen at %q: give an IP address", in.Resource.Key, spec.Networking.Address)
	}
	var meshes []*egressMesh
	for _, m := range in.Meshes {
		if m.View.Spec.MTLSEnabled() == nil {
			continue // nobody could prove to be of it
		}
		meshes = append(meshes, &egressMesh{Mesh: m, view: m.View, chosen: memo.choices(m), exits: exitsOf(m)})
	}
	fingerprint := egressFingerprint(&in, meshes)
	if p, err := prev.reuseZone(&in, fingerprint, memo); p != nil || err != nil {
		return p, err
	}
	e := &egress{in: &in, spec: spec, d: &draft.Draft{}, names: map[string]resource.Key{}, noted: map[mesh.Warning]bool{}}
	e.p = &Proxy{Name: in.Resource.Name, Flavor: in.Flavor, border: &zoneState{fingerprint: fingerprint}}
	e.listener = &draft.Listener{Kind: draft.OtherListener, Origin: originEgress, Port: spec.Networking.Port, Message: &listenerv3.Listener{
		Name:             "inbound:" + hostPort(addr, spec.Networking.Port),
		Address:          socketAddress(addr.String(), spec.Networking.Port),
		TrafficDirection: corev3.TrafficDirection_INBOUND,
		EnableReusePort:  sharedFalse,
	}}
	for _, m := range meshes {
		if err := e.mesh(m); err != nil {
			return nil, err
		}
	}
	return e.p, e.seal(memo)
}

// originEgress is what patches of Envoy's config know the resources by.
const originEgress = "egress"

// mesh adds what of a mesh leaves through the egress.
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
	if m.used {
		e.listener.Message.ListenerFilters = []*listenerv3.ListenerFilter{m.tls.inspector}
		e.p.border.meshes = append(e.p.border.meshes, m.view.Name)
	}
	return nil
}

// seal packs the draft. A listener without chains would be refused, so there is none.
func (e *egress) seal(memo *Memo) error {
	if len(e.listener.Chains) > 0 {
		e.d.Listeners = append(e.d.Listeners, e.listener)
	}
	for _, c := range e.d.Clusters {
		c.Origin = originEgress
	}
	b := e.p.border
	b.secrets = e.in.secretsFor(b.meshes)
	var err error
	if e.d.Ready[draft.RankSecret], err = zoneSecrets(b.meshes, b.secrets, memo); err != nil {
		return err
	}
	e.p.Sealed = e.in.seal(e.d, memo, e.warn)
	return nil
}

// egressFingerprint is a hash of all that an egress is made from but the secrets.
func egressFingerprint(in *ZoneInput, meshes []*egressMesh) [sha256.Size]byte {
	h := sha256.New()
	var b []byte
	str := func(s string) {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	b = append(b, in.Resource.Digest[:]...)
	str(in.Resource.Name)
	str(in.Zone)
	str(in.SystemCA)
	for _, m := range meshes {
		str(m.view.Name)
		str(m.chosen.Cut.String())
		for i := range m.exits {
			x := &m.exits[i]
			str(x.ServerName)
			str(x.Name)
			str(x.Host)
			str(x.Within.String())
			str(x.owner.Name)
			b = binary.AppendUvarint(b, uint64(x.Port))
		}
		str("")
		for _, s := range m.view.Services() {
			if !s.Egress {
				continue
			}
			str(s.ID.Kind)
			str(s.ID.Name)
			str(string(s.Protocol))
			for i := range s.Outside.List {
				ep := &s.Outside.List[i]
				str(ep.Resource.Name)
				b = append(b, ep.Resource.Digest[:]...)
			}
			for _, choice := range m.subsets(s) {
				str(mesh.TagString(single(choice)))
			}
			str("")
			if len(b) > 4096 {
				h.Write(b)
				b = b[:0]
			}
		}
	}
	h.Write(b)
	return [sha256.Size]byte(h.Sum(nil))
}

func single(tags map[string]string) map[string][]string {
	out := make(map[string][]string, len(tags))
	for k, v := range tags {
		out[k] = []string{v}
	}
	return out
}
