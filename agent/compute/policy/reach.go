package policy

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// LabelAutoReachable of a Mesh says, with "true" or "false", whether permissions restrict what its
// proxies reach, whatever the agent's config says.
const LabelAutoReachable = "nearside.io/auto-reachable-backends"

// guard derives from the policies of the kind that says who may come in which services a proxy may
// reach: a service that admits no inbound of the proxy needs no config there. For each service it
// stands for a proxy with the tags that the service selects workloads by, so that no workload is
// looked at. What it has worked out is not about any client.
type guard struct {
	admits   func(resource.Conf) bool
	decide   func([]resource.Conf, []string) (Decision, int)
	digest   [32]byte // of the policies with what they want
	catalog  [32]byte // of the services
	policies []*guarded
	words    vocabulary
	buckets  buckets

	classes []*class
	byTags  map[string]*class
	of      [][]*class // by Service.Index; nil: no permission can be about the service
}

// guarded is a policy with the tags that it wants of an inbound: those of one of the entries.
type guarded struct {
	policy *resource.Resource
	want   []wanted
	items  []item
	rules  []item // of spec.rules, which a plugin decides about
	moving bool   // what it wants depends on the workloads
}

// wanted is tags that a policy wants. Those of tags count where a service is known by such a tag at
// all; those of name have to be there, since the policy calls a service by its name.
type wanted struct{ tags, name map[string]string }

func (w wanted) equal(o wanted) bool { return maps.Equal(w.tags, o.tags) && maps.Equal(w.name, o.name) }

// each calls f with all tags, in no order.
func (w wanted) each(f func(key, value string)) {
	for _, m := range [...]map[string]string{w.tags, w.name} {
		for k, v := range m {
			f(k, v)
		}
	}
}

// newGuard is nil when the mesh has no mutual TLS, without which nobody is kept out, or no kind
// that guards. What prev, which may be nil, has worked out and still holds is used again.
func (x *Index) newGuard(set *resource.Set, prev *guard) *guard {
	if x.View.Spec.MTLSEnabled() == nil {
		return nil
	}
	for _, plugin := range x.Plugins {
		if plugin.Admits == nil {
			continue
		}
		g := &guard{admits: plugin.Admits, decide: plugin.Decide, catalog: x.View.Catalog}
		g.read(x, plugin, prev)
		if prev != nil && prev.digest == g.digest && prev.catalog == g.catalog {
			return prev
		}
		g.words, g.buckets = newVocabulary(g.policies), newBuckets(g.policies)
		g.classify(x, set, prev)
		return g
	}
	return nil
}

// read finds out what each policy wants. Those of prev that are the same are taken over.
func (g *guard) read(x *Index, plugin Plugin, prev *guard) {
	before := map[*resource.Resource]*guarded{}
	if prev != nil && prev.catalog == g.catalog {
		for _, p := range prev.policies {
			before[p.policy] = p
		}
	}
	fp := fingerprint{h: sha256.New()}
	b := builder{x: x, k: &KindRules{}}
	var places *workloads
	for _, d := range plugin.Kinds {
		for _, r := range x.Policies(d.Kind) {
			fp.resource(r)
			p := before[r]
			if p == nil || p.moving {
				if p == nil {
					p = &guarded{policy: r}
					p.items, p.rules = b.admitting(r)
				} else {
					p = &guarded{policy: r, items: p.items, rules: p.rules}
				}
				p.target(x, &places)
			}
			if p.moving {
				for _, w := range p.want {
					for _, k := range slices.Sorted(maps.Keys(w.tags)) {
						fp.h.Write([]byte(k + "\x00" + w.tags[k] + "\x00"))
					}
					fp.h.Write([]byte{1})
				}
				if old := before[r]; old != nil && slices.EqualFunc(old.want, p.want, wanted.equal) {
					p = old
				}
			}
			g.policies = append(g.policies, p)
		}
	}
	fp.h.Sum(g.digest[:0])
}

