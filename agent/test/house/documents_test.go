package house

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

// Patterns in documents. Code is removed before links are searched.
var (
	fence   = regexp.MustCompile("(?ms)^[ \t]*```([a-z]*)[^\n]*\n(.*?)^[ \t]*```[ \t]*$")
	span    = regexp.MustCompile("`[^`\n]+`")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6}[ \t]+(.+?)[ \t]*$`)
	anchor  = regexp.MustCompile(`<a id="([^"]+)">`)
	comment = regexp.MustCompile(`(?s)<!--.*?-->`)
	target  = regexp.MustCompile(`(?m)^([a-z]+(?:-[a-z]+)*):`)
	makeUse = regexp.MustCompile(`\bmake ([a-z]+(?:-[a-z]+)*)`)
)

// documents returns the Markdown files of the tree by path.
func documents(t *testing.T, fsys fs.FS) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && name != "." || d.Name() == "testdata" || name == "bin" ||
			name == "dist" || name == "nearside-data"):
			return fs.SkipDir
		case !d.Type().IsRegular() || path.Ext(name) != ".md":
			return nil
		}
		text, err := fs.ReadFile(fsys, name)
		out[name] = comment.ReplaceAllString(string(text), "")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// brokenLinks lists relative links of documents whose file or heading does not exist.
func brokenLinks(fsys fs.FS, docs map[string]string) []breach {
	var out []breach
	for _, name := range slices.Sorted(maps.Keys(docs)) {
		prose := span.ReplaceAllString(fence.ReplaceAllString(docs[name], ""), "")
		for _, m := range link.FindAllStringSubmatch(prose, -1) {
			u, err := url.Parse(m[1])
			if err != nil {
				out = append(out, breach{name, fmt.Sprintf("the link %q is no URL: %v", m[1], err)})
				continue
			}
			if u.Scheme != "" {
				continue // external links are not checked
			}
			to := name
			if u.Path != "" {
				to = path.Join(path.Dir(name), u.Path)
			}
			if _, err := fs.Stat(fsys, to); err != nil {
				out = append(out, breach{name, fmt.Sprintf("the link %q leads to no file", m[1])})
				continue
			}
			if u.Fragment != "" && !anchors(docs[to])[u.Fragment] {
				out = append(out, breach{name, fmt.Sprintf("the link %q leads to no heading of %s", m[1], to)})
			}
		}
	}
	return out
}

// anchors returns the fragments that links to a document can use: those that GitHub derives from
// its headings, and the IDs of its anchors.
func anchors(doc string) map[string]bool {
	out := map[string]bool{}
	for _, m := range anchor.FindAllStringSubmatch(doc, -1) {
		out[m[1]] = true
	}
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(doc, ""), -1) {
		a := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r > 0x7f:
				return r
			}
			return -1
		}, strings.ToLower(m[1]))
		for i, base := 1, a; out[a]; i++ {
			a = base + "-" + strconv.Itoa(i)
		}
		out[a] = true
	}
	return out
}

// orphans lists the documents below docs that no other document links to.
func orphans(docs map[string]string) []string {
	linked := map[string]bool{}
	for name, doc := range docs {
		for _, m := range link.FindAllStringSubmatch(doc, -1) {
			to, _, _ := strings.Cut(m[1], "#")
			if p := path.Join(path.Dir(name), to); p != name {
				linked[p] = true
			}
		}
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(docs)) {
		if strings.HasPrefix(name, "docs/") && !linked[name] {
			out = append(out, name)
		}
	}
	return out
}

func TestDocumentsLinkToWhatExists(t *testing.T) {
	fsys := os.DirFS(root)
	docs := documents(t, fsys)
	if len(docs) < 5 {
		t.Fatalf("only %d documents found below %s", len(docs), root)
	}
	for _, b := range brokenLinks(fsys, docs) {
		t.Error(b)
	}
	for _, o := range orphans(docs) {
		t.Errorf("%s: no document links to it, so nobody finds it", o)
	}
}

