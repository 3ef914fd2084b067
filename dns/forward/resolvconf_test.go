package forward

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// Rows 58 and 62: all keywords of resolv.conf(5) are parsed, and invalid lines are reported.
func TestParseResolvConf(t *testing.T) {
	c := parseResolvConf([]byte("# a comment\n; another\nnameserver 192.0.2.1\nnameserver\t192.0.2.2 # local\n" +
		"nameserver fe80::1%eth0\nnameserver 192.0.2.1\nnameserver 0.0.0.0\nnameserver ::\n" +
		"nameserver nobody\nnameserver\ndomain example.org\nsearch a.example.org b.example.org\r\n" +
		"options ndots:5 timeout:3 attempts:4 rotate use-vc edns0 trust-ad unknown timeout:x\n"))
	want := []netip.AddrPort{}
	for _, s := range []string{"192.0.2.1:53", "192.0.2.2:53", "[fe80::1%eth0]:53", "127.0.0.1:53", "[::1]:53"} {
		want = append(want, netip.MustParseAddrPort(s))
	}
	if !slices.Equal(c.servers, want) {
		t.Errorf("the servers are %v", c.servers)
	}
	if c.ndots != 5 || c.Attempts != 4 || !c.Rotate || !c.UseTCP || !c.edns0 || !c.TrustAD ||
		!slices.Equal(c.search, []string{"a.example.org", "b.example.org"}) {
		t.Errorf("read: %+v", c)
	}
	if len(c.faults) != 3 || !strings.HasPrefix(c.faults[0], `line 9: nameserver "nobody"`) {
		t.Errorf("faults: %q", c.faults)
	}
	if c := parseResolvConf([]byte(strings.Repeat("nameserver nobody\n", 1000))); len(c.faults) > 16 {
		t.Errorf("%d faults are listed", len(c.faults))
	}
	var many strings.Builder
	for i := range 20 {
		fmt.Fprintf(&many, "nameserver 192.0.2.%d\n", i+1)
	}
	if c := parseResolvConf([]byte(many.String())); len(c.servers) != MaxServers {
		t.Errorf("%d servers", len(c.servers))
	}
}

func FuzzParseResolvConf(f *testing.F) {
	f.Add([]byte("nameserver 192.0.2.1\noptions timeout:99999999999999999999 attempts:-1\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := parseResolvConf(b)
		if len(c.servers) > MaxServers || len(c.faults) > 16 || c.Timeout < 0 || c.Timeout > 30*time.Second ||
			c.Attempts < 0 || c.Attempts > 5 {
			t.Errorf("read: %+v", c)
		}
		for _, s := range c.servers {
			if !s.IsValid() || s.Addr().IsUnspecified() || s.Addr().IsMulticast() {
				t.Errorf("the server %v", s)
			}
		}
	})
}
