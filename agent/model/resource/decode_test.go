package resource_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// one decodes a valid document.
func one(t testing.TB, r *resource.Registry, doc string) *resource.Resource {
	t.Helper()
	res, faults := r.Decode("", []byte(doc))
	if len(faults) > 0 {
		t.Fatalf("%s\n%v", doc, faults)
	}
	if len(res) != 1 {
		t.Fatalf("%d resources from\n%s", len(res), doc)
	}
	return res[0]
}

func canonical(t testing.TB, res *resource.Resource) string {
	t.Helper()
	b, err := resource.Marshal(res)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestFormatsAgree checks that the universal format, JSON, and the Kubernetes format yield the same
// resource.
func TestFormatsAgree(t *testing.T) {
	r := registry(t)
	for _, c := range []struct{ universal, json, kubernetes string }{
		{
			"type: Mesh\nname: m\nmtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}\n",
			`{"mtls":{"backends":[{"type":"builtin","name":"ca"}],"enabledBackend":"ca"},"name":"m","type":"Mesh","labels":{},"mesh":null}`,
			"apiVersion: kuma.io/v1alpha1\nkind: Mesh\n" +
				"metadata: {name: m, annotations: {a: b}, uid: x, generation: 3, managedFields: [{a: 1}]}\nspec:\n  mtls:\n" +
				"    enabledBackend: ca\n    backends:\n    - {name: ca, type: builtin, mode: }\n",
		},
		{
			"type: MeshTimeout\nmesh: other\nname: t\nlabels: {team: a}\nspec:\n  targetRef: {kind: Mesh}\n  to:\n" +
				"  - targetRef: {kind: Mesh}\n    default: {connectionTimeout: 60s}\n",
			`{"type":"MeshTimeout","name":"t","mesh":"other","labels":{"team":"a","kuma.io/mesh":"other"},"spec":{"from":[],"to":[{"targetRef":{"kind":"Mesh","tags":{}},"default":{"connectionTimeout":"1m"}}],"targetRef":{"kind":"Mesh"}}}`,
			"apiVersion: kuma.io/v1alpha1\nkind: MeshTimeout\nmetadata:\n  name: t\n  labels: {team: a, kuma.io/mesh: other}\n" +
				"spec:\n  targetRef: {kind: Mesh}\n  to:\n  - targetRef: {kind: Mesh}\n" +
				"    default: {connectionTimeout: 60000ms}\n",
		},
		{
			"type: MeshService\nname: s\nspec: {selector: {dataplaneTags: {kuma.io/service: s}}, ports: [{port: 80}]}\n" +
				"status: {vips: [{ip: 241.0.0.1}]}\n",
			`{"type":"MeshService","mesh":"default","name":"s","spec":{"selector":{"dataplaneTags":{"kuma.io/service":"s"}},"ports":[{"port":80}]},"status":{"vips":[{"ip":"241.0.0.1"}]}}`,
			"apiVersion: kuma.io/v1alpha1\nkind: MeshService\nmetadata: {name: s}\nspec: {selector: {dataplaneTags: " +
				"{kuma.io/service: s}}, ports: [{port: 80}]}\nstatus: {vips: [{ip: 241.0.0.1}], addresses: []}\n",
		},
		{
			"type: Timeout\nname: l\nmesh: m\nsources: [{match: {kuma.io/service: '*'}}]\n" +
				"destinations: [{match: {kuma.io/service: '*'}}]\nconf: {b: 1, a: <x>}\n",
			`{"type":"Timeout","name":"l","mesh":"m","conf":{"a":"<x>","b":1.0},"destinations":[{"match":{"kuma.io/service":"*"}}],"sources":[{"match":{"kuma.io/service":"*"}}]}`,
			"apiVersion: kuma.io/v1alpha1\nkind: Timeout\nmesh: m\nmetadata: {name: l}\nspec:\n  sources: [{match: " +
				"{kuma.io/service: '*'}}]\n  destinations: [{match: {kuma.io/service: '*'}}]\n  conf: {b: 0x1, a: \"<x>\"}\n",
		},
	} {
		want := one(t, r, c.universal)
		for _, doc := range []string{c.json, c.kubernetes} {
			got := one(t, r, doc)
			if d := cmp.Diff(canonical(t, want), canonical(t, got)); d != "" {
				t.Errorf("%s\n%s", doc, d)
			}
			if got.Digest != want.Digest || got.Key != want.Key {
				t.Errorf("%s: key %v, digest %x; want %v, %x", doc, got.Key, got.Digest, want.Key, want.Digest)
			}
		}
	}
}

func TestNamespacedKubernetesObject(t *testing.T) {
	r := registry(t)
	res := one(t, r, `{"apiVersion":"kuma.io/v1alpha1","kind":"MeshService","metadata":{"name":"web","namespace":"shop","labels":{"kuma.io/mesh":"m"}},"spec":{}}`)
	if want := (resource.Key{Kind: "MeshService", Mesh: "m", Name: "web.shop"}); res.Key != want {
		t.Errorf("key %v, want %v", res.Key, want)
	}
	want := map[string]string{resource.LabelNamespace: "shop", resource.LabelDisplayName: "web"}
	if d := cmp.Diff(want, res.Labels); d != "" {
		t.Error(d)
	}
	if res.Namespace() != "shop" || res.DisplayName() != "web" {
		t.Errorf("namespace %q, display name %q", res.Namespace(), res.DisplayName())
	}
	res = one(t, r, `{"apiVersion":"kuma.io/v1alpha1","kind":"MeshService","metadata":{"name":"web-x7f","namespace":"shop","labels":{"kuma.io/display-name":"web"}},"spec":{}}`)
	if res.DisplayName() != "web" {
		t.Errorf("a display name that is given became %q", res.DisplayName())
	}
}

func TestCanonicalForm(t *testing.T) {
	r := registry(t)
	for doc, want := range map[string]string{
		"{type: MeshHTTPRoute, name: r, spec: {to: [{targetRef: {name: b, kind: MeshService}, rules: [{m: \"a\\u2028&\"}], hostnames: []}]}}":                         `{"type":"MeshHTTPRoute","mesh":"default","name":"r","spec":{"to":[{"targetRef":{"kind":"MeshService","name":"b"},"hostnames":[],"rules":[{"m":"a\u2028&"}]}]}}`,
		"type: Dataplane\nname: d\nlabels: {b: '1', a: '2'}\nnetworking: {inbound: [{tags: {z: '1', kuma.io/service: s}, port: 80}], outbound: [], address: 1.2.3.4}": `{"type":"Dataplane","mesh":"default","name":"d","labels":{"a":"2","b":"1"},"networking":{"address":"1.2.3.4","inbound":[{"port":80,"tags":{"kuma.io/service":"s","z":"1"}}]}}`,
		"type: MeshAccessLogBackend\nname: b\nspec: {z: [1.50, -0.0, 1e3, 0x10, 1_000, true, ~, 2024-01-01], a: {}}":                                                  `{"type":"MeshAccessLogBackend","mesh":"default","name":"b","spec":{"a":{},"z":[1.5,0,1000,16,1000,true,null,"2024-01-01"]}}`,
		"type: ExternalService\nname: e\ntags: {kuma.io/service: e}\nnetworking: {address: 'a:1', tls: {caCert: {inline: aGk=}}}":                                     `{"type":"ExternalService","mesh":"default","name":"e","networking":{"address":"a:1","tls":{"caCert":{"inline":"aGk="}}},"tags":{"kuma.io/service":"e"}}`,
	} {
		res := one(t, r, doc)
		if d := cmp.Diff(want, canonical(t, res)); d != "" {
			t.Error(d)
		}
		y, err := resource.MarshalYAML(res)
		if err != nil {
			t.Fatal(err)
		}
		if decoded := one(t, r, string(y)); decoded.Digest != res.Digest {
			t.Errorf("YAML form differs:\n%s\n%s", y, canonical(t, decoded))
		}
	}
}

// TestStreams checks text around and between documents.
func TestStreams(t *testing.T) {
	const a, b = "type: Mesh\nname: a\n", "type: Mesh\nname: b\n"
	r := registry(t)
	for name, c := range map[string]struct {
		in   string
		want int
	}{
		"empty":             {"", 0},
		"comments":          {"# x\n---\n# y\n---\n\n", 0},
		"null":              {"---\n~\n---\nnull\n", 0},
		"byte order mark":   {"\ufeff" + a, 1},
		"CRLF":              {strings.ReplaceAll(a+"---\n"+b, "\n", "\r\n"), 2},
		"no final newline":  {"type: Mesh\nname: a", 1},
		"directive":         {"%YAML 1.2\n---\n" + a + "...\n%YAML 1.2\n---\n" + b, 2},
		"marker with value": {"--- {type: Mesh, name: a}\n--- # comment\n" + b, 2},
		"JSON lines":        {`{"type":"Mesh","name":"a"}` + "\n" + `{"type":"Mesh","name":"b"}` + "\n", 2},
		"JSON in a row":     {`--- {"type":"Mesh","name":"a"} {"type":"Mesh","name":"b"} # end`, 2},
		"tabs in JSON":      {"{\t\"type\":\t\"Mesh\",\n\t\"name\": \"a\"}", 1},
		"marker in a value": {"type: Mesh\nname: a\nconstraints: |\n  ---\n  x\n", 1},
		"anchors":           {"type: Mesh\nname: a\nconstraints: {c: &x {a: 1}, d: *x}\nmetrics: {<<: *x, b: 2}\n", 1},
		"escapes": {`{"type":"Mesh","name":"\u0061","labels":{"a":"\u0062"},"constraints":"\ud83d\ude00\/\b\f\n\r\t\"\\"}`,
			1},
	} {
		res, faults := r.Decode("", []byte(c.in))
		if len(faults) > 0 || len(res) != c.want {
			t.Errorf("%s: %d resources, faults %v; want %d and none", name, len(res), faults, c.want)
		}
	}
}

func TestMergeKeys(t *testing.T) {
	r := registry(t)
	res := one(t, r,
		"type: Mesh\nname: a\nconstraints: {x: &x {a: 1, b: 1}, y: &y {b: 2, c: 2}}\nmetrics: {<<: [*x, *y], a: 0}\n")
	if want := `"metrics":{"a":0,"b":1,"c":2}`; !strings.Contains(canonical(t, res), want) {
		t.Errorf("%s lacks %s", canonical(t, res), want)
	}
}

// TestLimits checks that input that is too large, too deep, or too numerous is rejected quickly,
// with the limit.
func TestLimits(t *testing.T) {
	r := registry(t)
	bomb := "type: Mesh\nname: bomb\nconstraints:\n  a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
	for i := 1; i < 12; i++ {
		bomb += fmt.Sprintf("  a%d: &a%d [%s]\n", i, i,
			strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), 10), ","))
	}
	mesh := func(field string) string { return "type: Mesh\nname: m\nconstraints: " + field + "\n" }
	small := resource.Limits{FileBytes: 1000, DocumentBytes: 200, Documents: 3, Depth: 5, Nodes: 320}
	for name, c := range map[string]struct {
		in   string
		lim  resource.Limits
		want string
		good int
	}{
		"file":            {strings.Repeat("x", 1001), small, "the file has 1001 bytes, but only 1000 are allowed", 0},
		"file by default": {strings.Repeat("x", 50<<20), resource.Limits{}, "split it", 0},
		"document": {"type: Mesh\nname: a\n---\n" + mesh(strings.Repeat("x", 200)), small,
			"but only 200 are allowed", 1},
		"documents":  {strings.Repeat("---\n{type: Mesh, name: a, routing: {}}\n", 5), small, "more than 3 documents", 3},
		"YAML depth": {mesh("[[[[[1]]]]]"), small, "nested too deeply (at most 5 levels)", 0},
		"JSON depth": {`{"type":"Mesh","name":"m","constraints":[[[[[1]]]]]}`,
			small, "nested too deeply (at most 5 levels)", 0},
		"depth by alias": {mesh("{a: &a [[1]], b: &b [*a], c: [*b]}"), small, "nested too deeply", 0},
		"extreme depth":  {mesh(strings.Repeat("[", 500_000)), resource.Limits{}, "", 0},
		"nodes":          {mesh("[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]"), small, "too many values", 0},
		"billion laughs": {bomb, resource.Limits{}, "too many values with aliases expanded", 0},
		"merge bomb":     {mesh("{a: &a {x: [1,1,1,1,1,1,1]}, b: {<<: *a}, c: {<<: *a}}"), small, "too many values", 0},
		"canonical size": {mesh("{a: &a " + strings.Repeat("x", 60) + ", b: [*a, *a, *a]}"), small,
			"bytes of canonical JSON", 0},
		"NUL byte":         {"type: Mesh\nname: \x00\n", resource.Limits{}, "not valid YAML", 0},
		"not UTF-8":        {"type: Mesh\n# fine\nname: \xff\n", resource.Limits{}, "byte 0xff is not UTF-8", 0},
		"lone surrogate":   {`{"type":"Mesh","name":"m","constraints":"\ud800"}`, resource.Limits{}, "not valid YAML", 0},
		"JSON cut":         {`{"type":"Mesh","name":"m"`, resource.Limits{}, "not valid YAML", 0},
		"text behind JSON": {`{"type":"Mesh","name":"m"} x`, resource.Limits{}, "is not a resource", 1},
		"text behind YAML": {"{type: Mesh, name: m}\n{type: Mesh, name: n}\n", resource.Limits{}, "not valid YAML", 0},
		"thousands of lies": {"type: Mesh\nname: m\n" + strings.Repeat("xxxxxxx: 1\n", 60_000), resource.Limits{},
			"faults of this document that are not shown: ", 0},
	} {
		t.Run(name, func(t *testing.T) {
			res, faults := r.DecodeLimits("f", []byte(c.in), c.lim)
			if len(faults) == 0 {
				t.Fatal("no fault")
			}
			if s := faults.Error(); !strings.Contains(s, c.want) {
				t.Errorf("want %q in\n%.500s", c.want, s)
			}
			if len(res) != c.good {
				t.Errorf("%d resources, want %d", len(res), c.good)
			}
			if len(faults) > 1001 {
				t.Errorf("%d faults", len(faults))
			}
		})
	}
}

