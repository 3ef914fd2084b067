package auditlog

import (
	"os/user"
	"strconv"
	"sync"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/serve/audit"
)

// Accounts caches the names of users and groups for a short time, because a lookup reads files. The
// zero value is ready to use.
type Accounts struct {
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

func (x *Accounts) name(k accountKey) string {
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
		name = audit.UserUnknown + id
		if u, err := user.LookupId(id); err == nil {
			name = u.Username
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.names[k] = name
	return name
}

// User returns a peer as the user of an event.
func (x *Accounts) User(p *access.Peer) audit.User {
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
		if p.IsUser() {
			u.Extra[audit.ExtraUID] = []string{id}
		}
	case p.Pod != nil:
		u.Username, u.UID = p.Pod.String(), p.Pod.UID
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

// Refusals limits the events for refused requests by user or address, so that an unprivileged
// client cannot push other events out of the log. Refused writes have a separate limit, so refused
// reads cannot hide them. The zero value is ready to use.
type Refusals struct {
	mu sync.Mutex
	of map[refused]*bucket
}

// refused identifies the requests that share a limit.
type refused struct {
	owner string
	write bool
}

type bucket struct {
	left       float64
	at         time.Time
	suppressed int
}

// Limits of events for refused requests: burst and rate per second of an owner's reads or writes,
// and number of both.
const (
	refusalBurst  = 200
	refusalRate   = 10
	maxRefusalsOf = 1024
)

// Allow reports whether to record the event of a refused request, and how many of its kind were
// suppressed since the last one.
func (x *Refusals) Allow(owner string, write bool, now time.Time) (suppressed int, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	k := refused{owner, write}
	b := x.of[k]
	if b == nil {
		if len(x.of) >= maxRefusalsOf {
			k.owner = "" // one bucket for all others
			b = x.of[k]
		}
		if x.of == nil {
			x.of = map[refused]*bucket{}
		}
		if b == nil {
			b = &bucket{left: refusalBurst, at: now}
			x.of[k] = b
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
