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

// LabelAutoReachable is a label of a Mesh. Its values "true" and "false" override the agent's
// config on whether permissions restrict the reachable services of proxies.
const LabelAutoReachable = "nearside.io/auto-reachable-backends"

// guard derives the services that a proxy may reach from the permission policies: a service that
// admits no inbound of the proxy needs no config there. It evaluates each service as if it were a
// proxy with the tags of the service's selector, without looking at workloads. Its results do not
// depend on the client.
type guard struct {
	admits   func(resource.Conf) bool
	decide   func([]resource.Conf, Client) (Decision, int)
	names    bool     // some rules depend on the requested server name
	digest   [32]byte // of the policies and their required tags
	catalog  [32]byte // of the services
	policies []*guarded
	words    vocabulary
	buckets  buckets

	classes []*class
	byTags  map[string]*class
	of      [][]*class // by Service.Index; nil if no permission can select the service
}

// guarded is a policy with the alternative tag sets that it requires of an inbound.
type guarded struct {
	policy  *resource.Resource
	want    []wanted
	items   []item
	rules   []item // of spec.rules, evaluated by the plugin
	names   bool   // some of rules depend on the requested server name
	dynamic bool   // want depends on the workloads
}

// wanted holds the tags that a policy requires. A key of tags counts only if the service is known
// by it; a key of name must be present, because the policy names the service by it.
type wanted struct{ tags, name map[string]string }

func (w wanted) equal(o wanted) bool { return maps.Equal(w.tags, o.tags) && maps.Equal(w.name, o.name) }

// each calls f with all tags, in no particular order.
func (w wanted) each(f func(key, value string)) {
	for _, m := range [...]map[string]string{w.tags, w.name} {
		for k, v := range m {
			f(k, v)
		}
	}
}

// newGuard returns nil if the mesh has no mTLS, without which every client is admitted, or if no
// kind defines admission. It reuses results of prev, which may be nil, that are still valid.
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

// read determines the required tags of each policy. It reuses unchanged policies of prev.
func (g *guard) read(x *Index, plugin Plugin, prev *guard) {
	before := map[*resource.Resource]*guarded{}
	if prev != nil && prev.catalog == g.catalog {
		for _, p := range prev.policies {
			before[p.policy] = p
		}
	}
	fp := fingerprint{h: sha256.New()}
	b := builder{x: x, k: &KindRules{}}
	var all *workloads
	for _, d := range plugin.Kinds {
		for _, r := range x.Policies(d.Kind) {
			fp.resource(r)
			p := before[r]
			if p == nil || p.dynamic {
				if p == nil {
					p = &guarded{policy: r}
					p.items, p.rules = b.admitting(r)
					p.names = slices.ContainsFunc(p.rules, namesServer)
				} else {
					p = &guarded{policy: r, items: p.items, rules: p.rules, names: p.names}
				}
				p.target(x, &all)
			}
			if p.dynamic {
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
			g.policies, g.names = append(g.policies, p), g.names || p.names
		}
	}
	fp.h.Sum(g.digest[:0])
}

// namesServer reports whether an entry of rules depends on the requested server name.
func namesServer(it item) bool {
	c, ok := it.conf.(MatchConf)
	return ok && slices.ContainsFunc(c.ClientMatches(), func(m resource.ClientMatch) bool { return m.SNI != nil })
}

// admitting returns the from and rules entries of a policy that have a conf.
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

// target determines the tags that a policy requires of an inbound.
func (p *guarded) target(x *Index, all **workloads) {
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
			for _, k := range x.Resolve(p.policy, t) {
				// A service resource is known by its selector. If only the name is required, put
				// added it above.
				if tags := x.selectorTags(k); t.Name == "" || len(t.Tags) > 0 || tags[resource.TagService] != t.Name {
					put(wanted{name: tags})
				}
			}
		}
	case "Dataplane":
		// One workload of a service that admits the client is enough to dial it.
		p.dynamic = true
		if *all == nil {
			*all = &workloads{x: x}
		}
		p.want = (*all).wants(p.policy, t)
	}
}

// selectorTags returns the tags by which a MeshService is evaluated: those of its selector, with
// its zone and origin.
func (x *Index) selectorTags(k resource.Key) map[string]string {
	r := x.View.MeshService(k)
	if r == nil { // a derived MeshService selects by its name
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

// tagTags returns the tags by which a kuma.io/service value is evaluated. A value in the format of
// Kubernetes services also implies its name, namespace, and port. The zone is unknown, because any
// zone may offer a value.
func tagTags(service string) map[string]string {
	out := map[string]string{resource.TagService: service}
	if name, ns, port, ok := kubernetesService(service); ok {
		out["k8s.kuma.io/service-name"], out[resource.LabelNamespace], out["k8s.kuma.io/service-port"] = name, ns, port
	}
	return out
}

// autoReachable reports whether permissions restrict the reachable services of proxies, and the
// setting that determines it.
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
				"labels[%q] must be true or false, not %q; the agent's config (mesh.autoReachableBackends) applies",
				LabelAutoReachable, v)})
		}
	}
	return o.AutoReachable, "the agent's config (mesh.autoReachableBackends)"
}

// workloads finds the services of the dataplanes that policies name. It iterates over all
// dataplanes at most once.
type workloads struct {
	x       *Index
	byLabel map[string]map[string][]*resource.Resource // built on first use
	keys    []string                                   // of the tags by which services are known; built on first use
}

// wants returns the tags of the inbounds selected by a policy's targetRef of kind Dataplane,
// limited to keys by which services select workloads, sorted.
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

// selectorKeys returns the keys of the tags by which services select workloads, sorted. The zone is
// excluded: every dataplane here belongs to this zone, whether or not it has the tag.
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

// candidates returns the dataplanes that a targetRef may select.
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

// kubernetesService splits a kuma.io/service value of the form NAME_NAMESPACE_svc_PORT. Names in
// Kubernetes have no underscores.
func kubernetesService(service string) (name, namespace, port string, ok bool) {
	parts := strings.Split(service, "_")
	if len(parts) != 4 || parts[2] != "svc" {
		return "", "", "", false
	}
	return parts[0], parts[1], parts[3], true
}
