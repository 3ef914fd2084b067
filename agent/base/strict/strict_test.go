package strict_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nearside-mesh/nearside/agent/base/strict"
)

// span is a type that decodes itself from nodes.
type span struct{ time.Duration }

func (s *span) DecodeNode(d *strict.Decoder, n *strict.Node) {
	if !d.Is(n, strict.String, "a duration") {
		return
	}
	v, err := time.ParseDuration(n.Text)
	if err != nil {
		d.Faultf(n.Line, "%s is not a duration", n.Show())
	}
	s.Duration = v
}

// raw is a type that accepts any value.
type raw struct{ JSON string }

func (r *raw) DecodeNode(_ *strict.Decoder, n *strict.Node) { r.JSON = string(n.Canonical()) }

func (r *raw) DecodesNull() {}

// decode decodes a file with one document.
func decode(file string, data []byte, into any) (faults strict.Faults) {
	lim := strict.Limits{}.WithDefaults()
	root, fault := strict.One(data, lim)
	switch {
	case fault != nil:
		faults = strict.Faults{*fault}
	case root != nil:
		d := strict.New(lim, strict.Types{}, strict.Hooks{})
		d.Check(root)
		d.Decode(root, into)
		faults = d.Finish()
	}
	for i := range faults {
		faults[i].File = file
	}
	return faults
}

func TestDecode(t *testing.T) {
	type inner struct {
		Address string            `json:"address"`
		Sizes   []int8            `json:"sizes"`
		Ratio   float64           `json:"ratio"`
		Extra   map[string]any    `json:"extra"`
		Ages    map[string]uint16 `json:"ages"`
	}
	type base struct {
		Name string `json:"name"`
	}
	type config struct {
		base
		API    inner     `json:"api"`
		Ptr    *inner    `json:"ptr"`
		Wait   span      `json:"wait"`
		On     bool      `json:"on"`
		When   time.Time `json:"when"`
		Bytes  []byte    `json:"bytes"`
		NoTag  string
		Hidden string `json:"-"`
	}
	var c config
	c.API.Address, c.On = "kept", true
	faults := decode("agent.yaml", []byte(`
name: n
api: {sizes: [1, -2], ratio: 1.5, extra: {a: [1, x, true, null, 1.5]}, ages: {a: 1}}
ptr: {ratio: 2}
wait: 1h30m
when: 2024-01-01T00:00:00Z
bytes: aGk=
NoTag: x
`), &c)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	want := config{
		base: base{"n"},
		API: inner{
			Address: "kept", Sizes: []int8{1, -2}, Ratio: 1.5, Ages: map[string]uint16{"a": 1},
			Extra: map[string]any{"a": []any{int64(1), "x", true, nil, 1.5}},
		},
		Ptr: &inner{Ratio: 2}, Wait: span{90 * time.Minute}, On: true,
		When: time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC), Bytes: []byte("hi"), NoTag: "x",
	}
	if d := cmp.Diff(want, c, cmp.AllowUnexported(config{})); d != "" {
		t.Error(d)
	}
	for in, want := range map[string]string{
		"nme: x":                       `agent.yaml:1: nme: unknown field "nme"; did you mean "name"?`,
		"hidden: 1":                    `hidden: unknown field "hidden"`,
		"Hidden: x":                    `unknown field "Hidden"`,
		"api: {sizes: [200]}":          `api.sizes[0]: 200 is out of range: a whole number of 8 bits is expected`,
		"api: {ages: {a: 70000}}":      `api.ages["a"]: 70000 is out of range: a whole number from 0 to 65535`,
		"api: {ratio: x}":              `api.ratio: "x" is a string, a number is expected`,
		"on: 'yes'":                    `on: "yes" is a string, a boolean is expected: write true or false`,
		"wait: 10":                     `wait: 10 is a number, a duration is expected`,
		"api: {sizes: ['1']}":          `api.sizes[0]: "1" is a string, a whole number is expected: write it without quotes`,
		"ptr: x":                       `ptr: "x" is a string, a mapping is expected; its fields: address, sizes, ratio, extra, ages`,
		"when: soon":                   `when: "soon": `,
		"when: 1":                      `when: 1 is a number, a string is expected`,
		"bytes: 1":                     `a string in base64`,
		"name: a\nname: b":             `agent.yaml:2: name: duplicate key, first defined in line 1`,
		"name: a\n---\nname: b":        `agent.yaml:3: only one document is allowed; the second one begins here`,
		"[]":                           `a list is given, a mapping is expected`,
		"name: [":                      `not valid YAML`,
		"\"a\\nb\": 1\n":               `["a\nb"]: unknown field`,
		"api: {extra: {a: 1, a: 2}}\n": `api.extra.a: duplicate key`,
	} {
		var c config
		if got := decode("agent.yaml", []byte(in), &c).Error(); !strings.Contains(got, want) {
			t.Errorf("%q\ngot  %s\nwant %s", in, got, want)
		}
	}
	if faults := decode("", nil, &c); len(faults) > 0 {
		t.Errorf("an empty document: %v", faults)
	}
	if faults := decode("", []byte("{}"), c); len(faults) == 0 {
		t.Error("a value that is not a pointer was accepted")
	}
}
