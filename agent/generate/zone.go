package generate

import (
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/identity"
	"github.com/nearside-mesh/nearside/agent/node"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// ZoneInput is what the config of a proxy at the border of a zone is made from.
type ZoneInput struct {
	Resource *resource.Resource // the ZoneEgress or ZoneIngress
	Zone     string             // of this node
	Meshes   []*Mesh            // all of them, sorted by name
	Flavor   node.Flavor
	// Secrets are what the proxy proves itself with in each mesh with mTLS, by its name. Equal pointers mean equal
	// secrets. For one that is missing a placeholder stands: such a config is to be looked at, and no Envoy accepts it.
	Secrets map[string]*identity.Secrets
	// SystemCA is the file with the authorities that the system of the proxy trusts; "": there is none.
	SystemCA string
}

// zoneState is what a proxy at the border of a zone is used again by.
type zoneState struct {
	fingerprint [sha256.Size]byte // of all that it is made from but the secrets
	meshes      []string          // whose secrets it has
	secrets     []*identity.Secrets
}

// secretsFor returns the secrets of meshes, a placeholder for those that are missing.
func (in *ZoneInput) secretsFor(meshes []string) []*identity.Secrets {
	out := make([]*identity.Secrets, len(meshes))
	for i, m := range meshes {
		if out[i] = in.Secrets[m]; out[i] == nil {
			out[i] = identity.Placeholder()
		}
	}
	return out
}

// GenerateZone makes the config of a proxy at the border of a zone. As [Generate] it is pure but for memo, and the
// result is prev itself where nothing has changed.
//
// It fails when the proxy cannot be served at all. A part that cannot be served is left out and named in Warnings, with
// the resource that it is of.
func GenerateZone(in ZoneInput, prev *Proxy, memo *Memo) (*Proxy, error) {
	if in.Flavor == node.FlavorGRPC {
		return nil, fmt.Errorf("%s: a gRPC client cannot be a proxy for others: start an Envoy with the output of nearside bootstrap", in.Resource.Key)
	}
	switch spec := in.Resource.Spec.(type) {
	case *resource.ZoneEgress:
		if spec.Zone != "" && spec.Zone != in.Zone {
			return nil, fmt.Errorf("%s: it belongs to zone %q, and this agent to zone %q: start its Envoy beside an agent of its zone", in.Resource.Key, spec.Zone, in.Zone)
		}
		return generateEgress(in, spec, prev, memo)
	case *resource.ZoneIngress:
		if spec.Zone != "" && spec.Zone != in.Zone {
			return nil, fmt.Errorf("%s: it belongs to zone %q, and this agent to zone %q: start its Envoy beside an agent of its zone", in.Resource.Key, spec.Zone, in.Zone)
		}
		return generateIngress(in, spec, prev, memo)
	}
	return nil, fmt.Errorf("%s: no proxy can be made of it", in.Resource.Key)
}

// tooManyChoices tells that not all choices of tags of a mesh were found.
const tooManyChoices = "the outbounds and routes of mesh %q choose among endpoints by too many combinations of tags: those from %s on are not reachable through this proxy; use fewer"

// reuseZone returns p with the present secrets, p itself when they are the same; nil when something else has changed.
func (p *Proxy) reuseZone(in *ZoneInput, fingerprint [sha256.Size]byte, memo *Memo) (*Proxy, error) {
	if p == nil || p.border == nil || p.border.fingerprint != fingerprint {
		return nil, nil
	}
	now := in.secretsFor(p.border.meshes)
	if slices.Equal(now, p.border.secrets) {
		return p, nil
	}
	list, err := zoneSecrets(p.border.meshes, now, memo)
	if err != nil {
		return nil, err
	}
	next, state, sealed := *p, *p.border, *p.Sealed
	state.secrets = now
	sealed.Resources[draft.RankSecret], sealed.Versions[draft.RankSecret] = draft.Order(list)
	next.border = &state
	if sealed.Versions == p.Sealed.Versions {
		return &next, nil
	}
	next.Sealed = &sealed
	return &next, nil
}

// seal seals what was made; what cannot be is told to warn.
func (in *ZoneInput) seal(d *draft.Draft, memo *Memo, warn func(resource.Key, string, ...any)) *draft.Sealed {
	s := draft.NewSealer(memo.intern)
	s.Add(d)
	sealed, faults := s.Finish()
	for _, f := range faults {
		warn(in.Resource.Key, "%v", f)
	}
	return sealed
}

// zoneSecrets seals the secrets of several meshes.
func zoneSecrets(meshes []string, secrets []*identity.Secrets, memo *Memo) ([]*draft.Resource, error) {
	var out []*draft.Resource
	for i, m := range meshes {
		list, err := secretResources(m, secrets[i], memo)
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	return out, nil
}
