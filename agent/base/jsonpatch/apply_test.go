package jsonpatch_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
)

func value(t testing.TB, text string) any {
	t.Helper()
	v, err := jsonpatch.Decode([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

func text(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestApply runs the cases of RFC 6902, appendix A, and others that its text implies. An
// exclamation mark precedes the expected part of an error.
func TestApply(t *testing.T) {
	for name, c := range map[string]struct{ doc, patch, want string }{
		"A.1 add a member": {`{"foo":"bar"}`, `[{"op":"add","path":"/baz","value":"qux"}]`,
			`{"baz":"qux","foo":"bar"}`},
		"A.2 insert an item": {`{"foo":["bar","baz"]}`, `[{"op":"add","path":"/foo/1","value":"qux"}]`,
			`{"foo":["bar","qux","baz"]}`},
		"A.3 remove a member": {`{"baz":"qux","foo":"bar"}`, `[{"op":"remove","path":"/baz"}]`, `{"foo":"bar"}`},
		"A.4 remove an item": {`{"foo":["bar","qux","baz"]}`, `[{"op":"remove","path":"/foo/1"}]`,
			`{"foo":["bar","baz"]}`},
		"A.5 replace": {`{"baz":"qux","foo":"bar"}`, `[{"op":"replace","path":"/baz","value":"boo"}]`,
			`{"baz":"boo","foo":"bar"}`},
		"A.6 move a value": {`{"foo":{"bar":"baz","waldo":"fred"},"qux":{"corge":"grault"}}`,
			`[{"op":"move","from":"/foo/waldo","path":"/qux/thud"}]`,
			`{"foo":{"bar":"baz"},"qux":{"corge":"grault","thud":"fred"}}`},
		"A.7 move an item": {`{"foo":["all","grass","cows","eat"]}`, `[{"op":"move","from":"/foo/1","path":"/foo/3"}]`,
			`{"foo":["all","cows","eat","grass"]}`},
		"A.8 test": {`{"baz":"qux","foo":["a",2,"c"]}`,
			`[{"op":"test","path":"/baz","value":"qux"},{"op":"test","path":"/foo/1","value":2}]`,
			`{"baz":"qux","foo":["a",2,"c"]}`},
		"A.9 test fails": {`{"baz":"qux"}`, `[{"op":"test","path":"/baz","value":"bar"}]`,
			`!the value is "qux", not "bar"`},
		"A.10 add an object": {`{"foo":"bar"}`, `[{"op":"add","path":"/child","value":{"grandchild":{}}}]`,
			`{"child":{"grandchild":{}},"foo":"bar"}`},
		"A.11 other members": {`{"foo":"bar"}`, `[{"op":"add","path":"/baz","value":"qux","xyz":123}]`,
			`{"baz":"qux","foo":"bar"}`},
		"A.12 nonexistent target": {`{"foo":"bar"}`, `[{"op":"add","path":"/baz/bat","value":"qux"}]`,
			`!the object has no member "baz"`},
		"A.14 escapes": {`{"/":9,"~1":10}`, `[{"op":"test","path":"/~01","value":10},{"op":"remove","path":"/~1"}]`,
			`{"~1":10}`},
		"A.15 string is no number": {`{"/":9,"~1":10}`, `[{"op":"test","path":"/~01","value":"10"}]`,
			`!the value is 10, not "10"`},
		"A.16 append": {`{"foo":["bar"]}`, `[{"op":"add","path":"/foo/-","value":["abc","def"]}]`,
			`{"foo":["bar",["abc","def"]]}`},

		"add replaces a member": {`{"a":1}`, `[{"op":"add","path":"/a","value":null}]`, `{"a":null}`},
		"add the document":      {`{"a":1}`, `[{"op":"add","path":"","value":[2]}]`, `[2]`},
		"add at the end":        {`[1]`, `[{"op":"add","path":"/1","value":2}]`, `[1,2]`},
		"add behind the end": {`[1]`, `[{"op":"add","path":"/2","value":2}]`,
			`!index 2 is out of range: the list length is 1`},
		"leading zero":   {`[1,2]`, `[{"op":"add","path":"/01","value":2}]`, `!"01" is not a list index`},
		"negative index": {`[1,2]`, `[{"op":"remove","path":"/-1"}]`, `!"-1" is not a list index`},
		"exponent index": {`[1,2]`, `[{"op":"remove","path":"/1e0"}]`, `!"1e0" is not a list index`},
		"huge index": {`[1,2]`, `[{"op":"remove","path":"/18446744073709551616"}]`,
			`!is not a list index`},
		"dash as a member":      {`{"-":1}`, `[{"op":"remove","path":"/-"}]`, `{}`},
		"remove behind the end": {`[1]`, `[{"op":"remove","path":"/-"}]`, `!"-" is the position after the last item`},
		"remove nothing": {`{"a":{}}`, `[{"op":"remove","path":"/a/b"}]`,
			`!operation 0 (remove /a/b): at /a: the object has no member "b"`},
		"replace nothing":          {`{}`, `[{"op":"replace","path":"/a","value":1}]`, `!the object has no member "a"`},
		"replace the document":     {`{}`, `[{"op":"replace","path":"","value":1}]`, `1`},
		"empty token":              {`{"":{"":1}}`, `[{"op":"replace","path":"//","value":2}]`, `{"":{"":2}}`},
		"through a scalar":         {`{"a":"x"}`, `[{"op":"add","path":"/a/b","value":2}]`, `!at /a: "x" has no members`},
		"no slash":                 {`{}`, `[{"op":"add","path":"a","value":2}]`, `!"a" does not begin with a slash`},
		"bad escape":               {`{}`, `[{"op":"add","path":"/~2","value":2}]`, `!not followed by 0 or 1`},
		"escape at the end":        {`{}`, `[{"op":"add","path":"/a~","value":2}]`, `!not followed by 0 or 1`},
		"unknown operation":        {`{}`, `[{"op":"merge","path":"/a","value":2}]`, `!"merge" is not an operation`},
		"no value":                 {`{}`, `[{"op":"add","path":"/a"}]`, `!the member value is missing`},
		"null value":               {`{"a":1}`, `[{"op":"replace","path":"/a","value":null}]`, `{"a":null}`},
		"no from":                  {`{}`, `[{"op":"copy","path":"/a"}]`, `!the member from is missing`},
		"no path":                  {`{}`, `[{"op":"remove"}]`, `!needs the members op and path`},
		"not a list":               {`{}`, `{"op":"remove","path":"/a"}`, `!not a JSON Patch`},
		"move into its own child":  {`{"a":{"b":{}}}`, `[{"op":"move","from":"/a","path":"/a/b/c"}]`, `!is inside "/a"`},
		"move the document":        {`{"a":1}`, `[{"op":"move","from":"","path":"/b"}]`, `!is inside ""`},
		"move to a neighbour":      {`{"a":1}`, `[{"op":"move","from":"/a","path":"/ab"}]`, `{"ab":1}`},
		"move onto itself":         {`{"a":1}`, `[{"op":"move","from":"/a","path":"/a"}]`, `{"a":1}`},
		"move nothing onto itself": {`{}`, `[{"op":"move","from":"/a","path":"/a"}]`, `!the object has no member "a"`},
		"move up to the document":  {`{"a":{"b":1}}`, `[{"op":"move","from":"/a/b","path":""}]`, `1`},
		"copy is deep": {`{"a":{"x":[1]}}`,
			`[{"op":"copy","from":"/a","path":"/b"},{"op":"add","path":"/b/x/-","value":2},{"op":"remove","path":"/a/x/0"}]`,
			`{"a":{"x":[]},"b":{"x":[1,2]}}`},
		"a value is taken once": {`{}`, `[{"op":"add","path":"/a","value":{"x":[]}},{"op":"copy","from":"/a","path":"/b"},{"op":"add","path":"/a/x/0","value":1}]`,
			`{"a":{"x":[1]},"b":{"x":[]}}`},
		"copy into its own child": {`{"a":{}}`,
			`[{"op":"copy","from":"/a","path":"/a/b"},{"op":"copy","from":"/a","path":"/a/c"}]`, `{"a":{"b":{},"c":{"b":{}}}}`},
		"copy to a list": {`{"a":[1,2]}`, `[{"op":"copy","from":"/a/0","path":"/a/-"}]`, `{"a":[1,2,1]}`},
		"test numbers by value": {`{"a":100,"b":0.0,"c":1.50}`,
			`[{"op":"test","path":"/a","value":1e2},{"op":"test","path":"/b","value":-0},{"op":"test","path":"/c","value":15E-1}]`,
			`{"a":100,"b":0.0,"c":1.50}`},
		"test large numbers": {`{"a":9007199254740993}`, `[{"op":"test","path":"/a","value":9007199254740992}]`,
			`!the value is 9007199254740993`},
		"test objects without order": {`{"a":{"x":1,"y":[true,null]}}`,
			`[{"op":"test","path":"/a","value":{"y":[true,null],"x":1}}]`, `{"a":{"x":1,"y":[true,null]}}`},
		"test lists with order": {`{"a":[1,2]}`, `[{"op":"test","path":"/a","value":[2,1]}]`,
			`!the value is a list, not a list`},
		"test of what was changed": {`{"a":{"b":1}}`,
			`[{"op":"replace","path":"/a/b","value":2},{"op":"test","path":"/a","value":{"b":2}}]`, `{"a":{"b":2}}`},
		"the second operation is bad": {`{"a":1}`, `[{"op":"remove","path":"/a"},{"op":"remove","path":"/a"}]`,
			`!operation 1 (remove /a)`},
		"exponents nobody can hold": {`{"a":1e999999999999}`, `[{"op":"test","path":"/a","value":1e999999999998}]`,
			`!the value is`},
	} {
		t.Run(name, func(t *testing.T) {
			doc := value(t, c.doc)
			p, err := jsonpatch.Parse([]byte(c.patch))
			var got any
			if err == nil {
				got, err = p.Apply(doc)
			}
			if want, ok := strings.CutPrefix(c.want, "!"); ok {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Fatalf("got %v, want an error with %q", err, want)
				}
			} else if err != nil {
				t.Fatal(err)
			} else if text(t, got) != c.want {
				t.Errorf("got %s, want %s", text(t, got), c.want)
			}
			if text(t, doc) != text(t, value(t, c.doc)) {
				t.Errorf("the document was changed to %s", text(t, doc))
			}
		})
	}
}

// TestApplyWith checks the relaxed rules.
func TestApplyWith(t *testing.T) {
	loose := jsonpatch.Options{CreateParents: true, IgnoreAbsent: true}
	for name, c := range map[string]struct{ doc, patch, want string }{
		"parents": {`{}`, `[{"op":"add","path":"/a/b/c","value":1}]`, `{"a":{"b":{"c":1}}}`},
		"a list among parents": {`{"a":null}`,
			`[{"op":"add","path":"/a/0/b","value":1},{"op":"add","path":"/a/-","value":2}]`, `{"a":[{"b":1},2]}`},
		"no gaps in lists": {`{}`, `[{"op":"add","path":"/a/1/b","value":1}]`, `!the list length is 0`},
		"a scalar stays":   {`{"a":1}`, `[{"op":"add","path":"/a/b","value":1}]`, `!1 has no members`},
		"remove nothing": {`{"a":{},"l":[]}`, `[{"op":"remove","path":"/a/b/c"},{"op":"remove","path":"/l/0"}]`,
			`{"a":{},"l":[]}`},
		"remove at no index": {`{"l":[]}`, `[{"op":"remove","path":"/l/x"}]`, `!"x" is not a list index`},
		"replace nothing":    {`{}`, `[{"op":"replace","path":"/a","value":1}]`, `!the object has no member "a"`},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := jsonpatch.Parse([]byte(c.patch))
			if err != nil {
				t.Fatal(err)
			}
			got, err := p.ApplyWith(value(t, c.doc), loose)
			if want, ok := strings.CutPrefix(c.want, "!"); ok {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Fatalf("got %v, want an error with %q", err, want)
				}
			} else if err != nil {
				t.Fatal(err)
			} else if text(t, got) != c.want {
				t.Errorf("got %s, want %s", text(t, got), c.want)
			}
		})
	}
}

