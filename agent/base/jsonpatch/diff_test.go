package jsonpatch_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
)

// TestDiff checks patches of documents of the form {kind: {name: value}}.
func TestDiff(t *testing.T) {
	for name, c := range map[string]struct{ a, b, want string }{
		"equal":                {`{"a":[1,{"b":null}]}`, `{"a":[1.0,{"b":null}]}`, ``},
		"members":              {`{"a":1,"b":2,"c":3}`, `{"b":3,"c":3,"d":4}`, `remove /a; replace /b 3; add /d 4`},
		"the document":         {`{"a":1}`, `[1]`, `replace  [1]`},
		"names are kept apart": {`{"C":{"x":{"n":1}}}`, `{"C":{"y":{"n":2}}}`, `remove /C/x; add /C/y {"n":2}`},
		"escapes":              {`{"a/b":{"~":1}}`, `{"a/b":{"~":2}}`, `replace /a~1b/~0 2`},
		"null and absent":      {`{"a":null}`, `{}`, `remove /a`},
		"inserted by name": {
			`{"k":{"r":{"filters":[{"name":"a","v":1},{"name":"b","v":1}]}}}`,
			`{"k":{"r":{"filters":[{"name":"n","v":1},{"name":"a","v":1},{"name":"b","v":2}]}}}`,
			`add /k/r/filters/0 {"name":"n","v":1}; replace /k/r/filters/2/v 2`,
		},
		"removed by name": {
			`{"k":{"r":{"filters":[{"name":"a"},{"name":"b","v":1},{"name":"c"}]}}}`,
			`{"k":{"r":{"filters":[{"name":"b","v":2}]}}}`,
			`remove /k/r/filters/2; remove /k/r/filters/0; replace /k/r/filters/0/v 2`,
		},
		"moved by name": {
			`{"k":{"r":[{"name":"a"},{"name":"b"},{"name":"c"}]}}`,
			`{"k":{"r":[{"name":"c"},{"name":"a"},{"name":"b"}]}}`,
			`remove /k/r/2; add /k/r/0 {"name":"c"}`,
		},
		"other names are other things": {
			`{"k":{"r":[{"name":"a","v":1},{"name":"z"}]}}`, `{"k":{"r":[{"name":"b","v":1},{"name":"z"}]}}`,
			`remove /k/r/0; add /k/r/0 {"name":"b","v":1}`,
		},
		"names that do not tell apart": {
			`{"k":{"r":[{"name":"f","path":"a"},{"name":"f","path":"b"}]}}`,
			`{"k":{"r":[{"name":"f","path":"n"},{"name":"f","path":"a"},{"name":"f","path":"b"}]}}`,
			`add /k/r/0 {"name":"f","path":"n"}`,
		},
		"without names": {
			`{"k":{"r":[{"h":1,"w":1},{"h":2,"w":1},{"h":3,"w":1}]}}`,
			`{"k":{"r":[{"h":1,"w":1},{"h":4,"w":1},{"h":2,"w":5},{"h":3,"w":1}]}}`,
			`replace /k/r/1/h 4; add /k/r/2 {"h":2,"w":5}`,
		},
		"changed in place": {
			`{"k":{"r":[{"h":1,"w":1},{"h":2,"w":1}]}}`, `{"k":{"r":[{"h":1,"w":1},{"h":2,"w":9}]}}`, `replace /k/r/1/w 9`,
		},
		"strings": {`{"k":{"r":["a","b","c","d"]}}`, `{"k":{"r":["b","x","d","e"]}}`,
			`remove /k/r/0; replace /k/r/1 "x"; add /k/r/3 "e"`},
		"nothing stayed": {`{"k":{"r":{"o":{"a":1,"b":2}}}}`, `{"k":{"r":{"o":{"a":3,"b":4}}}}`,
			`replace /k/r/o {"a":3,"b":4}`},
		"one operation stays": {`{"k":{"r":{"s":1,"o":{"a":1}}}}`, `{"k":{"r":{"s":1,"o":{"a":3}}}}`, `replace /k/r/o/a 3`},
		"another type": {
			`{"k":{"r":{"s":1,"f":{"@type":"A","x":1,"y":1}}}}`, `{"k":{"r":{"s":1,"f":{"@type":"B","x":1,"y":1}}}}`,
			`replace /k/r/f {"@type":"B","x":1,"y":1}`,
		},
		"the type is no part that stays": {
			`{"k":{"r":{"s":1,"f":{"@type":"A","x":1,"y":1}}}}`, `{"k":{"r":{"s":1,"f":{"@type":"A","x":2,"y":2}}}}`,
			`replace /k/r/f {"@type":"A","x":2,"y":2}`,
		},
		"a list for another": {`{"k":{"r":{"s":1,"l":[1,2]}}}`, `{"k":{"r":{"s":1,"l":[3,4]}}}`, `replace /k/r/l [3,4]`},
		"kinds of values": {`{"a":"1","b":[],"c":{},"d":true}`, `{"a":1,"b":{},"c":[],"d":false}`,
			`replace /a 1; replace /b {}; replace /c []; replace /d false`},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := value(t, c.a), value(t, c.b)
			p := jsonpatch.Diff(a, b)
			var ops []string
			for _, o := range p {
				s := o.Op + " " + o.Path
				if o.Op != jsonpatch.Remove {
					s += " " + text(t, o.Value)
				}
				ops = append(ops, s)
			}
			if got := strings.Join(ops, "; "); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			leads(t, a, b, p)
		})
	}
}

