package resource_test

import (
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// TestEmbedded parses texts in fields. An expectation that begins with an exclamation mark is a
// fault: its field, then a substring of the reason.
func TestEmbedded(t *testing.T) {
	for text, want := range map[string]string{
		"b: 5s\na: [1, 1.50, 0x10, yes]\n": `{"a":[1,1.5,16,"yes"],"b":"5s"}`,
		`{"b": null, "a": "\u00e9"}`:       `{"a":"é","b":null}`,
		"- x\n- {<<: &a {k: v}, l: 1}\n":   `["x",{"k":"v","l":1}]`,
		"just text":                        `"just text"`,
		"---\na: 1\n...\n":                 `{"a":1}`,
		"":                                 "!spec.value: the text is empty",
		"# nothing":                        "!spec.value: the text is empty",
		"null":                             "!spec.value: the text is empty",
		"a: 1\n---\nb: 2\n":                "!spec.value: only one document is allowed",
		"{":                                "!spec.value: line 1 of the text: not valid YAML",
		"a: 1\nb: [":                       "!spec.value: line 2 of the text: not valid YAML",
		"a:\n\tb: 1":                       "!spec.value: line 2 of the text: not valid YAML",
		"a:\n  b: 1\n  b: 2\n":             "!spec.value.a.b: line 3 of the text: duplicate key",
		"- a: {x/y: 1, x/y: 2}\n":          `!spec.value[0].a["x/y"]: line 1 of the text: duplicate key`,
		"a: \xff":                          "!spec.value: line 1 of the text: byte 0xff is not UTF-8",
		strings.Repeat("[", 100) + strings.Repeat("]", 100): "!spec.value: nested too deeply",
		"a: " + strings.Repeat("x", 1<<20):                  "!spec.value: but only 1048576 are allowed",
		"a: &a [1]\nb: &b [*a, *a]\nc: [*b, *b]":            `{"a":[1],"b":[[1],[1]],"c":[[[1],[1]],[[1],[1]]]}`,
	} {
		var faults []resource.Fault
		got := string(resource.NewValidator("spec.value", &faults).Embedded(text))
		rest, bad := strings.CutPrefix(want, "!")
		field, reason, _ := strings.Cut(rest, ": ")
		switch {
		case !bad && (got != want || len(faults) > 0):
			t.Errorf("%.60q: got %s, %v, want %s", text, got, faults, want)
		case bad &&
			(got != "" || len(faults) != 1 || faults[0].Field != field || !strings.Contains(faults[0].Reason, reason)):
			t.Errorf("%.60q: got %s, %v, want one fault %s", text, got, faults, rest)
		}
	}
}
