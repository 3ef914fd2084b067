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

// Outside is what policies say about a destination outside of the mesh, which is an ExternalService
// or a MeshExternalService: who may use it, and what they do to those who do. It is immutable.
type Outside struct {
	View *mesh.View
	Kind string // of the destination: ExternalService or MeshExternalService
	// Rules are about the destination as if it were inbound 0 of a dataplane with its tags.
	Rules *Rules

	plugins []Plugin
	rules   []*rbacv3.RBAC // all of which must admit a client
}

// outside holds what policies say of destinations outside of the mesh.
type outside struct {
	digest   [32]byte
	catalog  [32]byte // of the services
	policies []*resource.Resource
	from     []*resource.Resource // the destinations, in the order in which they were read
	of       map[resource.Key]*Outside
}

// Outside returns what is said of the destination that an ExternalService or MeshExternalService
// is; nil where nothing restricts it: the mesh has no mutual TLS, or no kind that guards.
func (x *Index) Outside(k resource.Key) *Outside {
	if x == nil || x.outside == nil {
		return nil
	}
	return x.outside.of[k]
}

// OutsideDigest is a hash over what is said of all destinations outside of the mesh; zero where
// nothing restricts any.
func (x *Index) OutsideDigest() [32]byte {
	if x == nil || x.outside == nil {
		return [32]byte{}
	}
	return x.outside.digest
}

// Guard puts what decides about a destination in front of a chain that leads there.
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

// AtEgress edits a chain of an egress by what legacy policies say of the destinations that it leads
// to, none of which is nil.
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

// Admits reports whether a client with these names in its certificate may use the destination.
func (o *Outside) Admits(names []string) bool {
	if o == nil {
		return true
	}
	peer := &match.Peer{URIs: names}
	return !slices.ContainsFunc(o.rules, func(r *rbacv3.RBAC) bool {
		return !match.EvaluateRBAC(r, &match.Seen{}, peer, true, nil).Allowed
	})
}

// newOutside is nil when the mesh has no mutual TLS, without which no client is known, or no kind
// that guards. What prev, which may be nil, says of the same is used again.
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

// read finds out what is said of each destination. Those with the same tags share it.
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

// warnClosed tells of ExternalServices that no policy is about, so that nobody may use them.
func (o *outside) warnClosed(x *Index) {
	for _, r := range o.from {
		d := o.of[r.Key]
		if d.Kind != "ExternalService" || d.decided() {
			continue
		}
		x.Warnings = append(x.Warnings, mesh.Warning{Resource: r.Key,
			Reason: "the mesh has mTLS and no permission is about this service: no proxy has an endpoint of it; " +
				"apply one whose targetRef is the MeshService of its kuma.io/service"})
	}
}

// decided reports whether some policy says who may use the destination.
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

// guards are the rules of the filters that guard a chain to the destination.
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

// matchOutside selects the policies of some kinds that are about a destination with these tags.
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

// OwnAddresses are where a name outside of the mesh must not lead a proxy, whoever owns it: this
// host, its link, groups, and what is reserved, where virtual addresses come from.
func OwnAddresses() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"),
		netip.MustParsePrefix("224.0.0.0/3"), netip.MustParsePrefix("::/127"), netip.MustParsePrefix("::ffff:0:0/96"),
		netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("ff00::/8"),
		netip.MustParsePrefix("fd00:ec2::/32"), // the metadata service of AWS, which is in a private network
		netip.MustParsePrefix("fd00:fd00::/29"),
	}
}
