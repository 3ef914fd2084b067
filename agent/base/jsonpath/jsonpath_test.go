package jsonpath_test

import (
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/base/jsonpath"
)

func TestTemplate(t *testing.T) {
	doc := map[string]any{"total": 2, "items": []any{
		map[string]any{"name": "b", "labels": map[string]any{"kuma.io/zone": "east"}, "n": 1},
		map[string]any{"name": "a", "ready": true},
	}}
	for text, want := range map[string]string{
		".items[*].name":     "b a\n",
		"{.items[0].name}":   "b\n",
		"{$.items[-1].name}": "a\n",
		"{@.total}":          "2\n",
		`{range .items[*]}{.name}{"\t"}{.n}{"\n"}{end}`:        "b\t1\na\t\n",
		`{range .items[*]}{range ['name','n']}<{@}>{end}{end}`: "<b><1><a>\n",
		`{.items[?(@.name=="a")].ready}`:                       "true\n",
		`{.items[?@.labels['kuma.io/zone']=="east"].name}!`:    "b!\n",
		"{..name}":           "b a\n",
		"{.items[0].labels}": `{"kuma.io/zone":"east"}` + "\n",
		"n={.total} {\"}\"}": "n=2 }\n",
		"{.none}":            "",
	} {
		got := ""
		parsed, err := jsonpath.Parse(text)
		if err == nil {
			var b strings.Builder
			err = parsed.Print(&b, doc)
			got = b.String()
		}
		if err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"{.items[*}": "items", "{.a": "no closing brace", "{range .a}x": `no "{end}"`, "{end}": `without a "{range`,
		`{"a\q"}`: "is not a quoted string", "{}x{": "no closing brace", "{.a-b}": "a-b",
	} {
		if _, err := jsonpath.Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
}

// FuzzTemplate checks that templates cause no panic and print the same text each time.
func FuzzTemplate(f *testing.F) {
	f.Add(`{range .items[*]}{.name}{"\n"}{end}`)
	f.Add(`{..['a','b']}{.x[1:2]}`)
	doc := map[string]any{"items": []any{map[string]any{"name": "a", "b": map[string]any{"c": 1, "d": 2}}}}
	f.Fuzz(func(t *testing.T, text string) {
		parsed, err := jsonpath.Parse(text)
		if err != nil {
			return
		}
		var a, b strings.Builder
		if parsed.Print(&a, doc) != nil || parsed.Print(&b, doc) != nil || a.String() != b.String() {
			t.Errorf("%q: %q, then %q", text, a.String(), b.String())
		}
	})
}
