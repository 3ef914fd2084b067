// Package generate makes the config of a proxy: a view of the mesh, its policies and a proxy in, a
// sealed config out.
//
// It is pure: the same input gives the same bytes on every node. What a [Memo] or an earlier result
// saves is work, never a difference.
package generate

import (
	"fmt"
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/identity"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Mesh is one mesh as the configs of its proxies are made from it.
type Mesh struct {
	View     *mesh.View
	Policies *policy.Index // of the same view; nil: none

	set     *resource.Set
	options policy.Options
	only    *[]mesh.Outbound // instead of what a dataplane reaches; nil: that
}

// NewMesh derives a mesh from a set of resources. Parts of prev, which may be nil, whose inputs did
// not change are used again. It fails when the set has no mesh of that name.
func NewMesh(set *resource.Set, name string, o mesh.Options, plugins []policy.Plugin, p policy.Options,
	prev *Mesh) (*Mesh, error) {
	var last *mesh.View
	if prev != nil {
		last = prev.View
	}
	o.VIPs.Domains = domains(set, name, plugins)
	v, err := mesh.Build(set, name, o, last)
	if err != nil {
		return nil, err
	}
	again := p
	if prev != nil {
		again.Prev = prev.Policies
	}
	return &Mesh{View: v, Policies: policy.NewIndex(plugins, set, v, again), set: set, options: p}, nil
}

// domains are the names outside of a mesh that its policies give virtual addresses, also shadow
// policies: an address stays when they act.
func domains(set *resource.Set, mesh string, plugins []policy.Plugin) (out []string) {
	for i := range plugins {
		if plugins[i].Domains == nil {
			continue
		}
		for _, d := range plugins[i].Kinds {
			for _, r := range set.InMesh(d.Kind, mesh) {
				out = append(out, plugins[i].Domains(r)...)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Shadow returns the mesh in which the policies that are labelled kuma.io/effect: shadow act like
// the others. It is m where there are none.
func (m *Mesh) Shadow() *Mesh {
	if m.Policies == nil || m.options.Shadow || !m.Policies.HasShadow {
		return m
	}
	out := *m
	out.options.Shadow = true
	out.Policies = policy.NewIndex(m.Policies.Plugins, m.set, m.View, out.options)
	return &out
}

// outbounds are what a dataplane may reach.
func (m *Mesh) outbounds(r *resource.Resource) ([]mesh.Outbound, []mesh.Warning) {
	var list []mesh.Outbound
	var warnings []mesh.Warning
	switch {
	case m.only != nil:
		list = slices.Clone(*m.only)
	case m.Policies == nil:
		return m.View.Outbounds(r)
	default:
		list, warnings = m.Policies.Outbounds(r)
	}
	permits := m.permits(r)
	for i := range list {
		list[i] = permits.restrict(list[i])
	}
	return list, warnings
}

// reach is a hash over what decides, beside the services, what a dataplane may reach.
func (m *Mesh) reach(r *resource.Resource) [32]byte {
	if m.Policies == nil {
		return [32]byte{}
	}
	return m.Policies.ReachDigest(r)
}

// Input is what the config of one proxy is made from.
type Input struct {
	*Mesh
	Name   string // of the dataplane
	Flavor node.Flavor
	// Build is what the Envoy says of itself; nil where that is not known. Then the config is one that
	// all versions take.
	Build *finding.Build
	// Secrets are what the proxy of a mesh with mTLS proves itself with. Equal pointers mean equal
	// secrets. With nil, placeholders stand for them: such a config is to be looked at, and no Envoy
	// accepts it.
	Secrets *identity.Secrets
	// Also is another config of the same proxy, made elsewhere with other things in mind, which may
	// save as much as an earlier one; nil: there is none.
	Also *Proxy
	// Inline leaves routes in their listeners, which is the form that plugins and patches edit. No
	// Envoy is served it.
	Inline bool
}

// Proxy is the generated config of one proxy.
type Proxy struct {
	Mesh   string // "" at the border of a zone
	Name   string
	Flavor node.Flavor
	Sealed *draft.Sealed
	// Build is what the Envoy says of itself; nil where that is not known.
	Build *finding.Build
	// Host is what is known of its process and its host, for the check; nil for nothing.
	Host *finding.Host
	// Warnings are about parts of the dataplane or the mesh that are not served as written.
	Warnings []mesh.Warning

	dataplane *resource.Resource
	mesh      *resource.Mesh
	zone      string
	upgrades  bool // between proxies of the mesh
	catalog   [32]byte
	outbounds []mesh.Outbound
	refs      []*endpointRef  // the EDS resources, in the order of their names; immutable
	fixed     []mesh.Instance // those that have listeners of their own
	backends  []backend       // what routes lead to beside the outbounds
	policies  [32]byte        // fingerprint of the policies that were matched
	reach     [32]byte        // hash of what else decides about the outbounds
	secrets   *identity.Secrets
	versions  []finding.Version // of Envoy, from which on something is written otherwise
	notes     []mesh.Warning    // of the generator; Warnings has those about the outbounds too
	parts     []*part           // of the outbounds
	border    *zoneState        // of a proxy at the border of a zone, which has none of the above
}

// NotFoundError says that a mesh has no dataplane of a name.
type NotFoundError struct{ Mesh, Name string }

// Error names the dataplane and the remedy.
func (e *NotFoundError) Error() string {
	return fmt.Sprintf("mesh %q has no dataplane %q: apply a Dataplane of that name, "+
		"or start its Envoy with the Dataplane in its node metadata", e.Mesh, e.Name)
}

// Generate makes the config of one dataplane. It is pure but for memo, which only saves work and
// memory: nil is allowed and gives the same bytes.
//
// prev is the result of an earlier call for the same dataplane, or nil. Where nothing that it
// depends on has changed its parts are used again; when nothing at all has changed, the returned
// Sealed is the same pointer.
//
// It fails with a NotFoundError when the view has no such dataplane, and when the dataplane cannot
// be served at all. A part that cannot be served is left out and named in Warnings.
func Generate(in Input, prev *Proxy, memo *Memo) (*Proxy, error) {
	v, name, f := in.View, in.Name, in.Flavor
	r := v.Dataplane(name)
	if r == nil {
		return nil, &NotFoundError{Mesh: v.Name, Name: name}
	}
	dp, ok := r.Spec.(*resource.Dataplane)
	if !ok {
		return nil, fmt.Errorf("%s: unexpected spec %T", r.Key, r.Spec)
	}
	switch b := v.Spec.MTLSEnabled(); {
	case b == nil:
		in.Secrets = nil
	case f == node.FlavorGRPC:
		// Plain text where the mesh asks for mutual TLS would be worse than no config.
		return nil, fmt.Errorf("mesh %q enables mTLS (backend %q), for which a gRPC client takes no certificates from "+
			"this agent: put an Envoy beside the client, or move its Dataplane to a mesh without mTLS", v.Name, b.Name)
	case in.Secrets == nil:
		in.Secrets = identity.Placeholder()
	}
	// A gRPC client that is its own proxy has no filter chains for policies to act on.
	var match *policy.Match
	var fingerprint [32]byte
	if in.Policies != nil && f != node.FlavorGRPC {
		match = in.Policies.Match(r)
		fingerprint = match.Fingerprint
	}
	for _, p := range [...]*Proxy{prev, in.Also} {
		if p == nil || p.Flavor != f || p.dataplane.Key != r.Key || p.dataplane.Digest != r.Digest ||
			p.policies != fingerprint || !p.fitsBuild(in.Build) {
			continue
		}
		if next := p.reuse(in.Mesh, r, dp, memo); next != nil {
			if next.Build != in.Build {
				again := *next
				again.Build, next = in.Build, &again
			}
			return next.withSecrets(in.Secrets, memo)
		}
	}
	tls, err := newMeshTLS(v)
	if err != nil {
		return nil, err
	}
	g := &generator{mesh: in.Mesh, v: v, r: r, dp: dp, flavor: f, memo: memo, d: &draft.Draft{},
		sealer: draft.NewSealer(memo.sealed()), clusters: make(map[string]bool, len(dp.Networking.Outbound)), p: &Proxy{
			Mesh: v.Name, Name: name, Flavor: f, Build: in.Build, dataplane: r, mesh: v.Spec, upgrades: v.WebSockets,
			zone: v.Zone, catalog: v.Catalog, policies: fingerprint, reach: in.reach(r), secrets: in.Secrets,
		}, tls: tls, permits: in.Mesh.permits(r)}
	g.sealer.Inline = in.Inline
	if prev != nil {
		g.sealer.Like, g.before = prev.Sealed, prev
	}
	if match != nil {
		g.plugins = in.Policies.Plugins
		g.c = (&policy.Context{View: v, Rules: match.Rules(), Host: g, RunDir: in.Policies.RunDir}).Of(r, dp)
	}
	if f != node.FlavorGRPC {
		g.headers = g.tagsHeader()
	}
	g.parts = g.newPartMaker(prev, match)
	if err := g.run(); err != nil {
		return nil, err
	}
	return g.p, nil
}

// refresh returns p with the endpoints of v, in which the services have the indices that refs has.
func (p *Proxy) refresh(v *mesh.View, memo *Memo) *Proxy {
	rank := draft.RankEndpoint
	old := p.Sealed.Resources[rank]
	if r := memo.again(v, p); r != nil {
		return p.withEndpoints(r)
	}
	services := v.Services()
	var enc assignment
	var refs []*endpointRef // made when the first difference shows
	var list []*draft.Resource
	for i := range p.refs {
		ref, now := p.refs[i], p.refs[i].set
		switch {
		case ref.index == atEgress:
			now = v.Egresses()
		case ref.index >= 0:
			now = services[ref.index].Endpoints
		}
		if now == ref.set {
			continue
		}
		if list == nil {
			refs, list = slices.Clone(p.refs), slices.Clone(old)
		}
		again := *ref
		again.set, refs[i] = now, &again
		if again.at >= 0 {
			list[again.at] = memo.endpoints(&enc, &again, p.Flavor)
		}
	}
	if list == nil {
		return p
	}
	r := &refreshed{view: v, flavor: p.Flavor, ofRefs: p.refs, refs: refs, of: old, list: list}
	if slices.EqualFunc(list, old, func(a, b *draft.Resource) bool { return a == b || a.Version == b.Version }) {
		r.list = old
	} else {
		r.version = draft.VersionOf(list)
	}
	if memo != nil {
		memo.alike.refreshed = *r
	}
	return p.withEndpoints(r)
}

// withEndpoints returns p with the endpoints that its own have become.
func (p *Proxy) withEndpoints(r *refreshed) *Proxy {
	next := *p
	if next.refs = r.refs; !draft.SameList(r.list, r.of) {
		next.Sealed = p.Sealed.With(draft.RankEndpoint, r.list, r.version)
	}
	return &next
}

// generator builds one draft.
type generator struct {
	mesh     *Mesh
	v        *mesh.View
	r        *resource.Resource
	dp       *resource.Dataplane
	flavor   node.Flavor
	memo     *Memo
	d        *draft.Draft // the part that is being made
	sealer   *draft.Sealer
	p        *Proxy
	clusters map[string]bool        // names taken
	locals   map[uint32]localTarget // behind localhost:PORT
	headers  *draft.Headers         // of requests: x-kuma-tags; nil: it cannot carry the tags
	tls      *meshTLS               // nil: the mesh has none

	plugins []policy.Plugin
	c       *policy.Context // nil: no policies act
	claimed map[string]bool // what plugins have added by themselves

	refs    []endpointRef // the EDS resources
	permits *permits
	before  *Proxy     // the config that it had; nil: none is known
	parts   *partMaker // nil: nothing of the config is made of parts

	localities map[string]*policy.Localities // by cluster, where plugins have said some, or none
	localFirst *policy.Localities            // the zone of the proxy, then the others
}

func (g *generator) warnf(format string, args ...any) {
	g.p.notes = append(g.p.notes, mesh.Warning{Resource: g.r.Key, Reason: fmt.Sprintf(format, args...)})
	if g.parts != nil {
		g.parts.faulty = true
	}
}

func (g *generator) run() error {
	outbounds, warnings := g.reachable()
	g.p.outbounds = outbounds
	if g.flavor == node.FlavorGRPC {
		g.apiListeners(outbounds)
	} else {
		g.inbounds()
		g.outbounds(outbounds)
		g.transparent()
		g.directAccess()
	}
	if err := g.seal(); err != nil {
		return err
	}
	if g.c != nil {
		g.p.notes = append(g.p.notes, g.c.Rules.Warnings...)
	}
	g.p.Warnings = slices.Concat(warnings, g.p.notes)
	return nil
}

// seal packs the draft and adds the endpoints, which proxies share, and the secrets, when something
// refers to them.
func (g *generator) seal() error {
	if g.c != nil {
		g.c.Last = true
	}
	g.apply()
	eps := g.endpoints()
	g.d.Ready[draft.RankEndpoint] = eps
	if g.tls != nil && g.tls.used {
		var err error
		if g.d.Ready[draft.RankSecret], err = secretResources(g.v.Name, g.p.secrets, g.memo); err != nil {
			return err
		}
	}
	g.sealer.Add(g.d)
	sealed, faults := g.sealer.Finish()
	for _, f := range faults {
		g.warnf("%v", f)
	}
	g.p.Sealed = sealed
	g.place(eps)
	return nil
}

// flush lets the policies act on the part that was made, seals it and begins another one in its
// place.
func (g *generator) flush() {
	g.apply()
	g.sealer.Add(g.d)
	*g.d = draft.Draft{Listeners: g.d.Listeners[:0], Clusters: g.d.Clusters[:0]}
}

// has reports whether a cluster name is taken.
func (g *generator) has(name string) bool {
	is := g.clusters[name]
	g.parts.cluster(name, is)
	return is
}

// claim takes a cluster name; false when it is taken.
func (g *generator) claim(name string) bool {
	if g.has(name) {
		return false
	}
	g.clusters[name] = true
	return true
}
