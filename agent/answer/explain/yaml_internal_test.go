package explain

import (
	"encoding/json"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/google/go-cmp/cmp"
)

// TestYAML checks that the output parses to the same value and has the usual layout.
func TestYAML(t *testing.T) {
	for in, want := range map[string]string{
		`{"spec":{"targetRef":{"kind":"Dataplane","name":"web"},"to":[{"default":{"a":[1,{"b":"x"}]}}]}}`: "spec:\n  " +
			"targetRef: {kind: Dataplane, name: web}\n  to:\n  - default:\n      a:\n      - 1\n      - {b: x}\n",
		`{"a":{"b":"true","c":"null","d":"on","e":"1e3","f":"*","g":"","h":"a: b","i":"10.0.0.1","j":"y","k":"~","l":"0x1"}}`: `a: {b: "true", c: "null", d: "on", e: "1e3", f: "*", g: "", h: "a: b", i: "10.0.0.1", j: "y", k: "~", l: "0x1"}` + "\n",
		`{"a":"<>& \" \\ \u2028 \u0000 é"}`: "",
	} {
		got := yamlOf([]byte(in), true)
		if want != "" && string(got) != want {
			t.Errorf("%s is written as\n%s", in, got)
		}
		var a, b any
		if json.Unmarshal([]byte(in), &a) != nil || yaml.Unmarshal(got, &b) != nil {
			t.Fatalf("%s\n%s", in, got)
		}
		text, err := json.Marshal(b)
		if err != nil || json.Unmarshal(text, &b) != nil || cmp.Diff(a, b) != "" {
			t.Errorf("%s: %v", got, cmp.Diff(a, b))
		}
	}
	if got := inline("web"); got != "web" {
		t.Error(got)
	}
}
