package rollout

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func resourcesNamed(names ...string) []*draft.Resource {
	var out []*draft.Resource
	for _, name := range names {
		out = append(out, &draft.Resource{Name: name, Version: "1"})
	}
	return out
}

func TestNamesIn(t *testing.T) {
	list := resourcesNamed("inbound:10.0.0.1:80", "inbound:10.0.0.1:8080", "web", "web-v2", "web_old", "")
	for message, want := range map[string]string{
		"":            "",
		"no name":     "",
		"webapp: bad": "",
		"Error adding/updating listener(s) inbound:10.0.0.1:8080: cannot bind": "inbound:10.0.0.1:8080",
		"listener inbound:10.0.0.1:80: x, inbound:10.0.0.1:8080: y":            "inbound:10.0.0.1:80 inbound:10.0.0.1:8080",
		"cluster 'web-v2' is bad": "web-v2",
		"cluster web-v3 is bad":   "",
		"web-v2 and web":          "web web-v2",
		"(web)":                   "web",
		"web_old.":                "web_old",
	} {
		if got := strings.Join(slices.Sorted(maps.Keys(namesIn(message, list))), " "); got != want {
			t.Errorf("%q names %q, want %q", message, got, want)
		}
	}
}

func FuzzNamesIn(f *testing.F) {
	f.Add("listener a: bad", "a", "ab")
	f.Add("\xff\x00é", "é", "\xff")
	f.Fuzz(func(t *testing.T, message, a, b string) {
		for name := range namesIn(message, resourcesNamed(a, b)) {
			if !strings.Contains(message, name) {
				t.Errorf("%q is not in %q", name, message)
			}
		}
	})
}

func TestMergeLists(t *testing.T) {
	base := resourcesNamed("a", "c", "e")
	other := &draft.Resource{Name: "c", Version: "2"}
	line := func(list []*draft.Resource) string {
		var words []string
		for _, r := range list {
			words = append(words, r.Name+r.Version)
		}
		return strings.Join(words, " ")
	}
	if got := draft.Merge(base, base[:2], nil); !draft.SameList(got, base) {
		t.Errorf("merging nothing new returned %s", line(got))
	}
	if got := line(draft.Merge(base, append(resourcesNamed("b"), other), func(name string) bool {
		return name == "e"
	})); got != "a1 b1 c2" {
		t.Errorf("got %s", got)
	}
	if got := line(draft.Merge(nil, resourcesNamed("x"), nil)); got != "x1" {
		t.Errorf("got %s", got)
	}
}
