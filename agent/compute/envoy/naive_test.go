package envoy_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"

	"github.com/nearside-mesh/nearside/agent/compute/match"
)

// row is one combination of the values in a filter chain match. This file is a second
// implementation of Envoy's chain selection. It follows only the documentation of the levels, and
// uses lists instead of an index.
type row struct {
	chain       int
	port        uint32 // 0 for any
	destination string // "" for any
	name        string
	transport   string
	alpn        string
	direct      string
	sourceType  int32
	source      string
	sourcePort  uint32
}

func one[T any](list []T) []T {
	if len(list) > 0 {
		return list
	}
	return make([]T, 1)
}

func rangesOf(list []*corev3.CidrRange) []string {
	var out []string
	for _, r := range list {
		out = append(out,
			netip.PrefixFrom(netip.MustParseAddr(r.AddressPrefix), int(r.PrefixLen.GetValue())).Masked().String())
	}
	return out
}

func rowsOf(chains []*listenerv3.FilterChain) []row {
	var out []row
	for i, c := range chains {
		m := c.GetFilterChainMatch()
		for _, destination := range one(rangesOf(m.GetPrefixRanges())) {
			for _, name := range one(m.GetServerNames()) {
				for _, alpn := range one(m.GetApplicationProtocols()) {
					for _, direct := range one(rangesOf(m.GetDirectSourcePrefixRanges())) {
						for _, source := range one(rangesOf(m.GetSourcePrefixRanges())) {
							for _, sourcePort := range one(m.GetSourcePorts()) {
								out = append(out, row{i, m.GetDestinationPort().GetValue(), destination, strings.ToLower(name),
									m.GetTransportProtocol(), alpn, direct, int32(m.GetSourceType()), source, sourcePort})
							}
						}
					}
				}
			}
		}
	}
	return out
}

// level returns the rows with the highest rank. rank is 0 for a row that does not match, and higher
// for a more specific match.
func level(rows []row, rank func(row) int) []row {
	best := 0
	for _, r := range rows {
		best = max(best, rank(r))
	}
	var out []row
	for _, r := range rows {
		if best > 0 && rank(r) == best {
			out = append(out, r)
		}
	}
	return out
}

// prefixRank is higher for longer prefixes. A row without a prefix ranks below a prefix of length
// 0.
func prefixRank(prefix string, a netip.Addr) int {
	if prefix == "" {
		return 1
	}
	p := netip.MustParsePrefix(prefix)
	if !p.Contains(a) {
		return 0
	}
	return 2 + p.Bits()
}

func exactRank(want, none, have bool) int {
	switch {
	case want && have:
		return 2
	case none:
		return 1
	}
	return 0
}

// naive selects a chain. If no chain matches, it returns match.NoIndex and the level at which the
// last row was eliminated.
func naive(chains []*listenerv3.FilterChain, s *match.Seen) (int, match.Level) {
	rows := rowsOf(chains)
	local := s.Local || s.Src.Addr() == s.Dst.Addr() || s.Src.Addr().String() == "127.0.0.1" ||
		s.Src.Addr().String() == "::1"
	for _, l := range []struct {
		level match.Level
		rank  func(row) int
	}{
		{match.LevelDestinationPort, func(r row) int { return exactRank(true, r.port == 0, r.port == uint32(s.Dst.Port())) }},
		{match.LevelDestinationIP, func(r row) int { return prefixRank(r.destination, s.Dst.Addr()) }},
		{match.LevelServerName, func(r row) int {
			switch {
			case r.name == "":
				return 1
			case r.name == s.ServerName:
				return 1000
			case strings.HasPrefix(r.name, "*.") && strings.HasSuffix(s.ServerName, r.name[1:]) &&
				len(s.ServerName) >= len(r.name)-1:
				return 1 + len(r.name)
			}
			return 0
		}},
		{match.LevelTransportProtocol,
			func(r row) int { return exactRank(true, r.transport == "", r.transport == s.Transport) }},
		{match.LevelApplicationProtocol, func(r row) int {
			if r.alpn == "" {
				return 1
			}
			if i := slices.Index(s.Protocols, r.alpn); i >= 0 {
				return 100 - i
			}
			return 0
		}},
		{match.LevelDirectSourceIP, func(r row) int { return prefixRank(r.direct, s.Direct.Addr()) }},
		{match.LevelSourceType, func(r row) int {
			wanted := int32(2)
			if local {
				wanted = 1
			}
			return exactRank(true, r.sourceType == 0, r.sourceType == wanted)
		}},
		{match.LevelSourceIP, func(r row) int { return prefixRank(r.source, s.Src.Addr()) }},
		{match.LevelSourcePort,
			func(r row) int { return exactRank(true, r.sourcePort == 0, r.sourcePort == uint32(s.Src.Port())) }},
	} {
		if rows = level(rows, l.rank); len(rows) == 0 {
			return match.NoIndex, l.level
		}
	}
	return rows[0].chain, match.LevelChain
}

