package generate_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// bigMesh returns a mesh of n services with two endpoints each, and the proxy web with an HTTP
// outbound to each service. local is the number of additional proxies like web.
func bigMesh(n, local int) []*resource.Resource {
	rs := []*resource.Resource{{Key: resource.Key{Kind: "Mesh", Name: "default"}, Spec: &resource.Mesh{}}}
	var outbound []resource.Outbound
	for i := range n {
		for e := range 2 {
			rs = append(rs, dataplane(fmt.Sprintf("svc-%d-%d", i, e), fmt.Sprintf("10.%d.%d.%d", 1+e, i/250, i%250),
				resource.Inbound{Port: 8080, ServicePort: 18080, Tags: map[string]string{
					"kuma.io/service": fmt.Sprintf("svc-%d", i), "kuma.io/protocol": "http", "version": fmt.Sprintf("v%d", e),
				}}, nil))
		}
		outbound = append(outbound,
			resource.Outbound{Port: uint32(20000 + i), Tags: map[string]string{"kuma.io/service": fmt.Sprintf("svc-%d", i)}})
	}
	for k := range local + 1 {
		name := "web"
		if k > 0 {
			name = fmt.Sprintf("web-%d", k)
		}
		rs = append(rs, dataplane(name, fmt.Sprintf("10.9.0.%d", k+1), resource.Inbound{Port: 8080, Tags: map[string]string{
			"kuma.io/service": "web", "kuma.io/protocol": "http",
		}}, outbound))
	}
	slices.SortFunc(rs, func(a, b *resource.Resource) int { return a.Key.Compare(b.Key) }) // in the order of the store
	for i, r := range rs {
		r.Digest = resource.Digest{byte(i), byte(i >> 8), byte(i >> 16), 1}
	}
	return rs
}

func dataplane(name, address string, in resource.Inbound, out []resource.Outbound) *resource.Resource {
	return &resource.Resource{
		Key: resource.Key{Kind: "Dataplane", Mesh: "default", Name: name},
		Spec: &resource.Dataplane{Networking: resource.Networking{Address: address, Inbound: []resource.Inbound{in},
			Outbound: out}},
	}
}

// BenchmarkGenerate measures deriving the whole view and the config of proxy web from decoded
// resources.
func BenchmarkGenerate(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			rs := bigMesh(n, 0)
			b.ReportAllocs()
			for b.Loop() {
				v, err := mesh.Build(resource.NewSet(rs), "default", mesh.Options{}, nil)
				if err != nil {
					b.Fatal(err)
				}
				p, err := generate.Generate(input(v, "web"), nil, nil)
				if err != nil {
					b.Fatal(err)
				}
				if len(p.Sealed.Resources[1]) != n+1 {
					b.Fatalf("got %d clusters", len(p.Sealed.Resources[1]))
				}
			}
		})
	}
}

// BenchmarkView measures deriving only the view.
func BenchmarkView(b *testing.B) {
	rs := bigMesh(1000, 50)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := mesh.Build(resource.NewSet(rs), "default", mesh.Options{}, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRefresh measures regenerating 50 proxies after an endpoint of one service has changed.
func BenchmarkRefresh(b *testing.B) {
	rs := bigMesh(1000, 49)
	memo := generate.NewMemo()
	v, err := mesh.Build(resource.NewSet(rs), "default", mesh.Options{}, nil)
	if err != nil {
		b.Fatal(err)
	}
	proxies := map[string]*generate.Proxy{}
	derive := func() {
		for k := range 50 {
			name := "web"
			if k > 0 {
				name = fmt.Sprintf("web-%d", k)
			}
			if proxies[name], err = generate.Generate(input(v, name), proxies[name], memo); err != nil {
				b.Fatal(err)
			}
		}
	}
	derive()
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		i++
		changed := *rs[1]
		changed.Spec = &resource.Dataplane{Networking: resource.Networking{Address: fmt.Sprintf("10.7.%d.%d", i/250%250,
			i%250), Inbound: changed.Spec.(*resource.Dataplane).Networking.Inbound}}
		changed.Digest = resource.Digest{1, 2, byte(i), byte(i >> 8), byte(i >> 16)}
		rs[1] = &changed
		if v, err = mesh.Build(resource.NewSet(rs), "default", mesh.Options{}, v); err != nil {
			b.Fatal(err)
		}
		derive()
	}
}

// BenchmarkUnrelated measures regenerating 50 proxies after a service was added that none of them
// reaches.
func BenchmarkUnrelated(b *testing.B) {
	rs := bigMesh(1000, 49)
	memo := generate.NewMemo()
	proxies := map[string]*generate.Proxy{}
	var v *mesh.View
	i := 0
	for b.Loop() {
		i++
		extra := dataplane("zzz", "10.8.0.1",
			resource.Inbound{Port: 80, Tags: map[string]string{"kuma.io/service": fmt.Sprintf("new-%d", i)}}, nil)
		extra.Digest = resource.Digest{9, byte(i), byte(i >> 8), byte(i >> 16)}
		var err error
		if v, err = mesh.Build(resource.NewSet(append(slices.Clone(rs), extra)), "default", mesh.Options{}, v); err != nil {
			b.Fatal(err)
		}
		for k := range 50 {
			name := "web"
			if k > 0 {
				name = fmt.Sprintf("web-%d", k)
			}
			if proxies[name], err = generate.Generate(input(v, name), proxies[name], memo); err != nil {
				b.Fatal(err)
			}
		}
	}
}
