package house

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rogpeppe/go-internal/txtar"
)

// root is the module's root relative to this package.
const root = "../../.."

// TestHouse checks the module against all rules.
func TestHouse(t *testing.T) {
	tree, err := load(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	if len(tree.pkgs) < 5 {
		t.Fatalf("only %d packages found below %s: is the root right?", len(tree.pkgs), root)
	}
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			for _, b := range sorted(r.check(tree)) {
				t.Error(b)
			}
		})
	}
}

// TestRulesCanFail runs each rule on small trees: testdata/RULE-CASE.txtar contains a tree and a
// file "want" with one line "place: words of the message" for each expected violation. Without
// lines, the tree must have no violation.
func TestRulesCanFail(t *testing.T) {
	cases, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]int{} // number of cases with violations, by rule
	for _, name := range cases {
		base := strings.TrimSuffix(path.Base(filepath.ToSlash(name)), ".txtar")
		t.Run(base, func(t *testing.T) {
			ruleName, _, _ := strings.Cut(base, "-")
			i := slices.IndexFunc(rules, func(r rule) bool { return r.name == ruleName })
			if i < 0 {
				t.Fatalf("no rule is named %q", ruleName)
			}
			src, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			fsys := archiveFS(t, string(src))
			want := wanted(t, fsys)
			tree, err := load(fsys)
			if err != nil {
				t.Fatal(err)
			}
			got := sorted(rules[i].check(tree))
			if len(got) > 0 {
				shown[ruleName]++
			}
			for _, g := range got {
				j := slices.IndexFunc(want, func(w breach) bool { return g.at == w.at && strings.Contains(g.why, w.why) })
				if j < 0 {
					t.Errorf("unexpected: %v", g)
					continue
				}
				want = slices.Delete(want, j, j+1)
			}
			for _, w := range want {
				t.Errorf("not found: %v", w)
			}
		})
	}
	for _, r := range rules {
		if shown[r.name] == 0 {
			t.Errorf("no tree in testdata breaks the rule %q, so nothing shows that it works", r.name)
		}
	}
}

// archiveFS returns the file system of a txtar archive. It adds a go.mod if there is none.
func archiveFS(t *testing.T, archive string) fs.FS {
	t.Helper()
	out := fstest.MapFS{"go.mod": {Data: []byte("module example.org/m\n")}}
	for _, f := range txtar.Parse([]byte(archive)).Files {
		out[f.Name] = &fstest.MapFile{Data: f.Data}
	}
	return out
}

// wanted reads the expected violations of a tree.
func wanted(t *testing.T, fsys fs.FS) []breach {
	t.Helper()
	src, err := fs.ReadFile(fsys, "want")
	if err != nil {
		t.Fatal("the archive has no file \"want\"")
	}
	var out []breach
	for line := range strings.Lines(string(src)) {
		at, why, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok {
			t.Fatalf("want: %q is not \"place: words\"", line)
		}
		out = append(out, breach{at, why})
	}
	return out
}

// sorted sorts violations by position, because rules iterate over maps.
func sorted(bs []breach) []breach {
	slices.SortFunc(bs, func(a, b breach) int { return strings.Compare(a.String(), b.String()) })
	return bs
}