// admitting are the entries of from, and those of rules, of a policy that say something of clients.
func (b *builder) admitting(p *resource.Resource) (out, rules []item) {
	spec, ok := p.Spec.(*resource.Policy)
	if !ok {
		return nil, nil
	}
	for i := range spec.Rules {
		if c := spec.Rules[i].Conf; c != nil {
			rules = append(rules, item{origin: Origin{p, i}, conf: c})
		}
	}
	for i := range spec.From {
		it := item{origin: Origin{p, i}, ref: &spec.From[i].TargetRef, conf: spec.From[i].Conf}
		if it.conf != nil && b.client(&it) {
			out = append(out, it)
		}
	}
	return out, rules
}

// target finds out which tags a policy wants of an inbound.
func (p *guarded) target(x *Index, places **workloads) {
	spec, ok := p.policy.Spec.(*resource.Policy)
	if !ok || len(p.items)+len(p.rules) == 0 {
		return
	}
	t := spec.TargetRef
	if t == nil {
		t = wholeMesh
	}
	put := func(want wanted) {
		if !slices.ContainsFunc(p.want, want.equal) {
			p.want = append(p.want, want)
		}
	}
	switch t.Kind {
	case kindMesh:
		if t.Name == "" || t.Name == x.View.Name {
			put(wanted{})
		}
	case "MeshSubset":
		put(wanted{tags: t.Tags})
	case mesh.KindMeshService, "MeshServiceSubset":
		if t.Name != "" {
			put(wanted{tags: t.Tags, name: map[string]string{resource.TagService: t.Name}})
		}
		if t.Kind == mesh.KindMeshService {
			for _, k := range x.resolve(p.policy, t) { // a service resource is known by what it selects
				// else it is put
				if tags := x.selectorTags(k); t.Name == "" || len(t.Tags) > 0 || tags[resource.TagService] != t.Name {
					put(wanted{name: tags})
				}
			}
		}
	case "Dataplane":
		// One workload of a service that admits the client is enough to dial it.
		p.moving = true
		if *places == nil {
			*places = &workloads{x: x}
		}
		p.want = (*places).wants(p.policy, t)
	}
}

// selectorTags are the tags of the stand-in for a MeshService: those by which it selects workloads,
// with its zone and origin.
func (x *Index) selectorTags(k resource.Key) map[string]string {
	r := x.View.MeshService(k)
	if r == nil { // one that is derived selects by its name
		return map[string]string{resource.TagService: k.Name, resource.TagZone: x.View.Zone, resource.LabelOrigin: "zone"}
	}
	out := make(map[string]string, 4)
	if spec, ok := r.Spec.(*resource.MeshService); ok {
		maps.Copy(out, spec.Selector.DataplaneTags)
	}
	labels := x.labels(k)
	if labels == nil {
		labels = x.View.Labels(r)
	}
	for _, k := range []string{resource.TagZone, resource.LabelOrigin} {
		if out[k] == "" && labels[k] != "" {
			out[k] = labels[k]
		}
	}
	return out
}

// tagTags are the tags of the stand-in for a value of kuma.io/service. One that is made of the
// names of a Kubernetes service tells those too. The zone is not known: a value is offered in any.
func tagTags(service string) map[string]string {
	out := map[string]string{resource.TagService: service}
	if name, ns, port, ok := kubernetesService(service); ok {
		out["k8s.kuma.io/service-name"], out[resource.LabelNamespace], out["k8s.kuma.io/service-port"] = name, ns, port
	}
	return out
}

