package effect

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Options are the inputs of an [Examiner] in addition to the mesh. The zero value is valid, but
// permits no generated config.
type Options struct {
	// Decode reads the canonical JSON of a resource. If it is nil, fields are not examined.
	Decode func([]byte) (*resource.Resource, error)
	// Memo saves work; nil for none.
	Memo *generate.Memo
	// Published returns the config that the Envoy of a proxy was given. If it is nil or returns nil,
	// the proxy is not connected, and answers are about its generated config.
	Published func(generate.ProxyID) *generate.Proxy
	// Stale says why the Envoy of a proxy keeps an older config, or returns "". Nil: it never does.
	Stale func(generate.ProxyID) string
	// Stop ends the work like the limit of trials when it returns true; nil: it never does.
	Stop func() bool
	// Trials limits the configs that the Examiner generates. Beyond it, answers are
	// [api.EffectUnknown].
	Trials int
}

// Verdict says whether a policy is in force on one proxy.
type Verdict struct {
	// Effect is one of api.Effect*. A policy that changes the config has EffectAll, whether or not
	// each of its fields does; see [Examiner.Fields]. It has EffectPart if the Envoy was given only
	// some of the changes.
	Effect string
	// Selected is true if the policy selects the proxy. Others may be affected as well, for example
	// by a permission of a service that they reach.
	Selected bool
	// By are the policies that override this one, or that set the same values.
	By []api.Ref
	// Reason says why the policy has no effect; "" if that is unknown or it has one.
	Reason string
	// Changed are the resources that leaving out the policy would change.
	Changed []draft.ResourceID
	// Held says why the Envoy was not given what the policy changes; "" if it was. The policy itself
	// may be correct.
	Held string
}

// InForce reports whether leaving out the policy would change the published config.
func (v *Verdict) InForce() bool { return v.Effect == api.EffectAll || v.Effect == api.EffectPart }

// MeshVerdict says whether a policy is in force on any proxy.
type MeshVerdict struct {
	// Verdict is about the first proxy where the policy is in force. If there is none, it is about
	// the first proxy with the strongest other effect: unknown, held, same, default, none.
	Verdict
	Dataplane string // of Verdict; "" if the policy affects no proxy
	// Selected is the number of proxies that the policy selects, up to Dataplane if it is in force
	// there.
	Selected int
}

// Examiner answers for the policies of a mesh. It caches its answers by classes of proxies that
// differ only in names and addresses. It is not safe for concurrent use.
type Examiner struct {
	mesh    *generate.Mesh
	options Options
	trials  int
	proxies map[string]*proxy // by the name of the dataplane
	classes map[classKey]*proxy
	without meshWithout // of the last policy
}

// New returns an Examiner for the policies of m.
func New(m *generate.Mesh, o Options) *Examiner {
	if o.Memo == nil {
		o.Memo = generate.NewMemo()
	}
	return &Examiner{mesh: m, options: o, proxies: map[string]*proxy{}, classes: map[classKey]*proxy{}}
}

// meshWithout is the mesh without one policy.
type meshWithout struct {
	key  resource.Key
	mesh *generate.Mesh
}

// proxy is a proxy with its config.
type proxy struct {
	dataplane *resource.Resource
	spec      *resource.Dataplane
	match     *policy.Match
	selects   map[resource.Key]bool
	config    *generate.Proxy // nil if it cannot be built
	err       error
	// published is the config that the Envoy was given; nil if that is config or nothing.
	published *generate.Proxy
	stale     string // why the Envoy keeps published
	like      *proxy // the first proxy of its class; nil if it is this one, or the published config differs
	verdicts  map[resource.Key]Verdict
}

// classKey is a hash of the inputs of a config other than names and addresses.
type classKey [sha256.Size]byte

// id returns the ID of a proxy of the mesh.
func (x *Examiner) id(dataplane string) generate.ProxyID {
	return generate.ProxyID{Mesh: x.mesh.View.Name, Name: dataplane, Flavor: node.FlavorEnvoy}
}

