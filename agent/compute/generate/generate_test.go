package generate_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
	"github.com/rogpeppe/go-internal/txtar"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"pgregory.net/rapid"
)

// decode decodes the documents of a test. A fault fails the test.
func decode(t testing.TB, name string, data []byte) []*resource.Resource {
	t.Helper()
	rs, faults := kinds.Registry().Decode(name, data)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return rs
}

func view(t testing.TB, rs []*resource.Resource, prev *mesh.View) *mesh.View {
	t.Helper()
	v, err := mesh.Build(resource.NewSet(rs), "default", mesh.Options{}, prev)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func generated(t testing.TB, v *mesh.View, name string, f node.Flavor, prev *generate.Proxy,
	memo *generate.Memo) *generate.Proxy {
	t.Helper()
	p, err := generate.Generate(generate.Input{Mesh: &generate.Mesh{View: v}, Name: name, Flavor: f}, prev, memo)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestGenerateCases runs testdata/generate/*.txtar. A case has input.yaml, names (the names of all
// resources of proxy web, and the warnings), and a file TYPE/NAME for each resource whose content
// is checked. If the comment starts with "grpc", the proxy is a gRPC client. UPDATE_GOLDEN=1
// rewrites the cases.
func TestGenerateCases(t *testing.T) {
	kindtest.Cases(t, "testdata/generate/*.txtar", func(t *testing.T, file string, a *txtar.Archive) {
		flavor := node.FlavorEnvoy
		if strings.HasPrefix(string(a.Comment), "grpc") {
			flavor = node.FlavorGRPC
		}
		v := view(t, decode(t, "input.yaml", a.Files[0].Data), nil)
		p := generated(t, v, "web", flavor, nil, nil)
		config, err := p.JSON()
		if err != nil {
			t.Fatal(err)
		}
		changed := false
		for i := range a.Files[1:] {
			f := &a.Files[i+1]
			got := names(config, slices.Concat(v.Warnings, p.Warnings))
			if f.Name != "names" {
				got = one(t, config, f.Name)
			}
			if bytes.Equal(got, f.Data) {
				continue
			}
			if os.Getenv("UPDATE_GOLDEN") != "" {
				f.Data, changed = got, true
				continue
			}
			t.Errorf("%s (-want +got):\n%s", f.Name, cmp.Diff(string(f.Data), string(got)))
		}
		if changed {
			if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func short(typeURL string) string { return typeURL[strings.LastIndexByte(typeURL, '.')+1:] }

func names(config map[string]map[string]json.RawMessage, warnings []mesh.Warning) []byte {
	var b bytes.Buffer
	for _, url := range slices.Sorted(maps.Keys(config)) {
		for _, name := range slices.Sorted(maps.Keys(config[url])) {
			fmt.Fprintf(&b, "%s %s\n", short(url), name)
		}
	}
	for _, w := range warnings {
		fmt.Fprintf(&b, "warning %s: %s\n", w.Resource, w.Reason)
	}
	return b.Bytes()
}

func one(t *testing.T, config map[string]map[string]json.RawMessage, path string) []byte {
	t.Helper()
	kind, name, _ := strings.Cut(path, "/")
	for url, m := range config {
		if short(url) == kind && m[name] != nil {
			var b bytes.Buffer
			if err := json.Indent(&b, m[name], "", " "); err != nil {
				t.Fatal(err)
			}
			b.WriteByte('\n')
			return b.Bytes()
		}
	}
	return []byte("absent\n")
}

// same reports whether two configs have equal names, versions, and bytes.
func same(a, b *draft.Sealed) bool {
	if a.Versions != b.Versions {
		return false
	}
	for rank := range a.Resources {
		if !slices.EqualFunc(a.Resources[rank], b.Resources[rank], func(x, y *draft.Resource) bool {
			return x.Name == y.Name && x.Version == y.Version && bytes.Equal(x.Body(), y.Body())
		}) {
			return false
		}
	}
	return true
}

// TestSameInputSameBytes checks that the order of the resources does not change the config, with
// and without a memo.
func TestSameInputSameBytes(t *testing.T) {
	files, err := filepath.Glob("testdata/generate/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	memo := generate.NewMemo()
	r := rand.New(rand.NewPCG(1, 2))
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		rs := decode(t, file, a.Files[0].Data)
		want := generated(t, view(t, rs, nil), "web", node.FlavorEnvoy, nil, nil).Sealed
		for range 1000 / len(files) {
			r.Shuffle(len(rs), func(i, j int) { rs[i], rs[j] = rs[j], rs[i] })
			if got := generated(t, view(t, rs, nil), "web", node.FlavorEnvoy, nil, memo).Sealed; !same(want, got) {
				t.Fatalf("%s: another order of the same resources gives other bytes:\n%s", file, cmp.Diff(want, got))
			}
		}
	}
}

// TestIncrementalEqualsFresh changes a mesh at random. After each step it generates a config
// incrementally and without previous results, and checks that the bytes are equal. Without a
// change, the config is the same pointer.
func TestIncrementalEqualsFresh(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type instance struct {
			service, protocol, zone string
			ready                   bool
		}
		instances := map[int]instance{}
		passthrough, direct := true, false
		meshes := map[bool]*resource.Resource{}
		for _, on := range []bool{true, false} {
			meshes[on] = &resource.Resource{Key: resource.Key{Kind: "Mesh", Name: "default"}, Spec: &resource.Mesh{
				Networking: &resource.MeshNetworking{Outbound: &resource.MeshOutbound{Passthrough: &on}},
			}}
		}
		build := func() []*resource.Resource {
			rs := []*resource.Resource{meshes[passthrough]} // like a store, reuse the values of unchanged resources
			for _, i := range slices.Sorted(maps.Keys(instances)) {
				in := instances[i]
				state := resource.InboundReady
				if !in.ready {
					state = resource.InboundNotReady
				}
				rs = append(rs, dataplane(fmt.Sprintf("dp-%d", i), fmt.Sprintf("10.0.0.%d", i), resource.Inbound{
					Port: 8080, State: state, Tags: map[string]string{
						resource.TagService: in.service, resource.TagProtocol: in.protocol, resource.TagZone: in.zone,
					},
				}, nil))
			}
			web := dataplane("web", "10.1.0.1", resource.Inbound{Port: 80, Tags: map[string]string{resource.TagService: "web"}},
				[]resource.Outbound{{Port: 1, Tags: map[string]string{resource.TagService: "a"}},
					{Port: 2, Tags: map[string]string{resource.TagService: "b", resource.TagZone: "east"}}})
			tp := &resource.TransparentProxying{RedirectPortInbound: 15006, RedirectPortOutbound: 15001,
				ReachableServices: []string{"a", "b"}}
			if direct {
				tp.DirectAccessServices = []string{"a"}
			}
			web.Spec.(*resource.Dataplane).Networking.TransparentProxying = tp
			rs = append(rs, web)
			for _, r := range rs {
				j, err := json.Marshal(r.Spec)
				if err != nil {
					t.Fatal(err)
				}
				sum := sha256.Sum256(append(j, r.Key.String()...))
				r.Digest = resource.Digest(sum[:16])
			}
			return rs
		}
		memo := generate.NewMemo()
		v, err := mesh.Build(resource.NewSet(build()), "default", mesh.Options{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		last, err := generate.Generate(input(v, "web"), nil, memo)
		if err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				delete(instances, rapid.IntRange(1, 6).Draw(t, "gone"))
			case 1:
				passthrough = !passthrough
			case 2:
				direct = !direct
			case 3: // no change
			default:
				instances[rapid.IntRange(1, 6).Draw(t, "instance")] = instance{
					rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "service"),
					rapid.SampledFrom([]string{"http", "tcp", "grpc"}).Draw(t, "protocol"),
					rapid.SampledFrom([]string{"", "east", "west"}).Draw(t, "zone"),
					rapid.Bool().Draw(t, "ready"),
				}
			}
			if v, err = mesh.Build(resource.NewSet(build()), "default", mesh.Options{}, v); err != nil {
				t.Fatal(err)
			}
			next, err := generate.Generate(input(v, "web"), last, memo)
			if err != nil {
				t.Fatal(err)
			}
			alone, err := mesh.Build(resource.NewSet(build()), "default", mesh.Options{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			fresh, err := generate.Generate(input(alone, "web"), nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if !same(fresh.Sealed, next.Sealed) {
				t.Fatalf("the incremental result differs from a fresh one (-fresh +incremental):\n%s",
					cmp.Diff(fresh.Sealed, next.Sealed))
			}
			if repeated, _ := generate.Generate(input(v, "web"), next, memo); repeated.Sealed != next.Sealed {
				t.Fatal("a second call with the same view made another config")
			}
			last = next
		}
	})
}

// TestUnrelatedServiceCostsNothing checks that a proxy's config is reused if a service that it does
// not reach is added.
func TestUnrelatedServiceCostsNothing(t *testing.T) {
	rs := bigMesh(3, 0)
	v1 := view(t, rs, nil)
	p := generated(t, v1, "web", node.FlavorEnvoy, nil, nil)
	more := append(slices.Clone(rs),
		dataplane("other", "10.3.0.1", resource.Inbound{Port: 80, Tags: map[string]string{resource.TagService: "aaa"}}, nil))
	v2 := view(t, more, v1)
	if v1.Catalog == v2.Catalog {
		t.Fatal("a new service is not in the catalog")
	}
	if next := generated(t, v2, "web", node.FlavorEnvoy, p, nil); next.Sealed != p.Sealed {
		t.Error("a service that the proxy does not reach made another config")
	}
}

// TestEnvoyAccepts validates every generated message, including messages in Any, by the rules of
// Envoy's API.
func TestEnvoyAccepts(t *testing.T) {
	files, err := filepath.Glob("testdata/generate/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		v := view(t, decode(t, file, a.Files[0].Data), nil)
		for _, f := range []node.Flavor{node.FlavorEnvoy, node.FlavorGRPC} {
			if f == node.FlavorGRPC && v.Spec.MTLSEnabled() != nil {
				continue // gRPC clients do not support mTLS
			}
			config, err := generated(t, v, "web", f, nil, nil).JSON()
			if err != nil {
				t.Fatal(err)
			}
			for url, m := range config {
				for name, j := range m {
					msg := &anypb.Any{}
					if err := protojson.Unmarshal([]byte(`{"@type":"`+url+`",`+string(j)[1:]), msg); err != nil {
						t.Fatalf("%s %s: %v", url, name, err)
					}
					validate(t, name, msg.ProtoReflect())
				}
			}
		}
	}
}

func validate(t *testing.T, name string, m protoreflect.Message) {
	t.Helper()
	if a, ok := m.Interface().(*anypb.Any); ok {
		inner, err := a.UnmarshalNew()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		m = inner.ProtoReflect()
		if v, ok := inner.(interface{ ValidateAll() error }); ok {
			if err := v.ValidateAll(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.IsMap() && fd.MapValue().Message() != nil:
			v.Map().Range(func(_ protoreflect.MapKey, mv protoreflect.Value) bool {
				validate(t, name, mv.Message())
				return true
			})
		case fd.IsList() && fd.Message() != nil:
			for i := range v.List().Len() {
				validate(t, name, v.List().Get(i).Message())
			}
		case fd.Message() != nil && !fd.IsMap():
			validate(t, name, v.Message())
		}
		return true
	})
}
