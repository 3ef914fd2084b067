package generate

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"net/netip"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/identity"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// ZoneInput is what the config of a proxy at the border of a zone is made from.
type ZoneInput struct {
	Resource *resource.Resource // the ZoneEgress or ZoneIngress
	Zone     string             // of this node
	Meshes   []*Mesh            // all of them, sorted by name
	Flavor   node.Flavor
	// Secrets are what the proxy proves itself with in each mesh with mTLS, by its name. Equal
	// pointers mean equal secrets. For one that is missing a placeholder stands: such a config is to
	// be looked at, and no Envoy accepts it.
	Secrets map[string]*identity.Secrets
	// SystemCA is the file with the authorities that the system of the proxy trusts; "": there is
	// none.
	SystemCA string
}

// zoneState is what a proxy at the border of a zone is used again by.
type zoneState struct {
	fingerprint [sha256.Size]byte // of all that it is made from but the secrets
	meshes      []string          // whose secrets it has
	secrets     []*identity.Secrets
}

// InZone reports whether the proxy of a resource at the border of a zone belongs to that zone.
func InZone(r *resource.Resource, zone string) bool {
	of := ""
	switch spec := r.Spec.(type) {
	case *resource.ZoneEgress:
		of = spec.Zone
	case *resource.ZoneIngress:
		of = spec.Zone
	}
	return of == "" || of == zone
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

// GenerateZone makes the config of a proxy at the border of a zone. As [Generate] it is pure but
// for memo, and the result is prev itself where nothing has changed.
//
// It fails when the proxy cannot be served at all. A part that cannot be served is left out and
// named in Warnings, with the resource that it is of.
func GenerateZone(in ZoneInput, prev *Proxy, memo *Memo) (*Proxy, error) {
	if in.Flavor == node.FlavorGRPC {
		return nil, fmt.Errorf("%s: a gRPC client cannot be a proxy for others: start an Envoy with the output of nearside "+
			"bootstrap", in.Resource.Key)
	}
	switch spec := in.Resource.Spec.(type) {
	case *resource.ZoneEgress:
		b, err := newBorder(&in, originEgress, spec.Zone, spec.Networking.Address, spec.Networking.Port, memo)
		if err != nil {
			return nil, err
		}
		return b.egress(spec, prev)
	case *resource.ZoneIngress:
		b, err := newBorder(&in, originIngress, spec.Zone, spec.Networking.Address, spec.Networking.Port, memo)
		if err != nil {
			return nil, err
		}
		return b.ingress(prev)
	}
	return nil, fmt.Errorf("%s: no proxy can be made of it", in.Resource.Key)
}

// What patches of Envoy's config know the resources of such proxies by.
const (
	originEgress  = "egress"
	originIngress = "ingress"
)

// maxBorderChains bounds the filter chains of a proxy at the border of a zone.
const maxBorderChains = 20_000

// border makes the config of one proxy at the border of a zone: a listener with a filter chain for
// each destination, told by the server name that other proxies ask for, and the clusters of these
// destinations.
type border struct {
	in       *ZoneInput
	memo     *Memo
	origin   string
	d        *draft.Draft
	p        *Proxy
	listener *draft.Listener
	names    map[string]resource.Key // server names that are taken, in lower case
	left     int                     // destinations beyond the bound
	noted    map[mesh.Warning]bool
}

// newBorder begins a config. It fails for a proxy of another zone, and for one without an address.
func newBorder(in *ZoneInput, origin, zone, address string, port uint32, memo *Memo) (*border, error) {
	if zone != "" && zone != in.Zone {
		return nil, fmt.Errorf("%s: it belongs to zone %q, and this agent to zone %q: start its Envoy beside an agent of "+
			"its zone", in.Resource.Key, zone, in.Zone)
	}
	addr, err := netip.ParseAddr(address)
	if err != nil {
		return nil, fmt.Errorf("%s: networking.address: an %s cannot listen at %q: give an IP address",
			in.Resource.Key, origin, address)
	}
	return &border{
		in: in, memo: memo, origin: origin, d: &draft.Draft{}, names: map[string]resource.Key{},
		noted: map[mesh.Warning]bool{},
		p:     &Proxy{Name: in.Resource.Name, Flavor: in.Flavor, border: &zoneState{}},
		listener: &draft.Listener{Kind: draft.OtherListener, Origin: origin, Port: port,
			Message: inboundListener(addr, port)},
	}, nil
}

// warn notes something once.
func (b *border) warn(k resource.Key, format string, args ...any) {
	w := mesh.Warning{Resource: k, Reason: fmt.Sprintf(format, args...)}
	if len(b.p.Warnings) < maxNotes && !b.noted[w] {
		b.noted[w] = true
		b.p.Warnings = append(b.p.Warnings, w)
	}
}

// serverName is the server name of a destination, in lower case; "", with a warning, where that
// would be too long.
func (b *border) serverName(meshName string, o *mesh.Outbound, owner resource.Key) string {
	sni := strings.ToLower(sniOf(meshName, o))
	if sni == "" {
		b.warn(owner, "its server name, which is made of the mesh, the service and %d tags, "+
			"is longer than %d bytes: it is not reachable through the %s; give shorter names", len(o.Subset), maxSNI, b.origin)
	}
	return sni
}

// take takes a server name in lower case. Envoy compares names in lower case, so that some services
// cannot be told apart.
func (b *border) take(sni string, owner resource.Key) bool {
	lost := "is left out of the " + b.origin
	if b.origin == originIngress {
		lost = "is not reachable through the " + b.origin
	}
	switch other, taken := b.names[sni]; {
	case taken:
		b.warn(owner, "its server name %q is that of %s, or differs from it in the case of letters alone, "+
			"which TLS does not distinguish: it %s; rename one", clip.Text(sni, maxSNI), other, lost)
	case strings.Contains(sni, "*"):
		b.warn(owner, "its server name %q has a *, which stands for more than itself: it %s", clip.Text(sni, maxSNI), lost)
	case len(b.names) == maxBorderChains:
		b.left++
	default:
		b.names[sni] = owner
		return true
	}
	return false
}

// seal packs the draft. A listener without chains would be refused, so there is none.
func (b *border) seal() *Proxy {
	if b.left > 0 {
		b.warn(b.in.Resource.Key, "more than %d services and choices of tags: %d are not reachable through the %s",
			maxBorderChains, b.left, b.origin)
	}
	if len(b.listener.Chains) > 0 {
		b.d.Listeners = append(b.d.Listeners, b.listener)
	}
	for _, c := range b.d.Clusters {
		c.Origin = b.origin
	}
	slices.SortFunc(b.d.Ready[draft.RankEndpoint], func(a, b *draft.Resource) int {
		return strings.Compare(a.Name, b.Name)
	})
	s := draft.NewSealer(b.memo.sealed())
	s.Add(b.d)
	sealed, faults := s.Finish()
	for _, f := range faults {
		b.warn(b.in.Resource.Key, "%v", f)
	}
	b.p.Sealed = sealed
	return b.p
}

// digest is a hash over texts, numbers and hashes, each told from the next.
type digest struct {
	hash.Hash
	b []byte // not yet in the hash
}

func newDigest() *digest { return &digest{Hash: sha256.New(), b: make([]byte, 0, 1024)} }

func newZoneDigest(in *ZoneInput) *digest {
	d := newDigest()
	d.bytes(in.Resource.Digest[:])
	d.add(in.Resource.Name, in.Zone)
	return d
}

func (d *digest) bytes(b []byte) { d.b = append(binary.AppendUvarint(d.b, uint64(len(b))), b...) }

func (d *digest) flags(list ...bool) {
	for _, is := range list {
		d.b = append(d.b, 0)
		if is {
			d.b[len(d.b)-1] = 1
		}
	}
}

func (d *digest) add(list ...string) {
	for _, s := range list {
		d.text(s)
	}
	if len(d.b) > 4096 {
		d.Write(d.b)
		d.b = d.b[:0]
	}
}

func (d *digest) text(s string) { d.b = append(binary.AppendUvarint(d.b, uint64(len(s))), s...) }

func (d *digest) number(n int) { d.b = binary.AppendUvarint(d.b, uint64(n)) }

func (d *digest) sum() [sha256.Size]byte {
	d.Write(d.b)
	return [sha256.Size]byte(d.Sum(nil))
}

// tooManyChoices tells that not all choices of tags of a mesh were found.
const tooManyChoices = "the outbounds and routes of mesh %q choose among endpoints by too many combinations of " +
	"tags: those from %s on are not reachable through this proxy; use fewer"

// reuseZone returns p with the present secrets, p itself when they are the same; nil when something
// else has changed.
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
	next, state := *p, *p.border
	state.secrets = now
	next.border = &state
	if list, version := draft.Order(list); version != p.Sealed.Versions[draft.RankSecret] {
		next.Sealed = p.Sealed.With(draft.RankSecret, list, version)
	}
	return &next, nil
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
