package resource_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// specExample is the example annotation of the specification.
const specExample = `refs:
- kind: MeshService
  name: demo-app
  namespace: kuma-demo # if missing, then my namespace
  port: 5000 # if missing then all ports of a given service
- kind: MeshService
  name: redis
  namespace: redis-system
- kind: MeshService
  labels:
    kuma.io/display-name: xyz
    kuma.io/zone: east
- kind: MeshExternalService
  name: demo-app
  namespace: kuma-system
- kind: MeshExternalService
  labels:
    kuma.io/display-name: httpbin
`

// TestParseReach checks parsed annotations, and the faults of invalid ones with their remedies.
func TestParseReach(t *testing.T) {
	const backends, services = resource.AnnotationReachableBackends, resource.AnnotationReachableServices
	deep := strings.Repeat("[", 40) + strings.Repeat("]", 40)
	aliases := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := range 9 {
		aliases += fmt.Sprintf("a%d: &a%d [*a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d]\n",
			i+1, i+1, i, i, i, i, i, i, i, i, i, i)
	}
	for name, c := range map[string]struct {
		annotation, value string
		want              string   // the JSON
		faults            []string // a substring of each
		notes             []string
	}{
		"the example": {backends, specExample, `{"Services":null,"Backends":{"refs":[` +
			`{"kind":"MeshService","name":"demo-app","namespace":"kuma-demo","port":5000},{"kind":"MeshService","name":"redis","namespace":"redis-system"},` +
			`{"kind":"MeshService","labels":{"kuma.io/display-name":"xyz","kuma.io/zone":"east"}},{"kind":"MeshExternalService","name":"demo-app","namespace":"kuma-system"},` +
			`{"kind":"MeshExternalService","labels":{"kuma.io/display-name":"httpbin"}}]}}`, nil, nil},
		"JSON": {backends, `{"refs": [{"kind": "MeshMultiZoneService", "name": "a", "port": 80}]}`,
			`{"Services":null,"Backends":{"refs":[{"kind":"MeshMultiZoneService","name":"a","port":80}]}}`, nil, nil},
		"nothing": {backends, `refs: []`, `{"Services":null,"Backends":{}}`, nil, nil},
		"no text": {backends, "", "",
			[]string{`metadata.annotations["kuma.io/reachable-backends"]: the value is empty: list reachable services in refs`},
			nil},
		"comments alone": {backends, "# nothing\n", "", []string{"the value is empty"}, nil},
		"null":           {backends, "null", "", []string{"the value is empty"}, nil},
		"no refs":        {backends, "{}", "", []string{"the value is empty"}, nil},
		"refs: null": {backends, "refs:\n", "",
			[]string{`["kuma.io/reachable-backends"].refs: the list is missing: refs: [] makes nothing reachable`}, nil},
		"not YAML": {backends, "refs: [", "", []string{"line 1 of its value: not valid YAML"}, nil},
		"a list": {backends, "- kind: MeshService\n", "",
			[]string{"a list is given, a mapping is expected"}, nil},
		"misspelt": {backends, "ref: []\n", "",
			[]string{`["kuma.io/reachable-backends"].ref: unknown field "ref": it is not known in the schema of Kuma 2.14; did you mean "refs"?`}, nil},
		"unknown field": {backends, "refs: [{kind: MeshService, nme: a}]",
			"", []string{`.refs[0].nme: unknown field "nme": it is not known in the schema of Kuma 2.14; did you mean "name"?`},
			nil},
		"wrong type": {backends, "refs: [{kind: MeshService, name: a, port: many}]",
			"", []string{`.refs[0].port: "many" is a string`}, nil},
		"both": {backends, "refs: [{kind: MeshService, name: a, labels: {x: y}}]", "",
			[]string{".refs[0].labels: labels exclude name, namespace, and port: keep the name to select one service"},
			nil},
		"labels, port": {backends, "refs: [{kind: MeshService, port: 80, labels: {x: y}}]",
			"", []string{".refs[0].labels"}, nil},
		"neither": {backends, "refs: [{kind: MeshService, namespace: a}]",
			"", []string{".refs[0].name: the name is missing"}, nil},
		"no kind": {backends, "refs: [{name: a}]", "",
			[]string{".refs[0].kind: the value is missing: give one of MeshService"}, nil},
		"port": {backends, "refs: [{kind: MeshService, name: a, port: 65536}]",
			"", []string{".refs[0].port: 65536"}, nil},
		"an entry is no mapping": {backends, "refs: [null, a]", "",
			[]string{".refs[0]: the item is empty", `.refs[1]: "a" is a string`}, nil},
		"unknown kind": {backends,
			"refs: [{kind: MeshServices, name: a}, {kind: MeshService, name: b}, {kind: Dataplane, name: c}]",
			`{"Services":null,"Backends":{"refs":[{"kind":"MeshService","name":"b"}]}}`, nil,
			[]string{`metadata.annotations["kuma.io/reachable-backends"].refs[0].kind: "MeshServices" is not a kind of service, so the reference matches nothing: use one of MeshService, MeshExternalService, MeshMultiZoneService; did you mean "MeshService"?`,
				`.refs[2].kind: "Dataplane" is not a kind of service`}},
		"a fault behind an unknown kind": {backends, "refs: [{kind: Foo}, {kind: MeshService}]",
			"", []string{".refs[1].name: the name is missing"}, nil},
		"huge": {backends, "refs: []" + strings.Repeat(" ", 64<<10), "",
			[]string{"it has 65544 bytes; at most 65536 are allowed"}, nil},
		"deep": {backends, "refs: " + deep, "", []string{"nested too deeply"}, nil},
		"aliases": {backends, aliases + "refs: []", "",
			[]string{"too many values with aliases expanded (at most 20000"}, nil},
		"a cycle": {backends, "refs: &a [*a]", "", []string{"is inside its own anchor"}, nil},
		"many faults": {backends, "refs: [" + strings.Repeat("{}, ", 100) + "]", "",
			append(slicesOf(".name: the name is missing", ".kind: the value is missing", 10), "and 180 further faults"), nil},
		"services": {services, "demo-app_kuma-demo_svc_5000, redis_kuma-demo_svc_6379",
			`{"Services":["demo-app_kuma-demo_svc_5000","redis_kuma-demo_svc_6379"],"Backends":null}`, nil, nil},
		"no services": {services, " ", "",
			[]string{"the value is empty: list services separated by commas; without the annotation, all are reachable"}, nil},
		"an empty name": {services, "a,,b", "",
			[]string{`["kuma.io/transparent-proxying-reachable-services"][1]: the name of a service is empty`}, nil},
		"no name": {services, "a,b c", "", []string{`[1]: "b c" is not the name of a service`}, nil},
		"another": {"kuma.io/other", "refs: [", `{"Services":null,"Backends":null}`, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, faults := resource.ParseReach("metadata.annotations", map[string]string{c.annotation: c.value})
			if len(faults) != len(c.faults) {
				t.Fatalf("faults: %v", faults)
			}
			for i, f := range faults {
				if !strings.Contains(f.String(), c.faults[i]) && !strings.Contains(faults.Error(), c.faults[i]) {
					t.Errorf("the fault is %q; want %q in it", f, c.faults[i])
				}
			}
			if len(faults) > 0 {
				if !got.IsZero() {
					t.Errorf("an annotation with faults says %+v", got)
				}
				return
			}
			if len(got.Notes) != len(c.notes) {
				t.Fatalf("notes: %q", got.Notes)
			}
			for i, n := range got.Notes {
				if !strings.Contains(n, c.notes[i]) {
					t.Errorf("the note is %q; want %q in it", n, c.notes[i])
				}
			}
			b, err := json.Marshal(struct {
				Services []string
				Backends *resource.ReachableBackends
			}{got.Services, got.Backends})
			if err != nil || string(b) != c.want {
				t.Errorf("got %s %v\nwant %s", b, err, c.want)
			}
		})
	}
}

