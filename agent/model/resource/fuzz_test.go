package resource_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"pgregory.net/rapid"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// roundTrip checks that the canonical form and the YAML form of an accepted resource decode to the
// same resource, and marshal to the same bytes.
func roundTrip(t interface {
	Helper()
	Fatalf(string, ...any)
}, r *resource.Registry, res *resource.Resource) {
	t.Helper()
	b, err := resource.Marshal(res)
	if err != nil {
		t.Fatalf("%v", err)
	}
	y, err := resource.MarshalYAML(res)
	if err != nil {
		t.Fatalf("%v", err)
	}
	for _, form := range [][]byte{b, y} {
		decoded, faults := r.Decode("", form)
		if len(faults) > 0 || len(decoded) != 1 {
			t.Fatalf("the written form is refused: %v\n%s", faults, form)
		}
		if decoded[0].Key != res.Key || decoded[0].Digest != res.Digest {
			t.Fatalf("key %v digest %x became %v %x\n%s", res.Key, res.Digest, decoded[0].Key, decoded[0].Digest, form)
		}
		// The shape contains functions, which cannot be compared; it comes from the registry
		// anyway.
		opts := cmp.Options{
			cmp.FilterPath(func(p cmp.Path) bool {
				return p.Last().String() == ".Shape" || p.Last().String() == ".Notes"
			}, cmp.Ignore()),
		}
		if d := cmp.Diff(res, decoded[0], opts); d != "" {
			t.Fatalf("%s\n%s", d, form)
		}
		if b2, err := resource.Marshal(decoded[0]); err != nil || string(b2) != string(b) {
			t.Fatalf("%v\n%s\n%s", err, b, b2)
		}
	}
}

// seeds returns documents of every kind in all forms.
func seeds(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/decode/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range files {
		ar, err := txtar.ParseFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for doc := range strings.SplitSeq(string(ar.Files[0].Data), "\n---\n") {
			out = append(out, doc)
		}
	}
	return append(out,
		"type: TrafficPermission\nmesh: default\nname: allow-all\nsources:\n- match:\n    kuma.io/service: '*'\n"+
			"destinations:\n- match:\n    kuma.io/service: '*'\n",
		"type: Timeout\nmesh: default\nname: t\nsources:\n- match: {kuma.io/service: '*'}\ndestinations:\n"+
			"- match: {kuma.io/service: backend_kuma-demo_svc_3001}\nconf:\n  connectTimeout: 31s\n  tcp: {idleTimeout: 32s}\n",
		"type: MeshHTTPRoute\nmesh: default\nname: r\nspec:\n  targetRef: {kind: MeshService, name: web}\n  to:\n"+
			"  - targetRef: {kind: MeshService, name: backend}\n    rules:\n"+
			"    - matches: [{path: {type: RegularExpression, value: /re.*}, headers: [{name: x-a, value: '1'}]}]\n"+
			"      default: {backendRefs: [{kind: MeshService, name: redis, weight: 1}]}\n",
		"apiVersion: kuma.io/v1alpha1\nkind: Dataplane\nmesh: default\nmetadata: {name: a, namespace: b}\nspec:\n"+
			"  networking: {address: 10.0.0.1, gateway: {tags: {kuma.io/service: gw}}}\n",
		`{"type":"MeshAccessLogBackend","name":"b","spec":{"a":[1.5e300,-0.0,18446744073709551615,"\u00e9\ud83d\ude00"]}}`,
		"type:\nname: x\n", "apiVersion: kuma.io/v1alpha1\nkind: ~\n", "a: &a [*a]\n", "&a a: *a\n", "<<: 1\n",
		"? |\n  x\n: y\n", "!!binary aGk=", "--- >\n x\n", "{\"a\":", "\"\\", "%TAG ! x\n--- !y\n",
	)
}

// FuzzDecode checks that any input yields resources and faults without a panic, and that accepted
// resources survive a round trip.
func FuzzDecode(f *testing.F) {
	for _, s := range seeds(f) {
		f.Add([]byte(s))
	}
	r := registry(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		res, faults := r.Decode("f", data)
		for _, x := range res {
			roundTrip(t, r, x)
		}
		if strings.TrimSpace(string(data)) != "" && strings.HasPrefix(string(data), "type") && len(res)+len(faults) == 0 {
			t.Fatal("the document vanished")
		}
		for _, x := range faults {
			if x.Reason == "" || x.File != "f" {
				t.Fatalf("incomplete fault %+v", x)
			}
			if strings.ContainsAny(x.Field+x.Resource, "\n\x00") {
				t.Fatalf("raw input in a fault: %q", x)
			}
		}
	})
}