// TestApplyIsBounded doubles a document until it would be huge.
func TestApplyIsBounded(t *testing.T) {
	var p jsonpatch.Patch
	for range 64 {
		p = append(p, jsonpatch.Operation{Op: jsonpatch.Copy, From: "", Path: "/-"})
	}
	_, err := p.Apply([]any{})
	var e *jsonpatch.Error
	if !errors.As(err, &e) || !strings.Contains(err.Error(), "copies more than") {
		t.Fatalf("got %v", err)
	}
	if e.Index < 10 || e.Operation.Op != jsonpatch.Copy {
		t.Errorf("operation %d failed", e.Index)
	}
}

// TestApplyRaw checks that raw parts are decoded only if an operation refers to something inside.
func TestApplyRaw(t *testing.T) {
	doc := map[string]any{"a": json.RawMessage(`{"x": 1}`), "b": json.RawMessage(`{"y":  2}`), "c": json.RawMessage(`{`)}
	p := jsonpatch.Patch{{Op: jsonpatch.Replace, Path: "/a/x", Value: true},
		{Op: jsonpatch.Test, Path: "/b", Value: map[string]any{"y": 2.0}}}
	got, err := p.Apply(doc)
	if err != nil {
		t.Fatal(err)
	}
	m := got.(map[string]any)
	if text(t, m["a"]) != `{"x":true}` || string(m["b"].(json.RawMessage)) != `{"y":  2}` {
		t.Errorf("got %s", got)
	}
	if _, err := (jsonpatch.Patch{{Op: jsonpatch.Remove, Path: "/c/x"}}).Apply(doc); err == nil {
		t.Error("a path leads through what is not JSON")
	}
}

