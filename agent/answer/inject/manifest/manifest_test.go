package manifest_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"github.com/nearside-mesh/nearside/agent/answer/inject"
	"github.com/nearside-mesh/nearside/agent/answer/inject/manifest"
)

// inputs returns the manifests of testdata.
func inputs(t testing.TB) []manifest.Text {
	t.Helper()
	names, err := filepath.Glob("testdata/in/*")
	if err != nil || len(names) < 40 {
		t.Fatalf("%d manifests: %v", len(names), err)
	}
	out := make([]manifest.Text, len(names))
	for i, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		out[i] = manifest.Text{Name: filepath.Base(name), Data: data}
	}
	return out
}

// hash and config match what changes with each version of the sidecar.
var (
	hash   = regexp.MustCompile(`("?nearside.io/injection"?: "?)[0-9a-f]{16}`)
	config = regexp.MustCompile(`"node:\\n.*"`)
	body   = regexp.MustCompile(`(?m)^( *)- name: nearside-envoy\r?\n( +image:)`)
)

// shortened leaves out the body of the sidecar, which tests of the plan compare.
func shortened(text []byte) string {
	text = config.ReplaceAll(hash.ReplaceAll(text, []byte("${1}HASH")), []byte(`"CONFIG"`))
	for {
		at := body.FindSubmatchIndex(text)
		if at == nil {
			return string(text)
		}
		indent := at[3] - at[2]
		end := at[4]
		for end < len(text) {
			line, _, _ := bytes.Cut(text[end:], []byte("\n"))
			if len(bytes.TrimSpace(line)) > 0 && len(line)-len(bytes.TrimLeft(line, " ")) <= indent {
				break
			}
			end = min(end+len(line)+1, len(text))
		}
		text = append(append(append([]byte{}, text[:at[4]]...), bytes.Repeat([]byte(" "), indent+2)...),
			append([]byte("SIDECAR\n"), text[end:]...)...)
	}
}

// report returns the outcomes of the objects as text.
func report(r *manifest.Result) string {
	var b strings.Builder
	for _, o := range r.Objects {
		fmt.Fprintf(&b, "# %d: %s: %s", o.Line, o.Name, o.Outcome)
		if o.Reason != "" {
			fmt.Fprintf(&b, ": %s", o.Reason)
		}
		b.WriteString("\n")
		for _, n := range o.Notes {
			fmt.Fprintf(&b, "#   %s: %s\n", n.Field, n.Text)
		}
	}
	return b.String()
}

func TestGolden(t *testing.T) {
	for _, in := range inputs(t) {
		t.Run(in.Name, func(t *testing.T) {
			r, err := manifest.Inject([]manifest.Text{in}, manifest.Options{})
			if err != nil {
				t.Fatal(err)
			}
			checkUnchanged(t, in.Data, r.Texts[0].Data)
			got := report(r) + shortened(r.Texts[0].Data)
			name := filepath.Join("testdata", "out", in.Name)
			if os.Getenv("UPDATE_GOLDEN") != "" {
				if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("-want +got (UPDATE_GOLDEN=1 updates):\n%s", diff)
			}
		})
	}
}

