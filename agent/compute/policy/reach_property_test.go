package policy_test

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// reachWorld is a mesh with changing permissions.
type reachWorld struct {
	services []string
	policies map[string]string
}

const reachBase = "{type: Mesh, name: default, meshServices: {mode: Everywhere}, mtls: {enabledBackend: ca, " +
	"backends: [{name: ca, type: builtin}]}}\n---\n" +
	"{type: Dataplane, name: web, networking: {address: 10.0.0.1, inbound: [{port: 80, tags: {kuma.io/service: web, " +
	"team: front}}, {port: 81, tags: {kuma.io/service: admin, team: ops}}], " +
	"transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001}}}\n---\n" +
	"{type: MeshService, name: by-app, labels: {tier: x}, spec: {selector: {dataplaneTags: {app: a}}, " +
	"ports: [{port: 80}, {port: 81}]}}\n---\n" +
	"{type: MeshService, name: west, labels: {kuma.io/zone: west, kuma.io/origin: global, tier: x}, " +
	"spec: {selector: {dataplaneTags: {app: b, version: v1}}, ports: [{port: 80}]}}\n---\n" +
	"{type: MeshMultiZoneService, name: both, spec: {selector: {meshService: {matchLabels: {tier: x}}}, " +
	"ports: [{port: 80}]}}\n---\n" +
	"{type: MeshMultiZoneService, name: none, spec: {selector: {meshService: {matchLabels: {tier: y}}}, " +
	"ports: [{port: 80}]}}\n---\n" +
	"{type: ExternalService, name: out, networking: {address: 'example.com:80'}, tags: {kuma.io/service: out}}\n---\n"

func (w *reachWorld) docs() []string {
	docs := []string{reachBase}
	for i, s := range w.services {
		docs = append(docs, fmt.Sprintf("{type: Dataplane, name: %s, labels: {app: %s}, networking: {address: 10.0.1.%d, "+
			"inbound: [{port: 80, tags: {kuma.io/service: %s, app: %s}}]}}\n---\n", s, s, i+1, s, s))
	}
	names := make([]string, 0, len(w.policies))
	for n := range w.policies {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		docs = append(docs, w.policies[n])
	}
	return docs
}

// step makes a random change.
func (w *reachWorld) step(rt *rapid.T) {
	word := rapid.SampledFrom([]string{"a", "b", "c"})
	switch rapid.IntRange(0, 6).Draw(rt, "step") {
	case 0:
		if s := word.Draw(rt, "service"); slices.Contains(w.services, s) {
			w.services = slices.DeleteFunc(w.services, func(o string) bool { return o == s })
		} else {
			w.services = append(w.services, s)
		}
	case 1:
		delete(w.policies, word.Draw(rt, "gone"))
	default:
		name := word.Draw(rt, "policy")
		top := rapid.SampledFrom([]string{
			"{kind: Mesh}", "{kind: MeshService, name: a}", "{kind: MeshService, name: by-app}",
			"{kind: MeshServiceSubset, name: b, tags: {app: b}}", "{kind: MeshSubset, tags: {app: a}}",
			"{kind: MeshSubset, tags: {app: b, unknown: x}}", "{kind: MeshSubset, tags: {kuma.io/zone: west}}",
			"{kind: MeshSubset, tags: {kuma.io/zone: default}}", "{kind: MeshSubset, tags: {kuma.io/origin: zone}}",
			"{kind: Dataplane, name: b}", "{kind: Dataplane, labels: {app: c}}", "{kind: MeshSubset, tags: {version: v2}}",
		}).Draw(rt, "top")
		from := rapid.SampledFrom([]string{"{kind: Mesh}", "{kind: MeshService, name: web}",
			"{kind: MeshService, name: admin}", "{kind: MeshSubset, tags: {team: front}}", "{kind: MeshService, name: other}"})
		action := rapid.SampledFrom([]string{"allow", "deny"})
		items := fmt.Sprintf("{targetRef: %s, default: {a: %s}}", from.Draw(rt, "from"), action.Draw(rt, "action"))
		if rapid.Bool().Draw(rt, "two") {
			items += fmt.Sprintf(", {targetRef: %s, default: {a: %s}}", from.Draw(rt, "from"), action.Draw(rt, "action"))
		}
		w.policies[name] = mesht(name, top, "from: ["+items+"]")
	}
}

