package route

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/value"
)

// TestRouteNames compares the names of routes with Kuma's, because rules for routes refer to them.
func TestRouteNames(t *testing.T) {
	c := &HTTPConf{Rules: []HTTPRule{
		{Matches: []Match{*Everything()}},
		{Matches: []Match{{Path: &PathMatch{Type: pathPrefix, Value: "/m"}, Method: "POST"}}},
		{Matches: []Match{{QueryParams: []QueryMatch{{Type: exact, Name: "q", Value: "1"},
			{Type: pattern, Name: "r", Value: "2.*"}}}}},
		{Matches: []Match{{Headers: []toolkit.HeaderMatch{
			{Name: "x-a", Value: "1"}, {Type: pattern, Name: "x-b", Value: "b.*"}, {Type: toolkit.MatchPresent, Name: "x-c"},
			{Type: toolkit.MatchAbsent, Name: "x-d"}, {Type: toolkit.MatchPrefix, Name: "x-e", Value: "e"},
		}}}},
		{Matches: []Match{{Path: &PathMatch{Type: pathPrefix, Value: "/one"}},
			{Path: &PathMatch{Type: exact, Value: "/two"}}}},
	}}
	want := []string{ // from Kuma 2.9
		"9Zuf5Tg79OuZcQITwBbQykxAk2u4fRKrwYn3//AL4Yo=",
		"qkia/y/AY5Zs7L9JYty63CYSEyM8Gk1SNxtFyDGhJn8=",
		"WTyekML+Vx9Om393nGSQ1/VWRjxADRmsqCwmmh9hsOY=",
		"SteyrsXIMeU6j4RkJzrFLcF7zp0ohGDLrOpZMcRoBf8=",
		"s8FePWaX7l0wEtxwVGxWo4ijkSFatATDsck8orfxDlg=",
	}
	if got := c.RouteNames(); !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

// TestPrecedenceIsAnOrder checks that Compare is a strict weak order.
func TestPrecedenceIsAnOrder(t *testing.T) {
	var all []Match
	for _, p := range []*PathMatch{
		nil, {"/", exact}, {"/a", exact}, {"/", pathPrefix}, {"/aa", pathPrefix}, {"/b", pattern}, {"/bb", pattern},
	} {
		for _, method := range []string{"", "GET"} {
			for n := range 3 {
				all = append(all,
					Match{Path: p, Method: method, Headers: make([]toolkit.HeaderMatch, n), QueryParams: make([]QueryMatch, 2-n)})
			}
		}
	}
	for i := range all {
		for j := range all {
			a, b := &all[i], &all[j]
			if a.Compare(b) != -b.Compare(a) {
				t.Fatalf("%+v and %+v each precede the other", a, b)
			}
			for k := range all {
				if c := &all[k]; a.Compare(b) <= 0 && b.Compare(c) <= 0 && a.Compare(c) > 0 {
					t.Fatalf("%+v precedes %+v, which precedes %+v, which precedes the first", a, b, c)
				}
			}
		}
	}
}

// takes reports whether Envoy matches a path.
func takes(m *routev3.RouteMatch, path string) bool {
	switch s := m.PathSpecifier.(type) {
	case *routev3.RouteMatch_Path:
		return path == s.Path
	case *routev3.RouteMatch_Prefix:
		return strings.HasPrefix(path, s.Prefix)
	case *routev3.RouteMatch_SafeRegex:
		return regexp.MustCompile("^(?:" + s.SafeRegex.Regex + ")$").MatchString(path)
	}
	return false
}

// FuzzPath checks that accepted matches select the right paths and result in valid messages.
func FuzzPath(f *testing.F) {
	for _, value := range []string{
		"/", "/a", "/a/b", "/a.b", "//", "", "relative", "/a/", "/%2f", "/[0-9]+", "(", "/a?b=c",
	} {
		for _, path := range []string{"/", "/a", "/a/b", "/ab", "/a/b/c", "/9"} {
			f.Add(value, path)
		}
	}
	f.Fuzz(func(t *testing.T, value, path string) {
		for kind, want := range map[string]func() bool{
			exact:      func() bool { return path == value },
			pathPrefix: func() bool { return value == "/" || path == value || strings.HasPrefix(path, value+"/") },
			pattern:    func() bool { return regexp.MustCompile(`\A(?:` + value + `)\z`).MatchString(path) },
		} {
			m := &Match{Path: &PathMatch{Type: kind, Value: value}, Method: "GET"}
			var faults []resource.Fault
			m.validate(resource.NewValidator("", &faults))
			if len(faults) > 0 {
				continue
			}
			got := false
			for _, e := range m.envoy() {
				if err := e.Validate(); err != nil {
					t.Errorf("%s %q: %v", kind, value, err)
				}
				if _, err := proto.Marshal(e); err != nil {
					return // not UTF-8, so not possible in a document
				}
				if len(e.Headers) != 1 || e.Headers[0].Name != ":method" {
					t.Errorf("%s %q: the method is missing", kind, value)
				}
				got = got || takes(e, path)
			}
			if strings.HasPrefix(path, "/") && !strings.Contains(path, "\n") && got != want() {
				t.Errorf("%s %q matches %q: %v", kind, value, path, got)
			}
		}
	})
}

// FuzzSubstitution checks that accepted substitutions are valid and that literals are unchanged.
func FuzzSubstitution(f *testing.F) {
	for _, s := range []string{"", "/a", `\0`, `\1\2`, `\3`, `\`, `a\\`, `\a`, `\\1`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if reason := substitutionFault(literal(s), 0); reason != "" {
			t.Errorf("literal of %q: %s", s, reason)
		}
		if got := substitute(literal(s), "match"); got != s {
			t.Errorf("literal of %q results in %q", s, got)
		}
		if substitutionFault(s, 2) == "" {
			substitute(s, "match", "one", "two") // does not index beyond the groups
		}
	})
}

// substitute applies a substitution like RE2.
func substitute(s string, groups ...string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		i++
		if s[i] == '\\' {
			b.WriteByte('\\')
		} else {
			b.WriteString(groups[s[i]-'0'])
		}
	}
	return b.String()
}

// TestPercent checks that a percentage gets the smallest sufficient denominator.
func TestPercent(t *testing.T) {
	if fraction(nil) != nil {
		t.Error("nil does not mean all requests")
	}
	for in, want := range map[float64]string{
		0: "0/HUNDRED", 100: "100/HUNDRED", 99.9: "9990/TEN_THOUSAND", 0.01: "1/TEN_THOUSAND",
		33.333: "333330/MILLION", 0.0001: "1/MILLION", 0.00001: "0/MILLION",
	} {
		d := value.NewDecimal(in)
		v := fraction(&d).DefaultValue
		if got := fmt.Sprintf("%d/%s", v.Numerator, v.Denominator); got != want {
			t.Errorf("%v is %s, want %s", in, got, want)
		}
	}
}