// TestTwice injects the results again: nothing may change.
func TestTwice(t *testing.T) {
	r, err := manifest.Inject(inputs(t), manifest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	second, err := manifest.Inject(r.Texts, manifest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i, text := range second.Texts {
		if !bytes.Equal(text.Data, r.Texts[i].Data) {
			t.Errorf("%s changes when it is injected again", text.Name)
		}
	}
	for _, o := range second.Objects {
		if o.Outcome == manifest.Injected || len(o.Notes) > 0 {
			t.Errorf("%s %s: %s %v", o.File, o.Name, o.Outcome, o.Notes)
		}
	}
}

// TestOtherVersion reports a pod that was injected with other options.
func TestOtherVersion(t *testing.T) {
	r, err := manifest.Inject(inputs(t)[:1], manifest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o := manifest.Options{Options: inject.Options{EnvoyImage: "registry.example.org/envoy:v1.40.0"}}
	second, err := manifest.Inject(r.Texts, o)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(second.Texts[0].Data, r.Texts[0].Data) {
		t.Error("the text has changed")
	}
	if notes := second.Objects[0].Notes; len(notes) != 1 || !notes[0].Warning {
		t.Errorf("notes: %v", notes)
	}
}

// checkUnchanged checks that out has all bytes of in, and that the values of all documents are
// equal except for what an injection may add.
func checkUnchanged(t rapid.TB, in, out []byte) {
	t.Helper()
	virtual := bytes.Contains(in, []byte("virtual-probes: enabled"))
	rest := out
	for _, c := range in {
		i := bytes.IndexByte(rest, c)
		if i < 0 {
			if !virtual { // replaces the ports and paths of probes
				t.Fatal("a byte of the input is missing")
			}
			break
		}
		rest = rest[i+1:]
	}
	a, b := documents(t, in), documents(t, out)
	if len(a) != len(b) {
		t.Fatalf("%d documents became %d", len(a), len(b))
	}
	for i := range a {
		compare(t, a[i], b[i], "")
	}
}

func documents(t rapid.TB, text []byte) (out []any) {
	t.Helper()
	for dec := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var doc any
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			if bytes.Contains(text, []byte(`\ud83d`)) { // only the JSON parser accepts it
				return nil
			}
			t.Fatal(err)
		}
		out = append(out, doc)
	}
}

// added matches the values that an injection adds, and replaced those of virtual probes.
var (
	added = regexp.MustCompile(`(^|[./\]])(metadata(\.annotations(\.(kuma|nearside)\.io/[a-z-]+)?)?|` +
		`spec\.(initContainers|volumes|terminationGracePeriodSeconds)|(containers|initContainers)\[\]\.lifecycle)$`)
	replaced = regexp.MustCompile(`Probe\.(httpGet|tcpSocket)\.(port|path)$`)
)

// compare compares a value before and after an injection.
func compare(t rapid.TB, before, after any, path string) {
	t.Helper()
	switch before := before.(type) {
	case map[string]any:
		after, ok := after.(map[string]any)
		if !ok {
			t.Fatalf("%s is no mapping", path)
		}
		for key, v := range before {
			if w, ok := after[key]; !ok {
				t.Fatalf("%s.%s is missing", path, key)
			} else if !(v == nil && added.MatchString(path+"."+key)) {
				compare(t, v, w, strings.TrimPrefix(path+"."+key, "."))
			}
		}
		for key := range after {
			if _, ok := before[key]; !ok && !added.MatchString(strings.TrimPrefix(path+"."+key, ".")) {
				t.Fatalf("%s.%s was added", path, key)
			}
		}
	case []any:
		after, _ := after.([]any)
		i := 0
		for _, w := range after {
			m, _ := w.(map[string]any)
			if name, _ := m["name"].(string); strings.HasPrefix(name, "nearside") {
				continue
			}
			if i >= len(before) {
				t.Fatalf("%s has more items", path)
			}
			compare(t, before[i], w, path+"[]")
			i++
		}
		if i != len(before) {
			t.Fatalf("%s has fewer items", path)
		}
	default:
		if before != after && !replaced.MatchString(path) {
			t.Fatalf("%s: %v became %v", path, before, after)
		}
	}
}

// TestProperty changes the forms of manifests at random. Each is injected without another change,
// or refused.
func TestProperty(t *testing.T) {
	all := inputs(t)
	rapid.Check(t, func(t *rapid.T) {
		var text []byte
		for _, in := range rapid.SliceOfN(rapid.SampledFrom(all), 1, 3).Draw(t, "manifests") {
			if bytes.Contains(in.Data, []byte("virtual-probes: enabled")) {
				continue
			}
			if len(text) > 0 {
				text = append(text, "\n---\n"...)
			}
			text = append(text, bytes.TrimPrefix(in.Data, []byte("\ufeff"))...)
		}
		lines := strings.SplitAfter(string(text), "\n")
		for range rapid.IntRange(0, 5).Draw(t, "edits") {
			i := rapid.IntRange(0, len(lines)-1).Draw(t, "line")
			indent := lines[i][:len(lines[i])-len(strings.TrimLeft(lines[i], " "))]
			switch rapid.IntRange(0, 4).Draw(t, "edit") {
			case 0:
				lines[i] = indent + "# comment: [\n" + lines[i]
			case 1:
				lines[i] = "\n" + lines[i]
			case 2:
				lines[i] = strings.TrimSuffix(lines[i], "\n") + " # 'x\n"
			case 3:
				lines[i] = strings.TrimSuffix(lines[i], "\n") + "  \n"
			case 4:
				lines[i] = strings.Replace(lines[i], ": ", ":   ", 1)
			}
		}
		changed := strings.Join(lines, "")
		if rapid.Bool().Draw(t, "CRLF") {
			changed = strings.ReplaceAll(strings.ReplaceAll(changed, "\r\n", "\n"), "\n", "\r\n")
		}
		if rapid.Bool().Draw(t, "cut") {
			changed = strings.TrimRight(changed, "\r\n")
		}
		r, err := manifest.Inject([]manifest.Text{{Name: "in", Data: []byte(changed)}}, manifest.Options{})
		if err == nil {
			checkUnchanged(t, []byte(changed), r.Texts[0].Data)
		}
	})
}

// FuzzInject checks that no input causes a panic, and that bytes stay.
func FuzzInject(f *testing.F) {
	for _, in := range inputs(f) {
		f.Add(in.Data)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := manifest.Inject([]manifest.Text{{Name: "in", Data: text}}, manifest.Options{})
		if err == nil && len(r.Objects) == 0 && !bytes.Equal(r.Texts[0].Data, text) {
			t.Error("a text without pods has changed")
		}
	})
}

// BenchmarkInject injects 100 Deployments of one stream.
func BenchmarkInject(b *testing.B) {
	var text bytes.Buffer
	for _, in := range inputs(b)[:1] {
		for i := range 100 {
			fmt.Fprintf(&text, "---\n%s", bytes.ReplaceAll(in.Data, []byte("tiller"), fmt.Appendf(nil, "tiller-%d", i)))
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		r, err := manifest.Inject([]manifest.Text{{Name: "in", Data: text.Bytes()}}, manifest.Options{})
		if err != nil || len(r.Objects) != 100 {
			b.Fatal(err)
		}
	}
}
