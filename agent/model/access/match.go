package access

import (
	"errors"
	"fmt"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// glob reports whether a text matches a pattern, in which * matches any number of characters.
func glob(pattern, text string) bool {
	head, rest, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == text
	}
	text, ok := strings.CutPrefix(text, head)
	if !ok {
		return false
	}
	for {
		head, rest, star = strings.Cut(rest, "*")
		if !star {
			return strings.HasSuffix(text, head)
		}
		at := strings.Index(text, head)
		if at < 0 {
			return false
		}
		text = text[at+len(head):]
	}
}

func anyGlob(patterns []string, text string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return glob(p, text) })
}

// globPath reports whether a cgroup path, or one of its parents, matches a pattern. A * matches
// only within one path element, so that a process cannot gain access by creating a sub-cgroup with
// a matching name.
func globPath(pattern, path string) bool {
	want, have := strings.Split(pattern, "/"), strings.Split(path, "/")
	if len(have) < len(want) {
		return false
	}
	for i, w := range want {
		if !glob(w, have[i]) {
			return false
		}
	}
	return true
}

// idRange is an inclusive range of user ids.
type idRange struct{ from, to uint32 }

// parseRange parses "1000" or "1000-1999".
func parseRange(s string) (idRange, error) {
	from, to, both := strings.Cut(s, "-")
	if !both {
		to = from
	}
	a, err1 := strconv.ParseUint(from, 10, 32)
	b, err2 := strconv.ParseUint(to, 10, 32)
	switch {
	case err1 != nil || err2 != nil:
		return idRange{}, fmt.Errorf("%.64q is not a user id or a range; write it like 1000 or 1000-1999", s)
	case a > b:
		return idRange{}, fmt.Errorf("%.64q is empty; write the smaller id first", s)
	}
	return idRange{uint32(a), uint32(b)}, nil
}

// Matcher selects the peers of a rule or role. A peer must match all keys that are set. A matcher
// without keys matches no peer.
type Matcher struct {
	User   string `json:"user,omitempty" max:"64" check:"account" doc:"User of the process, by name or number."`
	Group  string `json:"group,omitempty" max:"64" check:"account" doc:"Group that the process is in, by name or number."`
	UID    string `json:"uid,omitempty" max:"32" check:"uidRange" doc:"User id or range of them, like 1000 or 1000-1999."`
	Token  string `json:"token,omitempty" max:"512" doc:"Subject of the token that the peer sends; * matches any characters."`
	Cgroup string `json:"cgroup,omitempty" max:"1024" check:"cgroup" doc:"Path of the process's cgroup, or of one above it; * matches characters of one element."`
}

// Check returns the fault in a key of a matcher ("account", "uidRange", or "cgroup"), or "".
func Check(kind, s string) string {
	switch kind {
	case "account":
		if strings.ContainsAny(s, ": \t\n\x00/") {
			return fmt.Sprintf("%.64q is neither a name nor a number", s)
		}
	case "uidRange":
		if _, err := parseRange(s); err != nil {
			return err.Error()
		}
	case "cgroup":
		if !strings.HasPrefix(s, "/") {
			return fmt.Sprintf("%.64q is not a path of a cgroup; write it like /system.slice/envoy@*.service", s)
		}
	}
	return ""
}

// matcher is a Matcher with resolved users and groups.
type matcher struct {
	keys    Matcher
	uids    *idRange
	user    uint32
	group   int
	missing string // why it matches no peer
}

// resolve looks up the user and the group. If one does not exist, or no key is set, the result
// matches no peer.
func (m Matcher) resolve() (matcher, error) {
	out := matcher{keys: m, group: -1}
	if m == (Matcher{}) {
		return out, errors.New("it matches no peer; set user, group, uid, cgroup, or token")
	}
	if m.UID != "" {
		r, err := parseRange(m.UID)
		if err != nil {
			return out, fmt.Errorf("uid: %w", err)
		}
		out.uids = &r
	}
	if m.User != "" {
		id, err := lookupID(m.User, userID)
		if err != nil {
			out.missing = fmt.Sprintf("the user %q does not exist", m.User)
		}
		out.user = id
	}
	if m.Group != "" {
		id, err := lookupID(m.Group, groupID)
		if err != nil {
			out.missing = fmt.Sprintf("the group %q does not exist", m.Group)
		}
		out.group = int(id)
	}
	return out, nil
}

func lookupID(name string, lookup func(string) (string, error)) (uint32, error) {
	id := name
	if _, err := strconv.ParseUint(name, 10, 32); err != nil {
		if id, err = lookup(name); err != nil {
			return 0, err
		}
	}
	n, err := strconv.ParseUint(id, 10, 32)
	return uint32(n), err
}

// matches reports whether the peer has all required properties.
func (m *matcher) matches(p *Peer) bool {
	switch {
	case m.missing != "",
		m.keys.User != "" && !p.is(m.user),
		m.keys.Group != "" && !p.in(m.group),
		m.uids != nil && (!p.IsUser() || p.UID < m.uids.from || p.UID > m.uids.to),
		m.keys.Cgroup != "" && (p.Cgroup == "" || !globPath(m.keys.Cgroup, p.Cgroup)),
		m.keys.Token != "" && (p.Token == nil || !glob(m.keys.Token, p.Token.Subject)):
		return false
	}
	return true
}

// String formats the keys that are set.
func (m Matcher) String() string {
	var out []string
	for _, k := range [...]struct{ key, value string }{
		{"user", m.User}, {"group", m.Group}, {"uid", m.UID}, {"cgroup", m.Cgroup}, {"token", m.Token},
	} {
		if k.value != "" {
			out = append(out, k.key+" "+k.value)
		}
	}
	return strings.Join(out, ", ")
}

// users caches the ids of user names for a short time, so that not every decision reads the user
// database.
type users struct {
	mu    sync.Mutex
	known map[string]knownUser
}

type knownUser struct {
	uid   uint32
	there bool
	until time.Time
}

// Limits of the users cache.
const (
	userAge  = 10 * time.Second
	maxUsers = 1024
)

// is reports whether the peer is a user, given by name or number.
func (u *users) is(p *Peer, account string) bool {
	if !p.IsUser() {
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	k, ok := u.known[account]
	if now := time.Now(); !ok || now.After(k.until) {
		id, err := lookupID(account, userID)
		k = knownUser{id, err == nil, now.Add(userAge)}
		if u.known == nil || len(u.known) >= maxUsers {
			u.known = map[string]knownUser{}
		}
		u.known[account] = k
	}
	return k.there && k.uid == p.UID
}

func userID(name string) (string, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return "", err
	}
	return u.Uid, nil
}

func groupID(name string) (string, error) {
	g, err := user.LookupGroup(name)
	if err != nil {
		return "", err
	}
	return g.Gid, nil
}
