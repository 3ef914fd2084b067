// Package generate computes the config of a proxy from a view of the mesh, its policies, and the
// proxy.
//
// It is pure: the same input gives the same bytes on every node. A [Memo] or a previous result
// saves work and never changes the result.
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

// Mesh holds the inputs of a mesh for the configs of its proxies.
type Mesh struct {
	View     *mesh.View
	Policies *policy.Index // of the same view; nil if there are none

	set     *resource.Set
	options policy.Options
	only    *[]mesh.Outbound // replaces the dataplane's reachable outbounds; nil: not set
}

// NewMesh derives a mesh from a set of resources. It reuses unchanged parts of prev, which may be
// nil. It fails if the set has no mesh of that name.
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
	options := p
	if prev != nil {
		options.Prev = prev.Policies
	}
	return &Mesh{View: v, Policies: policy.NewIndex(plugins, set, v, options), set: set, options: p}, nil
}

// domains returns the external names to which policies of a mesh assign virtual addresses. It
// includes shadow policies, so that an address stays when they take effect.
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

// Shadow returns the mesh with its shadow policies (label kuma.io/effect: shadow) in effect, or m
// itself if there are none.
func (m *Mesh) Shadow() *Mesh {
	if m.Policies == nil || m.options.Shadow || !m.Policies.HasShadow {
		return m
	}
	out := *m
	out.options.Shadow = true
	out.Policies = policy.NewIndex(m.Policies.Plugins, m.set, m.View, out.options)
	return &out
}

// outbounds returns the destinations that a dataplane may reach.
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

// reach returns a hash of the inputs, other than services, that decide what a dataplane may reach.
func (m *Mesh) reach(r *resource.Resource) [32]byte {
	if m.Policies == nil {
		return [32]byte{}
	}
	return m.Policies.ReachDigest(r)
}

// Input holds the inputs of one proxy's config.
type Input struct {
	*Mesh
	Name   string // of the dataplane
	Flavor node.Flavor
	// Build is what the Envoy reports about itself. If it is nil, the config suits all supported
	// versions.
	Build *finding.Build
	// Secrets are the certificates and keys of the proxy in a mesh with mTLS. Equal pointers mean
	// equal secrets. If Secrets is nil, the config has placeholders: it is for display, and no
	// Envoy accepts it.
	Secrets *identity.Secrets
	// Also is another config of the same proxy, computed elsewhere, that may be reused like prev;
	// nil if there is none.
	Also *Proxy
	// Inline leaves routes in their listeners, the form that plugins and patches edit. It is never
	// served to an Envoy.
	Inline bool
}

// Proxy is the generated config of one proxy.
type Proxy struct {
	Mesh   string // "" for a zone proxy
	Name   string
	Flavor node.Flavor
	Sealed *draft.Sealed
	// Build is what the Envoy reports about itself, or nil.
	Build *finding.Build
	// Host is the known state of the Envoy's process and host for the check, or nil.
	Host *finding.Host
	// Warnings lists parts of the dataplane or the mesh that are not served as specified.
	Warnings []mesh.Warning

	frame     [32]byte // hash of all inputs but services
	catalog   [32]byte
	reach     [32]byte    // hash of the inputs that decide reachability, but services
	keys      []batchKeys // of the outbounds
	batches   []*batch    // of the outbounds
	endpoints *endpoints
	added     []*draft.Resource // endpoints that policies added
	secrets   *identity.Secrets
	notes     []mesh.Warning // of the generator; Warnings also has those about outbounds
	border    *zoneState     // of a zone proxy, which has none of the above
}

// Secrets returns the certificates and keys in the config, or nil if the mesh has no mTLS or the
// config has placeholders.
func (p *Proxy) Secrets() *identity.Secrets {
	if p.secrets == identity.Placeholder() {
		return nil
	}
	return p.secrets
}

// NotFoundError reports that a mesh has no dataplane with the given name.
type NotFoundError struct{ Mesh, Name string }

// Error returns the name of the dataplane and how to fix the error.
func (e *NotFoundError) Error() string {
	return fmt.Sprintf("mesh %q has no dataplane %q: apply a Dataplane of that name, "+
		"or start its Envoy with the Dataplane in its node metadata", e.Mesh, e.Name)
}

