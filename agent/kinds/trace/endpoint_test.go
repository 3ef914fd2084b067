package trace

import (
	"net/netip"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for in, want := range map[string]endpoint{
		"http://z/s":            {host: "z", port: 80, authority: "z", path: "/s"},
		"https://z:1/a%20b?c=d": {host: "z", port: 1, written: true, tls: true, authority: "z:1", path: "/a%20b?c=d"},
		"https://[fd00::1]":     {host: "fd00::1", port: 443, tls: true, authority: "[fd00::1]"},
	} {
		if got, err := parseURL(in); err != nil || got != want {
			t.Errorf("%s: got %+v, %v", in, got, err)
		}
	}
	for in, want := range map[string]endpoint{
		"otel":          {host: "otel", port: 4317, authority: "otel"},
		"otel:1":        {host: "otel", port: 1, authority: "otel:1"},
		"fd00::1":       {host: "fd00::1", port: 4317, authority: "fd00::1"},
		"[fd00::1]:443": {host: "fd00::1", port: 443, authority: "[fd00::1]:443"},
	} {
		if got, err := parseHostPort(in); err != nil || got != want {
			t.Errorf("%s: got %+v, %v", in, got, err)
		}
	}
}

// FuzzParse: whatever is accepted has a port that can be dialled and a host without brackets and ports.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"http://z:1/s?q#f", "https://[fd00::1%25eth0]:1", "otel:4317", "[fd00::1]:1", "fd00::1", "a:b:c", "]:1", "[]", ":", "http://[::1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for name, parse := range map[string]func(string) (endpoint, error){"URL": parseURL, "host and port": parseHostPort} {
			e, err := parse(s)
			if err != nil {
				if e != (endpoint{}) {
					t.Errorf("%s %q: %+v beside the error %v", name, s, e, err)
				}
				continue
			}
			if e.port < 1 || e.port > 65535 {
				t.Errorf("%s %q: port %d", name, s, e.port)
			}
			if _, err := netip.ParseAddr(e.host); err != nil && name != "URL" && strings.ContainsAny(e.host, ":[") {
				t.Errorf("%s %q: host %q", name, s, e.host)
			}
		}
	})
}
