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
	"github.com/nearside-mesh/nearside/agent/model/servername"
)

// ZoneInput holds the inputs of a zone proxy's config.
type ZoneInput struct {
	Resource *resource.Resource // a ZoneEgress or ZoneIngress
	Zone     string             // of this node
	Meshes   []*Mesh            // all meshes, sorted by name
	Flavor   node.Flavor
	// Secrets are the certificates and keys of the proxy in each mesh with mTLS, by mesh name. Equal
	// pointers mean equal secrets. A missing entry becomes a placeholder: the config is for display,
	// and no Envoy accepts it.
	Secrets map[string]*identity.Secrets
	// SystemCA is the file with the system's CA certificates on the proxy's host, or "".
	SystemCA string
}

// zoneState decides whether the config of a zone proxy can be reused.
type zoneState struct {
	fingerprint [sha256.Size]byte // hash of all inputs but the secrets
	meshes      []string          // meshes with secrets in the config
	secrets     []*identity.Secrets
}

// InZone reports whether a zone proxy belongs to a zone.
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

// secretsFor returns the secrets of meshes, with placeholders for missing ones.
func (in *ZoneInput) secretsFor(meshes []string) []*identity.Secrets {
	out := make([]*identity.Secrets, len(meshes))
	for i, m := range meshes {
		if out[i] = in.Secrets[m]; out[i] == nil {
			out[i] = identity.Placeholder()
		}
	}
	return out
}

// GenerateZone computes the config of a zone proxy. Like [Generate], it is pure, and it returns
// prev itself if nothing changed.
//
// It fails if the proxy cannot be served at all. If only a part cannot be served, it omits the part
// and reports it in Warnings with the part's resource.
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

// Origins by which patches select the resources of zone proxies.
const (
	originEgress  = "egress"
	originIngress = "ingress"
)

// maxBorderChains is the maximum number of filter chains of a zone proxy.
const maxBorderChains = 20_000

// border builds the config of one zone proxy: a listener with a filter chain for each destination,
// selected by the server name, and the clusters of these destinations.
type border struct {
	in       *ZoneInput
	memo     *Memo
	origin   string
	d        *draft.Draft
	p        *Proxy
	listener *draft.Listener
	names    map[string]resource.Key // used server names, in lower case
	left     int                     // destinations beyond the limit
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

// warn records a warning once.
func (b *border) warn(k resource.Key, format string, args ...any) {
	w := mesh.Warning{Resource: k, Reason: fmt.Sprintf(format, args...)}
	if len(b.p.Warnings) < maxNotes && !b.noted[w] {
		b.noted[w] = true
		b.p.Warnings = append(b.p.Warnings, w)
	}
}

// serverName returns the server name of a destination in lower case, or "", with a warning, if the
// name is too long.
func (b *border) serverName(meshName string, o *mesh.Outbound, owner resource.Key) string {
	sni := strings.ToLower(servername.Of(meshName, o))
	if sni == "" {
		b.warn(owner, "its server name, which is made of the mesh, the service and %d tags, "+
			"is longer than %d bytes: it is not reachable through the %s; give shorter names",
			len(o.Subset), servername.MaxLength, b.origin)
	}
	return sni
}

// take reserves a server name in lower case. Envoy ignores case, so some services cannot be
// distinguished.
func (b *border) take(sni string, owner resource.Key) bool {
	lost := "is left out of the " + b.origin
	if b.origin == originIngress {
		lost = "is not reachable through the " + b.origin
	}
	switch other, taken := b.names[sni]; {
	case taken:
		b.warn(owner, "its server name %q is that of %s, or differs from it in the case of letters alone, "+
			"which TLS does not distinguish: it %s; rename one", clip.Text(sni, servername.MaxLength), other, lost)
	case strings.Contains(sni, "*"):
		b.warn(owner, "its server name %q has a *, which stands for more than itself: it %s",
			clip.Text(sni, servername.MaxLength), lost)
	case len(b.names) == maxBorderChains:
		b.left++
	default:
		b.names[sni] = owner
		return true
	}
	return false
}

// seal seals the draft. It omits a listener without chains, which Envoy would reject.
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
	for _, m := range b.in.Meshes {
		b.d.AskReal(m.View.AskedHosts)
	}
	s := draft.NewSealer(b.memo.sealed())
	s.Add(b.d)
	sealed, faults := s.Finish()
	for _, f := range faults {
		b.warn(b.in.Resource.Key, "%v", f)
	}
	b.p.Sealed = sealed
	return b.p
}

// digest hashes strings, numbers, and hashes with separators.
type digest struct {
	hash.Hash
	b []byte // not yet hashed
}

func newDigest() *digest { return &digest{Hash: sha256.New(), b: make([]byte, 0, 1024)} }

func newZoneDigest(in *ZoneInput) *digest {
	d := newDigest()
	d.bytes(in.Resource.Digest[:])
	d.add(in.Resource.Name, in.Zone)
	for _, m := range in.Meshes {
		d.add(m.View.AskedHosts...)
	}
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

// tooManyChoices reports that some tag combinations of a mesh were not found.
const tooManyChoices = "the outbounds and routes of mesh %q choose among endpoints by too many combinations of " +
	"tags: those from %s on are not reachable through this proxy; use fewer"

// reuseZone returns p with the current secrets, p itself if they are unchanged, or nil if something
// else changed.
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
