package dns

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/nearside-mesh/nearside/dns/forward"
)

// TestRebinding checks which addresses are dropped from answers of upstreams, in all forms, that
// the rest stays, that each is counted with its reason and sampled, and that a change of the
// protection also applies to cached answers.
func TestRebinding(t *testing.T) {
	records := map[string][]string{
		"virtual": {"A 240.1.2.3", "A 192.0.2.1", "AAAA fd00:fd00::9"},
		"mapped": {"AAAA ::ffff:240.1.2.3", "AAAA ::ffff:127.0.0.1", "AAAA 64:ff9b::a00:1", "AAAA ::240.1.2.3",
			"AAAA 2001:db8::1"},
		"loopback": {"A 127.0.0.1", "A 0.0.0.0", "A 127.9.9.9", "AAAA ::1", "AAAA ::"},
		"link":     {"A 169.254.169.254", "AAAA fe80::1"},
		"private": {"A 10.0.0.1", "A 172.31.0.1", "A 192.168.0.1", "A 100.64.0.1", "AAAA fd12::1", "A 172.32.0.1",
			"A 198.51.100.1"},
		"alias":       {"CNAME inside.example.org.", "inside.example.org.! A 10.0.0.1"},
		"hints":       {"HTTPS 1 . alpn=h2 ipv4hint=10.0.0.1,192.0.2.1 ipv6hint=fd00:fd00::9"},
		"except":      {"A 10.0.0.1", "A 127.0.0.1", "A 240.0.0.1"},
		"deep.except": {"A 10.0.0.1"}, "notexcept": {"A 10.0.0.1"},
	}
	up := newScripted(t, "127.0.0.1:0", func(q *upstreamQuery) {
		label, _, _ := strings.Cut(q.name(), ".example.org.")
		var list []string
		for _, r := range records[label] {
			owner := q.name()
			if name, rest, ok := strings.Cut(r, "! "); ok {
				owner, r = name, rest
			}
			if typ, _, _ := strings.Cut(r, " "); typ == mdns.TypeToString[q.Question[0].Qtype] || label == "alias" {
				list = append(list, owner+" 60 IN "+r)
			}
		}
		q.Reply(t, 0, list)
	})
	c := newTester(t, forward.Options{}, up)
	var mu sync.Mutex
	var sampled []string
	c.srv.o.Sampled = func(s Sampled) {
		mu.Lock()
		defer mu.Unlock()
		sampled = append(sampled, s.Source+" "+s.Dropped)
	}
	c.srv.Sample(1)
	// data returns the data of the answers to the question for A or AAAA, or of another type.
	data := func(label string, types ...uint16) (out []string) {
		for _, qtype := range types {
			m := c.query(clientKind{size: 1232}, label+".example.org", qtype)
			for _, rr := range m.Answer {
				out = append(out, strings.TrimPrefix(rr.String(), rr.Header().String()))
			}
			if m.Rcode != 0 {
				t.Errorf("%s: %v", label, m)
			}
		}
		return out
	}
	both := []uint16{mdns.TypeA, mdns.TypeAAAA}
	virtual := []netip.Prefix{netip.MustParsePrefix("240.0.0.0/6"), netip.MustParsePrefix("fd00:fd00::/62")}
	for _, tc := range []struct {
		what    string
		protect forward.Protection
		want    map[string]string // by label
		dropped map[string]uint64
	}{
		{"allow", forward.Protection{Virtual: virtual}, map[string]string{
			"virtual": "192.0.2.1", "mapped": "::ffff:127.0.0.1 64:ff9b::a00:1 2001:db8::1",
			"loopback": "127.0.0.1 0.0.0.0 127.9.9.9 ::1 ::", "link": "169.254.169.254 fe80::1",
			"private": "10.0.0.1 172.31.0.1 192.168.0.1 100.64.0.1 172.32.0.1 198.51.100.1 fd12::1",
			"except":  "10.0.0.1 127.0.0.1"}, map[string]uint64{"virtual": 5}},
		{"protect", forward.Protection{Virtual: virtual, Private: true, Except: []string{"except.example.org"}},
			map[string]string{"virtual": "192.0.2.1", "mapped": "2001:db8::1", "loopback": "", "link": "",
				"private": "172.32.0.1 198.51.100.1", "alias": "inside.example.org. inside.example.org.",
				"except": "10.0.0.1 127.0.0.1", "deep.except": "10.0.0.1", "notexcept": ""},
			map[string]uint64{"virtual": 5, "loopback": 6, "link-local": 2, "private": 9}},
	} {
		protect := tc.protect
		c.f.Protect(&protect)
		before := c.f.Dropped()
		for _, times := range []string{"asked", "cached"} {
			for label, want := range tc.want {
				if got := strings.Join(data(label, both...), " "); got != want {
					t.Errorf("%s, %s %s: %s, want %s", tc.what, label, times, got, want)
				}
			}
		}
		after := c.f.Dropped()
		for reason, n := range before {
			after[reason] -= n
		}
		maps.DeleteFunc(after, func(_ string, n uint64) bool { return n == 0 })
		if !maps.Equal(after, tc.dropped) {
			t.Errorf("%s: %v were dropped, want %v", tc.what, after, tc.dropped)
		}
	}
	if m := c.query(clientKind{size: 1232}, "link.example.org", mdns.TypeA); ede(m) != int(mdns.ExtendedErrorCodeBlocked) {
		t.Errorf("the reply does not say why addresses are missing: %v", m)
	}
	if got := data("hints", mdns.TypeHTTPS); !slices.Equal(got, []string{`1 . alpn="h2" ipv4hint="192.0.2.1"`}) {
		t.Errorf("hints: %q", got)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []string{
		"forwarded virtual", "cache virtual", "forwarded private", "cache private", "forwarded ",
	} {
		if !slices.Contains(sampled, want) {
			t.Errorf("no sample %q", want)
		}
	}
}