// TestOperationJSON encodes and decodes each operation.
func TestOperationJSON(t *testing.T) {
	for _, want := range []string{
		`{"op":"add","path":"/a","value":null}`, `{"op":"replace","path":"","value":{"x":[1]}}`,
		`{"op":"test","path":"/a","value":false}`, `{"op":"remove","path":"/a~1b"}`, `{"op":"move","path":"/a","from":""}`,
		`{"op":"copy","path":"/a","from":"/b"}`,
	} {
		var o jsonpatch.Operation
		if err := json.Unmarshal([]byte(want), &o); err != nil {
			t.Fatal(err)
		}
		if got := text(t, o); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// FuzzApply checks that patches and documents cause no panic, and that the document is not
// modified.
func FuzzApply(f *testing.F) {
	f.Add(`{"a":[1,{"b":null}]}`, `[{"op":"copy","from":"/a","path":"/a/-"},{"op":"move","from":"/a/0","path":"/b"},{"op":"test","path":"/b","value":1e0}]`, true)
	f.Add(`[[]]`,
		`[{"op":"add","path":"/0/-/x","value":{}},{"op":"remove","path":""},{"op":"replace","path":"","value":[]}]`, false)
	f.Fuzz(func(t *testing.T, doc, patch string, loose bool) {
		d, err := jsonpatch.Decode([]byte(doc))
		if err != nil {
			return
		}
		p, err := jsonpatch.Parse([]byte(patch))
		if err != nil {
			return
		}
		before := text(t, d)
		got, err := p.ApplyWith(d, jsonpatch.Options{CreateParents: loose, IgnoreAbsent: loose})
		if text(t, d) != before {
			t.Fatalf("the document became %s", text(t, d))
		}
		if err == nil {
			text(t, got)
		}
	})
}
