package xds

import (
	"context"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// Peer is who is at the other end of a connection, as the kernel says.
type Peer struct {
	// Local is set for a unix socket: UID, GID and PID are those of the process that connected.
	Local bool   `json:"local"`
	UID   uint32 `json:"uid"`
	GID   uint32 `json:"gid"`
	PID   int32  `json:"pid"`
	// Addr is the remote address of any other connection.
	Addr string `json:"addr,omitempty"`
}

// String names the peer for a message.
func (p Peer) String() string {
	if p.Local {
		return fmt.Sprintf("uid %d (pid %d)", p.UID, p.PID)
	}
	return "address " + p.Addr
}

// owner is what two streams must share to use one node id: the uid, or the address without its port.
func (p Peer) owner() string {
	if p.Local {
		return fmt.Sprintf("uid %d", p.UID)
	}
	if host, _, err := net.SplitHostPort(p.Addr); err == nil {
		return "address " + host
	}
	return "address " + p.Addr
}

func (p Peer) root() bool { return p.Local && p.UID == 0 }

// peerInfo carries a Peer from the handshake to the streams.
type peerInfo struct {
	credentials.CommonAuthInfo
	peer Peer
}

// AuthType implements credentials.AuthInfo.
func (peerInfo) AuthType() string { return "peer" }

// peerCredentials does no handshake on the wire; it asks the kernel who connected.
type peerCredentials struct{}

var errServerOnly = errors.New("xds: these credentials are for servers")

// ClientHandshake implements credentials.TransportCredentials; it always fails.
func (peerCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errServerOnly
}

// ServerHandshake implements credentials.TransportCredentials. A unix socket whose peer cannot be told is refused.
func (peerCredentials) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	info := peerInfo{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}}
	if u, ok := c.(*net.UnixConn); ok {
		p, err := unixPeer(u)
		if err != nil {
			return nil, nil, fmt.Errorf("xds: credentials of the peer: %w", err)
		}
		info.SecurityLevel = credentials.PrivacyAndIntegrity
		info.peer = p
	} else if a := c.RemoteAddr(); a != nil {
		info.peer.Addr = a.String()
	}
	return c, info, nil
}

// Info implements credentials.TransportCredentials.
func (peerCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "peer"}
}

// Clone implements credentials.TransportCredentials.
func (c peerCredentials) Clone() credentials.TransportCredentials { return c }

// OverrideServerName implements credentials.TransportCredentials; it has no meaning here.
func (peerCredentials) OverrideServerName(string) error { return nil }

// peerOf returns the peer of a stream.
func peerOf(ctx context.Context) Peer {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return Peer{}
	}
	if info, ok := p.AuthInfo.(peerInfo); ok {
		return info.peer
	}
	return Peer{Addr: p.Addr.String()}
}