// TestPicturesCanBeRead checks that each picture is well-formed, has a title, and has colors for
// dark pages.
func TestPicturesCanBeRead(t *testing.T) {
	pictures, err := fs.Glob(os.DirFS(root), "docs/*.svg")
	if err != nil || len(pictures) == 0 {
		t.Fatal("no picture in docs", err)
	}
	for _, name := range pictures {
		text, err := os.ReadFile(root + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		d := xml.NewDecoder(bytes.NewReader(text))
		for err == nil {
			_, err = d.Token()
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", name, err)
		}
		for _, want := range []string{"<title ", "<desc ", "prefers-color-scheme: dark", "viewBox="} {
			if !bytes.Contains(text, []byte(want)) {
				t.Errorf("%s has no %s", name, want)
			}
		}
	}
}

// TestBrokenLinksAreFound checks that the link check finds errors.
func TestBrokenLinksAreFound(t *testing.T) {
	fsys := fstest.MapFS{
		"README.md": {Data: []byte("[a](docs/a.md) [b](docs/b.md#two-words) " +
			"[k](docs/b.md#a.key) [c](docs/b.md#nothing) [d](gone.md) " +
			"[e](https://example.org/x) [f](#top) `[g](not/a/link.md)`\n```\n[h](nor/this.md)\n```\n# Top\n")},
		"docs/a.md": {Data: []byte("[up](../README.md) <!-- [x](commented/out.md) -->")},
		"docs/b.md": {Data: []byte("## Two *words*!\n| <a id=\"a.key\"></a>`a.key` |\n")},
		"docs/c.md": {Data: []byte("alone; links to [itself](c.md)")},
	}
	docs := documents(t, fsys)
	var got []string
	for _, b := range brokenLinks(fsys, docs) {
		got = append(got, b.String())
	}
	want := []string{
		`README.md: the link "docs/b.md#nothing" leads to no heading of docs/b.md`,
		`README.md: the link "gone.md" leads to no file`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("broken links: %q, want %q", got, want)
	}
	if got := orphans(docs); !slices.Equal(got, []string{"docs/c.md"}) {
		t.Errorf("orphans: %q, want docs/c.md", got)
	}
}

// TestDocumentsNameTargetsThatExist checks that the Makefile contains every "make TARGET" in the
// documents' code, and declares its targets phony.
func TestDocumentsNameTargetsThatExist(t *testing.T) {
	fsys := os.DirFS(root)
	makefile, err := fs.ReadFile(fsys, "Makefile")
	if err != nil {
		t.Fatal(err)
	}
	targets := map[string]bool{}
	for _, m := range target.FindAllStringSubmatch(string(makefile), -1) {
		targets[m[1]] = true
	}
	for _, want := range []string{"build", "run", "demo", "test", "race", "fuzz", "lint", "bench", "golden"} {
		if !targets[want] {
			t.Errorf("Makefile: no target %s", want)
		}
	}
	for name, doc := range documents(t, fsys) {
		code := strings.Join(span.FindAllString(doc, -1), "\n")
		for _, m := range fence.FindAllStringSubmatch(doc, -1) {
			code += "\n" + m[2]
		}
		for _, m := range makeUse.FindAllStringSubmatch(code, -1) {
			if !targets[m[1]] {
				t.Errorf("%s: make %s: the Makefile has no such target", name, m[1])
			}
		}
	}
}

// TestWingsAreDescribed checks that ARCHITECTURE.md lists each wing with its floor, and that each
// wing of the agent has a short README.
func TestWingsAreDescribed(t *testing.T) {
	text, err := os.ReadFile(root + "/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| (\\d) \\| `([a-z/]+)` \\|").FindAllStringSubmatch(string(text), -1) {
		shown[m[2]] = m[1]
	}
	for wing, floor := range wings {
		if want := strconv.Itoa(floor); shown[wing] != want {
			t.Errorf("ARCHITECTURE.md gives %s floor %q, the folder has floor %s", wing, shown[wing], want)
		}
		delete(shown, wing)
		if !strings.HasPrefix(wing, "agent/") {
			continue
		}
		page, err := os.ReadFile(root + "/" + wing + "/README.md")
		if err != nil {
			t.Errorf("%v: a wing has a page that states its inputs, outputs, and guarantees", err)
		} else if n := bytes.Count(page, []byte("\n")); n > 60 {
			t.Errorf("%s/README.md has %d lines, at most 60 are allowed: a page, not a chapter", wing, n)
		}
	}
	for wing := range shown {
		t.Errorf("ARCHITECTURE.md lists %s, which is no wing", wing)
	}
}
