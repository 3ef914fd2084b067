package forward

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
)

// connect opens a connection to a server for queries over TCP or TLS.
func (f *Forwarder) connect(ctx context.Context, sv *server) (net.Conn, error) {
	conn, err := f.dial(ctx, sv, "tcp")
	if err != nil || sv.tls == nil {
		return conn, err
	}
	ctx, cancel := context.WithTimeout(ctx, f.timing.dial)
	defer cancel()
	secure := tls.Client(conn, sv.tls)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(&tlsError{sv.tls.ServerName, err}, conn.Close())
	}
	return secure, nil
}

// hangUp closes a connection. When the forwarder stops, it does not wait until a server that is
// stuck accepts the end of TLS.
func hangUp(ctx context.Context, conn net.Conn) {
	if secure, ok := conn.(*tls.Conn); ok && ctx.Err() != nil {
		conn = secure.NetConn()
	}
	_ = conn.Close()
}

// tlsError is a failed handshake.
type tlsError struct {
	name  string // in the certificate
	cause error
}

func (e *tlsError) Unwrap() error { return e.cause }

// Error describes the problem of the certificate and its remedy.
func (e *tlsError) Error() string {
	var host x509.HostnameError
	var authority x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(e.cause, &host):
		return fmt.Sprintf("the certificate is not for %s; check the address of the server, and serverName", e.name)
	case errors.As(e.cause, &authority):
		return "the certificate is not from a known authority; set SSL_CERT_FILE of the agent to the CA of the server"
	case errors.As(e.cause, &invalid) && invalid.Reason == x509.Expired:
		return "the certificate has expired or is not valid yet; renew it, and check the clock of this host"
	case errors.Is(e.cause, context.DeadlineExceeded):
		return "the server did not finish the TLS handshake in time; check that it serves DNS over TLS on this port"
	}
	return fmt.Sprintf("the TLS handshake failed (%v); check that the server serves DNS over TLS on this port", e.cause)
}

// connectionFailed records why a connection to a TLS server failed, until an answer arrives.
func (f *Forwarder) connectionFailed(sv *server, err error) {
	var failed *tlsError
	if !errors.As(err, &failed) {
		return
	}
	if text := failed.Error(); sv.problem != text {
		sv.problem = text
		f.log.Warn("Name server cannot be queried over TLS", "server", sv.addr, "error", text)
	}
}
