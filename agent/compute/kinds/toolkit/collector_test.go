package toolkit_test

import (
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
)

func TestParseCollector(t *testing.T) {
	for in, want := range map[string]toolkit.Collector{
		"otel":          {Host: "otel", Port: 4317},
		"otel:1":        {Host: "otel", Port: 1},
		"fd00::1":       {Host: "fd00::1", Port: 4317},
		"[fd00::1]:443": {Host: "fd00::1", Port: 443},
	} {
		if got, err := toolkit.ParseCollector(in); err != nil || got != want {
			t.Errorf("%s: got %+v, %v", in, got, err)
		}
	}
}

// FuzzParseCollector checks that accepted collectors have a valid port and a host without brackets
// and port.
func FuzzParseCollector(f *testing.F) {
	for _, s := range []string{"http://z:1/s?q#f", "otel:4317", "[fd00::1]:1", "fd00::1", "a:b:c", "]:1", "[]", ":"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, err := toolkit.ParseCollector(s)
		switch {
		case err != nil && c != toolkit.Collector{}:
			t.Errorf("%q: %+v with the error %v", s, c, err)
		case err == nil && (c.Port < 1 || c.Port > 65535):
			t.Errorf("%q: port %d", s, c.Port)
		case err == nil && strings.ContainsAny(c.Host, "[]"):
			t.Errorf("%q: host %q", s, c.Host)
		}
	})
}
