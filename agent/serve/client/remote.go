package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"
)

// Server is the API of an agent over TCP.
type Server struct {
	URL   *url.URL // from [ParseServer]
	Token string   // bearer token; empty: none
	// CA has the authorities of the server's certificate; nil: those of this machine.
	CA *x509.CertPool
}

// ParseServer parses the URL of a server: https://HOST[:PORT][/PATH], or http for a loopback
// address, as a token must not cross a network unencrypted.
func ParseServer(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("%q is not a URL such as https://agent.example.org:5680", clean(s))
	case u.User != nil:
		return nil, errors.New("a URL with a user is not supported; give a token with --token-file")
	case u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		return nil, fmt.Errorf("%q has a query or a fragment; give only the host, the port, and the path", clean(s))
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return nil, fmt.Errorf("%q would send the token unencrypted; use https, or an http URL of a loopback address",
			clean(s))
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	return u, nil
}

// clean removes a user and password from a text that may be a URL.
func clean(s string) string {
	if at := strings.LastIndex(s, "@"); at >= 0 {
		scheme, _, ok := strings.Cut(s, "//")
		if !ok {
			return "…" + s[at:]
		}
		return scheme + "//…" + s[at:]
	}
	return s
}

func loopback(host string) bool {
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.IsLoopback()
	}
	return host == "localhost"
}

// NewServer returns a client for an agent's API over TCP. It does not connect. Certificates are
// always verified, and redirects are not followed. timeout is as for [New].
func NewServer(s Server, timeout time.Duration) *Client {
	c := &Client{base: s.URL.String(), socket: s.URL.String(), remote: true, token: s.Token,
		timeout: timeoutOr(timeout)}
	t := c.transport(func(ctx context.Context, d *net.Dialer, address string) (net.Conn, error) {
		return d.DialContext(ctx, "tcp", address)
	})
	t.TLSClientConfig = s.tls()
	t.TLSHandshakeTimeout = c.timeout
	c.http = &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // the token is for this server only
	}}
	return c
}

func (s *Server) tls() *tls.Config { return &tls.Config{RootCAs: s.CA, MinVersion: tls.VersionTLS12} }

// Transport returns a transport for requests to the server that a program passes on. It verifies
// certificates and uses no proxy.
func (s *Server) Transport() *http.Transport {
	return &http.Transport{TLSClientConfig: s.tls(), DisableCompression: true, MaxIdleConnsPerHost: 8,
		IdleConnTimeout: 30 * time.Second, TLSHandshakeTimeout: 30 * time.Second}
}

// Broken returns a client whose calls all fail with an error.
func Broken(err error) *Client { return &Client{broken: err} }

// failedServer classifies an error of a connection over TCP.
func (c *Client) failedServer(err error) error {
	var op *net.OpError
	var invalid *tls.CertificateVerificationError
	switch {
	case errors.As(err, &invalid):
		err = invalid.Err
	case errors.As(err, &op):
		err = op.Err
	}
	return &UnreachableError{Socket: c.socket, Remote: true, Untrusted: invalid != nil, Err: err}
}
