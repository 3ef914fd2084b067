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

	frame     [32]byte // hash of what decides about the config beside the services
	catalog   [32]byte
	reach     [32]byte  // hash of what decides about the outbounds beside the services
	keys      []partKey // of the outbounds
	parts     []*part   // of the outbounds
	endpoints *endpoints
	added     []*draft.Resource // endpoints that policies have added
	secrets   *identity.Secrets
	notes     []mesh.Warning // of the generator; Warnings has those about the outbounds too
	border    *zoneState     // of a proxy at the border of a zone, which has none of the above
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
	g := &generator{mesh: in.Mesh, v: v, r: r, dp: dp, flavor: f, memo: memo, permits: in.Mesh.permits(r),
		fixed: directServices(v, r, dp),
		p: &Proxy{Mesh: v.Name, Name: name, Flavor: f, Build: in.Build, catalog: v.Catalog, reach: in.reach(r),
			secrets: in.Secrets}}
	// A gRPC client that is its own proxy has no filter chains for policies to act on.
	var match *policy.Match
	if in.Policies != nil && f != node.FlavorGRPC {
		match = in.Policies.Match(r)
	}
	g.p.frame = g.frameKey(&in, match)
	for _, p := range [...]*Proxy{prev, in.Also} {
		if next := g.reuse(p, &in, match); next != nil {
			return next.withSecrets(in.Secrets, memo)
		}
	}
	if err := g.begin(&in, prev, match); err != nil {
		return nil, err
	}
	return g.p, g.run(prev)
}

// reuse returns p with the endpoints of the view where nothing else has changed that the proxy
// depends on; nil where its config has to be made.
func (g *generator) reuse(p *Proxy, in *Input, match *policy.Match) *Proxy {
	if p == nil || p.border != nil || p.frame != g.p.frame {
		return nil
	}
	next := *p
	if p.catalog != g.p.catalog || p.reach != g.p.reach {
		if g.outline(in, match); !slices.Equal(p.keys, g.keys) {
			return nil
		}
		next.catalog, next.reach, next.Warnings = g.p.catalog, g.p.reach, slices.Concat(g.warnings, p.notes)
	}
	next.Build = in.Build
	next.endpoints = g.memo.endpointsOf(p.endpoints.lists, g.v, g.flavor, p.endpoints)
	if next.endpoints == p.endpoints && next.catalog == p.catalog && next.reach == p.reach && next.Build == p.Build {
		return p
	}
	next.Sealed = withEndpoints(p.Sealed, next.endpoints, p.added)
	return &next
}

// begin prepares a config that has to be made.
func (g *generator) begin(in *Input, prev *Proxy, match *policy.Match) (err error) {
	if g.tls, err = newMeshTLS(g.v); err != nil {
		return err
	}
	g.outline(in, match)
	g.p.keys = g.keys
	g.d, g.sealer, g.clusters = &draft.Draft{}, draft.NewSealer(g.memo.sealed()), make(map[string]bool, firstPart)
	g.sealer.Inline = in.Inline
	if prev != nil {
		g.memo.keep(prev.parts...)
	}
	g.parts = &partMaker{g: g}
	if match != nil {
		g.plugins = in.Policies.Plugins
		g.c = (&policy.Context{View: g.v, Rules: match.Rules(), Host: g, RunDir: in.Policies.RunDir}).WithDataplane(g.r, g.dp)
	}
	return nil
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

	outlined  bool
	reachable []mesh.Outbound
	warnings  []mesh.Warning // about what is reachable
	keys      []partKey
	fixed     []mesh.Instance // those that have listeners of their own

	plugins []policy.Plugin
	c       *policy.Context // nil: no policies act
	claimed map[string]bool // what plugins have added by themselves

	refs    []endpointRef // the EDS resources of the present part
	lists   []*refList    // those of the parts
	permits *permits
	parts   *partMaker

	localities map[string]*policy.Localities // by cluster, where plugins have said some, or none
	localFirst *policy.Localities            // the zone of the proxy, then the others
}

func (g *generator) warnf(format string, args ...any) { g.Warn(g.r.Key, format, args...) }

func (g *generator) run(prev *Proxy) error {
	if g.flavor == node.FlavorGRPC {
		g.apiListeners()
	} else {
		g.inbounds()
		g.outbounds()
		g.transparent()
		g.directAccess()
	}
	if err := g.seal(prev); err != nil {
		return err
	}
	if g.c != nil {
		g.p.notes = append(g.p.notes, g.c.Rules.Warnings...)
	}
	g.p.Warnings = slices.Concat(g.warnings, g.p.notes)
	return nil
}

// seal packs the draft and adds the secrets, when something refers to them, and the endpoints.
func (g *generator) seal(prev *Proxy) error {
	if g.c != nil {
		g.c.Last = true
	}
	g.apply()
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
	var last *endpoints
	if prev != nil {
		last = prev.endpoints
	}
	g.p.added = sealed.Resources[draft.RankEndpoint]
	g.p.endpoints = g.memo.endpointsOf(append(g.lists, g.memo.refList(g.located())), g.v, g.flavor, last)
	g.p.Sealed = withEndpoints(sealed, g.p.endpoints, g.p.added)
	if prev != nil {
		g.p.Sealed = g.p.Sealed.Sharing(prev.Sealed)
	}
	return nil
}

// flush lets the policies act on the part that was made, seals it and begins another one in its
// place.
func (g *generator) flush() {
	g.apply()
	g.sealer.Add(g.d)
	*g.d = draft.Draft{Listeners: g.d.Listeners[:0], Clusters: g.d.Clusters[:0]}
}

// claim takes a cluster name; false when the present part has it.
func (g *generator) claim(name string) bool {
	if g.clusters[name] {
		return false
	}
	g.clusters[name] = true
	return true
}
