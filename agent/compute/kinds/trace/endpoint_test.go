package trace

import (
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
)

func TestParse(t *testing.T) {
	for in, want := range map[string]endpoint{
		"http://z/s": {Collector: toolkit.Collector{Host: "z", Port: 80}, authority: "z", path: "/s"},
		"https://z:1/a%20b?c=d": {Collector: toolkit.Collector{Host: "z", Port: 1}, explicitPort: true, tls: true,
			authority: "z:1", path: "/a%20b?c=d"},
		"https://[fd00::1]": {Collector: toolkit.Collector{Host: "fd00::1", Port: 443}, tls: true,
			authority: "[fd00::1]"},
	} {
		if got, err := parseURL(in); err != nil || got != want {
			t.Errorf("%s: got %+v, %v", in, got, err)
		}
	}
}

// FuzzParse checks that accepted URLs have a valid port.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"http://z:1/s?q#f", "https://[fd00::1%25eth0]:1", "otel:4317", "[fd00::1]:1", "fd00::1", "a:b:c", "]:1", "[]", ":",
		"http://[::1",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e, err := parseURL(s)
		if err != nil && e != (endpoint{}) {
			t.Errorf("%q: %+v with the error %v", s, e, err)
		}
		if err == nil && (e.Port < 1 || e.Port > 65535) {
			t.Errorf("%q: port %d", s, e.Port)
		}
	})
}