func slicesOf(a, b string, n int) (out []string) {
	for range n {
		out = append(out, a, b)
	}
	return out
}

// TestOneOfTwoAnnotations checks that a valid annotation applies if the other one is invalid.
func TestOneOfTwoAnnotations(t *testing.T) {
	got, faults := resource.ParseReach("x",
		map[string]string{resource.AnnotationReachableServices: "a", resource.AnnotationReachableBackends: "refs"})
	if len(faults) != 1 || got.Backends != nil || len(got.Services) != 1 {
		t.Errorf("%+v %v", got, faults)
	}
}

// kubernetesDataplane is a Dataplane with annotations.
func kubernetesDataplane(annotations, transparent string) string {
	return "apiVersion: kuma.io/v1alpha1\nkind: Dataplane\nmesh: default\nmetadata:\n  name: web\n  namespace: shop\n" +
		"  annotations:\n" + annotations + "spec:\n  networking:\n    address: 10.0.0.1\n" +
		"    inbound: [{port: 80, tags: {kuma.io/service: web}}]\n" + transparent
}

// TestAnnotatedDataplane checks that annotations of a Kubernetes document become fields.
func TestAnnotatedDataplane(t *testing.T) {
	const (
		annotation = "    kuma.io/reachable-backends: 'refs: [{kind: MeshService, name: backend}]'\n"
		tp         = "    transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001"
		field      = ", reachableBackends: {refs: [{kind: MeshService, name: backend}]}"
	)
	one := func(doc string) *resource.Resource {
		t.Helper()
		rs, faults := registry(t).Decode("", []byte(doc))
		if len(faults) > 0 || len(rs) != 1 {
			t.Fatal(faults)
		}
		return rs[0]
	}
	notes := func(r *resource.Resource) string { return strings.Join(r.Spec.(*resource.Dataplane).Notes, "\n") }
	json := func(r *resource.Resource) []byte {
		b, err := resource.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	by, as, both := one(kubernetesDataplane(annotation, tp+"}\n")), one(kubernetesDataplane("    a: b\n", tp+field+"}\n")),
		one(kubernetesDataplane(annotation, tp+field+"}\n"))
	for _, r := range []*resource.Resource{by, both} {
		if r.Digest != as.Digest || !bytes.Equal(json(r), json(as)) || notes(r) != "" {
			t.Errorf("the annotation is not the field: %s %s", json(r), notes(r))
		}
	}
	other := one(kubernetesDataplane(annotation, tp+", reachableBackends: {refs: []}}\n"))
	if tp := other.Spec.(*resource.Dataplane).Networking.TransparentProxying; len(tp.ReachableBackends.Refs) != 0 {
		t.Errorf("the annotation overrides the field: %s", json(other))
	}
	if want := `metadata.annotations["kuma.io/reachable-backends"]: without effect: networking.transparentProxying.reachableBackends takes precedence`; !strings.HasPrefix(notes(other), want) {
		t.Errorf("note %q", notes(other))
	}
	if n := notes(one(kubernetesDataplane(annotation, ""))); !strings.Contains(n,
		"the dataplane has no networking.transparentProxying") {
		t.Errorf("note %q", n)
	}
	_, faults := registry(t).Decode("f.yaml",
		[]byte(kubernetesDataplane("    kuma.io/reachable-backends: 'refs: [{kind: MeshService}]'\n", tp+"}\n")))
	if want := `f.yaml:7: document 1 (Dataplane/default/web.shop): metadata.annotations["kuma.io/reachable-backends"].refs[0].name: the name is missing`; len(faults) != 1 ||
		!strings.HasPrefix(faults[0].String(), want) {
		t.Errorf("faults: %v", faults)
	}
	if _, faults := registry(t).Decode("",
		[]byte(strings.Replace(kubernetesDataplane("    kuma.io/reachable-backends: 'refs'\n", ""), "kind: Dataplane",
			"kind: MeshService", 1))); strings.Contains(faults.Error(), "annotations") {
		t.Errorf("the annotation of another kind is looked at: %v", faults)
	}
}

// TestAnnotatedFamily checks that the annotation of a redirected pod limits the families as the
// field does, which takes precedence.
func TestAnnotatedFamily(t *testing.T) {
	for _, c := range []struct{ labels, annotation, field, want string }{
		{"nearside.io/redirect: pod", "ipv4", "", resource.IPFamilyIPv4},
		{"nearside.io/redirect: pod", "IPv6", "", resource.IPFamilyIPv6},
		{"nearside.io/redirect: pod", "dualstack", "", ""},
		{"nearside.io/redirect: pod", "ipv4", ", ipFamilyMode: IPv6", resource.IPFamilyIPv6},
		{"a: b", "ipv4", "", ""},
	} {
		doc := kubernetesDataplane("    kuma.io/transparent-proxying-ip-family-mode: "+c.annotation+"\n  labels: {"+c.labels+
			"}\n", "    transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001"+c.field+"}\n")
		rs, faults := registry(t).Decode("", []byte(doc))
		if len(faults) > 0 || len(rs) != 1 {
			t.Fatal(faults)
		}
		if got := rs[0].Spec.(*resource.Dataplane).Networking.TransparentProxying.IPFamilyMode; got != c.want {
			t.Errorf("%+v: ipFamilyMode %q", c, got)
		}
	}
}

// FuzzParseReach parses any text; an accepted result is valid in a Dataplane.
func FuzzParseReach(f *testing.F) {
	f.Add(specExample, "a,b")
	f.Add("refs: [{kind: Foo, name: a}]", ",")
	f.Add("refs: &a [*a]", "*")
	f.Add("{refs: [{kind: MeshService, labels: {a: b}, <<: {name: c}}]}", "")
	f.Fuzz(func(t *testing.T, backends, services string) {
		got, faults := resource.ParseReach("a",
			map[string]string{resource.AnnotationReachableBackends: backends, resource.AnnotationReachableServices: services})
		if len(faults) > 50 || len(got.Notes) > 50 {
			t.Fatalf("%d faults, %d notes", len(faults), len(got.Notes))
		}
		dp := &resource.Dataplane{Networking: resource.Networking{Address: "10.0.0.1",
			Inbound:             []resource.Inbound{{Port: 80, Tags: map[string]string{"kuma.io/service": "a"}}},
			TransparentProxying: &resource.TransparentProxying{RedirectPortInbound: 1, RedirectPortOutbound: 2}}}
		r := got.Restrict(&resource.Resource{Key: resource.Key{Kind: "Dataplane", Mesh: "default", Name: "a"}, Spec: dp})
		sealed, faults := registry(t).Seal(r)
		if len(faults) > 0 {
			t.Fatalf("parsed but then rejected: %v", faults)
		}
		if !got.IsZero() && sealed.Digest != r.Digest {
			t.Fatal("the digest is not that of the content")
		}
	})
}