func leads(t interface {
	Helper()
	Fatalf(string, ...any)
}, a, b any, p jsonpatch.Patch) {
	t.Helper()
	got, err := p.Apply(a)
	if err != nil {
		t.Fatalf("%v", err)
	}
	if !jsonpatch.Equal(got, b) {
		t.Fatalf("the patch %v leads from %v to %v, not to %v", p, a, got, b)
	}
}

// values generates documents with repeated names and values.
func values() *rapid.Generator[any] {
	names := rapid.SampledFrom([]string{"name", "id", "a", "b", "c/d", "~", "", "@type"})
	scalar := rapid.OneOf(
		rapid.Just[any](nil), rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		rapid.Map(rapid.IntRange(0, 3), func(i int) any { return float64(i) }),
		rapid.SampledFrom([]any{json.Number("1"), json.Number("1.0"), json.Number("2e0"), json.RawMessage(`{"a":[1]}`),
			json.RawMessage(`{"a": [1]}`)}),
		rapid.Map(rapid.SampledFrom([]string{"x", "y", "z", "0"}), func(s string) any { return s }),
	)
	var deeper func(n int) *rapid.Generator[any]
	deeper = func(n int) *rapid.Generator[any] {
		if n == 0 {
			return scalar
		}
		return rapid.OneOf(scalar,
			rapid.Map(rapid.SliceOfN(deeper(n-1), 0, 6), func(l []any) any { return l }),
			rapid.Map(rapid.MapOfN(names, deeper(n-1), 0, 5), func(m map[string]any) any { return m }),
			rapid.Custom(func(t *rapid.T) any { // a list of named objects
				out := []any{}
				for i := range rapid.IntRange(0, 5).Draw(t, "items") {
					o := map[string]any{"name": fmt.Sprint(rapid.IntRange(0, 7).Draw(t, "name"),
						i%rapid.IntRange(1, 3).Draw(t, "modulus"))}
					for range rapid.IntRange(0, 2).Draw(t, "members") {
						o[names.Draw(t, "member")] = deeper(n-1).Draw(t, "value")
					}
					out = append(out, o)
				}
				return out
			}))
	}
	return deeper(4)
}

