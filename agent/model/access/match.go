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

// glob says whether a text has the form of a pattern, in which * stands for any characters, or
// none.
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

// globPath says whether a cgroup path, or one above it, has the form of a pattern. A * stands for
// characters of one element, so that nobody gets in by the name of a cgroup of his own further
// down.
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

// idRange is a range of user ids, both ends included.
type idRange struct{ from, to uint32 }

// parseRange reads "1000" or "1000-1999".
func parseRange(s string) (idRange, error) {
	from, to, both := strings.Cut(s, "-")
	if !both {
		to = from
	}
	a, err1 := strconv.ParseUint(from, 10, 32)
	b, err2 := strconv.ParseUint(to, 10, 32)
	switch {
	case err1 != nil || err2 != nil:
		return idRange{}, fmt.Errorf("%.64q is not a user id or a range of them; write it like 1000 or 1000-1999", s)
	case a > b:
		return idRange{}, fmt.Errorf("%.64q ends before it begins; write the smaller id first", s)
	}
	return idRange{uint32(a), uint32(b)}, nil
}

// Matcher says which peers a rule or a role is about. A peer must match all keys that are set. One
// without any key matches nobody.
type Matcher struct {
	User   string `json:"user,omitempty" max:"64" check:"account" doc:"User of the process, by name or number."`
	Group  string `json:"group,omitempty" max:"64" check:"account" doc:"Group that the process is in, by name or number."`
	UID    string `json:"uid,omitempty" max:"32" check:"uidRange" doc:"User id or range of them, like 1000 or 1000-1999."`
	Token  string `json:"token,omitempty" max:"512" doc:"Subject of the token that the peer sends; * stands for any characters."`
	Cgroup string `json:"cgroup,omitempty" max:"1024" check:"cgroup" doc:"Path of the process's cgroup, or of one above it; * stands for characters of one element."`
}

// Check returns what is wrong with the key of a matcher ("account", "uidRange" or "cgroup"), ""
// when nothing is.
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

// matcher is a Matcher with its users and groups looked up.
type matcher struct {
	keys    Matcher
	uids    *idRange
	user    uint32
	group   int
	missing string // why it matches nobody
}

// resolve looks up the user and the group. One that does not exist, or no key at all, makes a
// matcher that matches nobody.
func (m Matcher) resolve() (matcher, error) {
	out := matcher{keys: m, group: -1}
	if m == (Matcher{}) {
		return out, errors.New("it names no peer; set user, group, uid, cgroup or token")
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

// matches says whether the peer has all that the matcher asks for.
func (m *matcher) matches(p *Peer) bool {
	switch {
	case m.missing != "",
		m.keys.User != "" && !p.is(m.user),
		m.keys.Group != "" && !p.in(m.group),
		m.uids != nil && (!p.Local || p.Foreign || p.UID < m.uids.from || p.UID > m.uids.to),
		m.keys.Cgroup != "" && (p.Cgroup == "" || !globPath(m.keys.Cgroup, p.Cgroup)),
		m.keys.Token != "" && (p.Token == nil || !glob(m.keys.Token, p.Token.Subject)):
		return false
	}
	return true
}

// String shows the keys that are set.
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

// users remembers ids of user names for a short time: the user database is a file, and decisions do
// not wait for one each time.
type users struct {
	mu    sync.Mutex
	known map[string]knownUser
}

type knownUser struct {
	uid   uint32
	there bool
	until time.Time
}

// Bounds of what users remembers.
const (
	userAge  = 10 * time.Second
	maxUsers = 1024
)

// is says whether the peer is a user given by name or number.
func (u *users) is(p *Peer, account string) bool {
	if !p.Local || p.Foreign {
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
