package forward

import (
	"bytes"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/dns/table"
)

const (
	maxResolvConf = 1 << 20
	dnsPort       = 53
)

// Conf is the content of a resolv.conf (resolv.conf(5)).
type Conf struct {
	servers  []netip.AddrPort
	search   []string // for clients; forwarded names are complete
	ndots    int
	Timeout  time.Duration // 0 if not set
	Attempts int           // 0 if not set
	Rotate   bool
	UseTCP   bool
	edns0    bool // has no effect: queries always have EDNS
	TrustAD  bool
	faults   []string // invalid lines with the reason
}

// parseResolvConf parses a resolv.conf. Like libc, it skips unknown lines.
func parseResolvConf(text []byte) Conf {
	c := Conf{ndots: 1}
	for n := 1; len(text) > 0; n++ {
		var raw []byte
		raw, text, _ = bytes.Cut(text, []byte("\n"))
		line := string(raw)
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		switch words[0] {
		case "nameserver":
			c.addServer(n, words[1:])
		case "domain", "search":
			c.search = words[1:]
		case "options":
			for _, o := range words[1:] {
				c.option(n, o)
			}
		}
	}
	return c
}

func (c *Conf) fault(line int, format string, args ...any) {
	if len(c.faults) < 16 {
		c.faults = append(c.faults, fmt.Sprintf("line %d: ", line)+fmt.Sprintf(format, args...))
	}
}

func (c *Conf) addServer(line int, words []string) {
	if len(words) == 0 {
		c.fault(line, "nameserver has no address")
		return
	}
	a, err := netip.ParseAddr(words[0])
	if err != nil || a.IsMulticast() {
		c.fault(line, "nameserver %q is not an IP address", table.Clip(words[0]))
		return
	}
	a = a.Unmap()
	if a.IsUnspecified() { // this host, as in connect(2)
		if a = netip.AddrFrom4([4]byte{127, 0, 0, 1}); words[0] == "::" {
			a = netip.IPv6Loopback()
		}
	}
	s := netip.AddrPortFrom(a, dnsPort)
	for _, other := range c.servers {
		if other == s {
			return
		}
	}
	if len(c.servers) == MaxServers {
		c.fault(line, "nameserver %s is ignored: at most %d are used", a, MaxServers)
		return
	}
	c.servers = append(c.servers, s)
}

func (c *Conf) option(line int, o string) {
	name, value, _ := strings.Cut(o, ":")
	number := func(most int) int {
		n, err := strconv.Atoi(value)
		if err != nil || n < 0 {
			c.fault(line, "option %s: %q is not a number", table.Clip(name), table.Clip(value))
			return 0
		}
		return min(n, most)
	}
	switch name {
	case "ndots":
		c.ndots = number(15)
	case "timeout":
		c.Timeout = time.Duration(number(30)) * time.Second
	case "attempts":
		c.Attempts = number(5)
	case "rotate":
		c.Rotate = true
	case "use-vc", "usevc", "tcp":
		c.UseTCP = true
	case "edns0":
		c.edns0 = true
	case "trust-ad":
		c.TrustAD = true
	}
}

// Search returns the search domains of the resolv.conf, and the number of dots from which clients
// try a name first without them. Forwarded names are already complete. Without a resolv.conf
// there are no domains.
func (f *Forwarder) Search() (domains []string, ndots int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.search, max(f.ndots, 1)
}
