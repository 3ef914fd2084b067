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
	// Held returns the resources of which the Envoy of a proxy has another form than the published
	// one; nil for none.
	Held func(generate.ProxyID) []draft.Rejection
	// Stale says why the Envoy of a proxy keeps an older config, or returns "". Nil: it never does.
	Stale func(generate.ProxyID) string
	// Stop ends the work like the limit of trials when it returns true; nil: it never does.
	Stop func() bool
	// Trials limits the configs that the Examiner generates. Beyond it, answers are
	// [api.EffectUnknown].
	Trials int
}

// maxTrials limits the configs that are generated for one question.
const maxTrials = 4096

// Question returns the options for one question of a user; see [Options.Decode].
func Question(decode func([]byte) (*resource.Resource, error)) Options {
	return Options{Decode: decode, Trials: maxTrials}
}

// Examiner answers for the policies of a mesh. It caches its answers by classes of proxies that
// differ only in names and addresses. It is not safe for concurrent use.
type Examiner struct {
	mesh       *generate.Mesh
	options    Options
	trials     int
	proxies    map[string]*proxy // by the name of the dataplane
	selections map[selectionKey]*selection
	classes    map[classKey]*proxy
	without    meshWithout // of the last policy
}

// New returns an Examiner for the policies of m.
func New(m *generate.Mesh, o Options) *Examiner {
	if o.Memo == nil {
		o.Memo = generate.NewMemo()
	}
	return &Examiner{mesh: m, options: o, proxies: map[string]*proxy{}, selections: map[selectionKey]*selection{},
		classes: map[classKey]*proxy{}}
}

// meshWithout is the mesh without one policy.
type meshWithout struct {
	key  resource.Key
	mesh *generate.Mesh
}

// selection holds the shared data of proxies that the same policies select and restrict.
type selection struct {
	match   *policy.Match
	reach   [32]byte // digest of the policies that restrict destinations
	selects map[resource.Key]bool
	byName  bool // selected by a policy of a kind with ByName
	legacy  bool // selected by a legacy policy

	asked      *resource.Resource // the last policy of unaffected
	unaffected bool
}

type selectionKey struct {
	match *policy.Match
	reach [32]byte
}

// proxy is a proxy with its config.
type proxy struct {
	*selection
	dataplane *resource.Resource
	spec      *resource.Dataplane
	config    *generate.Proxy // nil if it cannot be built
	err       error
	// published is the config that the Envoy was given; nil if that is config or nothing.
	published *generate.Proxy
	held      []draft.Rejection // of published
	stale     string            // why the Envoy keeps published
	likes     [2]*proxy         // cache of like: without and with tags
	verdicts  map[resource.Key]Verdict
	fields    map[resource.Key][]Item
	parts     *layout               // nil until it is needed
	brief     *brief                // nil until it is needed
	idle      map[resource.Key]bool // policies without which the whole config is the same
}

// layout returns the places of the proxy to which rules apply.
func (p *proxy) layout(m *generate.Mesh) *layout {
	if p.parts == nil {
		p.parts = newLayout(m, p.match.Rules(), p.dataplane, p.spec)
	}
	return p.parts
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
	p := &proxy{dataplane: d, spec: spec, selection: x.selectionOf(d)}
	x.look(p)
	x.proxies[dataplane] = p
	return p
}

// selectionOf returns what a dataplane has in common with others.
func (x *Examiner) selectionOf(d *resource.Resource) *selection {
	key := selectionKey{x.options.Memo.Match(x.mesh.Policies, d), x.mesh.Policies.ReachDigest(d)}
	out := x.selections[key]
	if out != nil {
		return out
	}
	out = &selection{match: key.match, reach: key.reach, selects: map[resource.Key]bool{}}
	for _, r := range out.match.Policies() {
		plugin, _, legacy := KindOf(x.mesh.Policies, r.Kind)
		out.selects[r.Key], out.byName, out.legacy = true, out.byName || plugin.ByName, out.legacy || legacy != nil
	}
	x.selections[key] = out
	return out
}

// build generates the config of a proxy.
func (x *Examiner) build(p *proxy) {
	if p.config == nil && p.err == nil {
		x.trials++
		id := x.id(p.dataplane.Name)
		in := generate.Input{Mesh: x.mesh, Name: id.Name, Flavor: id.Flavor}
		if p.published != nil { // which may lack resources, so that it must not be reused
			in.Build = p.published.Build
		}
		p.config, p.err = generate.Generate(in, nil, x.options.Memo)
	}
}

// Config returns the generated config of a dataplane's proxy. It fails as [generate.Generate] does.
func (x *Examiner) Config(dataplane string) (*generate.Proxy, error) {
	p := x.proxy(dataplane)
	if p == nil {
		return nil, &generate.NotFoundError{Mesh: x.mesh.View.Name, Name: dataplane}
	}
	x.build(p)
	return p.config, p.err
}

