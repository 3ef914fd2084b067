package plural_test

import (
	"testing"

	"github.com/nearside-mesh/nearside/agent/base/plural"
)

func TestCount(t *testing.T) {
	for _, c := range []struct {
		n          int
		noun, want string
	}{
		{0, "file", "0 files"}, {1, "file", "1 file"}, {2, "more finding", "2 more findings"},
		{1, "proxy", "1 proxy"}, {3, "proxy", "3 proxies"}, {3, "Envoy", "3 Envoys"},
	} {
		if got := plural.Count(c.n, c.noun); got != c.want {
			t.Errorf("Count(%d, %q) = %q, want %q", c.n, c.noun, got, c.want)
		}
	}
}

func TestForm(t *testing.T) {
	for n, want := range map[int]string{0: "0 members are alive", 1: "1 member is alive", 5: "5 members are alive"} {
		if got := plural.Form(n, "1 member is alive", "%d members are alive"); got != want {
			t.Errorf("Form(%d) = %q, want %q", n, got, want)
		}
	}
}