// TestDiffLeads checks that applying the patch from a to b to a gives b.
func TestDiffLeads(t *testing.T) {
	v := values()
	rapid.Check(t, func(t *rapid.T) {
		a, b := v.Draw(t, "a"), v.Draw(t, "b")
		p := jsonpatch.Diff(a, b)
		leads(t, a, b, p)
		if jsonpatch.Equal(a, b) != (len(p) == 0) {
			t.Fatalf("%d operations between %v and %v", len(p), a, b)
		}
		second := jsonpatch.Diff(a, b)
		if fmt.Sprint(p) != fmt.Sprint(second) {
			t.Fatalf("got %v, then %v", p, second)
		}
	})
}

// TestDiffAsJSON checks the same after encoding and decoding the patch and the documents.
func TestDiffAsJSON(t *testing.T) {
	v := values()
	rapid.Check(t, func(t *rapid.T) {
		a, b := v.Draw(t, "a"), v.Draw(t, "b")
		encoded, err := json.Marshal(jsonpatch.Diff(a, b))
		if err != nil {
			t.Fatal(err)
		}
		p, err := jsonpatch.Parse(encoded)
		if err != nil {
			t.Fatalf("%s: %v", encoded, err)
		}
		doc, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		leads(t, json.RawMessage(doc), b, p)
	})
}

// TestDiffIsShort checks that the length of a patch for one change does not depend on the length of
// the list.
func TestDiffIsShort(t *testing.T) {
	list := func(skip int) []any {
		out := []any{}
		for i := range 2000 {
			if i != skip {
				out = append(out, map[string]any{"endpoint": float64(i), "weight": 1.0})
			}
		}
		return out
	}
	p := jsonpatch.Diff(map[string]any{"k": map[string]any{"r": list(-1)}},
		map[string]any{"k": map[string]any{"r": list(1000)}})
	if len(p) != 1 || p[0].Op != jsonpatch.Remove || p[0].Path != "/k/r/1000" {
		t.Errorf("got %v", p)
	}
}

// FuzzDiff compares two arbitrary JSON documents.
func FuzzDiff(f *testing.F) {
	f.Add(`[{"name":"a"},{"name":"b"}]`, `[{"name":"b","x":[1,2,2]},{"name":"a"}]`)
	f.Add(`{"a":[1,1,2,{"@type":"x"}]}`, `{"a":[2,1,1e0,{"@type":"y"}]}`)
	f.Fuzz(func(t *testing.T, a, b string) {
		va, err := jsonpatch.Decode([]byte(a))
		if err != nil {
			return
		}
		vb, err := jsonpatch.Decode([]byte(b))
		if err != nil {
			return
		}
		leads(t, va, vb, jsonpatch.Diff(va, vb))
	})
}

// BenchmarkDiff compares the configs of a proxy with 1000 clusters and listeners, three of which
// differ, as raw JSON.
func BenchmarkDiff(b *testing.B) {
	const listener = `{"name":"outbound:%d","address":{"socketAddress":{"address":"10.0.0.1","portValue":%d}},"filterChains":[{"filters":[{"name":"hcm",` +
		`"typedConfig":{"@type":"HCM","statPrefix":"s-%d","routeConfig":{"virtualHosts":[{"name":"v","domains":["*"],"routes":[{"match":{"prefix":"/"},"route":{"cluster":"c","timeout":"%ds"}}]}]}}}]}]}`
	doc := func(change bool) any {
		kinds := map[string]any{}
		for _, k := range []string{"cluster", "listener"} {
			m := map[string]any{}
			for i := range 1000 {
				n := 15
				if change && i%400 == 0 {
					n = 20
				}
				m[fmt.Sprint(i)] = json.RawMessage(fmt.Sprintf(listener, i, i, i, n))
			}
			kinds[k] = m
		}
		return kinds
	}
	x, y := doc(false), doc(true)
	b.ReportAllocs()
	for b.Loop() {
		if p := jsonpatch.Diff(x, y); len(p) != 6 {
			b.Fatal(p)
		}
	}
}