// like returns the first proxy on which a policy has the same effect as on p, because the two
// differ only in names and addresses, and in tags if neither the policy nor reasons depend on them.
func (x *Examiner) like(r *resource.Resource, p *proxy) *proxy {
	plugin, _, legacy := KindOf(x.mesh.Policies, r.Kind)
	if p.published != nil || p.unlike(plugin) {
		return p
	}
	level := 0
	if x.options.Decode != nil || plugin.Reads >= policy.ReadsTags || legacy != nil || p.legacy || p.reach != [32]byte{} {
		level = 1
	}
	if p.likes[level] == nil {
		class := p.class(level > 0)
		if x.classes[class] == nil {
			x.classes[class] = p
		}
		p.likes[level] = x.classes[class]
	}
	return p.likes[level]
}

// unlike reports whether the effect of policies of a plugin may depend on the name and addresses of
// the proxy.
func (p *proxy) unlike(plugin *policy.Plugin) bool {
	return p.byName || plugin.ByName || plugin.Reads >= policy.ReadsDataplane
}

// class returns the class of a proxy.
func (p *proxy) class(tags bool) (out classKey) {
	spec := *p.spec
	spec.Networking.Address, spec.Networking.AdvertisedAddress = "", ""
	if !tags {
		spec.Networking.Inbound = withoutTags(spec.Networking.Inbound)
	}
	text, err := json.Marshal(&spec)
	if err != nil { // impossible for a decoded resource
		text = p.dataplane.Digest[:]
	}
	h := sha256.New()
	h.Write(p.match.Fingerprint[:])
	h.Write(p.reach[:])
	h.Write(text)
	h.Sum(out[:0])
	return out
}

// withoutTags returns inbounds without addresses, and with their protocol as the only tag.
func withoutTags(list []resource.Inbound) []resource.Inbound {
	list = slices.Clone(list)
	for i := range list {
		protocol := list[i].Tags[resource.TagProtocol]
		list[i].Address, list[i].Tags = "", map[string]string{resource.TagProtocol: protocol}
	}
	return list
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

// On says whether a policy is in force on the proxy of a dataplane.
func (x *Examiner) On(policy *resource.Resource, dataplane string) Verdict {
	if reason := x.inactive(policy); reason != "" {
		return Verdict{Effect: api.EffectNone, Reason: reason}
	}
	return x.on(policy, dataplane)
}

// on is On for an active policy.
func (x *Examiner) on(policy *resource.Resource, dataplane string) Verdict {
	p := x.proxy(dataplane)
	if p == nil {
		return Verdict{Effect: api.EffectNone, Reason: fmt.Sprintf("the mesh has no dataplane %q", dataplane)}
	}
	if p.asked != policy {
		p.asked, p.unaffected = policy, x.unaffected(policy, p)
	}
	if p.unaffected {
		return Verdict{Effect: api.EffectNone}
	}
	p = x.like(policy, p)
	v, ok := p.verdicts[policy.Key]
	if !ok {
		if x.spent() {
			return Verdict{Effect: api.EffectUnknown, Selected: p.selects[policy.Key]}
		}
		v = x.examine(policy, p)
		v.Selected = p.selects[policy.Key]
		set(&p.verdicts, policy.Key, v)
	}
	return v
}

// set adds an entry to a map that may be nil.
func set[K comparable, V any](m *map[K]V, k K, v V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[k] = v
}

// inactive says why the mesh does not use this version of a policy; "" if it does.
func (x *Examiner) inactive(r *resource.Resource) string {
	switch {
	case x.mesh.Policies == nil || !isPolicy(x.mesh.Policies, r.Kind):
		return r.Kind + " is not a policy kind"
	case Acts(x.mesh.Policies, r):
		return ""
	case r.Shadow():
		return "it is a shadow policy"
	}
	return "the policy changed after the current configs were computed; repeat the request in a moment"
}

// examine generates the config of a proxy without a policy, and compares.
func (x *Examiner) examine(r *resource.Resource, p *proxy) Verdict {
	if x.build(p); p.err != nil {
		v := Verdict{Effect: api.EffectNone, Held: fmt.Sprintf("the config cannot be built: %v", p.err)}
		if p.stale != "" {
			v.Held = "the Envoy keeps an older config: " + p.stale
		}
		return v
	}
	if list := x.inBrief(r, p); len(list) > 0 {
		return Verdict{Effect: api.EffectAll, Changed: list}
	}
	without, err := x.generate(x.leaveOut(r.Key), p.dataplane.Name, p.config)
	if err != nil {
		return Verdict{Effect: api.EffectUnknown, Reason: fmt.Sprintf("without it the config cannot be built: %v", err)}
	}
	v := Verdict{Effect: api.EffectAll, Changed: changed(without, p.config)}
	if len(v.Changed) == 0 {
		v.Effect = api.EffectNone
		set(&p.idle, r.Key, true)
		if p.selects[r.Key] {
			x.explain(&v, r, p)
		}
		return v
	}
	if p.published != nil {
		p.hold(&v, p.config, without)
	}
	return v
}
