package importer_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nearside-mesh/nearside/agent/answer/importer"
	"github.com/nearside-mesh/nearside/agent/answer/offline"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

func read(docs string) *importer.Report {
	return importer.Read([]importer.Text{{Name: "export.yaml", Data: []byte(docs)}}, "/etc/mesh/secrets")
}

// shown returns a report with the canonical form of the resulting files.
func shown(t *testing.T, r *importer.Report) string {
	t.Helper()
	var b strings.Builder
	for i := range r.Documents {
		d := &r.Documents[i]
		fmt.Fprintf(&b, "%d %s: %s\n", d.Index, d.ID(), d.Action)
		for _, reason := range d.Reasons {
			fmt.Fprintf(&b, "    %s\n", reason)
		}
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", w)
	}
	if r.Unusable != "" {
		fmt.Fprintf(&b, "unusable: %s\n", r.Unusable)
	}
	for _, f := range r.Files {
		fmt.Fprintf(&b, "-- %s (private: %v) --\n%s", f.Name, f.Private, f.Data)
		if f.Data != nil {
			b.WriteByte('\n')
		}
		for _, res := range f.Resources {
			doc, err := resource.Marshal(res)
			if err != nil {
				t.Fatal(err)
			}
			b.Write(append(doc, '\n'))
		}
	}
	return b.String()
}

// TestExports reads exports of several versions of Kuma. The resulting resources are valid.
func TestExports(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			r := read(string(data))
			var docs bytes.Buffer
			for _, f := range r.Files {
				for _, res := range f.Resources {
					doc, _ := resource.Marshal(res)
					docs.Write(append(doc, "\n---\n"...))
				}
			}
			if _, faults := offline.Read([]offline.Text{{Name: "result", Data: docs.Bytes()}}); len(faults) > 0 {
				t.Error(faults)
			}
			golden, got := strings.TrimSuffix(file, ".yaml")+".golden", shown(t, r)
			if os.Getenv("UPDATE_GOLDEN") != "" {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), got); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestFaults checks exports with one fault each: the action on the documents, and a reason.
