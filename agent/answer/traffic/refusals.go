package traffic

import (
	"cmp"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// What clients have spoken, as far as the log says.
const (
	SpokeTLS   = "tls"
	SpokePlain = "plain"
	SpokeAny   = "" // nothing has looked, or the log does not say
)

// Destination is what connections were refused for.
type Destination struct {
	// ServerName is the host name that clients gave, in lower case; "" where they gave none that is
	// one.
	ServerName string
	// Address is what they dialled: of those with a name, the last of several.
	Address netip.AddrPort
	Spoke   string
	Count   int
	Span
}

const (
	// maxKept is how many destinations are remembered: at twice as many the rarest are forgotten.
	maxKept = 10_000
)

// destinationKey tells destinations apart: a server name with its port, else the address with what
// was spoken.
type destinationKey struct {
	name  string
	to    netip.AddrPort
	spoke string
}

// Refusals counts refused connections.
type Refusals struct {
	Lines     int // that were read
	Refused   int // connections
	Long      int // lines that were too long, and were left out
	Forgotten int // connections to rare destinations that were forgotten, so that memory stays bounded

	by map[destinationKey]*Destination
}

// Read reads the lines of a log. A line counts when one of the formats has written it.
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

// refused reports whether an entry is of a connection that the passthrough refused: Envoy notes NR
// where no filter chain takes a connection, and UH where it is sent to a cluster without endpoints,
// as that of a closed passthrough.
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
	at, _ := time.Parse(time.RFC3339Nano, v[refusedAt]) // zero for none
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
		if len(c.by) >= 2*maxKept {
			c.forget()
		}
		c.by[k] = &d
		return
	}
	was.Count++
	was.Address = d.Address
	was.Span.add(at)
}

// forget drops all but the most frequent destinations.
func (c *Refusals) forget() {
	drop := map[Destination]bool{} // no two are equal: they differ in what they are counted by
	for _, d := range c.Destinations()[maxKept:] {
		drop[d] = true
		c.Forgotten += d.Count
	}
	for k, d := range c.by {
		if drop[*d] {
			delete(c.by, k)
		}
	}
}

// Destinations lists what was refused, the most frequent first, of those the latest.
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

// isHost reports whether a server name is a host name (RFC 1123, with the underscores that are in
// use) and no address.
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