// These are the values of random chains and connections. There are few of them, so that matches
// occur.
var (
	somePorts    = []uint32{0, 80, 443, 3306}
	somePrefixes = []string{"10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "10.1.2.3/32", "10.1.2.9/24", "0.0.0.0/0",
		"192.168.0.0/15", "2001:db8::/32", "2001:db8::1/128", "::/0", "::ffff:10.1.2.3/128"}
	someNames = []string{"a.com", "x.a.com", "*.a.com", "*.x.a.com", "*.com", "A.com", "b.org", "a.com."}
	someALPN  = []string{"h2", "http/1.1", "h2c", "istio"}
	someAddrs = []string{"10.1.2.3", "10.1.2.4", "10.2.0.1", "127.0.0.1", "8.8.8.8", "2001:db8::1", "2001:db8::2",
		"::1", "fe80::1"}
	someHosts = []string{"", "a.com", "x.a.com", "y.x.a.com", "b.org", "com", "c.net", "a.com.", ".a.com"}
)

func drawRange(t *rapid.T) *corev3.CidrRange {
	p := netip.MustParsePrefix(rapid.SampledFrom(somePrefixes).Draw(t, "prefix"))
	return &corev3.CidrRange{AddressPrefix: p.Addr().String(), PrefixLen: wrapperspb.UInt32(uint32(p.Bits()))}
}

func drawSome[T any](t *rapid.T, label string, max int, draw func(*rapid.T) T) []T {
	n := rapid.SampledFrom([]int{0, 0, 0, 1, 1, max}).Draw(t, label)
	var out []T
	for range n {
		out = append(out, draw(t))
	}
	return out
}

func sample(values []string, label string) func(*rapid.T) string {
	return func(t *rapid.T) string { return rapid.SampledFrom(values).Draw(t, label) }
}

func drawChains(t *rapid.T) []*listenerv3.FilterChain {
	var out []*listenerv3.FilterChain
	for i := range rapid.IntRange(1, 7).Draw(t, "chains") {
		m := &listenerv3.FilterChainMatch{
			PrefixRanges:             drawSome(t, "prefixes", 2, drawRange),
			ServerNames:              drawSome(t, "names", 2, sample(someNames, "name")),
			TransportProtocol:        rapid.SampledFrom([]string{"", "", "tls", "raw_buffer"}).Draw(t, "transport"),
			ApplicationProtocols:     drawSome(t, "alpns", 2, sample(someALPN, "alpn")),
			DirectSourcePrefixRanges: drawSome(t, "directs", 1, drawRange),
			SourceType: listenerv3.FilterChainMatch_ConnectionSourceType(rapid.SampledFrom([]int32{0, 0, 0, 1, 2}).Draw(t,
				"type")),
			SourcePrefixRanges: drawSome(t, "sources", 1, drawRange),
			SourcePorts: drawSome(t, "ports", 2, func(t *rapid.T) uint32 {
				return rapid.SampledFrom([]uint32{1000, 2000}).Draw(t, "source port")
			}),
		}
		if p := rapid.SampledFrom(somePorts).Draw(t, "port"); p != 0 {
			m.DestinationPort = wrapperspb.UInt32(p)
		}
		out = append(out, &listenerv3.FilterChain{Name: fmt.Sprint("c", i), FilterChainMatch: m})
	}
	return out
}

func drawAddrPort(t *rapid.T, label string, ports []uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(rapid.SampledFrom(someAddrs).Draw(t, label)),
		rapid.SampledFrom(ports).Draw(t, label+" port"))
}

func drawSeen(t *rapid.T) *match.Seen {
	s := &match.Seen{
		Dst:       drawAddrPort(t, "dst", []uint16{80, 443, 3306, 22}),
		Src:       drawAddrPort(t, "src", []uint16{1000, 2000, 3000}),
		Direct:    drawAddrPort(t, "direct", []uint16{1}),
		Transport: rapid.SampledFrom([]string{"tls", "raw_buffer"}).Draw(t, "transport"),
		Protocols: drawSome(t, "client alpns", 3, sample(someALPN, "client alpn")),
		Local:     rapid.Bool().Draw(t, "local"),
	}
	s.ServerName = rapid.SampledFrom(someHosts).Draw(t, "sni")
	return s
}

// TestChoiceEqualsNaive compares both implementations for random listeners: 100,000 connections in
// the 100 cases of rapid.
func TestChoiceEqualsNaive(t *testing.T) {
	compared, chosen := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		for range 12 {
			chains := drawChains(t)
			l := match.NewListener(&listenerv3.Listener{FilterChains: chains})
			for range 40 {
				s := drawSeen(t)
				m := l.FindSeen(s)
				want, at := naive(chains, s)
				if m.Index != want || m.At != at {
					t.Fatalf("%+v: the engine takes %d at %v, the text %d at %v\n%v", s, m.Index, m.At, want, at, chains)
				}
				compared++
				if want >= 0 {
					chosen++
				}
			}
		}
	})
	if chosen*20 < compared {
		t.Fatalf("%d of %d connections found a chain: the random cases say nothing", chosen, compared)
	}
}
