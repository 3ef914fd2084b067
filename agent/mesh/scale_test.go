package mesh_test

import (
	"crypto/sha256"
	"fmt"
	"testing"

	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// digest makes resources that the tests build without a decoder differ by content.
func digest(parts ...any) resource.Digest {
	sum := sha256.Sum256(fmt.Appendln(nil, parts...))
	return resource.Digest(sum[:16])
}

// bigMesh has the tag services s0, s1, … with so many endpoints each, and a MeshService for each.
func bigMesh(services, endpoints int, mode string) []*resource.Resource {
	rs := []*resource.Resource{{Key: resource.Key{Kind: "Mesh", Name: "default"}, Spec: &resource.Mesh{MeshServices: &resource.MeshServices{Mode: mode}}}}
	for i := range services {
		name := fmt.Sprintf("s%05d", i)
		for j := range endpoints {
			rs = append(rs, endpoint(name, j, fmt.Sprintf("10.%d.%d.%d", i>>8, i&255, j+1)))
		}
		rs = append(rs, &resource.Resource{
			Key: resource.Key{Kind: "MeshService", Mesh: "default", Name: name}, Labels: map[string]string{"app": name, "team": fmt.Sprint(i % 50)},
			Digest: digest("ms", i),
			Spec: &resource.MeshService{Selector: resource.MeshServiceSelector{DataplaneTags: map[string]string{resource.TagService: name}},
				Ports: []resource.MeshServicePort{{Port: 80, TargetPort: &resource.IntOrString{Int: 8080}, AppProtocol: "http"}}},
		})
	}
	return rs
}

func endpoint(service string, n int, address string) *resource.Resource {
	return &resource.Resource{
		Key: resource.Key{Kind: "Dataplane", Mesh: "default", Name: fmt.Sprintf("%s-%d", service, n)}, Digest: digest(service, n, address),
		Spec: &resource.Dataplane{Networking: resource.Networking{Address: address, Inbound: []resource.Inbound{{Port: 8080,
			Tags: map[string]string{resource.TagService: service, resource.TagProtocol: "http", "app": service}}}}},
	}
}

// BenchmarkBuild derives a mesh of 5,000 services with 4 endpoints each: from nothing, and after one endpoint moved.
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
				if _, err := mesh.Build(moved, "default", mesh.Options{VIPs: mesh.VIPOptions{Known: prev.VIPs()}}, prev); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
