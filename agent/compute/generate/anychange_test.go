package generate_test

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

var (
	changeSeeds  = flag.Uint64("changes", 30, "seeds of TestAnyChangeEqualsFresh")
	changeFrom   = flag.Uint64("changes-from", 0, "the first of them")
	changeInputs = flag.String("changes-inputs", "", "a pattern of further files with resources for it")
)

// TestAnyChangeEqualsFresh changes the resources of all plugins' test cases at random: it removes,
// adds, and replaces resources. After each change it generates every proxy of a mesh and the zone
// proxies twice: incrementally and without previous results. Configs, warnings, and pipes must be
// equal.
func TestAnyChangeEqualsFresh(t *testing.T) {
	const steps = 15
	inputs := kindtest.OwnInputs(t)
	if *changeInputs != "" {
		files, err := filepath.Glob(*changeInputs)
		if err != nil || len(files) == 0 {
			t.Fatal("no files ", *changeInputs, err)
		}
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			inputs = append(inputs, kindtest.InputOf(t, file, b))
		}
	}
	inputs[0].Resources = append(slices.Clone(inputs[0].Resources), borders(t)...)
	var all []*resource.Resource
	of := map[string][]*resource.Resource{} // by kind
	for _, in := range inputs {
		for _, r := range in.Resources {
			all = append(all, r)
			of[r.Kind] = append(of[r.Kind], r)
		}
	}
	for seed := *changeFrom; seed < *changeFrom+*changeSeeds; seed++ {
		rnd := rand.New(rand.NewPCG(seed, 1))
		w := newChangedWorld(t, inputs[rnd.IntN(len(inputs))], seed)
		for range steps {
			w.check()
			if t.Failed() {
				t.Fatalf("seed %d:\n%s", seed, strings.Join(w.log, "\n"))
			}
			key := w.keys[rnd.IntN(len(w.keys))]
			switch rnd.IntN(10) {
			case 0, 1:
				if key.Kind != "Mesh" {
					delete(w.have, key)
					w.note("without %s", key)
				}
			case 2, 3, 4:
				w.put(key, of[key.Kind][rnd.IntN(len(of[key.Kind]))])
			case 5, 6, 7:
				r := all[rnd.IntN(len(all))]
				key := r.Key
				if r.Kind == "Mesh" {
					break
				}
				if key.Mesh != "" {
					key.Mesh = w.meshes[0]
				}
				key.Name = fmt.Sprintf("x%d-%s", rnd.IntN(3), key.Name)
				w.put(key, r)
			case 8:
				r := w.first[rnd.IntN(len(w.first))]
				w.have[r.Key] = r
				w.note("%s as it was", r.Key)
			case 9:
				w.build = &finding.Build{Version: finding.Version{Major: 1, Minor: 35 + uint32(rnd.IntN(5))}}
				w.note("Envoys of %v", w.build.Version)
			}
		}
	}
}

// changedWorld holds the resources of a node and the previous results.
type changedWorld struct {
	t     *testing.T
	seed  uint64
	first []*resource.Resource
	have  map[resource.Key]*resource.Resource
	keys  []resource.Key
	build *finding.Build
	log   []string // the changes so far

	meshes  []string
	last    map[string]*generate.Mesh
	memo    *generate.Memo
	proxies map[string]*generate.Proxy
}

func newChangedWorld(t *testing.T, in kindtest.MeshInput, seed uint64) *changedWorld {
	w := &changedWorld{t: t, seed: seed, first: in.Resources, have: map[resource.Key]*resource.Resource{},
		last: map[string]*generate.Mesh{}, memo: generate.NewMemo(), proxies: map[string]*generate.Proxy{}}
	for _, r := range in.Resources {
		w.have[r.Key] = r
		if r.Kind == "Mesh" {
			w.meshes = append(w.meshes, r.Name)
		}
	}
	for _, r := range borders(t) {
		w.have[r.Key] = r
	}
	slices.Sort(w.meshes)
	w.note("of %s", in.Name)
	return w
}

// borders returns the zone proxies.
func borders(t *testing.T) []*resource.Resource {
	return decoded(t, `{type: ZoneEgress, name: egress, zone: zone-1, networking: {address: 10.9.0.1, port: 10002}}
---
{type: ZoneIngress, name: ingress, zone: zone-1, networking: {address: 10.9.0.2, port: 10001, advertisedAddress: 203.0.113.9, advertisedPort: 10001}}`)
}

func (w *changedWorld) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

// put stores the content of r, which has the same kind, under key.
func (w *changedWorld) put(key resource.Key, r *resource.Resource) {
	next := *r
	next.Key = key
	for i, c := range []byte(key.String()) { // a digest covers the name too
		next.Digest[i%len(next.Digest)] += c
	}
	w.have[key] = &next
	w.note("%s is now as %s", key, r.Key)
}

