package resource_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// valuesConf has one field for every check that confs share.
type valuesConf struct {
	Decimal *resource.Decimal  `json:"decimal,omitempty"`
	Percent *resource.Decimal  `json:"percent,omitempty"`
	Whole   *uint32            `json:"whole,omitempty"`
	Count   *uint32            `json:"count,omitempty"`
	Limit   *resource.Duration `json:"limit,omitempty"`
	Span    *resource.Duration `json:"span,omitempty"`
	Header  *string            `json:"header,omitempty"`
	Value   string             `json:"value,omitempty"`
	Pattern *string            `json:"pattern,omitempty"`
	List    *[]string          `json:"list,omitempty"`
}

func (c *valuesConf) Validate(v *resource.Validator) {
	v.Field("percent").Percentage(c.Percent)
	v.Field("whole").Percent(c.Whole)
	v.Field("count").AtLeastOne(c.Count)
	v.Field("limit").Timeout(c.Limit)
	v.Field("span").Positive(c.Span)
	if c.Header != nil {
		v.Field("header").HeaderName(*c.Header)
	}
	v.Field("value").HeaderValue(c.Value)
	if c.Pattern != nil {
		v.Field("pattern").Pattern(*c.Pattern)
	}
}

func decodeValues(t *testing.T, conf string) (*valuesConf, resource.Faults) {
	t.Helper()
	reg, err := resource.NewRegistry(resource.PolicyDescriptor("MeshValues", "meshvalues", "", resource.PolicyShape{
		Top: []string{"Mesh"}, Default: true, NewConf: func() resource.Conf { return new(valuesConf) },
	}))
	if err != nil {
		t.Fatal(err)
	}
	res, faults := reg.Decode("", []byte(`{"type":"MeshValues","mesh":"default","name":"v","spec":{"default":`+conf+`}}`))
	if len(res) == 0 {
		return nil, faults
	}
	return res[0].Spec.(*resource.Policy).Default.(*valuesConf), faults
}

func TestDecimal(t *testing.T) {
	for in, want := range map[string]float64{
		"0": 0, "7": 7, "1.33": 1.33, "-2": -2, `"62.5"`: 62.5, `"+1."`: 1, `".5"`: .5, `"-0.25"`: -.25, `"007"`: 7,
	} {
		c, faults := decodeValues(t, `{"decimal":`+in+`}`)
		if len(faults) > 0 {
			t.Errorf("%s: %v", in, faults)
			continue
		}
		if got := c.Decimal.Float(); got != want {
			t.Errorf("%s: got %v", in, got)
		}
		if out, err := json.Marshal(c.Decimal); err != nil || string(out) != in {
			t.Errorf("%s comes out as %s (%v)", in, out, err)
		}
	}
	for _, in := range []string{
		`"5%"`, `"1e3"`, `"0x10"`, `"NaN"`, `"1.2.3"`, `"."`, `""`, `"-"`, `[1]`, `true`, `"` + strings.Repeat("1", 33) + `"`,
	} {
		if _, faults := decodeValues(t, `{"decimal":`+in+`}`); len(faults) != 1 || faults[0].Field != "spec.default.decimal" {
			t.Errorf("%s: want one fault at spec.default.decimal, got %v", in, faults)
		}
	}
}

// TestPointerToList checks that an empty list clears a field that points to a list.
func TestPointerToList(t *testing.T) {
	for in, want := range map[string]string{`{"list":[]}`: `{"list":[]}`, `{"list":["a"]}`: `{"list":["a"]}`, `{}`: `{}`} {
		c, faults := decodeValues(t, in)
		if len(faults) > 0 {
			t.Errorf("%s: %v", in, faults)
			continue
		}
		if out, err := json.Marshal(c); err != nil || string(out) != want {
			t.Errorf("%s comes out as %s (%v)", in, out, err)
		}
	}
}

func TestSharedChecks(t *testing.T) {
	for _, good := range []string{
		`{"percent":0}`, `{"percent":"100.0"}`, `{"percent":62.9}`, `{"whole":100}`, `{"whole":0}`, `{"count":1}`,
		`{"limit":"0s"}`, `{"limit":"1ms"}`, `{"span":"1ms"}`, `{"header":"x-a.b_c"}`, `{"header":"5!"}`,
		`{"value":"a\tb, ü"}`, `{"pattern":"^a(b|c)+$"}`,
	} {
		if _, faults := decodeValues(t, good); len(faults) > 0 {
			t.Errorf("%s: %v", good, faults)
		}
	}
	for _, bad := range []struct{ conf, field, reason string }{
		{`{"percent":101}`, "percent", "101 is not a percentage: 0 to 100"},
		{`{"percent":"-0.1"}`, "percent", "-0.1 is not a percentage"},
		{`{"whole":101}`, "whole", "101 is not a percentage"},
		{`{"count":0}`, "count", "1 or more"},
		{`{"limit":"999us"}`, "limit", "less than a millisecond"},
		{`{"span":"0s"}`, "span", "give 1ms or more"},
		{`{"span":"1us"}`, "span", "give 1ms or more"},
		{`{"header":""}`, "header", "missing"},
		{`{"header":"X-A"}`, "header", "lower case"},
		{`{"header":":path"}`, "header", "not allowed"},
		{`{"header":"a b"}`, "header", "not allowed"},
		{`{"header":"` + strings.Repeat("a", 257) + `"}`, "header", "at most 256"},
		{`{"value":"a\nb"}`, "value", "control character"},
		{`{"pattern":""}`, "pattern", "empty"},
		{`{"pattern":"(a"}`, "pattern", "RE2"},
		{`{"pattern":"a(?=b)"}`, "pattern", "RE2"},
		{`{"pattern":"` + strings.Repeat("a", 1025) + `"}`, "pattern", "at most 1024"},
	} {
		_, faults := decodeValues(t, bad.conf)
		if len(faults) != 1 || faults[0].Field != "spec.default."+bad.field ||
			!strings.Contains(faults[0].Reason, bad.reason) {
			t.Errorf("%s: want a fault at %s with %q, got %v", bad.conf, bad.field, bad.reason, faults)
		}
	}
}

// FuzzDecimal decodes any text as a decimal: an accepted number is finite and survives a round trip
// unchanged.
func FuzzDecimal(f *testing.F) {
	for _, seed := range []string{
		"1.5", "-0", "+.5", "1e9", "0x1p-2", "NaN", "infinity", "1_000", ".", "", "9999999999999999999999999999999",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		in, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		c, faults := decodeValues(t, `{"decimal":`+string(in)+`}`)
		if len(faults) > 0 || c == nil || c.Decimal == nil {
			return
		}
		if v := c.Decimal.Float(); math.IsInf(v, 0) || math.IsNaN(v) {
			t.Errorf("%q is %v", text, v)
		}
		out, err := json.Marshal(c.Decimal)
		if err != nil || string(out) != string(in) {
			t.Errorf("%s comes out as %s (%v)", in, out, err)
		}
	})
}