// proxy returns a proxy of the mesh, or nil if it has no such dataplane. Its config is not built
// yet.
func (x *Examiner) proxy(dataplane string) *proxy {
	if p, ok := x.proxies[dataplane]; ok {
		return p
	}
	d := x.mesh.View.Dataplane(dataplane)
	if d == nil {
		return nil
	}
	spec, ok := d.Spec.(*resource.Dataplane)
	if !ok {
		return nil // unreachable
	}
	p := &proxy{dataplane: d, spec: spec, match: x.mesh.Policies.Match(d), selects: map[resource.Key]bool{},
		verdicts: map[resource.Key]Verdict{}}
	for _, r := range p.match.Policies() {
		p.selects[r.Key] = true
	}
	if x.options.Published != nil {
		p.published = x.options.Published(x.id(dataplane))
	}
	if p.published != nil {
		if x.build(p); p.config != nil && len(changed(p.config, p.published)) == 0 {
			p.published = nil
		}
		if x.options.Stale != nil {
			p.stale = x.options.Stale(x.id(dataplane))
		}
	}
	if p.published == nil {
		class := x.classOf(p)
		if p.like = x.classes[class]; p.like == nil {
			x.classes[class] = p
		}
	}
	x.proxies[dataplane] = p
	return p
}

// build generates the config of a proxy.
func (x *Examiner) build(p *proxy) {
	if p.config == nil && p.err == nil {
		p.config, p.err = x.generate(x.mesh, p.dataplane.Name, p.published)
	}
}

// classOf returns the class of a proxy.
func (x *Examiner) classOf(p *proxy) (out classKey) {
	spec := *p.spec
	spec.Networking.Address, spec.Networking.AdvertisedAddress = "", ""
	text, err := json.Marshal(&spec)
	if err != nil { // impossible for a decoded resource
		text = p.dataplane.Digest[:]
	}
	h := sha256.New()
	h.Write(p.match.Fingerprint[:])
	reach := x.mesh.Policies.ReachDigest(p.dataplane)
	h.Write(reach[:])
	h.Write(text)
	h.Sum(out[:0])
	return out
}

// generate generates the config of a proxy in a mesh for the Envoy of prev, which may be nil.
func (x *Examiner) generate(m *generate.Mesh, dataplane string, prev *generate.Proxy) (*generate.Proxy, error) {
	x.trials++
	return x.id(dataplane).In(m, prev, x.options.Memo)
}

// spent reports whether the limit of trials is reached.
func (x *Examiner) spent() bool {
	return x.trials >= x.options.Trials || x.options.Stop != nil && x.options.Stop()
}

// leaveOut returns the mesh without a policy.
func (x *Examiner) leaveOut(k resource.Key) *generate.Mesh {
	if x.without.key != k {
		x.without = meshWithout{k, x.mesh.Without(k)}
	}
	return x.without.mesh
}

// changed returns the resources that differ between two configs, except secrets.
func changed(from, to *generate.Proxy) []draft.ResourceID {
	var out []draft.ResourceID
	for _, c := range generate.Difference(from, to) {
		if c.TypeURL != draft.TypeSecret {
			out = append(out, c.ResourceID)
		}
	}
	return out
}

// plugin returns the plugin of a policy kind, or nil.
func (x *Examiner) plugin(kind string) *policy.Plugin {
	for i := range x.mesh.Policies.Plugins {
		p := &x.mesh.Policies.Plugins[i]
		if slices.ContainsFunc(p.Kinds, func(d resource.Descriptor) bool { return d.Kind == kind }) ||
			slices.ContainsFunc(p.Legacy, func(l policy.LegacyKind) bool { return l.Kind == kind }) {
			return p
		}
	}
	return nil
}

// On says whether a policy is in force on the proxy of a dataplane.
func (x *Examiner) On(policy *resource.Resource, dataplane string) Verdict {
	if reason := x.inactive(policy); reason != "" {
		return Verdict{Effect: api.EffectNone, Reason: reason}
	}
	p := x.proxy(dataplane)
	if p == nil {
		return Verdict{Effect: api.EffectNone, Reason: fmt.Sprintf("the mesh has no dataplane %q", dataplane)}
	}
	if x.unaffected(policy, p) {
		return Verdict{Effect: api.EffectNone}
	}
	if p.like != nil && !x.namesMatter(policy) {
		p = p.like
	}
	v, ok := p.verdicts[policy.Key]
	if !ok {
		if x.spent() {
			return Verdict{Effect: api.EffectUnknown, Selected: p.selects[policy.Key]}
		}
		x.build(p)
		v = x.examine(policy, p)
		v.Selected = p.selects[policy.Key]
		p.verdicts[policy.Key] = v
	}
	return v
}