// TestRoundTripOfCases checks the round trip of every accepted document of the cases.
func TestRoundTripOfCases(t *testing.T) {
	r := registry(t)
	n := 0
	for _, s := range seeds(t) {
		res, _ := r.Decode("", []byte(s))
		for _, x := range res {
			n++
			roundTrip(t, r, x)
		}
	}
	if n < 20 {
		t.Errorf("only %d accepted documents", n)
	}
}

// TestRoundTripOfAnyDataplane draws dataplanes. Valid ones survive a round trip, and sealing does
// not change them.
func TestRoundTripOfAnyDataplane(t *testing.T) {
	r := registry(t)
	name := rapid.StringMatching(`[a-z0-9]([-a-z0-9_.]{0,8}[a-z0-9])?`)
	meshName := rapid.StringMatching(`[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?`)
	port := rapid.Uint32Range(1, 65535)
	tags := rapid.Custom(func(t *rapid.T) map[string]string {
		m := rapid.MapOfN(name, name, 0, 3).Draw(t, "tags")
		m[resource.TagService] = name.Draw(t, "service")
		return m
	})
	rapid.Check(t, func(t *rapid.T) {
		dp := &resource.Dataplane{Networking: resource.Networking{Address: "10.0.0.1"}}
		for i := range rapid.IntRange(1, 4).Draw(t, "inbounds") {
			dp.Networking.Inbound = append(dp.Networking.Inbound, resource.Inbound{
				Port: uint32(i + 1), Tags: tags.Draw(t, "tags"), ServicePort: port.Draw(t, "port"),
				State: rapid.SampledFrom([]string{"", resource.InboundReady, resource.InboundNotReady}).Draw(t, "state"),
			})
		}
		for i := range rapid.IntRange(0, 4).Draw(t, "outbounds") {
			out := resource.Outbound{Port: uint32(i + 1)}
			if rapid.Bool().Draw(t, "ref") {
				out.BackendRef = &resource.OutboundRef{Kind: "MeshService", Name: name.Draw(t, "name"), Port: port.Draw(t, "port")}
			} else {
				out.Tags = tags.Draw(t, "tags")
			}
			dp.Networking.Outbound = append(dp.Networking.Outbound, out)
		}
		if rapid.Bool().Draw(t, "tproxy") {
			tp := &resource.TransparentProxying{RedirectPortInbound: 1, RedirectPortOutbound: 2}
			if rapid.Bool().Draw(t, "backends") {
				tp.ReachableBackends = &resource.ReachableBackends{}
			}
			dp.Networking.TransparentProxying = tp
		}
		in := &resource.Resource{
			Key: resource.Key{Kind: "Dataplane", Mesh: meshName.Draw(t, "mesh"), Name: name.Draw(t, "name")}, Spec: dp,
		}
		if l := rapid.MapOfN(name, name, 0, 2).Draw(t, "labels"); len(l) > 0 {
			in.Labels = l
		}
		sealed, faults := r.Seal(in)
		if len(faults) > 0 {
			t.Fatalf("%v", faults)
		}
		in.Digest = sealed.Digest
		if d := cmp.Diff(in, sealed); d != "" {
			t.Fatalf("%s", d)
		}
		roundTrip(t, r, sealed)
	})
}

func BenchmarkDecode(b *testing.B) {
	r := registry(b)
	mesh := generate(1000)
	yaml, err := os.ReadFile("testdata/decode/dataplane.txtar")
	if err != nil {
		b.Fatal(err)
	}
	big := mesh[strings.LastIndex(string(mesh), "---"):]
	for name, data := range map[string][]byte{"mesh-1000": mesh, "outbounds-1000": big, "yaml-faults": yaml} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				r.Decode("", data)
			}
		})
	}
}

func BenchmarkMarshal(b *testing.B) {
	res, _ := registry(b).Decode("", generate(1000))
	b.ReportAllocs()
	for b.Loop() {
		for _, x := range res {
			if _, err := resource.Marshal(x); err != nil {
				b.Fatal(err)
			}
		}
	}
}
