package effect

import (
	"encoding/json"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/api"
)

func TestRemains(t *testing.T) {
	for _, tc := range []struct{ own, merged, want string }{
		{`[1]`, `[1]`, api.EffectAll},
		{`"x"`, `"y"`, api.EffectAll}, // the caller knows that it decides
		{`["a"]`, `["a","b"]`, api.EffectAll},
		{`["a","c"]`, `["a","b"]`, api.EffectPart},
		{`["a"]`, `["b"]`, api.EffectPart},
		{`[{"k":"a","x":1}]`, `[{"k":"a","x":1,"y":2},{"k":"b"}]`, api.EffectAll},
		{`[{"k":"a","x":1}]`, `[{"k":"a","x":3},{"k":"b"}]`, api.EffectPart},
		{`[{"k":"a","in":{"x":1}}]`, `[{"k":"a","in":{"x":1,"y":{"z":1}}}]`, api.EffectAll},
		{`[{"k":"a","in":{"y":{"z":2}}}]`, `[{"k":"a","in":{"x":1,"y":{"z":1}}}]`, api.EffectPart},
		{`[{"k":"a","in":{}}]`, `[{"k":"a","in":{"x":1}}]`, api.EffectAll},
		{`[{"k":"a","in":{}}]`, `[{"k":"a","into":{"x":1}}]`, api.EffectPart},
		{`[{}]`, `[{"x":1}]`, api.EffectAll},
		{`[{}]`, `[1]`, api.EffectPart},
		{`[1]`, `[{}]`, api.EffectPart},
		{`[[1]]`, `[[1],[2]]`, api.EffectAll},
	} {
		if got := remains(json.RawMessage(tc.own), json.RawMessage(tc.merged)); got != tc.want {
			t.Errorf("%s in %s: %s, want %s", tc.own, tc.merged, got, tc.want)
		}
	}
}
