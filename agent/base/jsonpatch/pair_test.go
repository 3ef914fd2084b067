package jsonpatch_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
)

// whole decodes all parts of a value.
func whole(t *testing.T, v any) any {
	t.Helper()
	switch v := v.(type) {
	case json.RawMessage:
		d, err := jsonpatch.Decode(v)
		if err != nil {
			t.Fatalf("%s: %v", v, err)
		}
		return d
	case map[string]any:
		out := map[string]any{}
		for k, x := range v {
			out[k] = whole(t, x)
		}
		return out
	case []any:
		out := []any{}
		for _, x := range v {
			out = append(out, whole(t, x))
		}
		return out
	}
	return v
}

// checkPair compares DecodePair with Decode and Diff on the same values.
func checkPair(t *testing.T, a, b string) {
	t.Helper()
	x, errX := jsonpatch.Decode([]byte(a))
	y, errY := jsonpatch.Decode([]byte(b))
	p, q, err := jsonpatch.DecodePair([]byte(a), []byte(b))
	if (err != nil) != (errX != nil || errY != nil) {
		t.Fatalf("%q, %q: %v, where Decode says %v and %v", a, b, err, errX, errY)
	}
	if err != nil {
		return
	}
	if got, want := []any{whole(t, p), whole(t, q)}, []any{x, y}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q, %q are %v, want %v", a, b, got, want)
	}
	want, err := json.Marshal(jsonpatch.Diff(x, y))
	if err != nil {
		t.Fatal(err)
	}
	patch := jsonpatch.Diff(p, q)
	got, err := json.Marshal(patch)
	if err != nil {
		t.Fatal(err)
	}
	var u, v any
	if json.Unmarshal(want, &u) != nil || json.Unmarshal(got, &v) != nil || !reflect.DeepEqual(u, v) {
		t.Errorf("%q, %q: the patch is\n%s and with pairs\n%s", a, b, want, got)
	}
	applied, err := patch.Apply(x)
	if err != nil || !jsonpatch.Equal(applied, y) {
		t.Errorf("%q, %q: the patch leads to %v, %v", a, b, applied, err)
	}
}

var pairs = [][2]string{
	{`{}`, `{}`}, {`{}`, `[]`}, {`[]`, `[1]`}, {`1`, `1.0`}, {`"a"`, `"\u0061"`}, {`null`, `false`}, {``, `{}`},
	{`{`, `{}`}, {`{}x`, `{}`},
	{`{"a":1}`, `{"a":2}`}, {`{"a":1,"a":2}`, `{"a":2}`}, {`{"\u0061":1}`, `{"a":1}`}, {"{\"\xff\":1}", `{"\ufffd":1}`},
	{` { "a" : [ 1 , { "b" : null } ] , "c" : "}]\"\\" } `, `{"a":[1,{"b":true}],"c":"}]\"\\"}`},
	{`{"a":"\\","b":1}`, `{"a":"\\","b":2}`}, {`{"a":"\\\"","b":1}`, `{"a":"\\\"","b":2}`},
	{`[{"name":"a","x":1},{"name":"b"}]`, `[{"name":"c"},{"name":"a","x":2},{"name":"b"}]`},
	{`[{"name":"a"},{"name":"b"},3]`, `[{"name":"a"}]`}, {`{"l":[[1,2],[3]]}`, `{"l":[[1,2],[4]]}`},
	{`{"x":{"@type":"A","v":1}}`, `{"x":{"@type":"B","v":1}}`},
	{`{"a":{"b":{"c":[1,2,3]}},"d":1e3}`, `{"a":{"b":{"c":[1,3]}},"d":1000}`},
}

func TestDecodePair(t *testing.T) {
	for _, p := range pairs {
		checkPair(t, p[0], p[1])
		checkPair(t, p[1], p[0])
	}
	for _, n := range []int{49, 50, 51, 200} { // deeper than maxPairDepth
		nested := func(v string) string { return strings.Repeat(`{"a":[`, n/2) + v + strings.Repeat(`]}`, n/2) }
		checkPair(t, nested(`{"x":1}`), nested(`{"x":2}`))
	}
	x, y, err := jsonpatch.DecodePair([]byte(`{"same":{"much":[1,2,3]},"n":1}`), []byte(`{"same":{"much":[1,2,3]},"n":2}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []any{x, y} {
		if _, raw := v.(map[string]any)["same"].(json.RawMessage); !raw {
			t.Errorf("equal parts were decoded: %v", v)
		}
	}
}

func FuzzDecodePair(f *testing.F) {
	for _, p := range pairs {
		f.Add(p[0], p[1])
	}
	f.Fuzz(checkPair)
}
