package inspect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/user"
	"slices"
	"strconv"
)

// peer is who is at the other end of a connection.
type peer struct {
	tcp      bool
	known    bool // the kernel named the peer of a unix socket
	uid, gid int
	groups   []int // supplementary
	pid      int
}

type peerKey struct{}

// withPeer is the server's ConnContext: it asks the kernel once per connection who connected. The credentials are
// those at the time of connect(2), so a peer that changes or ends afterwards does not change them.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	p := peer{tcp: true}
	if b, ok := c.(*countedConn); ok {
		c = b.Conn
	}
	if u, ok := c.(*net.UnixConn); ok {
		p = peer{}
		if got, err := unixPeer(u); err == nil {
			p = got
		}
	}
	return context.WithValue(ctx, peerKey{}, p)
}

func peerOf(r *http.Request) peer {
	p, ok := r.Context().Value(peerKey{}).(peer)
	if !ok {
		return peer{tcp: true} // not through Serve: nothing is known, so nothing is allowed but reading
	}
	return p
}

// mayWrite reports whether the peer may change anything, and if not, why and what to do.
func (a Access) mayWrite(p peer) error {
	switch {
	case p.tcp:
		return errors.New("the API is read-only here; write through the unix socket, or give the agent a token file")
	case !p.known:
		return errors.New("the kernel did not say who is at the other end of the socket; writing needs its word")
	case p.uid == 0, p.uid == a.UID:
		return nil
	case a.GID >= 0 && (p.gid == a.GID || slices.Contains(p.groups, a.GID)):
		return nil
	}
	who := "root"
	if a.UID != 0 {
		who += " or uid " + strconv.Itoa(a.UID)
	}
	if a.GID >= 0 {
		who += " or a member of group " + groupName(a.GID)
	}
	return fmt.Errorf("%s may read only; writing needs %s", p, who)
}

// String names the peer as the author of a write: "uid=0 (root)".
func (p peer) String() string {
	if p.tcp {
		return "token"
	}
	if u, err := user.LookupId(strconv.Itoa(p.uid)); err == nil {
		return fmt.Sprintf("uid=%d (%s)", p.uid, u.Username)
	}
	return fmt.Sprintf("uid=%d", p.uid)
}

func groupName(gid int) string {
	if g, err := user.LookupGroupId(strconv.Itoa(gid)); err == nil {
		return g.Name
	}
	return strconv.Itoa(gid)
}