// permitted implements the specification for one service without an index: it evaluates the service
// like a proxy with its tags, using the permissions reduced to these tags.
func permitted(x *policy.Index, s *mesh.Service) bool {
	switch {
	case s.External:
		return true
	case s.ID.Kind == mesh.KindMeshMultiZoneService:
		some := false
		for _, o := range x.View.Services() {
			if o.ID.Kind == mesh.KindMeshService && s.Resource.Name == "both" && o.Labels["tier"] == "x" {
				some = true
				if permitted(x, o) {
					return true
				}
			}
		}
		return !some
	}
	tags := map[string]string{"kuma.io/service": s.Tag}
	if s.ID.Kind == mesh.KindMeshService {
		switch s.Resource.Name {
		case "by-app":
			tags = map[string]string{"app": "a", "kuma.io/zone": "default", "kuma.io/origin": "zone"}
		case "west":
			tags = map[string]string{"app": "b", "version": "v1", "kuma.io/zone": "west", "kuma.io/origin": "global"}
		default:
			tags = map[string]string{"kuma.io/service": s.Resource.Name, "kuma.io/zone": "default", "kuma.io/origin": "zone"}
		}
	}
	for _, client := range []map[string]string{
		{"kuma.io/service": "web", "team": "front"}, {"kuma.io/service": "admin", "team": "ops"},
	} {
		action := ""
		for _, p := range x.Policies("MeshT") {
			spec := p.Spec.(*resource.Policy)
			if !appliesTo(x, spec.TargetRef, tags) {
				continue
			}
			for _, f := range spec.From {
				of := map[string]string{}
				switch f.TargetRef.Kind {
				case "MeshService":
					of["kuma.io/service"] = f.TargetRef.Name
				case "MeshSubset":
					of = f.TargetRef.Tags
				}
				all := true
				for k, v := range of {
					all = all && client[k] == v
				}
				if all {
					action = f.Conf.(*conf).A
				}
			}
		}
		if action == "allow" {
			return true
		}
	}
	return false
}

func appliesTo(x *policy.Index, t *resource.TargetRef, tags map[string]string) bool {
	trimmed := func(want map[string]string) bool {
		for k, v := range want {
			if have, ok := tags[k]; ok && have != v {
				return false
			}
		}
		return true
	}
	switch {
	case t.Kind == "Mesh":
		return true
	case t.Kind == "MeshSubset":
		return trimmed(t.Tags)
	case t.Kind == "MeshServiceSubset":
		return tags["kuma.io/service"] == t.Name && trimmed(t.Tags)
	case t.Name == "by-app":
		return tags["app"] == "a" && tags["kuma.io/zone"] == "default"
	case t.Kind == "MeshService": // names are not trimmed
		return tags["kuma.io/service"] == t.Name
	case t.Kind == "Dataplane":
		for _, d := range x.View.Dataplanes() {
			if (t.Name == "" || d.Name == t.Name) && (len(t.Labels) == 0 || d.Labels["app"] == t.Labels["app"]) {
				for _, in := range d.Spec.(*resource.Dataplane).Networking.Inbound {
					if trimmed(in.Tags) {
						return true
					}
				}
			}
		}
	}
	return false
}

// TestAutoReachableIsTheSpecification applies random changes to permissions and services. It checks
// that reachable services equal those of an independent implementation of the specification, that
// an index derived from another equals a new one, that the order of documents has no effect, and
// that the verdict for each service is consistent.
func TestAutoReachableIsTheSpecification(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &reachWorld{services: []string{"a", "b"}, policies: map[string]string{}}
		var x *policy.Index
		var v *mesh.View
		known := map[string]*resource.Resource{} // unchanged resources are identical, as in a store
		for range rapid.IntRange(1, 8).Draw(rt, "steps") {
			w.step(rt)
			docs := w.docs()
			var set []*resource.Resource
			for _, d := range docs {
				for _, r := range decode(t, d) {
					key := fmt.Sprintf("%s %x", r.Key, r.Digest)
					if known[key] == nil {
						known[key] = r
					}
					set = append(set, known[key])
				}
			}
			s := resource.NewSet(set)
			var err error
			if v, err = mesh.Build(s, "default", mesh.Options{}, v); err != nil {
				rt.Fatal(err)
			}
			x = policy.NewIndex(plugins(), s, v, policy.Options{AutoReachable: true, Prev: x})
			rand.New(rand.NewSource(1)).Shuffle(len(docs), func(i, j int) { docs[i], docs[j] = docs[j], docs[i] })
			fresh := indexOf(t, decode(t, strings.Join(docs, "")), policy.Options{AutoReachable: true})

			follows, want := reachedBy(x), reachedBy(fresh)
			if !slices.Equal(follows, want) {
				rt.Fatalf("%s\nderived: %v\nnew: %v", strings.Join(w.docs(), ""), follows, want)
			}
			if a, b := x.ReachDigest(v.Dataplane("web")), fresh.ReachDigest(fresh.View.Dataplane("web")); a != b {
				rt.Fatal("the digests differ")
			}
			reach := x.Reach(v.Dataplane("web"))
			for _, s := range v.Services() {
				is := slices.Contains(follows, s.ID.Kind+"/"+s.ID.Name)
				if want := permitted(x, s); is != want {
					rt.Fatalf("%s\n%s: reachable %v, want %v", strings.Join(w.docs(), ""), s.ID.Name, is, want)
				}
				if verdict := reach.Of(s); verdict.Reachable != is || verdict.Reachable && verdict.Cause == mesh.CausePermission &&
					verdict.By.Policy == nil {
					rt.Fatalf("%s: reachable %v, verdict %+v", s.ID.Name, is, verdict)
				}
			}
		}
	})
}

func reachedBy(x *policy.Index) []string {
	out, _ := x.Outbounds(x.View.Dataplane("web"))
	var names []string
	for _, o := range out {
		names = append(names, o.Service.ID.Kind+"/"+o.Service.ID.Name)
	}
	slices.Sort(names)
	return names
}