// Generate computes the config of one dataplane. It is pure: memo only saves work and memory, and
// may be nil.
//
// prev is the result of an earlier call for the same dataplane, or nil. Generate reuses its
// unchanged parts. If nothing changed, the result has the same Sealed pointer.
//
// Generate fails with a NotFoundError if the view has no such dataplane, and if the dataplane
// cannot be served at all. If only a part cannot be served, Generate omits it and reports it in
// Warnings.
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
		// Plain text would be worse than no config if the mesh requires mutual TLS.
		return nil, fmt.Errorf("mesh %q enables mTLS (backend %q), for which a gRPC client takes no certificates from "+
			"this agent: put an Envoy beside the client, or move its Dataplane to a mesh without mTLS", v.Name, b.Name)
	case in.Secrets == nil:
		in.Secrets = identity.Placeholder()
	}
	g := &generator{mesh: in.Mesh, v: v, r: r, dp: dp, flavor: f, memo: memo, permits: in.Mesh.permits(r),
		fixed: directServices(v, r, dp),
		p: &Proxy{Mesh: v.Name, Name: name, Flavor: f, Build: in.Build, catalog: v.Catalog, reach: in.reach(r),
			secrets: in.Secrets}}
	// A proxyless gRPC client has no filter chains for policies to change.
	var match *policy.Match
	if in.Policies != nil && f != node.FlavorGRPC {
		match = memo.Match(in.Policies, r)
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

// reuse returns p with the view's endpoints if no other input of the proxy changed, or nil if the
// config must be generated.
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

// begin prepares the generation of a config.
func (g *generator) begin(in *Input, prev *Proxy, match *policy.Match) (err error) {
	if g.tls, err = newMeshTLS(g.v); err != nil {
		return err
	}
	g.outline(in, match)
	g.p.keys = g.keys
	g.d, g.sealer, g.clusters = &draft.Draft{}, draft.NewSealer(g.memo.sealed()), make(map[string]bool, firstBatch)
	g.sealer.Inline = in.Inline
	if prev != nil {
		g.sealer.Previous = prev.Sealed
		g.memo.addBatches(prev.batches...)
	}
	g.batches = &batchMaker{g: g}
	if match != nil {
		g.plugins = in.Policies.Plugins
		g.c = (&policy.Context{View: g.v, Rules: match.Rules(), Host: g, Paths: in.Policies.Paths}).WithDataplane(g.r, g.dp)
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
	d        *draft.Draft // of the current batch
	sealer   *draft.Sealer
	p        *Proxy
	clusters map[string]bool        // used names
	locals   map[uint32]localTarget // behind localhost:PORT
	localOf  map[int]string         // clusters of workloads by inbound
	headers  *draft.Headers         // the request header x-kuma-tags; nil if it cannot hold the tags
	tls      *meshTLS               // nil if the mesh has no mTLS
	// serverFirst holds the ports of inbounds whose servers send the first bytes.
	serverFirst []uint32

	outlined       bool
	reachable      []mesh.Outbound
	warnings       []mesh.Warning // about reachable services
	keys           []batchKeys
	fixedAddresses bool            // the shapes of batches cover the addresses
	fixed          []mesh.Instance // instances with their own listeners

	plugins []policy.Plugin
	c       *policy.Context // nil: no policies apply
	claimed map[string]bool // names that plugins have claimed

	refs    []endpointRef // EDS resources of the current batch
	lists   []*refList    // EDS resources of all batches
	permits *permits
	batches *batchMaker

	localities map[string]*policy.Localities // by cluster; set by plugins
	localFirst *policy.Localities            // the proxy's zone, then the others
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

// seal seals the draft, and adds the endpoints, and the secrets if something refers to them.
func (g *generator) seal(prev *Proxy) error {
	if g.c != nil {
		g.c.Last = true
	}
	g.apply()
	g.warnSelfForward()
	g.warnServerFirst()
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

// flush applies the policies to the current batch, seals it, and begins the next one.
func (g *generator) flush() {
	g.apply()
	g.sealer.Add(g.d)
	*g.d = draft.Draft{Listeners: g.d.Listeners[:0], Clusters: g.d.Clusters[:0]}
}

// claim reserves a cluster name. It returns false if the current batch already has it.
func (g *generator) claim(name string) bool {
	if g.clusters[name] {
		return false
	}
	g.clusters[name] = true
	return true
}
