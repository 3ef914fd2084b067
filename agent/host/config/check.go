package config

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/access"
)

// checkText runs the check with the given name. It returns a message for an invalid text, and ""
// for a valid one.
func checkText(check, s string) string {
	switch check {
	case "name":
		if ok, _ := regexp.MatchString(dnsName, s); !ok || len(s) > 253 {
			return fmt.Sprintf("%.64q is not a valid name; use lower-case letters, digits, '-' and '.', "+
				"with a letter or digit at both ends", s)
		}
	case "group":
		if strings.ContainsAny(s, ": \t\n\x00/") {
			return fmt.Sprintf("%.64q is not a group; use a name or a number", s)
		}
	case "address":
		return checkAddress(s)
	case "resolver":
		if _, why := resolverAddrs(s); why != "" {
			return why
		}
	case "seed":
		if path, ok := strings.CutPrefix(s, "file:"); !ok {
			return checkAddress(s)
		} else if !filepath.IsAbs(path) {
			return fmt.Sprintf("%.64q is not an absolute path after file:; use file:/PATH", s)
		}
	case "receiver":
		return checkReceiver(s)
	case "loopback":
		return checkLoopback(s)
	case "upstream":
		a, err := netip.ParseAddrPort(s)
		if _, bare := netip.ParseAddr(s); bare != nil && (err != nil || a.Port() == 0) {
			return fmt.Sprintf("%.64q is not an IP address or IP:port", s)
		}
	case "domain":
		if ok, _ := regexp.MatchString(domainName, s); s != "." && !ok || len(s) > 253 {
			return fmt.Sprintf("%.64q is not a domain; use lower-case letters, digits, '-', '_' and '.', or \".\" for all names",
				s)
		}
	case "range":
		return checkRange(s)
	case "uid", "port":
		return checkNumber(check, s)
	case "network":
		if _, err := parseNetwork(s); err != nil {
			return fmt.Sprintf("%.64q is not a network; use one such as 10.0.0.0/8 or fd00::/8", s)
		}
	default:
		return access.Check(check, s)
	}
	return ""
}

// dnsName matches a lower-case DNS name (RFC 1123, section 2.1) regardless of its length.
const dnsName = `^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\.)*[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`

// domainName matches a lower-case DNS name, with underscores as in names of services.
const domainName = `^([a-z0-9_]([-a-z0-9_]{0,61}[a-z0-9_])?\.)*[a-z0-9_]([-a-z0-9_]{0,61}[a-z0-9_])?$`

func checkAddress(s string) string {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return fmt.Sprintf("%.64q is not host:port (an IPv6 address needs brackets)", s)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Sprintf("%.64q has the port %.64q; want a number from 0 to 65535 (0: any free one)", s, port)
	} else if n == 0 && host == "" {
		return fmt.Sprintf("%.64q has neither a host nor a port; set at least one", s)
	}
	if strings.ContainsAny(host, " \t\n/@\x00") {
		return fmt.Sprintf("%.64q is not a host name or IP address", host)
	}
	return ""
}

// resolverAddrs returns the addresses that a resolver address represents, or why it is invalid.
func resolverAddrs(s string) (out []netip.AddrPort, why string) {
	if why := checkAddress(s); why != "" {
		return nil, why
	}
	host, port, _ := net.SplitHostPort(s)
	n, _ := strconv.ParseUint(port, 10, 16)
	hosts := []string{host}
	switch strings.ToLower(host) {
	case "":
		hosts = []string{"0.0.0.0", "::"}
	case "localhost":
		hosts = []string{"127.0.0.1", "::1"}
	}
	for _, h := range hosts {
		a, err := netip.ParseAddr(h)
		if err != nil || a.IsMulticast() {
			return nil, fmt.Sprintf("%.64q is not an IP address; use IP:PORT, localhost:PORT or :PORT", host)
		}
		out = append(out, netip.AddrPortFrom(a.Unmap(), uint16(n))) // #nosec G115 -- parsed with 16 bits
	}
	return out, ""
}

// checkReceiver checks the address of a receiver.
func checkReceiver(s string) string {
	path, unix := strings.CutPrefix(s, unixPrefix)
	switch {
	case !unix:
		return checkAddress(s)
	case path == "" || strings.HasSuffix(path, "/"):
		return fmt.Sprintf("%.64q is not the path of a socket; use unix:PATH", s)
	case strings.ContainsRune(path, 0):
		return "contains a zero byte; remove it"
	case !filepath.IsAbs(path) && !filepath.IsLocal(path):
		return fmt.Sprintf("%.64q leads out of paths.run; use an absolute path or one without ..", s)
	}
	return ""
}

// unixPrefix precedes the path of a Unix socket.
const unixPrefix = "unix:"

func checkLoopback(s string) string {
	if why := checkAddress(s); why != "" {
		return why
	}
	host, _, _ := net.SplitHostPort(s)
	if a, err := netip.ParseAddr(host); err == nil && a.IsLoopback() {
		return ""
	}
	return fmt.Sprintf("%.64q is not a loopback address, and the API is never served to a network; "+
		"use 127.0.0.1:PORT or [::1]:PORT", s)
}

// Limits of the prefix lengths of virtual address ranges.
const (
	minVIPBits4, maxVIPBits4 = 4, 28
	minVIPBits6, maxVIPBits6 = 32, 120
)

// checkRange checks one range of virtual addresses.
func checkRange(s string) string {
	p, err := netip.ParsePrefix(s)
	low, high := minVIPBits4, maxVIPBits4
	if err == nil && p.Addr().Is6() {
		low, high = minVIPBits6, maxVIPBits6
	}
	switch {
	case err != nil || p.Addr().Is4In6():
		return fmt.Sprintf("%.64q is not a range of addresses; use a prefix like 240.0.0.0/8 or fd00:fd00::/64", s)
	case p != p.Masked():
		return fmt.Sprintf("%.64q has bits set after the prefix length %d; use %s", s, p.Bits(), p.Masked())
	case p.Bits() < low || p.Bits() > high:
		return fmt.Sprintf("%.64q has the prefix length /%d; allowed are /%d to /%d", s, p.Bits(), low, high)
	}
	for _, never := range [...]string{
		"0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "::/96", "fe80::/10", "ff00::/8",
	} {
		if n := netip.MustParsePrefix(never); n.Overlaps(p) {
			return fmt.Sprintf("%.64q overlaps %s, where no service can listen; use another range", s, n)
		}
	}
	return ""
}
