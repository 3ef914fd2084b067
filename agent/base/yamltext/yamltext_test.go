package yamltext_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/nearside-mesh/nearside/agent/base/yamltext"
)

// edit applies one line of a test case: OP PATH JSON. The steps of PATH are separated by slashes.
func edit(t *testing.T, root *yamltext.Node, line string) error {
	t.Helper()
	op, rest, _ := strings.Cut(line, " ")
	path, json, ok := strings.Cut(rest, " ")
	value, err := yamltext.FromJSON([]byte(json))
	if !ok || err != nil {
		t.Fatalf("edit %q: %v", line, err)
	}
	steps := strings.Split(path, "/")
	if path == "." {
		steps = nil
	}
	n := root
	last := ""
	if op == "add" {
		last, steps = steps[len(steps)-1], steps[:len(steps)-1]
	}
	for _, s := range steps {
		next := n.Item(s)
		if n.Kind == yamltext.Mapping {
			next = n.Get(s)
		}
		if next == nil {
			t.Fatalf("edit %q: no %s", line, s)
		}
		n = next
	}
	switch op {
	case "add":
		return n.AddKey(last, value)
	case "prepend":
		return n.Prepend(value)
	case "append":
		return n.Append(value)
	case "set":
		return n.SetScalar(value)
	}
	t.Fatalf("edit %q: unknown operation", line)
	return nil
}

// run applies the edits of a case to the first document of a text.
func run(t *testing.T, text, edits string) string {
	t.Helper()
	f, fault := yamltext.Parse([]byte(text))
	if fault != nil {
		return "fault: " + fault.String() + "\n"
	}
	root, fault := f.Root(0)
	if fault != nil {
		return "fault: " + fault.String() + "\n"
	}
	for line := range strings.Lines(edits) {
		if err := edit(t, root, strings.TrimSuffix(line, "\n")); err != nil {
			return "refused: " + err.Error() + "\n"
		}
	}
	out, fault := f.Text()
	if fault != nil {
		return "fault: " + fault.String() + "\n"
	}
	return string(out)
}

// TestCases runs the cases of testdata: a text, edits, and the text that results.
func TestCases(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no cases", err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			got := run(t, string(a.Files[0].Data), string(a.Files[1].Data))
			if os.Getenv("UPDATE_GOLDEN") != "" {
				a.Files = append(a.Files[:2], txtar.File{Name: "out", Data: []byte(got)})
				if err := os.WriteFile(name, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(a.Files[2].Data), got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestBytesStay checks texts whose line ends a case file cannot show.
func TestBytesStay(t *testing.T) {
	for name, c := range map[string]struct{ text, edits, want string }{
		"CRLF": {"a:\r\n  b: 1\r\n", "add a/x {\"y\":[1]}\n",
			"a:\r\n  x:\r\n    \"y\":\r\n    - 1\r\n  b: 1\r\n"},
		"no final newline":               {"a:\n- 1", "append a 2\n", "a:\n- 1\n- 2"},
		"no final newline after a block": {"a:\n- |+\n  x\n", "append a 2\n", "a:\n- |+\n  x\n- 2\n"},
		"trailing spaces":                {"a: \n  b: 1 \n", "add a/x 2\n", "a: \n  x: 2\n  b: 1 \n"},
		"byte order mark": {"\ufeffa:\n  b: 1\n", "add a/x 2\nadd w 3\n",
			"\ufeffw: 3\na:\n  x: 2\n  b: 1\n"},
		"tab before a comment": {"a:\t# c\n  b: 1\n", "add a/x 2\n", "a:\t# c\n  x: 2\n  b: 1\n"},
		"CR alone":             {"a:\r  b: 1\r", "add a/x 2\n", "a:\r  x: 2\n  b: 1\r"},
		"next line": {"s: \"a\u0085b\"\na:\n  b: 1\n", "add a/x 2\n",
			"s: \"a\u0085b\"\na:\n  x: 2\n  b: 1\n"},
		"empty value at the end": {"a:", "add a/x 2\n", "a:\n  x: 2"},
		"compact JSON":           {`{"a":{"b":1}}`, "add a/x [1]\n", `{"a":{"x": [1], "b":1}}`},
		"surrogates":             {`{"a":{"b":"\ud83d\ude00"}}`, "add a/x 1\n", `{"a":{"x": 1, "b":"\ud83d\ude00"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := run(t, c.text, c.edits); got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

func TestUnreadable(t *testing.T) {
	for text, want := range map[string]string{
		"a: \xff":              "line 1: the text is not valid UTF-8",
		"\xff\xfea":            "UTF-16",
		"a:\n\tb: 1\n":         "indent with spaces",
		"a: &x\n  b: *x\n":     "inside its own anchor",
		"? {a: b}\n: c\n":      "a key must be a scalar",
		"a: 1\n b: 2\n":        "not valid YAML",
		"a: {<<: 1}\n":         "merge key",
		"a: [1, 2\n":           "not valid YAML",
		strings.Repeat("[", 9): "not valid YAML",
	} {
		f, fault := yamltext.Parse([]byte(text))
		if fault == nil {
			_, fault = f.Root(0)
		}
		if fault == nil || !strings.Contains(fault.String(), want) {
			t.Errorf("%q: %v; want %q", text, fault, want)
		}
	}
}

// TestExpansion bounds the values that nested aliases add.
func TestExpansion(t *testing.T) {
	var b strings.Builder
	b.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := range 8 {
		b.WriteString(strings.NewReplacer("N", string(rune('1'+i)), "M", string(rune('0'+i))).
			Replace("aN: &aN [*aM, *aM, *aM, *aM, *aM, *aM, *aM, *aM, *aM, *aM]\n"))
	}
	f, fault := yamltext.Parse([]byte(b.String()))
	if fault != nil {
		t.Fatal(fault)
	}
	if _, fault = f.Root(0); fault == nil || !strings.Contains(fault.Reason, "aliases add more than") {
		t.Errorf("got %v", fault)
	}
}

// FuzzText adds a key to the first mapping and an item to the first list of any text. The result
// without the insertions must be the text.
func FuzzText(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.txtar")
	for _, name := range files {
		if a, err := txtar.ParseFile(name); err == nil {
			f.Add(a.Files[0].Data)
		}
	}
	f.Add([]byte("a: [1, # x\n 'it''s', \"]\\\"\", b c,]\nd: |+2\n    x\n\n\ne: >-\n y\n z\nf: &x !!str g\n  h\ni: *x\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, fault := yamltext.Parse(text)
		if fault != nil {
			return
		}
		for doc := range file.Len() {
			root, fault := file.Root(doc)
			if fault != nil || root == nil {
				return
			}
			grow(root)
		}
		out, fault := file.Text()
		if fault == nil && !subsequence(text, out) {
			t.Errorf("bytes of %q are not all in %q", text, out)
		}
	})
}

// grow edits all mappings and lists that accept it.
func grow(n *yamltext.Node) {
	for _, k := range n.Keys {
		grow(k.Value)
	}
	for _, it := range n.Items {
		grow(it)
	}
	value, _ := yamltext.FromJSON([]byte(`{"new": ["value", "multi\nline\n"]}`))
	switch n.Kind {
	case yamltext.Mapping:
		_ = n.AddKey("nearside.io/added", value)
	case yamltext.Sequence:
		_ = n.Prepend(value)
		_ = n.Append(value)
	}
}

// subsequence reports whether the bytes of a are in b in this order.
func subsequence(a, b []byte) bool {
	for _, c := range a {
		i := bytes.IndexByte(b, c)
		if i < 0 {
			return false
		}
		b = b[i+1:]
	}
	return true
}
