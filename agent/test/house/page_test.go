package house

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"unicode/utf8"
)

// pageDir is the folder of the embedded page.
const pageDir = "agent/serve/web/page"

// unsafe lists what the page must not contain: text that becomes markup or code, and addresses of
// other servers. The content security policy refuses most of it, but only when it runs.
var unsafe = []struct {
	pattern *regexp.Regexp
	why     string
}{
	{regexp.MustCompile(`\b(inner|outer)HTML\b|\binsertAdjacentHTML\b|\bdocument\.write\b|\bDOMParser\b|\bsrcdoc\b`),
		"text becomes markup: use h and text nodes (core/dom.js)"},
	{regexp.MustCompile(`\beval\(|\bnew Function\b|\bset(Timeout|Interval)\(['"]`), "text becomes code: use functions"},
	{regexp.MustCompile(`<[^>]*\s(style|on[a-z]+)=`), "inline styles and handlers are refused: use style.css and addEventListener"},
	{regexp.MustCompile(`\bdocument\.cookie\b`), "scripts do not read cookies: the session cookie is HttpOnly"},
	{regexp.MustCompile(`(https?|wss?)://[^\s'"` + "`" + `]`), "the page sends no request elsewhere: use relative addresses"},
}

// namespace is the one address in the page, which no browser requests.
const namespace = "http://www.w3.org/2000/svg"

// rulePage limits the files of the page as those of Go, and refuses what could run foreign code.
func rulePage(t *tree) []breach {
	var out []breach
	err := fs.WalkDir(t.fsys, pageDir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		switch path.Ext(name) {
		case ".js", ".css", ".html", ".svg":
		default:
			return nil
		}
		src, err := fs.ReadFile(t.fsys, name)
		if err != nil {
			return err
		}
		n := 0
		for line := range strings.Lines(string(src)) {
			n++
			at := fmt.Sprintf("%s:%d", name, n)
			if w := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); w > maxColumns {
				out = append(out, breach{at, fmt.Sprintf("%d columns, at most %d are allowed: break the line", w, maxColumns)})
			}
			for _, u := range unsafe {
				if u.pattern.MatchString(strings.ReplaceAll(line, namespace, "")) {
					out = append(out, breach{at, u.why})
				}
			}
		}
		if n > maxLines && path.Ext(name) == ".js" {
			out = append(out, breach{name, fmt.Sprintf("%d lines, at most %d are allowed: find the second idea in the "+
				"file and give it a file", n, maxLines)})
		}
		return nil
	})
	if err != nil && len(t.pkgs) > 0 && t.has("agent/serve/web") {
		out = append(out, breach{pageDir, err.Error()})
	}
	return out
}

// has reports whether a folder has Go files.
func (t *tree) has(dir string) bool {
	for _, p := range t.pkgs {
		if p.dir == dir {
			return true
		}
	}
	return false
}
