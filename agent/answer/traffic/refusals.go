package traffic

import (
	"cmp"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Protocols of clients, as far as the log records them.
const (
	SpokeTLS   = "tls"
	SpokePlain = "plain"
	SpokeAny   = "" // unknown: not inspected or not logged
)

// Destination is the destination of refused connections.
type Destination struct {
	// ServerName is the server name (SNI) in lower case; "" if clients sent none or an invalid one.
	ServerName string
	// Address is the dialed address; if clients with a server name dialed several, the last one.
	Address netip.AddrPort
	Spoke   string
	Count   int
	Span
}

const (
	// maxDestinations is how many destinations are retained when their number reaches twice this
	// limit. The most frequent ones are retained.
	maxDestinations = 10_000
)

// destinationKey identifies a destination: a server name with its port, or an address with the
// protocol.
type destinationKey struct {
	name  string
	to    netip.AddrPort
	spoke string
}

// Refusals counts refused connections by destination.
type Refusals struct {
	Lines     int // lines read
	Refused   int // refused connections
	Long      int // lines that were too long and were skipped
	Forgotten int // connections to rare destinations that were evicted to limit memory

	by map[destinationKey]*Destination
}

// Read counts the lines of a log. A line counts if it matches one of the formats.
func (c *Refusals) Read(r io.Reader, formats []*RefusalLog) error {
	return eachLine(stream(r), func(text []byte, long bool) {
		if c.Lines++; long {
			c.Long++
		} else {
			c.line(text, formats)
		}
	})
}

func (c *Refusals) line(line []byte, formats []*RefusalLog) {
	for _, l := range formats {
		if l.Reason != "" {
			continue
		}
		if v, ok := l.read.Read(line); ok && l.refused(v) {
			c.add(v)
			return
		}
	}
}

// refused reports whether the passthrough refused the connection of an entry. Envoy logs NR if no
// filter chain matches, and UH if the cluster has no endpoints, such as the cluster of a closed
// passthrough.
func (l *RefusalLog) refused(v []string) bool {
	flags := strings.Split(v[refusedFlags], ",")
	if l.closed {
		return slices.Contains(flags, "UH")
	}
	return slices.Contains(flags, "NR") && (v[refusedDetails] == "" || v[refusedDetails] == "filter_chain_not_found")
}

func (c *Refusals) add(v []string) {
	to, ok := addrPort(v[refusedDestination])
	if !ok || to.Port() == 0 {
		return
	}
	d := Destination{Address: to, Count: 1}
	at, _ := time.Parse(time.RFC3339Nano, v[refusedAt]) // zero if missing
	d.Span.add(at)
	name := strings.ToLower(v[refusedServerName])
	switch {
	case name != "" && name != "-":
		d.Spoke = SpokeTLS
		if isHost(name) {
			d.ServerName = name
		}
	case v[refusedNoTLS] == "ClientHelloNotDetected":
		d.Spoke = SpokePlain
	}
	c.Refused++
	k := destinationKey{to: to, spoke: d.Spoke}
	if d.ServerName != "" {
		k = destinationKey{name: d.ServerName, to: netip.AddrPortFrom(netip.Addr{}, to.Port())}
	}
	was := c.by[k]
	if was == nil {
		if c.by == nil {
			c.by = map[destinationKey]*Destination{}
		}
		if len(c.by) >= 2*maxDestinations {
			c.evict()
		}
		c.by[k] = &d
		return
	}
	was.Count++
	was.Address = d.Address
	was.Span.add(at)
}

// evict removes all but the maxDestinations most frequent destinations.
func (c *Refusals) evict() {
	drop := map[Destination]bool{} // values are unique because their keys differ
	for _, d := range c.Destinations()[maxDestinations:] {
		drop[d] = true
		c.Forgotten += d.Count
	}
	for k, d := range c.by {
		if drop[*d] {
			delete(c.by, k)
		}
	}
}

// Destinations lists the destinations by descending count, and then by descending time.
func (c *Refusals) Destinations() []Destination {
	out := make([]Destination, 0, len(c.by))
	for _, d := range c.by {
		out = append(out, *d)
	}
	slices.SortFunc(out, func(a, b Destination) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), b.Last.Compare(a.Last), cmp.Compare(a.ServerName, b.ServerName),
			a.Address.Compare(b.Address), cmp.Compare(a.Spoke, b.Spoke))
	})
	return out
}

// isHost reports whether a server name is a host name (RFC 1123, with underscores, which are in
// use) and not an address.
func isHost(s string) bool {
	if _, err := netip.ParseAddr(s); err == nil || len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for i := range len(label) {
			if c := label[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return false
			}
		}
	}
	return true
}
