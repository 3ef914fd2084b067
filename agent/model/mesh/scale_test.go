package mesh_test

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/virtualip"
)

// digest returns different digests for resources that tests build without a decoder.
func digest(parts ...any) resource.Digest {
	sum := sha256.Sum256(fmt.Appendln(nil, parts...))
	return resource.Digest(sum[:16])
}

// bigMesh returns the tag services s0, s1, … with the given number of endpoints each, and a
// MeshService for each.
func bigMesh(services, endpoints int, mode string) []*resource.Resource {
	rs := []*resource.Resource{{Key: resource.Key{Kind: "Mesh", Name: "default"},
		Spec: &resource.Mesh{MeshServices: &resource.MeshServices{Mode: mode}}}}
	for i := range services {
		name := fmt.Sprintf("s%05d", i)
		for j := range endpoints {
			rs = append(rs, endpoint(name, j, fmt.Sprintf("10.%d.%d.%d", i>>8, i&255, j+1)))
		}
		rs = append(rs, &resource.Resource{
			Key:    resource.Key{Kind: "MeshService", Mesh: "default", Name: name},
			Labels: map[string]string{"app": name, "team": fmt.Sprint(i % 50)},
			Digest: digest("ms", i),
			Spec: &resource.MeshService{
				Selector: resource.MeshServiceSelector{DataplaneTags: map[string]string{resource.TagService: name}},
				Ports: []resource.MeshServicePort{{Port: 80, TargetPort: &resource.IntOrString{Int: 8080},
					AppProtocol: "http"}}},
		})
	}
	return rs
}

func endpoint(service string, n int, address string) *resource.Resource {
	return &resource.Resource{
		Key:    resource.Key{Kind: "Dataplane", Mesh: "default", Name: fmt.Sprintf("%s-%d", service, n)},
		Digest: digest(service, n, address),
		Spec: &resource.Dataplane{Networking: resource.Networking{Address: address, Inbound: []resource.Inbound{{Port: 8080,
			Tags: map[string]string{resource.TagService: service, resource.TagProtocol: "http", "app": service}}}}},
	}
}

// BenchmarkBuild builds a mesh of 5,000 services with 4 endpoints each: from scratch, and after one
// endpoint moved.
func BenchmarkBuild(b *testing.B) {
	for _, mode := range []string{resource.MeshServicesDisabled, resource.MeshServicesExclusive} {
		rs := bigMesh(5000, 4, mode)
		set := resource.NewSet(rs)
		moved := resource.NewSet(append(rs, endpoint("s02500", 2, "10.200.0.1")))
		b.Run(mode+"/first", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := mesh.Build(set, "default", mesh.Options{}, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(mode+"/endpoint", func(b *testing.B) {
			b.ReportAllocs()
			prev, err := mesh.Build(set, "default", mesh.Options{}, nil)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := mesh.Build(moved, "default", mesh.Options{VIPs: virtualip.Options{Known: prev.VIPs()}},
					prev); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// zonedMesh returns dataplanes of another zone, all of one service and with different tags, behind
// an ingress that lists no services.
func zonedMesh(dataplanes int) []*resource.Resource {
	rs := []*resource.Resource{
		{Key: resource.Key{Kind: "Mesh", Name: "default"}, Spec: &resource.Mesh{MTLS: &resource.MTLS{
			EnabledBackend: "ca", Backends: []resource.MTLSBackend{{Name: "ca", Type: "builtin"}}}}},
		{Key: resource.Key{Kind: "ZoneIngress", Name: "east"}, Digest: digest("ingress"),
			Spec: &resource.ZoneIngress{Zone: "east",
				Networking: resource.ZoneIngressNetworking{Address: "10.9.0.1", Port: 10001, AdvertisedAddress: "10.9.0.1",
					AdvertisedPort: 10001}}},
	}
	for i := range dataplanes {
		r := endpoint("web", i, fmt.Sprintf("10.%d.%d.1", i>>8, i&255))
		tags := r.Spec.(*resource.Dataplane).Networking.Inbound[0].Tags
		tags[resource.TagZone], tags["instance"] = "east", fmt.Sprint(i)
		rs = append(rs, r)
	}
	return rs
}

// TestZonesAreReused rebuilds the view of a mesh with another zone. It allocates next to nothing
// for unchanged resources, and little after one dataplane changed.
func TestZonesAreReused(t *testing.T) {
	rs := append(zonedMesh(500), bigMesh(50, 4, resource.MeshServicesDisabled)[1:]...)
	set := resource.NewSet(rs)
	first, err := mesh.Build(set, "default", mesh.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	web := mesh.ServiceID{Kind: mesh.KindTag, Name: "web"}
	allocs := func(set *resource.Set, prev *mesh.View) (next *mesh.View, n float64) {
		o := mesh.Options{VIPs: virtualip.Options{Known: first.VIPs()}}
		n = testing.AllocsPerRun(3, func() { next, _ = mesh.Build(set, "default", o, prev) })
		return next, n
	}
	_, whole := allocs(set, nil)
	next, n := allocs(set, first)
	if n > whole/10 {
		t.Errorf("an unchanged mesh took %.0f allocations, of %.0f for the first view", n, whole)
	}
	if next.Service(web).Endpoints != first.Service(web).Endpoints {
		t.Error("the endpoints of a service in another zone were rebuilt")
	}
	moved := resource.NewSet(append(slices.Clone(rs), endpoint("s00010", 2, "10.200.0.1")))
	if next, _ = allocs(moved, first); next.Service(web).Endpoints != first.Service(web).Endpoints {
		t.Error("a dataplane of this zone moved, and the endpoints of a service in another zone were rebuilt")
	}
	if got := len(next.Service(web).Endpoints.List); got != 500 {
		t.Errorf("the service in the other zone has %d endpoints", got)
	}
}

// TestZonesAreLinear compares the cost of an ingress's zone with that of twice as many dataplanes.
func TestZonesAreLinear(t *testing.T) {
	allocs := func(n int) float64 {
		set := resource.NewSet(zonedMesh(n))
		return testing.AllocsPerRun(3, func() {
			if _, err := mesh.Build(set, "default", mesh.Options{}, nil); err != nil {
				t.Fatal(err)
			}
		})
	}
	if small, large := allocs(1000), allocs(2000); large > 2.2*small {
		t.Errorf("1000 dataplanes take %.0f allocations, 2000 take %.0f", small, large)
	}
}

// BenchmarkZones builds a mesh with 4,000 dataplanes behind the ingress of another zone that lists
// no services: from scratch, and from the same resources.
func BenchmarkZones(b *testing.B) {
	set := resource.NewSet(zonedMesh(4000))
	first, err := mesh.Build(set, "default", mesh.Options{}, nil)
	if err != nil {
		b.Fatal(err)
	}
	for name, prev := range map[string]*mesh.View{"first": nil, "unchanged": first} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := mesh.Build(set, "default", mesh.Options{VIPs: virtualip.Options{Known: first.VIPs()}},
					prev); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
