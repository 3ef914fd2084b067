package otlp

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// unixCredentials provides the credentials of the peer process as AuthInfo. It does not encrypt.
type unixCredentials struct{}

type unixAuth struct {
	credentials.CommonAuthInfo
	peer Peer
}

// AuthType implements credentials.AuthInfo.
func (unixAuth) AuthType() string { return "unix" }

// ClientHandshake fails: these credentials are only for servers.
func (unixCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are only for servers")
}

// ServerHandshake determines the credentials of the peer.
func (unixCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	auth := unixAuth{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}}
	raw := conn
	if limited, ok := conn.(*limitedConn); ok {
		raw = limited.Conn
	}
	switch u := raw.(type) {
	case *net.UnixConn:
		auth.peer = unixPeer(u)
	case ownedConn:
		auth.peer = unixPeer(u)
		auth.peer.Owner = u.SocketOwner()
	}
	return conn, auth, nil
}

// Info implements credentials.TransportCredentials.
func (unixCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "insecure"}
}

// Clone implements credentials.TransportCredentials.
func (c unixCredentials) Clone() credentials.TransportCredentials { return c }

// OverrideServerName implements credentials.TransportCredentials.
func (unixCredentials) OverrideServerName(string) error { return nil }

func peerOf(ctx context.Context) Peer {
	if p, ok := peer.FromContext(ctx); ok {
		if auth, ok := p.AuthInfo.(unixAuth); ok {
			return auth.peer
		}
	}
	return Peer{}
}

// ownedConn is a connection over a Unix socket that only its owner can open.
type ownedConn interface {
	syscall.Conn
	SocketOwner() string
}

// unixPeer returns the credentials of the process that opened a connection.
func unixPeer(conn syscall.Conn) Peer {
	raw, err := conn.SyscallConn()
	if err != nil {
		return Peer{}
	}
	var cred *unix.Ucred
	var failed error
	if err := raw.Control(
		func(fd uintptr) { cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil ||
		failed != nil {
		return Peer{}
	}
	return Peer{Known: true, UID: cred.Uid, GID: cred.Gid, PID: cred.Pid}
}

// limitedListener limits the number of open connections. It closes connections above the limit at
// once.
type limitedListener struct {
	net.Listener
	slots chan struct{}
}

// Accept implements net.Listener.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.slots <- struct{}{}:
			return &limitedConn{Conn: conn, free: sync.OnceFunc(func() { <-l.slots })}, nil
		default:
			conn.Close()
		}
	}
}

type limitedConn struct {
	net.Conn
	free func()
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	defer c.free()
	return c.Conn.Close()
}