// namesMatter reports whether the effect of a policy may depend on the names and addresses of the
// proxy, so that it may differ within a class.
func (x *Examiner) namesMatter(r *resource.Resource) bool {
	plugin := x.plugin(r.Kind)
	return plugin != nil && plugin.Reads >= policy.ReadsDataplane
}

// inactive says why the mesh does not use this version of a policy; "" if it does.
func (x *Examiner) inactive(r *resource.Resource) string {
	switch {
	case x.mesh.Policies == nil || x.plugin(r.Kind) == nil:
		return r.Kind + " is not a policy kind"
	case slices.ContainsFunc(x.mesh.Policies.Policies(r.Kind), func(o *resource.Resource) bool {
		return o.Key == r.Key && o.Digest == r.Digest
	}):
		return ""
	case r.Shadow():
		return "it is a shadow policy"
	}
	return "the policy changed after the current configs were computed; repeat the request in a moment"
}

// examine generates the config of a proxy without a policy, and compares.
func (x *Examiner) examine(r *resource.Resource, p *proxy) Verdict {
	if p.err != nil {
		return Verdict{Effect: api.EffectNone, Held: fmt.Sprintf("the config cannot be built: %v", p.err)}
	}
	without, err := x.generate(x.leaveOut(r.Key), p.dataplane.Name, p.config)
	if err != nil {
		return Verdict{Effect: api.EffectUnknown, Reason: fmt.Sprintf("without it the config cannot be built: %v", err)}
	}
	v := Verdict{Effect: api.EffectAll, Changed: changed(without, p.config)}
	if len(v.Changed) == 0 {
		v.Effect = api.EffectNone
		v.Reason = reasonOf(question{mesh: x.mesh, dataplane: p.dataplane, policy: r})
		return v
	}
	if p.published != nil {
		p.hold(&v)
	}
	return v
}

// hold compares the resources that a policy changes with the published ones.
func (p *proxy) hold(v *Verdict) {
	var held []draft.ResourceID
	for _, id := range v.Changed {
		now, given := p.config.Resource(id), p.published.Resource(id)
		if now != given && (now == nil || given == nil || now.Version != given.Version) {
			held = append(held, id)
		}
	}
	if len(held) == 0 {
		return
	}
	v.Effect = api.EffectPart
	if len(held) == len(v.Changed) {
		v.Effect = api.EffectNone
	}
	if p.stale != "" {
		v.Held = "the Envoy keeps an older config: " + p.stale
		return
	}
	v.Held = fmt.Sprintf("the Envoy has another form of %s", held[0].Name)
	if n := len(held) - 1; n > 0 {
		v.Held += fmt.Sprintf(" and of %d more resources", n)
	}
}

// InMesh says whether a policy is in force on any of the proxies; nil stands for all dataplanes of
// the mesh. It ends at the first proxy where it is.
func (x *Examiner) InMesh(policy *resource.Resource, proxies []string) MeshVerdict {
	if reason := x.inactive(policy); reason != "" {
		return MeshVerdict{Verdict: Verdict{Effect: api.EffectNone, Reason: reason}}
	}
	if proxies == nil {
		for _, d := range x.mesh.View.Dataplanes() {
			proxies = append(proxies, d.Name)
		}
	}
	out := MeshVerdict{Verdict: Verdict{Effect: api.EffectNone}}
	best := -1
	for _, name := range proxies {
		v := x.On(policy, name)
		if v.Selected {
			out.Selected++
		}
		if v.InForce() {
			out.Verdict, out.Dataplane = v, name
			return out
		}
		if rank := rankOf(&v); v.Selected && rank > best {
			best, out.Verdict, out.Dataplane = rank, v, name
		}
	}
	return out
}

// rankOf orders the effects of a policy that is not in force on a proxy.
func rankOf(v *Verdict) int {
	switch {
	case v.Effect == api.EffectUnknown:
		return 4
	case v.Held != "":
		return 3
	case v.Effect == api.EffectSame:
		return 2
	case v.Effect == api.EffectDefault:
		return 1
	}
	return 0
}
