package addresspattern_test

import (
	"net/netip"
	"regexp"
	"testing"

	"pgregory.net/rapid"

	"github.com/nearside-mesh/nearside/agent/compute/addresspattern"
)

// near draws an address of the prefix's family, often at an edge of the prefix.
func near(t *rapid.T, p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	switch bit := p.Bits(); rapid.IntRange(0, 3).Draw(t, "where") {
	case 0: // anywhere
		b = rapid.SliceOfN(rapid.Byte(), len(b), len(b)).Draw(t, "address")
	case 1: // inside the prefix
		for i := bit; i < 8*len(b); i++ {
			if rapid.Bool().Draw(t, "bit") {
				b[i/8] ^= 1 << (7 - i%8)
			}
		}
	case 2: // outside by one bit
		if bit > 0 {
			i := rapid.IntRange(0, bit-1).Draw(t, "other")
			b[i/8] ^= 1 << (7 - i%8)
		}
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// TestAddressPatterns checks that a pattern matches the text of an address exactly if the prefix
// contains the address.
func TestAddressPatterns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.SampledFrom([]int{4, 16}).Draw(t, "size")
		a, _ := netip.AddrFromSlice(rapid.SliceOfN(rapid.Byte(), size, size).Draw(t, "base"))
		p := netip.PrefixFrom(a, rapid.IntRange(1, a.BitLen()).Draw(t, "bits")).Masked()
		if a.Is4In6() {
			return // MeshPassthrough treats it as IPv4
		}
		pattern, err := addresspattern.Of(p)
		if err != nil {
			return
		}
		re, err := regexp.Compile("^(?:" + pattern + ":443)$")
		if err != nil {
			t.Fatal(err)
		}
		x := near(t, p)
		if text := netip.AddrPortFrom(x, 443).String(); re.MatchString(text) != p.Contains(x) && !x.Is4In6() {
			t.Fatalf("%s and %s: the pattern %s fits %v", p, text, pattern, re.MatchString(text))
		}
	})
}

func TestPatternsOfAnyAddress(t *testing.T) {
	own := regexp.MustCompile("^(?:" + addresspattern.Own + ".*)$")
	any4 := regexp.MustCompile("^(?:" + addresspattern.AnyIPv4 + ":443)$")
	any6 := regexp.MustCompile("^(?:" + addresspattern.AnyIPv6 + ":443)$")
	for text, want := range map[string]bool{
		"1.2.3.4:443": true, "10.0.0.1:443": true, "203.0.113.7:443": true, "12.7.0.1:443": true, "[2001:db8::1]:443": true,
		"[fd00::1]:443": true, "127.0.0.1:443": false, "127.255.255.254:443": false, "0.0.0.0:443": false,
		"169.254.169.254:443": false, "224.0.0.1:443": false, "255.255.255.255:443": false,
		"0127.0.0.1:443": false, "1.2.3.4:80": false, "example.com:443": false, "1.2.3.4:443,127.0.0.1:443": false,
		"[::1]:443": false, "[0:0:0:0:0:0:0:1]:443": false, "[::ffff:127.0.0.1]:443": false, "[fe80::1]:443": false,
		"[64:ff9b::7f00:1]:443": false, "[ff02::1]:443": false,
	} {
		if got := !own.MatchString(text) && (any4.MatchString(text) || any6.MatchString(text)); got != want {
			t.Errorf("%s passes: %v", text, got)
		}
	}
}

// TestPrefixesWithoutPattern checks that prefixes for which a pattern would match other addresses
// too have no pattern.
func TestPrefixesWithoutPattern(t *testing.T) {
	for text, want := range map[string]bool{
		"::/64": false, "2001:0:1::/48": false, "64:ff9b::/96": false, "2001:db8:100::/37": false, "2001:db8::/32": true,
		"fc00::/7": true, "2000::/3": true, "2001:db8::1/128": true, "::1/128": true, "2001:db8:f000::/37": true,
	} {
		if p, err := addresspattern.Of(netip.MustParsePrefix(text)); (err == nil) != want {
			t.Errorf("%s: %q, %v", text, p, err)
		}
	}
}