// check generates everything incrementally and without previous results, and compares the two.
func (w *changedWorld) check() {
	w.keys = slices.SortedFunc(maps.Keys(w.have), func(a, b resource.Key) int {
		return cmp.Compare(a.String(), b.String())
	})
	set := resource.NewSet(slices.Collect(maps.Values(w.have)))
	var incremental, fresh []*generate.Mesh
	for _, name := range w.meshes {
		make := func(prev *generate.Mesh) (*generate.Mesh, error) {
			return generate.NewMesh(set, name, mesh.Options{Zone: "zone-1"}, kinds.Plugins(), policy.Options{}, prev)
		}
		m, err1 := make(w.last[name])
		other, err2 := make(nil)
		if !w.sameError("mesh "+name, err1, err2) {
			continue
		}
		w.last[name] = m
		incremental, fresh = append(incremental, m), append(fresh, other)
	}
	for _, key := range w.keys {
		switch key.Kind {
		case "Dataplane":
			for _, flavor := range []node.Flavor{node.FlavorEnvoy, node.FlavorGRPC} {
				in := generate.Input{Name: key.Name, Flavor: flavor, Build: w.build}
				w.same(key.String()+string(flavor),
					func(list []*generate.Mesh, prev *generate.Proxy, memo *generate.Memo) (*generate.Proxy, error) {
						i := slices.IndexFunc(list, func(m *generate.Mesh) bool { return m.View.Name == key.Mesh })
						if i < 0 {
							return nil, nil
						}
						in.Mesh = list[i]
						return generate.Generate(in, prev, memo)
					}, incremental, fresh)
			}
		case "ZoneEgress", "ZoneIngress":
			w.same(key.String(),
				func(list []*generate.Mesh, prev *generate.Proxy, memo *generate.Memo) (*generate.Proxy, error) {
					return generate.GenerateZone(generate.ZoneInput{Resource: w.have[key], Zone: "zone-1", Meshes: list,
						Flavor: node.FlavorEnvoy}, prev, memo)
				}, incremental, fresh)
		}
	}
}

func (w *changedWorld) sameError(what string, err1, err2 error) bool {
	w.t.Helper()
	if fmt.Sprint(err1) != fmt.Sprint(err2) {
		w.t.Errorf("%s: %v, and from nothing %v", what, err1, err2)
	}
	return err1 == nil && err2 == nil
}

// same generates a proxy incrementally and without previous results, and compares the two.
func (w *changedWorld) same(what string, generated func([]*generate.Mesh, *generate.Proxy,
	*generate.Memo) (*generate.Proxy, error), incremental, fresh []*generate.Mesh) {
	w.t.Helper()
	got, err1 := generated(incremental, w.proxies[what], w.memo)
	want, err2 := generated(fresh, nil, nil)
	if !w.sameError(what, err1, err2) || got == nil {
		return
	}
	w.proxies[what] = got
	for rank, typeURL := range draft.Types {
		if got.Sealed.Versions[rank] != want.Sealed.Versions[rank] {
			w.t.Errorf("%s: %s differs", what, typeURL)
		}
	}
	if diff := gocmp.Diff(want.Warnings, got.Warnings); diff != "" {
		w.t.Errorf("%s: warnings (- from nothing): %s", what, diff)
	}
	if !draft.SamePipes(got.Sealed.Pipes, want.Sealed.Pipes) {
		w.t.Errorf("%s: pipes differ", what)
	}
}

// TestChangeElsewhere checks that an incremental config equals a newly generated one after a change
// of a resource that is not selected by the proxy's policies.
func TestChangeElsewhere(t *testing.T) {
	const (
		web = `{type: Mesh, name: default}
---
{type: Dataplane, mesh: default, name: web, networking: {address: 10.0.0.1, inbound: [{port: 80, tags: {kuma.io/service: web}}],
  outbound: [{port: 2, tags: {kuma.io/service: z}}]}}
---
{type: Dataplane, mesh: default, name: z, networking: {address: 10.0.0.3, inbound: [{port: 80, tags: {kuma.io/service: z}}]}}
`
		a = "---\n{type: Dataplane, mesh: default, name: a, networking: {address: 10.0.0.2, inbound: [{port: 80, " +
			"tags: {kuma.io/service: a}}]}}\n"
		toA = "---\n{type: MeshTimeout, mesh: default, name: t, spec: {targetRef: {kind: Mesh}, " +
			"to: [{targetRef: {kind: MeshService, name: a}, default: {connectionTimeout: 1s}}]}}\n"
		otherRoute = "---\n{type: TrafficRoute, mesh: default, name: r, sources: [{match: {kuma.io/service: other}}], " +
			"destinations: [{match: {kuma.io/service: a}}], conf: {destination: {kuma.io/service: a}}}\n"
		raw = `---
type: ProxyTemplate
mesh: default
name: t
selectors: [{match: {kuma.io/service: web}}]
conf:
  imports: [default-proxy]
  resources:
  - name: in-between
    version: v1
    resource: |
      "@type": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment
      clusterName: in-between
      endpoints: [{lbEndpoints: [{endpoint: {address: {socketAddress: {address: 10.9.9.9, portValue: 1}}}}]}]
`
	)
	for _, c := range []struct{ what, before, after string }{
		{"a service that a policy names comes", web + toA, web + a + toA},
		{"a service that a policy names goes", web + a + toA, web + toA},
		{"the mesh has its first route", web + a, web + a + otherRoute},
		{"the mesh has no route any more", web + a + otherRoute, web + a},
		{"endpoints beside a load assignment of a template",
			web + a + raw, strings.ReplaceAll(web+a+raw, "10.0.0.3", "10.0.0.4")},
	} {
		memo := generate.NewMemo()
		was, is := decoded(t, c.before), decoded(t, c.after)
		for i := range is { // like a store, reuse the values of unchanged resources
			if j := slices.IndexFunc(was, func(r *resource.Resource) bool {
				return r.Key == is[i].Key && r.Digest == is[i].Digest
			}); j >= 0 {
				is[i] = was[j]
			}
		}
		first := meshOf(t, was, nil)
		prev := proxyOf(t, first, "web", nil, memo)
		in := generate.Input{Mesh: meshOf(t, is, first), Name: "web", Flavor: node.FlavorEnvoy}
		if asFromNothing(t, in, prev, memo, c.what) == prev {
			t.Errorf("%s: nothing has changed", c.what)
		}
	}
}
