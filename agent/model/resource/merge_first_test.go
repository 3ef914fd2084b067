package resource_test

import (
	"encoding/json"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// orderedConf is a conf whose earlier items take precedence over later ones.
type orderedConf struct {
	Rules []orderedRule `json:"rules,omitempty" merge:"first=Match"`
}

type orderedRule struct {
	Match []string     `json:"match,omitempty"`
	Do    orderedThing `json:"do"`
}

type orderedThing struct {
	A string `json:"a,omitempty"`
	B string `json:"b,omitempty"`
}

func (*orderedConf) Validate(*resource.Validator) {}

func rule(match, a, b string) orderedRule {
	return orderedRule{Match: []string{match}, Do: orderedThing{A: a, B: b}}
}

// TestMergeFirst checks that the rules of the stronger conf come first in their order, merged with
// the weaker conf's values for the same match, followed by the rules that only the weaker conf has.
func TestMergeFirst(t *testing.T) {
	weak := &orderedConf{Rules: []orderedRule{rule("x", "weak", "weak"), rule("y", "weak", ""), rule("z", "", "weak")}}
	strong := &orderedConf{Rules: []orderedRule{rule("z", "strong", ""), rule("w", "", ""), rule("x", "", "strong")}}
	got, err := json.Marshal(resource.Merge(weak, strong))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"rules":[{"match":["z"],"do":{"a":"strong","b":"weak"}},{"match":["w"],"do":{}},` +
		`{"match":["x"],"do":{"a":"weak","b":"strong"}},{"match":["y"],"do":{"a":"weak"}}]}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if weak.Rules[0].Do.B != "weak" || strong.Rules[0].Do.B != "" {
		t.Error("merging changed a conf")
	}
}
