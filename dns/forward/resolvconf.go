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

// Conf is what a resolv.conf says (resolv.conf(5)).
type Conf struct {
	servers  []netip.AddrPort
	search   []string // for clients: what is forwarded is a whole name
	ndots    int
	Timeout  time.Duration // 0: not given
	Attempts int           // 0: not given
	Rotate   bool
	UseTCP   bool
	edns0    bool // we use EDNS in any case
	TrustAD  bool
	faults   []string // lines that say nothing, with the reason
}

// parseResolvConf reads a resolv.conf. As libc does, it skips what it does not understand.
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
	if a.IsUnspecified() { // this host, as for connect(2)
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
		c.fault(line, "nameserver %s is one too many: %d are used", a, MaxServers)
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

// Search returns the domains that the resolv.conf has clients append to names, and from how many
// dots on a name is tried as it is first. What is asked of a forwarder is a whole name already.
// Without a resolv.conf there is nothing to append.
func (f *Forwarder) Search() (domains []string, ndots int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.search, max(f.ndots, 1)
}