func TestFaultLines(t *testing.T) {
	_, faults := registry(t).Decode("f.yaml", []byte("\n\ntype: Mesh\nname: a\n---\n\n# c\ntype: Mesh\nnaem: b\n"))
	if len(faults) != 2 {
		t.Fatalf("%v", faults)
	}
	want := `f.yaml:9: document 2 (Mesh): naem: unknown field "naem": it is not known in the schema of Kuma 2.14; did you mean "name"?`
	if got := faults[1].String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestSeal(t *testing.T) {
	r := registry(t)
	d := time.Second
	tags := map[string]string{resource.TagService: "web"}
	in := &resource.Resource{
		Key:    resource.Key{Kind: "Dataplane", Mesh: "default", Name: "web"},
		Labels: map[string]string{"a": "b"},
		Spec: &resource.Dataplane{Networking: resource.Networking{
			Address: "10.0.0.1",
			Inbound: []resource.Inbound{{Port: 80, Tags: tags,
				ServiceProbe: &resource.ServiceProbe{Interval: &resource.Duration{Duration: d}}}},
		}},
	}
	out, faults := r.Seal(in)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	if canonical(t, in) != canonical(t, out) || out.Digest == (resource.Digest{}) {
		t.Errorf("%s\n%s\n%x", canonical(t, in), canonical(t, out), out.Digest)
	}
	tags[resource.TagService] = "changed"
	if strings.Contains(canonical(t, out), "changed") {
		t.Error("the sealed resource shares memory with its parts")
	}
	in.Spec.(*resource.Dataplane).Networking.Inbound[0].Port = 0
	out, faults = r.Seal(in)
	if out != nil || len(faults) != 1 || faults[0].Field != "networking.inbound[0].port" || faults[0].Line != 0 ||
		faults[0].Document != 0 {
		t.Errorf("%v, %v", out, faults)
	}
	if _, faults := r.Seal(&resource.Resource{Key: resource.Key{Kind: "Mesh", Name: "m"}}); len(faults) == 0 {
		t.Error("a resource without spec was sealed")
	}
	if _, faults := r.Seal(&resource.Resource{Key: resource.Key{Kind: "None", Name: "m"},
		Spec: new(resource.Mesh)}); len(faults) == 0 {
		t.Error("a resource of an unknown kind was sealed")
	}
}

func TestRegistryRefusesContradictions(t *testing.T) {
	spec := func() resource.Spec { return new(resource.Mesh) }
	for name, ds := range map[string][]resource.Descriptor{
		"incomplete": {{Kind: "A", Plural: "as"}},
		"same name": {{Kind: "A", Plural: "b", SpecAtTop: true, New: spec},
			{Kind: "B", Plural: "c", SpecAtTop: true, New: spec}},
		"spec's place": {{Kind: "A", Plural: "as", New: spec}},
	} {
		if _, err := resource.NewRegistry(ds...); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func TestRotationLifetime(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"": 0, "1d": 24 * time.Hour, "1w2d3h": 9*24*time.Hour + 3*time.Hour, "1y": 365 * 24 * time.Hour,
		"90m": 90 * time.Minute, "0.5s": time.Second / 2,
	} {
		got, err := (&resource.Rotation{Expiration: in}).Lifetime()
		if err != nil || got != want {
			t.Errorf("%q: %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"x", "0d", "-1d", "d", "1d-1h", "300y", "1.5d", "10"} {
		if got, err := (&resource.Rotation{Expiration: in}).Lifetime(); err == nil {
			t.Errorf("%q: %v", in, got)
		}
	}
}

func TestParseHostnameTemplate(t *testing.T) {
	got, err := resource.ParseHostnameTemplate(`{{ .Name }}.{{label "a/b"}}.local`)
	want := []resource.HostnamePart{{Field: "Name"}, {Literal: "."}, {Label: "a/b"}, {Literal: ".local"}}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Error(d, err)
	}
}

// generate returns a mesh of n services with two dataplanes each, as JSON documents in one stream.
func generate(n int) []byte {
	var b bytes.Buffer
	b.WriteString("---\n{\"type\": \"Mesh\", \"name\": \"default\", \"skipCreatingInitialPolicies\": [\"*\"]}\n")
	for i := range n {
		for j := range 2 {
			fmt.Fprintf(&b, "---\n{\"type\": \"Dataplane\", \"mesh\": \"default\", \"name\": \"svc-%d-%d\", "+
				"\"networking\": {\"address\": \"10.%d.%d.%d\", \"inbound\": [{\"port\": 8080, \"servicePort\": 18080, "+
				"\"tags\": {\"kuma.io/service\": \"svc-%d\", \"kuma.io/protocol\": \"http\", \"version\": \"v%d\"}}]}}\n",
				i, j, j+1, i/250, i%250, i, j)
		}
		fmt.Fprintf(&b, "---\n{\"type\": \"MeshTimeout\", \"mesh\": \"default\", \"name\": \"t-%d\", "+
			"\"spec\": {\"targetRef\": {\"kind\": \"Mesh\"}, \"to\": [{\"targetRef\": {\"kind\": \"MeshService\", \"name\": "+
			"\"svc-%d\"}, \"default\": {\"connectionTimeout\": \"2s\", \"http\": {\"requestTimeout\": \"9s\"}}}]}}\n", i, i)
	}
	b.WriteString("---\n{\"type\": \"Dataplane\", \"mesh\": \"default\", \"name\": \"web\", " +
		"\"networking\": {\"address\": \"10.9.0.1\", \"inbound\": [{\"port\": 8080, " +
		"\"tags\": {\"kuma.io/service\": \"web\"}}], \"outbound\": [")
	for i := range n {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "{\"port\": %d, \"tags\": {\"kuma.io/service\": \"svc-%d\"}}", 20000+i, i)
	}
	b.WriteString("]}}\n")
	return b.Bytes()
}

func TestDecodeLargeMesh(t *testing.T) {
	res, faults := registry(t).Decode("", generate(1000))
	if len(faults) > 0 || len(res) != 3002 {
		t.Fatalf("%d resources, %.500v", len(res), faults)
	}
	if n := len(res[3001].Spec.(*resource.Dataplane).Networking.Outbound); n != 1000 {
		t.Errorf("%d outbounds", n)
	}
}

// TestVirtualOutbound checks the faults of VirtualOutbounds; "" means none.
func TestVirtualOutbound(t *testing.T) {
	registry, err := resource.NewRegistry(resource.Core()...)
	if err != nil {
		t.Fatal(err)
	}
	const params = "[{name: s, tagKey: kuma.io/service}, {name: port}]"
	for _, c := range []struct{ host, port, params, match, field, reason string }{
		{"{{.s}}.x", "{{ .port }}", params, "kuma.io/service: '*'", "", ""},
		{"{{.s}}.x", "80", params, "team: a", "", ""},
		{"", "80", params, "a: b", "conf.host", "missing"},
		{"x", "", params, "a: b", "conf.port", "missing"},
		{"{{.service}}", "80", params, "a: b", "conf.host", "{{ .service }} is not known"},
		{"{{s}}", "80", params, "a: b", "conf.host", "write {{ .name }}"},
		{"{{range .}}x{{end}}", "80", params, "a: b", "conf.host", "not known"},
		{"{{.s", "80", params, "a: b", "conf.host", "{{ without }}"},
		{"a}}", "80", params, "a: b", "conf.host", "}} without {{"},
		{"{{.s}}..x", "80", params, "a: b", "conf.host", "1 to 63 characters"},
		{"x", "{{.port}}000000", params, "a: b", "conf.port", "1 to 65535"},
		{"x", "0", params, "a: b", "conf.port", "1 to 65535"},
		{"x", "80", "[]", "a: b", "conf.parameters", "no parameter uses the tag kuma.io/service"},
		{"x", "80", "[{name: s, tagKey: kuma.io/service}, {name: s}]", "a: b", "conf.parameters[1].name", "two parameters"},
		{"x", "80", "[{name: s, tagKey: kuma.io/service}, {name: a-b}]", "a: b", "conf.parameters[1].name",
			"letters and digits"},
		{"x", "80", "[{name: s, tagKey: kuma.io/service}, {name: a, tagKey: 'x y'}]",
			"a: b", "conf.parameters[1].tagKey", "may contain only"},
		{"x", "80", params, "", "selectors[0].match", "no tag is given"},
	} {
		doc := fmt.Sprintf("{type: VirtualOutbound, name: v, selectors: [{match: {%s}}], conf: {host: %q, port: %q, "+
			"parameters: %s}}", c.match, c.host, c.port, c.params)
		rs, faults := registry.Decode("", []byte(doc))
		switch {
		case c.reason == "" && len(faults) == 0:
			if decoded, err := resource.Marshal(rs[0]); err != nil ||
				!strings.Contains(string(decoded), `"parameters":[{"name":"s","tagKey":"kuma.io/service"},{"name":"port"}]`) {
				t.Errorf("%s comes out as %s (%v)", doc, decoded, err)
			}
		case c.reason == "" || !slices.ContainsFunc(faults, func(f resource.Fault) bool {
			return f.Field == c.field && strings.Contains(f.Reason, c.reason)
		}):
			t.Errorf("%s\nwant a fault at %s with %q, got %v", doc, c.field, c.reason, faults)
		}
	}
}
