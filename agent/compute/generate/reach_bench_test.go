package generate_test

import (
	"fmt"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// reachMesh returns a mesh with n MeshServices of four endpoints each, and the transparent proxy
// web.
func reachMesh(n int, labels map[string]string, backends *resource.ReachableBackends) []*resource.Resource {
	backend := "ca"
	rs := []*resource.Resource{{Key: resource.Key{Kind: "Mesh", Name: "default"}, Labels: labels, Spec: &resource.Mesh{
		MeshServices: &resource.MeshServices{Mode: resource.MeshServicesExclusive},
		MTLS: &resource.MTLS{EnabledBackend: backend,
			Backends: []resource.MTLSBackend{{Name: backend, Type: resource.BackendBuiltin}}}}}}
	for i := range n {
		name := fmt.Sprintf("svc-%d", i)
		tags := map[string]string{"kuma.io/service": name, "kuma.io/protocol": "http", "app": name}
		for e := range 4 {
			rs = append(rs, dataplane(fmt.Sprintf("svc-%d-%d", i, e), fmt.Sprintf("10.%d.%d.%d", 1+e, i/250, i%250),
				resource.Inbound{Port: 8080, Tags: tags}, nil))
		}
		rs = append(rs,
			&resource.Resource{Key: resource.Key{Kind: "MeshService", Mesh: "default", Name: name}, Spec: &resource.MeshService{
				Selector: resource.MeshServiceSelector{DataplaneTags: map[string]string{"kuma.io/service": name}},
				Ports:    []resource.MeshServicePort{{Port: 8080, AppProtocol: "http"}}}})
	}
	web := dataplane("web", "10.9.0.1", resource.Inbound{Port: 80, Tags: map[string]string{"kuma.io/service": "web"}}, nil)
	web.Spec.(*resource.Dataplane).Networking.TransparentProxying = &resource.TransparentProxying{
		RedirectPortInbound:  15006,
		RedirectPortOutbound: 15001,
		ReachableBackends:    backends,
	}
	rs = append(rs, web)
	for i, r := range rs {
		r.Digest = resource.Digest{byte(i), byte(i >> 8), byte(i >> 16), 1}
	}
	return rs
}

// five returns references to five MeshServices by name.
func five() *resource.ReachableBackends {
	out := &resource.ReachableBackends{}
	for i := range 5 {
		out.Refs = append(out.Refs, resource.ReachableBackendRef{Kind: "MeshService", Name: fmt.Sprintf("svc-%d", i*7)})
	}
	return out
}

func reachMeshOf(tb testing.TB, rs []*resource.Resource, prev *generate.Mesh) *generate.Mesh {
	tb.Helper()
	m, err := generate.NewMesh(resource.NewSet(rs), "default", mesh.Options{}, kinds.Plugins(), policy.Options{}, prev)
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

// moved returns the resources with a new address for the dataplane at index i.
func moved(rs []*resource.Resource, i, n int) []*resource.Resource {
	out := append([]*resource.Resource{}, rs...)
	r := *rs[i]
	spec := *r.Spec.(*resource.Dataplane)
	spec.Networking.Address = fmt.Sprintf("10.7.%d.%d", n/250%250, n%250)
	r.Spec, r.Digest = &spec, resource.Digest{1, 2, byte(n), byte(n >> 8), 3}
	out[i] = &r
	return out
}

// permissions2000 returns 2,000 permissions for one service each. Five of them allow web.
func permissions2000(tb testing.TB, n int) []*resource.Resource {
	tb.Helper()
	reg := kinds.Registry()
	var out []*resource.Resource
	for i := range 2000 {
		client := "web"
		if i%400 != 0 {
			client = fmt.Sprintf("svc-%d", i)
		}
		rs, faults := reg.Decode("", fmt.Appendf(nil, "{type: MeshTrafficPermission, mesh: default, name: p-%d, "+
			"spec: {targetRef: {kind: MeshSubset, tags: {kuma.io/service: svc-%d}}, "+
			"from: [{targetRef: {kind: MeshSubset, tags: {kuma.io/service: %s}}, default: {action: Allow}}]}}", i, i%n, client))
		if len(faults) > 0 {
			tb.Fatal(faults)
		}
		out = append(out, rs...)
	}
	return out
}

var auto = map[string]string{policy.LabelAutoReachable: "true"}

// TestRestrictedProxy checks that a proxy that reaches 5 of 500 services has a config of at most 60
// KB, and that a change of another service does not change it. The services are restricted by a
// list or by permissions.
func TestRestrictedProxy(t *testing.T) {
	const n = 500
	for name, rs := range map[string][]*resource.Resource{
		"listed": reachMesh(n, nil, five()), "permitted": append(reachMesh(n, auto, nil), permissions2000(t, n)...),
	} {
		memo := generate.NewMemo()
		derive := func(m *generate.Mesh, prev *generate.Proxy) *generate.Proxy {
			t.Helper()
			p, err := generate.Generate(generate.Input{Mesh: m, Name: "web", Flavor: node.FlavorEnvoy}, prev, memo)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		m := reachMeshOf(t, rs, nil)
		p := derive(m, nil)
		clusters := len(p.Sealed.Resources[1])
		if p.Bytes() > 60_000 || clusters < 3 || clusters > 12 {
			t.Errorf("%s: %d bytes, %d clusters", name, p.Bytes(), clusters)
		}
		const unrelated, related = 1 + 101*5, 1 // dataplanes of svc-101 and svc-0
		m2 := reachMeshOf(t, moved(rs, unrelated, 1), m)
		if p2 := derive(m2, p); p2.Sealed != p.Sealed {
			t.Errorf("%s: an endpoint that it does not reach makes a new config", name)
		}
		if p2 := derive(reachMeshOf(t, moved(rs, related, 1), m), p); p2.Sealed == p.Sealed ||
			p2.Sealed.Versions[1] != p.Sealed.Versions[1] {
			t.Errorf("%s: an endpoint that it reaches is not seen, or changes clusters", name)
		}
		if name == "permitted" {
			// Only a permission for web affects its config.
			others, own := rs[:len(rs)-1], append(append([]*resource.Resource{}, rs[:len(rs)-2000]...), rs[len(rs)-1999:]...)
			if p2 := derive(reachMeshOf(t, others, m), p); p2.Sealed != p.Sealed {
				t.Error("a permission for others makes a new config")
			}
			if p2 := derive(reachMeshOf(t, own, m), p); len(p2.Sealed.Resources[1]) != clusters-1 {
				t.Errorf("without a permission there are %d clusters, with it %d", len(p2.Sealed.Resources[1]), clusters)
			}
		}
	}
}

// BenchmarkReach measures a proxy that reaches 5 of 5,000 services with four endpoints each: its
// first config, and the update after a change of an endpoint that it does not reach.
func BenchmarkReach(b *testing.B) {
	rs := reachMesh(5000, nil, five())
	m := reachMeshOf(b, rs, nil)
	derive := func(m *generate.Mesh, prev *generate.Proxy, memo *generate.Memo) *generate.Proxy {
		p, err := generate.Generate(generate.Input{Mesh: m, Name: "web", Flavor: node.FlavorEnvoy}, prev, memo)
		if err != nil {
			b.Fatal(err)
		}
		return p
	}
	b.Run("first", func(b *testing.B) {
		var p *generate.Proxy
		for b.Loop() {
			p = derive(m, nil, nil)
		}
		b.ReportMetric(float64(p.Bytes())/1e3, "config-KB")
	})
	b.Run("unrelated", func(b *testing.B) {
		memo := generate.NewMemo()
		p := derive(m, nil, memo)
		other := reachMeshOf(b, moved(rs, 1+101*5, 1), m)
		meshes := [2]*generate.Mesh{other, m}
		for i := 0; b.Loop(); i++ {
			if q := derive(meshes[i%2], p, memo); q.Sealed != p.Sealed {
				b.Fatal("something is sent")
			}
		}
	})
}

// BenchmarkAutoReach measures building the policy index for 5,000 services and 2,000 permissions:
// the first index, and the updates after a change of an endpoint and of a permission. The view is
// not included.
func BenchmarkAutoReach(b *testing.B) {
	rs := append(reachMesh(5000, auto, nil), permissions2000(b, 5000)...)
	set := resource.NewSet(rs)
	view := func(set *resource.Set, prev *mesh.View) *mesh.View {
		v, err := mesh.Build(set, "default", mesh.Options{}, prev)
		if err != nil {
			b.Fatal(err)
		}
		return v
	}
	v := view(set, nil)
	plugins := kinds.Plugins()
	first := policy.NewIndex(plugins, set, v, policy.Options{})
	index := func(b *testing.B, set *resource.Set, v *mesh.View, prev *policy.Index) {
		for b.Loop() {
			x := policy.NewIndex(plugins, set, v, policy.Options{Prev: prev})
			if out, _ := x.Outbounds(v.Dataplane("web")); len(out) != 5 {
				b.Fatalf("%d outbounds", len(out))
			}
		}
	}
	b.Run("first", func(b *testing.B) { index(b, set, v, nil) })
	b.Run("endpoint", func(b *testing.B) {
		next := resource.NewSet(moved(rs, 1+101*5, 1))
		index(b, next, view(next, v), first)
	})
	b.Run("permission", func(b *testing.B) {
		next := resource.NewSet(rs[:len(rs)-1])
		index(b, next, view(next, v), first)
	})
}
