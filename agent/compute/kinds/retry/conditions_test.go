package retry

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// condition returns a condition as in a document.
func condition(text string) Condition {
	b, _ := json.Marshal(text)
	return Condition{resource.Raw{JSON: b}}
}

func TestKeywords(t *testing.T) {
	for word, want := range httpWords() {
		if c, bad := httpConditions([]Condition{condition(word)}); bad >= 0 || !slices.Equal(c.words, []string{want}) {
			t.Errorf("%s: %+v, bad %d", word, c, bad)
		}
	}
	for word, want := range grpcWords() {
		if c, bad := grpcConditions([]Condition{condition(word)}); bad >= 0 || !slices.Equal(c.words, []string{want}) {
			t.Errorf("%s: %+v, bad %d", word, c, bad)
		}
	}
	for _, m := range methods() {
		if c, bad := httpConditions([]Condition{condition(methodPrefix + m)}); bad >= 0 ||
			!slices.Equal(c.methods, []string{strings.ToUpper(m)}) {
			t.Errorf("%s: %+v, bad %d", m, c, bad)
		}
	}
}

// FuzzConditions checks that accepted conditions result in a valid retry policy with only Envoy's
// keywords.
func FuzzConditions(f *testing.F) {
	for _, seed := range []string{
		`"5xx"`, `503`, `"503"`, `"HttpMethodGet"`, `"gateway-error,x"`, `-1`, `null`, `{}`, `"\u0000"`, `""`, `1e2`, ``,
	} {
		f.Add([]byte(seed))
	}
	known := map[string]bool{statusCodes: true}
	for _, w := range slices.Concat(strings.Split(defaultHTTP, ","), strings.Split(defaultGRPC, ",")) {
		known[w] = true
	}
	for _, words := range []map[string]string{httpWords(), grpcWords()} {
		for _, w := range words {
			known[w] = true
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		list := []Condition{{resource.Raw{JSON: raw}}}
		warn := func(string, ...any) { t.Error("a warning about conditions") }
		if _, bad := httpConditions(list); bad < 0 {
			p := (&HTTP{Requests: Requests{RetryOn: list}}).policy(warn)
			if err := p.Validate(); err != nil {
				t.Errorf("%s: %v", raw, err)
			}
			for w := range strings.SplitSeq(p.RetryOn, ",") {
				if !known[w] {
					t.Errorf("%s: the word %q", raw, w)
				}
			}
		}
		if _, bad := grpcConditions(list); bad < 0 {
			p := (&GRPC{Requests{RetryOn: list}}).policy(warn)
			if err := p.Validate(); err != nil {
				t.Errorf("%s: %v", raw, err)
			}
			if !known[p.RetryOn] {
				t.Errorf("%s: the word %q", raw, p.RetryOn)
			}
		}
		if _, err := json.Marshal(list[0]); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
	})
}
