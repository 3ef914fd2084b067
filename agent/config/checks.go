package config

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/clip"
)

// The checks of texts. Each returns what is wrong with the value and what is allowed, "" when nothing is wrong.

// optional lets the empty text pass.
func optional(check func(string) string) func(string) string {
	return func(s string) string {
		if s == "" {
			return ""
		}
		return check(s)
	}
}

// dnsName reports whether s is a lower-case DNS name (RFC 1123, section 2.1).
func dnsName(s string) bool {
	if s == "" || len(s) > maxNodeName {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, c := range []byte(label) {
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
				return false
			}
		}
	}
	return true
}

func checkDNSName(s string) string {
	if dnsName(s) {
		return ""
	}
	return fmt.Sprintf("%q is not a valid name; use lower-case letters, digits, '-' and '.', with a letter or digit at both ends", clip.Value(s))
}

func checkGroup(s string) string {
	if strings.ContainsAny(s, ": \t\n\x00/") {
		return fmt.Sprintf("%q is not a group; give a name or a number", clip.Value(s))
	}
	return ""
}

func checkHostPort(s string) string {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return fmt.Sprintf("%q is not host:port (an IPv6 address stands in brackets)", clip.Value(s))
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Sprintf("%q has the port %q; want a number from 0 to 65535 (0: any free one)", clip.Value(s), clip.Value(port))
	} else if n == 0 && host == "" {
		return fmt.Sprintf("%q names neither host nor port; give at least one", clip.Value(s))
	}
	if strings.ContainsAny(host, " \t\n/@\x00") {
		return fmt.Sprintf("%q is not a host name or IP address", clip.Value(host))
	}
	return ""
}

func CheckLoopback(s string) string {
	if why := checkHostPort(s); why != "" {
		return why
	}
	host, _, _ := net.SplitHostPort(s)
	if a, err := netip.ParseAddr(host); err == nil && a.IsLoopback() {
		return ""
	}
	return fmt.Sprintf("%q is not a loopback address, and the API is never served to a network; use 127.0.0.1:PORT or [::1]:PORT", clip.Value(s))
}

func checkUpstream(s string) string {
	if _, err := netip.ParseAddr(s); err == nil {
		return ""
	}
	if a, err := netip.ParseAddrPort(s); err == nil && a.Port() != 0 {
		return ""
	}
	return fmt.Sprintf("%q is not an IP address or IP:port", clip.Value(s))
}
