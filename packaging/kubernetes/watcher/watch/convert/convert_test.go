package convert_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/nearside-mesh/nearside/packaging/kubernetes/watcher/watch/convert"
)

// objects are the objects of a test case.
type objects struct {
	pods       []*convert.Pod
	services   []*convert.Service
	slices     []*convert.Slice
	namespaces map[string]*convert.Meta
	node       *convert.Meta
	custom     []map[string]any
}

func read(t *testing.T, text string) *objects {
	out := &objects{namespaces: map[string]*convert.Meta{}}
	for doc := range strings.SplitSeq(text, "---\n") {
		var head metav1.TypeMeta
		must(t, yaml.Unmarshal([]byte(doc), &head))
		switch head.Kind {
		case "Pod":
			out.pods = append(out.pods, convert.PodOf(decode[corev1.Pod](t, doc)))
		case "Service":
			out.services = append(out.services, convert.ServiceOf(decode[corev1.Service](t, doc)))
		case "EndpointSlice":
			out.slices = append(out.slices, convert.SliceOf(decode[discoveryv1.EndpointSlice](t, doc)))
		case "Namespace":
			m := convert.NamespaceOf(decode[metav1.PartialObjectMetadata](t, doc))
			out.namespaces[m.Name] = m
		case "Node":
			out.node = convert.NodeOf(decode[metav1.PartialObjectMetadata](t, doc))
		default:
			out.custom = append(out.custom, *decode[map[string]any](t, doc))
		}
	}
	return out
}

func decode[T any](t *testing.T, doc string) *T {
	t.Helper()
	out := new(T)
	must(t, yaml.UnmarshalStrict([]byte(doc), out))
	return out
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// render returns the resources of all objects, and the notes as comments.
func render(t *testing.T, o *objects) string {
	var out bytes.Buffer
	write := func(text []byte, notes []string, err error) {
		must(t, err)
		out.Write(text)
		for _, n := range notes {
			fmt.Fprintf(&out, "# note: %s\n", n)
		}
		fmt.Fprintln(&out, "---")
	}
	for _, p := range o.pods {
		if reason, noteworthy := convert.Skip(p); reason != "" {
			fmt.Fprintf(&out, "# pod %s: no Dataplane: %s (noteworthy: %v)\n---\n", p.Key, reason, noteworthy)
			continue
		}
		write(convert.Dataplane(p, o.services, o.namespaces[p.Namespace], o.node))
	}
	for _, s := range o.services {
		if reason := convert.SkipService(s, o.namespaces[s.Namespace]); reason != "" {
			fmt.Fprintf(&out, "# Service %s: no MeshService: %s\n---\n", s.Key, reason)
			continue
		}
		write(convert.MeshServices(s, o.slices, o.namespaces[s.Namespace]))
	}
	for _, c := range o.custom {
		text, skip, err := convert.Resource(c, []string{"nearside"})
		if skip != "" {
			skip = "no resource: " + skip
		}
		write(text, []string{skip}[:min(1, len(skip))], err)
	}
	return out.String()
}

// TestGolden compares the resources of objects with the expected ones.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.in.yaml")
	must(t, err)
	if len(files) < 8 {
		t.Fatalf("%d inputs", len(files))
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			must(t, err)
			got := render(t, read(t, string(text)))
			if again := render(t, read(t, string(text))); again != got {
				t.Errorf("the second result differs:\n%s", again)
			}
			golden := strings.Replace(file, ".in.yaml", ".out.yaml", 1)
			if os.Getenv("UPDATE_GOLDEN") != "" {
				must(t, os.WriteFile(golden, []byte(got), 0o644))
			}
			want, err := os.ReadFile(golden)
			must(t, err)
			if got != string(want) {
				t.Errorf("%s differs; UPDATE_GOLDEN=1 updates it:\n%s", golden, got)
			}
		})
	}
}

// TestKinds checks that the watcher reads the kinds of resources that the agent has a page about.
func TestKinds(t *testing.T) {
	pages, err := filepath.Glob("../../../../../docs/kinds/*.md")
	must(t, err)
	if len(pages) < 20 {
		t.Fatalf("%d pages of kinds", len(pages))
	}
	read := map[string]bool{}
	for _, k := range convert.Kinds() {
		if read[k] {
			t.Errorf("%s is listed twice", k)
		}
		read[strings.ToLower(k)] = true
	}
	for _, p := range pages {
		kind := strings.TrimSuffix(filepath.Base(p), ".md")
		switch kind {
		case "README", "legacy": // no kinds
		case "dataplane", "meshservice": // made from pods and Services
		case "workload", "zoneegress", "zoneingress": // written by control planes
		default:
			if !read[kind] {
				t.Errorf("the watcher does not read %s", kind)
			}
		}
	}
}

// FuzzResource checks that no custom resource causes a panic, and that only system namespaces can
// have resources without a role.
func FuzzResource(f *testing.F) {
	f.Add(`{"kind":"MeshTimeout","metadata":{"name":"a","namespace":"shop"},"spec":{"to":[{"targetRef":{"kind":"MeshService"}}]}}`)
	f.Add(`{"kind":"MeshTimeout","metadata":{"name":"a","namespace":"shop","labels":{"kuma.io/policy-role":"system"}},"spec":[]}`)
	f.Add(`{"kind":"Mesh","metadata":null,"spec":{"to":{}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		var o map[string]any
		if yaml.Unmarshal([]byte(text), &o) != nil {
			return
		}
		out, _, err := convert.Resource(o, []string{"nearside"})
		if err != nil || out == nil {
			return
		}
		var got struct {
			Metadata metav1.ObjectMeta
		}
		must(t, yaml.Unmarshal(out, &got))
		role := got.Metadata.Labels["kuma.io/policy-role"]
		if ns := got.Metadata.Namespace; ns != "" && ns != "nearside" && role != "producer" && role != "consumer" &&
			role != "workload-owner" {
			t.Errorf("role %q in namespace %q:\n%s", role, ns, out)
		}
	})
}
