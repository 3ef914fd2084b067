package faultinjection

import (
	"fmt"
	"math"
	"regexp"
	"testing"

	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// oneFault is the conf of a legacy kind with a fault.
type oneFault struct{ Fault }

func (c *oneFault) Validate(v *resource.Validator) { c.Check(v, true) }

func TestShare(t *testing.T) {
	for text, want := range map[string]string{
		"0": "0/100", "1": "1/100", "100": "100/100", "2.5": "250/10000", "50.5": "5050/10000", "0.29": "29/10000",
		"33.333": "333330/1000000", "0.0001": "1/1000000", "99.9999": "999999/1000000", "62.50": "6250/10000",
	} {
		reg, err := resource.NewRegistry(resource.LegacyDescriptor("Share", "shares", "",
			resource.LegacyShape{NewConf: func() resource.Conf { return new(oneFault) }}))
		if err != nil {
			t.Fatal(err)
		}
		res, faults := reg.Decode("", []byte(`{"type":"Share","mesh":"default","name":"s","sources":[{"match":{"kuma.io/service":"*"}}],"destinations":[{"match":{"kuma.io/service":"*"}}],"conf":{"abort":{"httpStatus":500,"percentage":`+text+`}}}`))
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		p := res[0].Spec.(*resource.LegacyPolicy).Conf.(*oneFault).Abort.Percentage
		s := toolkit.Fraction(p)
		of := map[typev3.FractionalPercent_DenominatorType]int{0: 100, 1: 10_000, 2: 1_000_000}[s.Denominator]
		if got := fmt.Sprintf("%d/%d", s.Numerator, of); got != want {
			t.Errorf("%s%%: got %s, want %s", text, got, want)
		}
	}
	if s := toolkit.Fraction(nil); s.Numerator != 0 {
		t.Errorf("no percentage: %v", s)
	}
}

// FuzzBandwidth checks that a limit is parsed as a number with a unit, without overflow in Envoy,
// and that a rejected limit has a reason.
func FuzzBandwidth(f *testing.F) {
	for _, s := range []string{
		"50kbps", "50 kbps", "1 Mbps", "4294967295Gbps", "4294967296kbps", "0kbps", "kbps", " 1kbps", "1  kbps", "-1kbps",
		"1e3kbps", "٣kbps", "",
	} {
		f.Add(s)
	}
	form := regexp.MustCompile(`^0*[1-9][0-9]* ?([kMG]bps|[mg]bps)$`)
	f.Fuzz(func(t *testing.T, s string) {
		for _, small := range []bool{false, true} {
			kbps, reason := readBandwidth(s, small)
			if (reason == "") != (kbps > 0) {
				t.Fatalf("%q: %d kbps with reason %q", s, kbps, reason)
			}
			if reason == "" && (!form.MatchString(s) || kbps > math.MaxUint32*1_000_000) {
				t.Fatalf("%q is parsed as %d kbps", s, kbps)
			}
		}
	})
}

// FuzzTagsRegex checks that the regular expression for tags is valid and matches the header of any
// proxy with these tags.
func FuzzTagsRegex(f *testing.F) {
	f.Add("kuma.io/service", "web", "team", "front")
	f.Add("a", "1.2.3", "b", "x_y-z:1")
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2 string) {
		tag := regexp.MustCompile(`^[a-zA-Z0-9._:/-]+$`)
		value := regexp.MustCompile(`^[a-zA-Z0-9._:-]+$`)
		if k1 == k2 || !tag.MatchString(k1) || !tag.MatchString(k2) || !value.MatchString(v1) || !value.MatchString(v2) {
			t.Skip()
		}
		header := mesh.TagString(map[string][]string{k1: {"0", v1, "zz"}, k2: {v2}, "other": {"o"}})
		for _, tags := range []map[string]string{{k1: v1}, {k2: v2}, {k1: v1, k2: v2}, {k1: "*"}, {k1: "*", k2: v2}} {
			r, err := regexp.Compile("^(?:" + toolkit.TagsRegex(tags) + ")$") // RE2::FullMatch, as Envoy has it
			if err != nil {
				t.Fatal(err)
			}
			if !r.MatchString(header) {
				t.Fatalf("%s does not match %s", r, header)
			}
		}
	})
}

func TestOfSubset(t *testing.T) {
	match := func(s policy.Subset, header string) bool {
		for _, h := range ofSubset(s) {
			r := regexp.MustCompile("^(?:" + h.GetStringMatch().GetSafeRegex().GetRegex() + ")$")
			if r.MatchString(header) == h.GetInvertMatch() {
				return false
			}
		}
		return true
	}
	not := func(k, v string) policy.Tag { return policy.Tag{Key: k, Value: v, Not: true} }
	is := func(k, v string) policy.Tag { return policy.Tag{Key: k, Value: v} }
	front := "&kuma.io/service=web&&team=front&"
	back := "&kuma.io/service=backend&&team=back&"
	for _, c := range []struct {
		subset      policy.Subset
		front, back bool
	}{
		{nil, true, true},
		{policy.Subset{is("team", "front")}, true, false},
		{policy.Subset{is("team", "front"), is("kuma.io/service", "backend")}, false, false},
		{policy.Subset{not("team", "front")}, false, true},
		{policy.Subset{not("team", "front"), not("team", "back")}, false, false},
		{policy.Subset{not("kuma.io/service", "web"), not("team", "none")}, false, true},
		{policy.Subset{is("kuma.io/service", "web"), not("team", "none")}, true, false},
	} {
		if f, b := match(c.subset, front), match(c.subset, back); f != c.front || b != c.back {
			t.Errorf("%v: front %v, back %v", c.subset, f, b)
		}
	}
}
