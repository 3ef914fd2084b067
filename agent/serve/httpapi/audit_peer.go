package httpapi

import (
	"bytes"
	"cmp"
	"net"
	"net/http"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/audit"
)

// recorder passes an answer through and records data for the event. It delays the answer to a
// change until send, after the event.
type recorder struct {
	http.ResponseWriter
	rec    *record
	status int
	length int          // of the body
	body   bytes.Buffer // the start of the body, or all of it if it is delayed
	tee    bool
	waits  bool
}

// Unwrap supports [http.ResponseController].
func (a *recorder) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *recorder) WriteHeader(status int) {
	if a.status != 0 {
		return
	}
	if status < http.StatusOK { // interim response
		a.ResponseWriter.WriteHeader(status)
		return
	}
	a.status = status
	a.tee = a.rec.level() == audit.LevelRequestResponse
	if a.waits = a.rec.stored; !a.waits {
		a.ResponseWriter.WriteHeader(status)
	}
}

func (a *recorder) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	a.length += len(p)
	if a.waits {
		return a.body.Write(p)
	}
	if left := audit.MaxBody + 1 - a.body.Len(); a.tee && left > 0 {
		a.body.Write(p[:min(left, len(p))])
	}
	return a.ResponseWriter.Write(p)
}

// send sends a delayed answer.
func (a *recorder) send() {
	if !a.waits {
		return
	}
	a.ResponseWriter.WriteHeader(a.status)
	_, _ = a.ResponseWriter.Write(a.body.Bytes()) // ignores a client that disconnected
}

func (a *recorder) code() int { return cmp.Or(a.status, http.StatusOK) }

// noteProblem records the problem of a request for its event.
func noteProblem(w http.ResponseWriter, e *api.Error) {
	if a, ok := w.(*recorder); ok {
		a.rec.problem = e
	}
}

// limitBody bounds the body of a request. For a larger body, net/http closes the connection, which
// requires its own writer.
func limitBody(w http.ResponseWriter, r *http.Request, most int64) {
	if a, ok := w.(*recorder); ok {
		w = a.ResponseWriter
	}
	r.Body = http.MaxBytesReader(w, r.Body, most)
}

// addressOf returns the address of a peer without its port, or "" for a Unix socket.
func addressOf(p *access.Peer) string {
	if p.Local {
		return ""
	}
	host, _, err := net.SplitHostPort(p.Addr)
	if err != nil {
		return p.Addr
	}
	return host
}

// reason returns in a few words why a peer is allowed.
func (s *Server) reason(p *access.Peer) string {
	roles := s.opts.Access.Roles
	switch names := roles.Of(p); {
	case roles.Operator(p):
		return "root or the agent's user"
	case len(names) > 0:
		return "roles " + strings.Join(names, ", ")
	case p.Local:
		return "the socket and its group"
	case p.Token != nil:
		return "token"
	}
	return "open to all"
}

// accounts caches the names of users and groups for a short time, because a lookup reads files. The
// zero value is ready to use.
type accounts struct {
	mu    sync.Mutex
	since time.Time
	names map[accountKey]string
}

type accountKey struct {
	group bool
	id    uint32
}

const (
	accountTime = time.Minute
	maxAccounts = 4096
	maxGroups   = 32 // of one user in an event
)

func (x *accounts) name(k accountKey) string {
	x.mu.Lock()
	if now := time.Now(); x.names == nil || now.Sub(x.since) > accountTime || len(x.names) >= maxAccounts {
		x.names, x.since = map[accountKey]string{}, now
	}
	name, ok := x.names[k]
	x.mu.Unlock()
	if ok {
		return name
	}
	id := strconv.FormatUint(uint64(k.id), 10)
	if k.group {
		name = id
		if g, err := user.LookupGroupId(id); err == nil {
			name = g.Name
		}
	} else {
		name = "uid:" + id
		if u, err := user.LookupId(id); err == nil {
			name = u.Username
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.names[k] = name
	return name
}

// user returns a peer as the user of an event.
func (x *accounts) user(p *access.Peer) audit.User {
	u := audit.User{Extra: map[string][]string{}}
	id := strconv.FormatUint(uint64(p.UID), 10)
	transport := "tcp"
	if p.Local {
		transport = "unix"
		u.Extra[audit.ExtraGID] = []string{strconv.FormatUint(uint64(p.GID), 10)}
		if p.PID > 0 {
			u.Extra[audit.ExtraPID] = []string{strconv.Itoa(int(p.PID))}
		}
		if p.Cgroup != "" {
			u.Extra[audit.ExtraCgroup] = []string{p.Cgroup}
		}
	}
	u.Extra[audit.ExtraTransport] = []string{transport}
	in := audit.GroupAuthenticated
	switch {
	case p.Token != nil:
		u.Username = p.Token.Subject
		if p.Token.ID != "" {
			u.Extra[audit.ExtraTokenID] = []string{p.Token.ID}
		}
		if p.Local && !p.Foreign {
			u.Extra[audit.ExtraUID] = []string{id}
		}
	case p.Local && p.Foreign:
		u.Username = audit.UserForeign
	case p.Local:
		u.Username, u.UID = x.name(accountKey{false, p.UID}), id
		u.Groups = append(u.Groups, x.name(accountKey{true, p.GID}))
		for i, g := range p.Groups {
			if i == maxGroups {
				break
			}
			if g != p.GID {
				u.Groups = append(u.Groups, x.name(accountKey{true, g}))
			}
		}
	default:
		u.Username, in = audit.UserAnonymous, audit.GroupUnauthenticated
	}
	u.Groups = append(u.Groups, in)
	return u
}

// refusalEvents limits the events for refused requests by user or address, so that an unprivileged
// client cannot push other events out of the log. The zero value is ready to use.
type refusalEvents struct {
	mu sync.Mutex
	of map[string]*bucket
}

type bucket struct {
	left       float64
	at         time.Time
	suppressed int
}

// Limits of events for refused requests: burst and rate per second of an owner, and number of
// owners.
const (
	refusalBurst  = 200
	refusalRate   = 10
	maxRefusalsOf = 1024
)

// allow reports whether to record an event, and how many were suppressed since the last one.
func (x *refusalEvents) allow(owner string, now time.Time) (suppressed int, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	b := x.of[owner]
	if b == nil {
		if len(x.of) >= maxRefusalsOf {
			owner = "" // one bucket for all others
			b = x.of[owner]
		}
		if x.of == nil {
			x.of = map[string]*bucket{}
		}
		if b == nil {
			b = &bucket{left: refusalBurst, at: now}
			x.of[owner] = b
		}
	}
	b.left = min(refusalBurst, b.left+refusalRate*now.Sub(b.at).Seconds())
	b.at = now
	if b.left < 1 {
		b.suppressed++
		return 0, false
	}
	b.left--
	suppressed, b.suppressed = b.suppressed, 0
	return suppressed, true
}

func decimal(n int) string { return strconv.Itoa(n) }