func TestFaults(t *testing.T) {
	const (
		head = "# Product: Kuma, Version: 2.9.1, Hostname: a, ClusterId: b, InstanceId: c\n"
		bare = "---\ncreationTime: \"0001-01-01T00:00:00Z\"\nname: a\ntype: Mesh\n"
		mesh = "---\ncreationTime: \"2024-01-01T00:00:00Z\"\nname: a\ntype: Mesh\n" +
			"mtls:\n  enabledBackend: b\n  backends: [{name: b, type: builtin}]\n"
		plain   = "---\ncreationTime: \"2024-01-01T00:00:00Z\"\nname: a\ntype: Mesh\n"
		timeout = "---\ntype: MeshTimeout\nmesh: a\nname: t\n" +
			"spec: {to: [{targetRef: {kind: Mesh}, default: {connectionTimeout: %ds}}]}\n"
	)
	one, two := fmt.Sprintf(timeout, 1), fmt.Sprintf(timeout, 2)
	secret := "---\ntype: Secret\nmesh: a\nname: %s\ndata: %s\n"
	tls := "---\ntype: MeshExternalService\nmesh: a\nname: e\n" +
		"spec: {match: {type: HostnameGenerator, port: 443, protocol: tcp}, " +
		"endpoints: [{address: e.com, port: 443}], " +
		"tls: {enabled: true, verification: {caCert: {secret: %s}}}}\n"
	for name, c := range map[string]struct {
		docs, actions, reason string
	}{
		"declaration and document": {head + bare + mesh + one,
			"left out, taken, taken", "which document 2 of export.yaml completes"},
		"declaration of a mesh without settings": {head + bare + plain + one,
			"left out, taken, taken", ""},
		"declaration alone": {head + bare + one,
			"refused, taken", "the export is truncated"},
		"mesh at the end": {head + bare + plain,
			"left out, taken", "the mesh may lack settings"},
		"cut line": {head + mesh + strings.TrimSuffix(one, "\n"),
			"taken, refused", "may be truncated"},
		"cut value": {head + mesh + one[:len(one)-3],
			"taken, refused", "may be truncated"},
		"other content": {mesh + one + two,
			"taken, refused, refused", "defines the same resource with other content"},
		"same content": {mesh + one + "---\nmodificationTime: x\n" + one[4:],
			"taken, taken, left out", "the same as document 2"},
		"mesh twice": {mesh + strings.Replace(mesh, "builtin", "provided", 1) + one,
			"refused, refused, taken", "other content"},
		"missing mesh": {one,
			"taken", "Mesh/a is not taken from the export: 1 resources"},
		"unknown kind": {mesh + "---\ntype: MeshSpell\nmesh: a\nname: x\nspec: {}\n",
			"taken, refused", `unknown kind "MeshSpell"`},
		"unknown field": {mesh + strings.Replace(one, "connectionTimeout", "connectTimeout", 1),
			"taken, refused", `spec.to[0].default.connectTimeout: unknown field`},
		"missing secret": {mesh + fmt.Sprintf(tls, "s"),
			"taken, refused", `the Secret "s" is not in the export`},
		"secret of another mesh": {mesh + strings.Replace(fmt.Sprintf(secret, "s", "YQ=="), "mesh: a", "mesh: b", 1) +
			fmt.Sprintf(tls, "s"),
			"taken, left out, refused", `the Secret "s" is not in the export`},
		"damaged secret": {mesh + fmt.Sprintf(secret, "s", "<base64>") + fmt.Sprintf(tls, "s"),
			"taken, left out, refused", "its data is not base64"},
		"name of a secret": {mesh + fmt.Sprintf(secret, "../../s", "YQ==") + fmt.Sprintf(tls, "../../s"),
			"taken, left out, refused", "its name cannot be a file name"},
		"version 3": {strings.Replace(head, "2.9.1", "3.0.0", 1) + mesh + one,
			"taken, taken", "export from a control plane of Kuma"},
		"later version": {strings.Replace(head, "2.9.1", "2.99.0", 1) + mesh + one,
			"taken, taken", "and the newest known version is"},
		"no resource": {"- a\n",
			"refused", "is not a resource"},
		"not text": {head + "\xff\xfe\n",
			"refused", "is not UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			r := read(c.docs)
			var actions []string
			text := strings.Join(r.Warnings, "\n") + "\n" + r.Unusable
			counts := map[string]int{}
			for i := range r.Documents {
				d := &r.Documents[i]
				actions, text = append(actions, d.Action), text+"\n"+strings.Join(d.Reasons, "\n")
				counts[d.Action]++
				if (d.Action == importer.Taken) != (len(d.Reasons) == 0) {
					t.Errorf("%s: %s: %q", d.ID(), d.Action, d.Reasons)
				}
			}
			if got := strings.Join(actions, ", "); got != c.actions {
				t.Errorf("%s, want %s\n%s", got, c.actions, text)
			}
			if !strings.Contains(text, c.reason) {
				t.Errorf("want %q in\n%s", c.reason, text)
			}
			if d := cmp.Diff(counts, r.Counts); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestCutExports cuts an export after each line, and inside of lines. The resulting mesh never
// lacks its mTLS, and a document that ends early is refused.
func TestCutExports(t *testing.T) {
	data, err := os.ReadFile("testdata/kuma-2.7-universal.yaml")
	if err != nil {
		t.Fatal(err)
	}
	whole := shown(t, read(string(data)))
	for n := 1; n < len(data); n++ {
		if data[n-1] != '\n' && n%7 > 0 {
			continue
		}
		r := read(string(data[:n]))
		if n > 200 && data[n-1] != '\n' && r.Counts[importer.Refused] == 0 {
			t.Errorf("%d bytes: nothing is refused", n)
		}
		for _, f := range r.Files {
			if i := slices.IndexFunc(f.Resources, func(x *resource.Resource) bool { return x.Kind == "Mesh" }); i >= 0 {
				m := f.Resources[i].Spec.(*resource.Mesh)
				ends := len(r.Warnings) > 0 || r.Counts[importer.Refused] > 0
				if m.MTLSEnabled() == nil && !ends {
					t.Errorf("%d bytes: a mesh without mTLS", n)
				}
			}
			for _, res := range f.Resources {
				if doc, err := resource.Marshal(res); err != nil || data[n-1] != '\n' && !strings.Contains(whole, string(doc)) {
					t.Errorf("%d bytes: %s %v", n, doc, err)
				}
			}
		}
	}
}

// BenchmarkRead reads an export with 5,000 resources.
func BenchmarkRead(b *testing.B) {
	docs := large(5000)
	b.SetBytes(int64(len(docs)))
	for b.Loop() {
		if r := read(docs); r.Counts[importer.Taken] != 5000 {
			b.Fatal(r.Counts, r.Warnings)
		}
	}
}

// large returns an export with n resources.
func large(n int) string {
	var b strings.Builder
	b.WriteString("# Product: Kuma, Version: 2.9.1, Hostname: a, ClusterId: b, InstanceId: c\n---\n" +
		"creationTime: \"0001-01-01T00:00:00Z\"\nname: shop\ntype: Mesh\n" +
		"---\nname: shop\ntype: Mesh\nmeshServices:\n  mode: Exclusive\n")
	for i := range n - 1 {
		b.WriteString("---\ncreationTime: \"2024-03-01T08:00:00Z\"\nmesh: shop\nmodificationTime: \"2024-03-01T08:00:00Z\"\n")
		if i%2 == 0 {
			fmt.Fprintf(&b, "name: web-%d\ntype: Dataplane\nnetworking:\n  address: 10.0.%d.%d\n  inbound:\n  - port: 80\n"+
				"    servicePort: 8080\n"+
				"    tags:\n      kuma.io/protocol: http\n      kuma.io/service: web-%d\n      kuma.io/zone: east\n",
				i, i/250, i%250, i)
			continue
		}
		fmt.Fprintf(&b, "name: t-%d\nspec:\n  targetRef:\n    kind: Mesh\n  to:\n  - targetRef:\n      kind: MeshService\n"+
			"      name: web-%d\n    default:\n      connectionTimeout: 5s\n"+
			"      http:\n        requestTimeout: 9s\ntype: MeshTimeout\n",
			i, i-1)
	}
	return b.String()
}