// autoReachable reports whether permissions restrict what the proxies of the mesh reach, and by
// what that is so.
func (x *Index) autoReachable(set *resource.Set, o Options) (on bool, by string) {
	m := set.Get(resource.Key{Kind: kindMesh, Name: x.View.Name})
	if m != nil {
		switch v, ok := m.Labels[LabelAutoReachable]; {
		case v == "true":
			return true, fmt.Sprintf("the label %s of the mesh", LabelAutoReachable)
		case v == "false":
			return false, fmt.Sprintf("the label %s of the mesh", LabelAutoReachable)
		case ok:
			x.Warnings = append(x.Warnings, mesh.Warning{Resource: m.Key, Reason: fmt.Sprintf(
				"labels[%q]: %q is neither true nor false: the agent's config (mesh.autoReachableBackends) decides",
				LabelAutoReachable, v)})
		}
	}
	return o.AutoReachable, "the agent's config (mesh.autoReachableBackends)"
}

// workloads finds the services of the dataplanes that policies name. It looks at all dataplanes at
// most once.
type workloads struct {
	x       *Index
	byLabel map[string]map[string][]*resource.Resource // made when it is first needed
	keys    []string                                   // of tags by which services are known; made when first needed
}

// wants are the tags of the inbounds that a policy with a targetRef of kind Dataplane selects, as
// far as services select workloads by them, sorted.
func (w *workloads) wants(p *resource.Resource, t *resource.TargetRef) []wanted {
	if w.keys == nil {
		w.keys = w.x.selectorKeys()
	}
	found := map[string]map[string]string{}
	for d, dp := range resource.Specs[*resource.Dataplane](w.candidates(p, t)) {
		for _, i := range w.x.Select(p, d).Inbounds {
			have := dp.Networking.Inbound[i].Tags
			var b []byte
			for _, k := range w.keys {
				b = append(append(b, have[k]...), 0)
			}
			if have[resource.TagService] == "" || found[string(b)] != nil {
				continue
			}
			tags := make(map[string]string, len(w.keys))
			for _, k := range w.keys {
				if v, ok := have[k]; ok {
					tags[k] = v
				}
			}
			found[string(b)] = tags
		}
	}
	out := make([]wanted, 0, len(found))
	for _, k := range slices.Sorted(maps.Keys(found)) {
		out = append(out, wanted{tags: found[k]})
	}
	return out
}

// selectorKeys are the tags by which services are known and that dataplanes have, sorted. The zone
// is not one: a dataplane here is of this one, whether it says so or not.
func (x *Index) selectorKeys() []string {
	keys := map[string]bool{resource.TagService: true}
	for _, spec := range resource.Specs[*resource.MeshService](x.View.MeshServices()) {
		for key := range spec.Selector.DataplaneTags {
			keys[key] = true
		}
	}
	delete(keys, resource.TagZone)
	return slices.Sorted(maps.Keys(keys))
}

// candidates are the dataplanes that may be meant.
func (w *workloads) candidates(p *resource.Resource, t *resource.TargetRef) []*resource.Resource {
	all := w.x.View.Dataplanes()
	if t.Name != "" {
		var out []*resource.Resource
		for _, name := range mesh.Qualified(p, t.Name, t.Namespace) {
			if d := w.x.View.Dataplane(name); d != nil {
				out = append(out, d)
			}
		}
		return out
	}
	if len(t.Labels) == 0 {
		return all
	}
	if w.byLabel == nil {
		w.byLabel = map[string]map[string][]*resource.Resource{}
		for _, d := range all {
			for k, v := range w.x.View.Labels(d) {
				if w.byLabel[k] == nil {
					w.byLabel[k] = map[string][]*resource.Resource{}
				}
				w.byLabel[k][v] = append(w.byLabel[k][v], d)
			}
		}
	}
	for k, v := range t.Labels {
		if list := w.byLabel[k][v]; len(list) < len(all) {
			all = list
		}
	}
	return all
}

// kubernetesService takes a value of kuma.io/service apart that is made as NAME_NAMESPACE_svc_PORT;
// names of Kubernetes have no underscores.
func kubernetesService(service string) (name, namespace, port string, ok bool) {
	parts := strings.Split(service, "_")
	if len(parts) != 4 || parts[2] != "svc" {
		return "", "", "", false
	}
	return parts[0], parts[1], parts[3], true
}
