package explain_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
)

// TestFields checks the sources of the fields of a merged conf.
func TestFields(t *testing.T) {
	for _, tc := range []struct {
		name  string
		confs []string // of policies p0, p1, …; later ones override earlier ones
		want  string
	}{
		{"one", []string{"{a: 1, deep: {c: 2}}"}, "a=1 by 0; deep.c=2 by 0"},
		{"over", []string{"{a: 1, b: x}", "{a: 2}"}, `a=2 by 1 over 0(1); b="x" by 0`},
		{"the same value again", []string{"{a: 1}", "{a: 1}"}, "a=1 by 1 over 0(1)"},
		{"inside a mapping", []string{"{deep: {c: 1, d: 1}}", "{deep: {d: 2}}"}, "deep.c=1 by 0; deep.d=2 by 1 over 0(1)"},
		{"an empty mapping is a value", []string{"{deep: {}}"}, "deep={} by 0"},
		{"a list is replaced", []string{"{last: [x]}", "{last: [y]}"}, `last=["y"] by 1 over 0(["x"])`},
		{"a list is joined", []string{"{joint: [x]}", "{joint: [y]}", "{a: 1}"}, `a=1 by 2; joint=["x","y"] by 0,1`},
		{"a list is joined with itself", []string{"{joint: [x]}", "{joint: [x]}"}, `joint=["x","x"] by 0,1`},
		{"items are merged", []string{"{keyed: [{key: k, x: 1}]}", "{keyed: [{key: k, y: 1}]}"},
			`keyed=[{"key":"k","x":1,"y":1}] by 0,1`},
		{"all that an item says is replaced", []string{"{keyed: [{key: k, x: 1}]}", "{keyed: [{key: k, x: 2}]}",
			"{keyed: [{key: l}]}"}, `keyed=[{"key":"k","x":2},{"key":"l"}] by 1,2 over 0([{"key":"k","x":1}])`},
		{"an item with an empty mapping",
			[]string{"{keyed: [{key: k, in: {}}]}", "{keyed: [{key: k, in: {c: 1}}, {key: l}]}"},
			`keyed=[{"key":"k","in":{"c":1}},{"key":"l"}] by 1 over 0([{"key":"k","in":{}}])`},
		{"keys that are no words", []string{`{tags: {kuma.io/x: "1", "": "2", a_b-c: "3"}}`},
			`tags[""]="2" by 0; tags.a_b-c="3" by 0; tags["kuma.io/x"]="1" by 0`},
		{"unions change their form", []string{"{free: {m: 1}}", "{free: [1]}"}, "free=[1] by 1"},
		{"nothing", []string{"{}"}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			docs := web
			for i, c := range tc.confs {
				docs += fmt.Sprintf("\n---\n{type: Whole, name: p%d, spec: {default: %s}}", i, c)
			}
			// If policies select equally specifically, the first name in alphabetical order takes
			// precedence.
			docs = rename(docs, len(tc.confs))
			p := proxy(t, decode(t, docs), "web")
			var got []string
			for _, f := range p.Fields(p.Rules().Kind("Whole").Proxy, explain.Default) {
				s := fmt.Sprintf("%s=%s by ", f.Path, f.Value)
				for i, by := range f.By {
					if i > 0 {
						s += ","
					}
					s += number(t, by, len(tc.confs))
				}
				for i, o := range f.Over {
					if i == 0 {
						s += " over "
					} else {
						s += ","
					}
					s += fmt.Sprintf("%s(%s)", number(t, o.Source, len(tc.confs)), o.Value)
				}
				got = append(got, s)
			}
			if s := strings.Join(got, "; "); s != tc.want {
				t.Errorf("got  %s\nwant %s", s, tc.want)
			}
		})
	}
	if f := proxy(t, decode(t, web), "web").Fields(nil, explain.To); len(f) > 0 {
		t.Errorf("no rule has the fields %v", f)
	}
}

// rename reverses the names of n policies.
func rename(docs string, n int) string {
	for i := range n {
		docs = strings.Replace(docs, fmt.Sprintf("name: p%d,", i), fmt.Sprintf("name: q%d,", n-1-i), 1)
	}
	return docs
}

// number returns the index of a policy in merge order.
func number(t *testing.T, s explain.Source, n int) string {
	t.Helper()
	var i int
	if _, err := fmt.Sscanf(s.Name, "q%d", &i); err != nil || s.Field != "spec.default" || s.Type != "Whole" ||
		s.Mesh != "default" {
		t.Fatalf("source %+v", s)
	}
	return fmt.Sprint(n - 1 - i)
}
