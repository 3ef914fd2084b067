package access

import (
	"fmt"
	"net"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/model/token"
)

// Peer is the other end of a connection.
type Peer struct {
	// Local is set for Unix sockets. The ids are then those of the process at the time of
	// connect(2), as reported by the kernel.
	Local  bool     `json:"local"`
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"-"`   // supplementary
	PID    int32    `json:"pid"` // 0 for a process in another PID namespace
	// Foreign is set if the user has no id in the agent's user namespace. The kernel reports the
	// same id for all such users, so no rule matches them.
	Foreign bool `json:"foreign,omitempty"`
	// Cgroup is the path of the process's cgroup. It is "" if it was not requested or is not
	// certain.
	Cgroup string `json:"cgroup,omitempty"`
	// Addr is the remote address of connections other than Unix sockets.
	Addr string `json:"addr,omitempty"`
	// Encrypted is set for TLS connections.
	Encrypted bool `json:"encrypted,omitempty"`
	// Token is the verified token that the peer sent; nil if there is none.
	Token *token.Claims `json:"-"`
	// Names are the DNS and URI names of a verified client certificate.
	Names []string `json:"-"`

	// Pod is set for connections over the socket of a pod. The ids then identify no user.
	Pod *Pod `json:"pod,omitempty"`

	// Process is the process that connected; nil if that is not certain, or was not requested.
	Process *Process `json:"-"`

	owner string // known owner of a TCP connection over loopback
}

// String formats the peer for a message without a lookup in the user database: "uid 1000 (pid 77)"
// or "pod shop/web-0 (pid 77)".
func (p Peer) String() string {
	who := "an unknown peer"
	switch {
	case p.Pod != nil && p.PID > 0:
		who = fmt.Sprintf("%s (pid %d)", p.Pod, p.PID)
	case p.Pod != nil:
		who = p.Pod.String()
	case p.Local && p.Foreign:
		who = fmt.Sprintf("a user of another user namespace (pid %d)", p.PID)
	case p.Local:
		who = fmt.Sprintf("uid %d (pid %d)", p.UID, p.PID)
	case p.Addr != "":
		who = "address " + p.Addr
	}
	return who + p.proved()
}

// Account formats the peer as the author of a change: "uid=1000 (envoy)" or "pod shop/web-0". It
// reads the user database.
func (p Peer) Account() string {
	if p.Pod != nil {
		return p.Pod.String() + p.proved()
	}
	if !p.IsUser() {
		return p.String()
	}
	out := fmt.Sprintf("uid=%d", p.UID)
	if name := userName(p.UID); name != "" {
		out += " (" + name + ")"
	}
	return out + p.proved()
}

// proved formats the peer's token and certificate.
func (p Peer) proved() (out string) {
	if p.Token != nil {
		out = fmt.Sprintf(" with the token %q", clip.Value(p.Token.Subject))
	}
	if len(p.Names) > 0 {
		out += fmt.Sprintf(" with the certificate of %q", clip.Value(p.Names[0]))
	}
	return out
}

// Owner returns the key under which connections are counted together: the pod, the user (for
// loopback TCP too, if the kernel reports it), or the address without its port.
func (p Peer) Owner() string {
	out := p.Addr
	switch host, _, err := net.SplitHostPort(p.Addr); {
	case p.Pod != nil:
		out = p.Pod.String()
	case p.owner != "":
		out = p.owner
	case p.Local && p.Foreign:
		out = "foreign"
	case p.Local:
		out = "uid " + strconv.FormatUint(uint64(p.UID), 10)
	case err == nil:
		out = "address " + host
	}
	return out
}

// TCPOwner returns the user of this host at the other end of a loopback TCP connection, in the form
// of [OwnerOverTCP], or "" if the kernel does not report it. A process may have received its socket
// from another one, so the result grants nothing, but it can narrow what something else grants.
func (p Peer) TCPOwner() string { return p.owner }

// OwnerOverTCP returns the owner of loopback TCP connections of a user.
func OwnerOverTCP(uid uint32) string { return fmt.Sprintf("uid %d over TCP", uid) }

// Holder extends [Peer.Owner] by the token or certificate, which distinguish peers that share a
// user or an address. Only peers with the same holder may use a node id at the same time.
func (p Peer) Holder() string {
	switch {
	case p.Token != nil:
		return p.Owner() + " token " + p.Token.Subject
	case len(p.Names) > 0:
		return p.Owner() + " certificate " + p.Names[0]
	}
	return p.Owner()
}

// MayHaveSecrets reports whether private keys may be sent to the peer: over a Unix socket, and over
// TLS to an authenticated peer.
func (p Peer) MayHaveSecrets() bool {
	return p.Local || p.Encrypted && (p.Token != nil || len(p.Names) > 0)
}

// Root reports whether the peer is root on this node.
func (p Peer) Root() bool { return p.IsUser() && p.UID == 0 }

// is reports whether the peer has the given user id.
func (p Peer) is(uid uint32) bool { return p.IsUser() && p.UID == uid }

// in reports whether the peer is a member of a group.
func (p Peer) in(gid int) bool {
	// #nosec G115 -- compared above zero
	return p.IsUser() && gid >= 0 && (int64(p.GID) == int64(gid) || slices.Contains(p.Groups, uint32(gid)))
}

// userName returns the name of a user, or "".
func userName(uid uint32) string {
	u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return ""
	}
	return u.Username
}

// overflowID is the id that the kernel reports for users without an id in the agent's user
// namespace (user_namespaces(7)).
var overflowID = sync.OnceValue(func() uint32 {
	const usual = 65534
	b, err := os.ReadFile("/proc/sys/kernel/overflowuid")
	if err != nil {
		return usual
	}
	id, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 32)
	if err != nil {
		return usual
	}
	return uint32(id)
})
