package policy

import (
	"crypto/sha256"
	"net/netip"
	"slices"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/match"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Outside holds the policies of a destination outside the mesh, an ExternalService or a
// MeshExternalService: who may use it, and their effect on its clients. It is immutable.
type Outside struct {
	View *mesh.View
	Kind string // of the destination: ExternalService or MeshExternalService
	// Rules treat the destination as inbound 0 of a dataplane with its tags.
	Rules *Rules

	plugins []Plugin
	rules   []*rbacv3.RBAC // all of them must admit a client
}

// outside holds the policies of all destinations outside the mesh.
type outside struct {
	digest   [32]byte
	catalog  [32]byte // of the services
	policies []*resource.Resource
	from     []*resource.Resource // the destinations, in the order of the resource set
	of       map[resource.Key]*Outside
}

// Outside returns the policies of an ExternalService or MeshExternalService. It returns nil if
// nothing restricts it: the mesh has no mTLS, or no kind guards destinations.
func (x *Index) Outside(k resource.Key) *Outside {
	if x == nil || x.outside == nil {
		return nil
	}
	return x.outside.of[k]
}

// OutsideDigest is a hash of the policies of all destinations outside the mesh; zero if nothing
// restricts any.
func (x *Index) OutsideDigest() [32]byte {
	if x == nil || x.outside == nil {
		return [32]byte{}
	}
	return x.outside.digest
}

// Guard prepends a destination's RBAC filters to a filter chain.
func (o *Outside) Guard(l *draft.Listener, ch *draft.Chain) {
	if o == nil {
		return
	}
	for i := range o.plugins {
		if f := o.plugins[i].Guard; f != nil {
			f(o, l, ch)
		}
	}
}

// AtEgress applies the legacy policies of destinations to an egress's filter chain that leads to
// them. No element of to may be nil.
func (x *Index) AtEgress(to []*Outside, ch *draft.Chain, warn Warn) {
	if x == nil || len(to) == 0 {
		return
	}
	for i := range x.Plugins {
		for j := range x.Plugins[i].Legacy {
			if f := x.Plugins[i].Legacy[j].Egress; f != nil {
				f(to, ch, warn)
			}
		}
	}
}

// Admits reports whether a client with these SPIFFE IDs may use the destination.
func (o *Outside) Admits(names []string) bool {
	if o == nil {
		return true
	}
	peer := &match.Peer{URIs: names}
	return !slices.ContainsFunc(o.rules, func(r *rbacv3.RBAC) bool {
		return !match.EvaluateRBAC(r, &match.Seen{}, peer, true, nil).Allowed
	})
}

// newOutside returns nil if the mesh has no mTLS, without which clients are unknown, or if no kind
// guards destinations. It returns prev, which may be nil, if nothing changed.
func (x *Index) newOutside(set *resource.Set, prev *outside) *outside {
	if x.View.Spec.MTLSEnabled() == nil {
		return nil
	}
	kinds, guarded := map[string]bool{}, false
	for i := range x.Plugins {
		guards := x.Plugins[i].Guard != nil
		guarded = guarded || guards
		for _, d := range x.Plugins[i].Kinds {
			kinds[d.Kind] = guards
		}
		for _, l := range x.Plugins[i].Legacy {
			kinds[l.Kind] = guards || l.Egress != nil
		}
	}
	if !guarded {
		return nil
	}
	out := &outside{catalog: x.View.Catalog, of: map[resource.Key]*Outside{}}
	for i := range x.kinds {
		if kinds[x.kinds[i].kind] {
			out.policies = append(out.policies, x.kinds[i].policies...)
		}
	}
	for i := range x.legacy {
		if kinds[x.legacy[i].kind] {
			out.policies = append(out.policies, x.legacy[i].policies...)
		}
	}
	out.from = slices.Concat(set.InMesh("ExternalService", x.View.Name),
		set.InMesh(mesh.KindMeshExternalService, x.View.Name))
	if prev != nil && prev.catalog == out.catalog && slices.Equal(prev.policies, out.policies) &&
		slices.Equal(prev.from, out.from) {
		return prev
	}
	out.read(x, kinds)
	return out
}

// read computes the policies of each destination. Destinations with the same tags share them.
func (o *outside) read(x *Index, kinds map[string]bool) {
	h := sha256.New()
	if x.View.ForbidsMeshExternalServices() {
		h.Write([]byte{1})
	}
	byTags := map[string]*Outside{}
	prints := map[*Outside][32]byte{}
	for _, r := range o.from {
		var tags map[string]string
		if spec, ok := r.Spec.(*resource.ExternalService); ok {
			tags = spec.Tags
		}
		key := r.Kind + mesh.TagString(lists(tags))
		d := byTags[key]
		if d == nil {
			m := x.matchOutside(tags, kinds)
			d = &Outside{View: x.View, Kind: r.Kind, Rules: m.Rules(), plugins: x.Plugins}
			d.rules = d.guards()
			byTags[key], prints[d] = d, m.Fingerprint
		}
		o.of[r.Key] = d
		print := prints[d]
		h.Write([]byte(r.Kind + "\x00" + r.Name + "\x00"))
		h.Write(print[:])
	}
	h.Sum(o.digest[:0])
}

// warnClosed warns about ExternalServices that no proxy can use because no policy permits it.
func (o *outside) warnClosed(x *Index) {
	for _, r := range o.from {
		d := o.of[r.Key]
		if d.Kind != "ExternalService" || d.decided() {
			continue
		}
		x.Warnings = append(x.Warnings, mesh.Warning{Resource: r.Key,
			Reason: "no proxy has an endpoint of this service, because the mesh has mTLS and no permission selects it; " +
				"apply a permission whose targetRef is the MeshService of its kuma.io/service"})
	}
}

// decided reports whether some policy states who may use the destination.
func (o *Outside) decided() bool {
	for i := range o.plugins {
		if o.plugins[i].Guard == nil {
			continue
		}
		for _, d := range o.plugins[i].Kinds {
			if o.Rules.Kind(d.Kind).Inbound(0) != nil {
				return true
			}
		}
		for _, l := range o.plugins[i].Legacy {
			if len(o.Rules.LegacyInbound(l.Kind, 0)) > 0 {
				return true
			}
		}
	}
	return false
}

func lists(tags map[string]string) map[string][]string {
	out := make(map[string][]string, len(tags))
	for k, v := range tags {
		out[k] = []string{v}
	}
	return out
}

// guards returns the RBAC rules of the filters that guard a chain to the destination.
func (o *Outside) guards() []*rbacv3.RBAC {
	ch := &draft.Chain{TLS: true}
	o.Guard(&draft.Listener{}, ch)
	var out []*rbacv3.RBAC
	for _, f := range ch.Network {
		if m, ok := f.Message.(interface{ GetRules() *rbacv3.RBAC }); ok {
			out = append(out, m.GetRules())
		}
	}
	return out
}

// matchOutside selects the policies of some kinds for a destination with these tags.
func (x *Index) matchOutside(tags map[string]string, kinds map[string]bool) *Match {
	r := &resource.Resource{Key: resource.Key{Kind: "Dataplane", Mesh: x.View.Name}, Spec: &resource.Dataplane{
		Networking: resource.Networking{Inbound: []resource.Inbound{{Tags: tags}}},
	}}
	s := x.selector(r)
	s.outside, s.tags = true, []map[string]string{tags, nil}
	if tags == nil {
		s.tags[0] = map[string]string{}
	}
	return x.match(s, func(kind string) bool { return kinds[kind] })
}

// OwnAddresses returns the prefixes to which a name outside the mesh must not lead a proxy: this
// host, its link, multicast, and reserved prefixes that include virtual addresses.
func OwnAddresses() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"),
		netip.MustParsePrefix("224.0.0.0/3"), netip.MustParsePrefix("::/127"), netip.MustParsePrefix("::ffff:0:0/96"),
		netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("ff00::/8"),
		netip.MustParsePrefix("fd00:ec2::/32"), // the AWS metadata service, which is in a private network
		netip.MustParsePrefix("fd00:fd00::/29"),
	}
}
