package explain

import (
	"encoding/json"
	"testing"
)

func TestRemains(t *testing.T) {
	for _, tc := range []struct{ own, merged, want string }{
		{`[1]`, `[1]`, EffectAll},
		{`"x"`, `"y"`, EffectAll}, // the caller knows that it decides
		{`["a"]`, `["a","b"]`, EffectAll},
		{`["a","c"]`, `["a","b"]`, EffectPart},
		{`["a"]`, `["b"]`, EffectPart},
		{`[{"k":"a","x":1}]`, `[{"k":"a","x":1,"y":2},{"k":"b"}]`, EffectAll},
		{`[{"k":"a","x":1}]`, `[{"k":"a","x":3},{"k":"b"}]`, EffectPart},
		{`[{"k":"a","in":{"x":1}}]`, `[{"k":"a","in":{"x":1,"y":{"z":1}}}]`, EffectAll},
		{`[{"k":"a","in":{"y":{"z":2}}}]`, `[{"k":"a","in":{"x":1,"y":{"z":1}}}]`, EffectPart},
		{`[{"k":"a","in":{}}]`, `[{"k":"a","in":{"x":1}}]`, EffectAll},
		{`[{"k":"a","in":{}}]`, `[{"k":"a","into":{"x":1}}]`, EffectPart},
		{`[{}]`, `[{"x":1}]`, EffectAll},
		{`[{}]`, `[1]`, EffectPart},
		{`[1]`, `[{}]`, EffectPart},
		{`[[1]]`, `[[1],[2]]`, EffectAll},
	} {
		if got := remains(json.RawMessage(tc.own), json.RawMessage(tc.merged)); got != tc.want {
			t.Errorf("%s in %s: %s, want %s", tc.own, tc.merged, got, tc.want)
		}
	}
}
