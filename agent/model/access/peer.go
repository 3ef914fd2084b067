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

// Peer is who is at the other end of a connection.
type Peer struct {
	// Local is set for a unix socket. The ids are then those that the process had when it connected,
	// as the kernel says.
	Local  bool     `json:"local"`
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"-"`   // supplementary
	PID    int32    `json:"pid"` // 0 for a process of another pid namespace
	// Foreign is set when the user has no id in the agent's user namespace. The kernel then gives the
	// same id for all of them, so that no rule matches it.
	Foreign bool `json:"foreign,omitempty"`
	// Cgroup is the path of the process's cgroup, "" where it was not asked for or is not certain.
	Cgroup string `json:"cgroup,omitempty"`
	// Addr is the remote address of any other connection.
	Addr string `json:"addr,omitempty"`
	// Encrypted is set for a connection with TLS.
	Encrypted bool `json:"encrypted,omitempty"`
	// Token is the verified token that the peer has sent; nil for none.
	Token *token.Claims `json:"-"`
	// Names are the DNS and URI names of a verified client certificate.
	Names []string `json:"-"`

	owner string // of a TCP connection over loopback, where it is known
}

// String names the peer for a message, without asking the user database: "uid 1000 (pid 77)".
func (p Peer) String() string {
	who := "an unknown peer"
	switch {
	case p.Local && p.Foreign:
		who = fmt.Sprintf("a user of another user namespace (pid %d)", p.PID)
	case p.Local:
		who = fmt.Sprintf("uid %d (pid %d)", p.UID, p.PID)
	case p.Addr != "":
		who = "address " + p.Addr
	}
	return who + p.proved()
}

// Account names the peer as the author of a change: "uid=1000 (envoy)". It asks the user database.
func (p Peer) Account() string {
	if !p.Local || p.Foreign {
		return p.String()
	}
	out := fmt.Sprintf("uid=%d", p.UID)
	if name := userName(p.UID); name != "" {
		out += " (" + name + ")"
	}
	return out + p.proved()
}

// proved is what the peer has shown beside what the kernel says.
func (p Peer) proved() (out string) {
	if p.Token != nil {
		out = fmt.Sprintf(" with the token %q", clip.Value(p.Token.Subject))
	}
	if len(p.Names) > 0 {
		out += fmt.Sprintf(" with the certificate of %q", clip.Value(p.Names[0]))
	}
	return out
}

// Owner is what two connections share that count as one: the user, over loopback TCP too where the
// kernel says who it is, or the address without its port. Peers with tokens of their own are told
// apart by these.
func (p Peer) Owner() string {
	out := p.Addr
	switch host, _, err := net.SplitHostPort(p.Addr); {
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

// Holder is [Peer.Owner], with what else tells peers apart that share a user or an address: the
// token or certificate. Only peers with the same holder may use one node id at a time.
func (p Peer) Holder() string {
	switch {
	case p.Token != nil:
		return p.Owner() + " token " + p.Token.Subject
	case len(p.Names) > 0:
		return p.Owner() + " certificate " + p.Names[0]
	}
	return p.Owner()
}

// Root says whether the peer is root on this node.
func (p Peer) Root() bool { return p.Local && !p.Foreign && p.UID == 0 }

// is says whether the peer is one user.
func (p Peer) is(uid uint32) bool { return p.Local && !p.Foreign && p.UID == uid }

// in says whether the peer is in a group.
func (p Peer) in(gid int) bool {
	// #nosec G115 -- compared above zero
	return p.Local && !p.Foreign && gid >= 0 && (int64(p.GID) == int64(gid) || slices.Contains(p.Groups, uint32(gid)))
}

// userName returns the name of a user, "" for none.
func userName(uid uint32) string {
	u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return ""
	}
	return u.Username
}

// overflowID is the id that the kernel gives for users that have none in the agent's user namespace
// (user_namespaces(7)).
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
