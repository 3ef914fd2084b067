package ads

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/token"
)

// peerInfo carries a peer from the handshake to the streams.
type peerInfo struct {
	credentials.CommonAuthInfo
	peer access.Peer
}

// AuthType implements credentials.AuthInfo.
func (peerInfo) AuthType() string { return "peer" }

// peerCredentials identifies the peer of a Unix socket by the kernel. On other connections it uses
// TLS if it is configured, and takes the names of a verified client certificate.
type peerCredentials struct {
	tls *tls.Config
}

var errServerOnly = errors.New("xds: these credentials are for servers")

// ClientHandshake implements credentials.TransportCredentials; it always fails.
func (peerCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errServerOnly
}

// ServerHandshake implements credentials.TransportCredentials. It fails for a Unix socket whose
// peer is unknown.
func (c peerCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	info := peerInfo{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}}
	p, err := access.PeerOf(conn, true)
	if err != nil {
		return nil, nil, fmt.Errorf("xds: %w", err)
	}
	if p.Local {
		info.SecurityLevel, p.Process = credentials.PrivacyAndIntegrity, access.ProcessOf(conn, p)
	} else if c.tls != nil {
		secure, auth, err := credentials.NewTLS(c.tls).ServerHandshake(conn)
		if err != nil {
			return nil, nil, err
		}
		conn, info.SecurityLevel, p.Encrypted = secure, credentials.PrivacyAndIntegrity, true
		if t, ok := auth.(credentials.TLSInfo); ok {
			p.Names = certificateNames(&t.State)
		}
	}
	info.peer = p
	return conn, info, nil
}

// certificateNames returns the names of a verified client certificate.
func certificateNames(state *tls.ConnectionState) (out []string) {
	if len(state.VerifiedChains) == 0 {
		return nil
	}
	leaf := state.VerifiedChains[0][0]
	for _, u := range leaf.URIs {
		out = append(out, u.String())
	}
	return append(out, leaf.DNSNames...)
}

// Info implements credentials.TransportCredentials.
func (peerCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "peer"}
}

// Clone implements credentials.TransportCredentials.
func (c peerCredentials) Clone() credentials.TransportCredentials { return c }

// OverrideServerName implements credentials.TransportCredentials; it has no meaning here.
func (peerCredentials) OverrideServerName(string) error { return nil }

// peerOf returns the peer of the connection of a stream.
func peerOf(ctx context.Context) access.Peer {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return access.Peer{}
	}
	if info, ok := p.AuthInfo.(peerInfo); ok {
		return info.peer
	}
	return access.Peer{Addr: p.Addr.String()}
}

// authenticate verifies the token of a stream, if there is one, and adds it to the peer.
func (s *Server) authenticate(ctx context.Context, p *access.Peer) error {
	values := metadata.ValueFromIncomingContext(ctx, "authorization")
	if len(values) == 0 || s.opts.Verify == nil {
		return nil
	}
	text, ok := token.Bearer(values)
	if !ok {
		return status.Error(codes.Unauthenticated,
			"the metadata authorization must be one value of the form \"Bearer TOKEN\"")
	}
	claims, err := s.opts.Verify(p, text)
	if err != nil {
		if _, ok := status.FromError(err); ok {
			return err
		}
		return status.Error(codes.Unauthenticated, err.Error())
	}
	p.Token = claims
	return nil
}

// authorize returns what a peer may do as a proxy, or an error if it may not be that proxy.
func (s *Server) authorize(p *access.Peer, ref node.Ref) (access.Grant, error) {
	if s.opts.Authorize == nil {
		return access.Grant{Rule: "no rules", Bring: true, Services: []string{"*"}, Tags: []string{"*"}}, nil
	}
	g, err := s.opts.Authorize(p, ref)
	if err != nil {
		return g, status.Error(codes.PermissionDenied, err.Error())
	}
	return g, nil
}

// Recheck ends the streams whose peers may no longer use their node id, for example because the
// label of a Dataplane names another user. Call it before [rollout.Proxies.Publish].
func (s *Server) Recheck() {
	s.mu.Lock()
	var open []*adsStream
	for st := range s.streams {
		if st.claim != nil {
			open = append(open, st)
		}
	}
	s.mu.Unlock()
	for _, st := range open {
		if _, err := s.authorize(&st.peer, st.claim.ref); err != nil {
			st.End(reasonDenied, err)
		}
	}
}
