package trace

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// defaultOTLPPort is that of OTLP over gRPC (https://opentelemetry.io/docs/specs/otlp, section 2.2).
const defaultOTLPPort = 4317

// endpoint is where a collector listens.
type endpoint struct {
	host      string // name or IP address, without brackets
	port      uint32
	written   bool // the port is not a default
	tls       bool
	authority string // host and port as the URL has them
	path      string // with the query, as requests have it
}

// parseURL reads the URL of a collector.
func parseURL(s string) (endpoint, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		var reason *url.Error
		if errors.As(err, &reason) {
			err = reason.Err // without the URL, which may hold credentials
		}
		return endpoint{}, fmt.Errorf("not a URL: %w", err)
	case u.Scheme != "http" && u.Scheme != "https":
		return endpoint{}, fmt.Errorf("the scheme is %q: give a URL of http or https", u.Scheme)
	case u.Opaque != "" || u.Hostname() == "":
		return endpoint{}, errors.New("the URL names no host")
	case u.User != nil:
		return endpoint{}, errors.New("the URL holds credentials, which Envoy cannot send: remove them")
	case u.Fragment != "":
		return endpoint{}, errors.New("the URL has a fragment, which is never sent: remove it")
	}
	e := endpoint{host: u.Hostname(), port: 80, tls: u.Scheme == "https", authority: u.Host, path: u.EscapedPath()}
	if e.tls {
		e.port = 443
	}
	if u.RawQuery != "" {
		e.path += "?" + u.RawQuery
	}
	if p := u.Port(); p != "" {
		e.written = true
		if e.port, err = parsePort(p); err != nil {
			return endpoint{}, err
		}
	}
	return e, nil
}

// parseHostPort reads host or host:port, with brackets around an IPv6 address that a port follows.
func parseHostPort(s string) (endpoint, error) {
	if strings.Contains(s, "://") {
		return endpoint{}, errors.New("that is a URL: write host:port, spans are sent by gRPC without TLS")
	}
	e := endpoint{host: s, port: defaultOTLPPort, authority: s}
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return e, nil // an IPv6 address without brackets has no port
	}
	host, port := s, ""
	if i := strings.LastIndexByte(s, ':'); i >= 0 && !strings.HasSuffix(s, "]") {
		host, port = s[:i], s[i+1:]
		var err error
		if e.port, err = parsePort(port); err != nil {
			return endpoint{}, err
		}
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		host, ok = strings.CutSuffix(inner, "]")
		if a, err := netip.ParseAddr(host); !ok || err != nil || !a.Is6() || a.Zone() != "" {
			return endpoint{}, errors.New("brackets stand around an IPv6 address without a zone")
		}
	} else if strings.ContainsAny(host, ":[]") {
		return endpoint{}, errors.New("write host:port, an IPv6 address in brackets")
	}
	e.host = host
	return e, nil
}

func parsePort(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is not a port: 1 to 65535 is allowed", s)
	}
	return uint32(n), nil
}
