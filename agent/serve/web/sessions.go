package web

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"sync"
	"time"
)

// KeyLife is the time for which a key of [Server.Key] is valid.
const KeyLife = 5 * time.Minute

// Limits of sessions and keys.
const (
	sessionLife = 12 * time.Hour
	maxSessions = 256 // further ones end the one that was used the longest ago
	maxOfToken  = 16  // of one token
	maxKeys     = 16
)

// digest identifies a secret. Comparing digests reveals nothing about the secret by its time.
type digest [sha256.Size]byte

func digestOf(secret string) digest { return sha256.Sum256([]byte(secret)) }

// session is what a cookie stands for.
type session struct {
	id      digest
	token   string // of the API; "": the backend needs none
	owner   string // user of this host who began it over loopback; "": not known
	expires time.Time

	used    time.Time // guarded by sessions.mu, like running
	running map[*inFlight]struct{}
}

// inFlight is a request in progress of a session.
type inFlight struct{ cancel context.CancelFunc }

// sessions holds the sessions, and the keys that begin one. It is safe for concurrent use.
type sessions struct {
	now func() time.Time

	mu   sync.Mutex
	of   map[digest]*session
	keys map[digest]key
}

// key begins one session.
type key struct {
	expires time.Time
	owner   string // the only user who may use it; "": any
}

func newSessions(now func() time.Time) *sessions {
	return &sessions{now: now, of: map[digest]*session{}, keys: map[digest]key{}}
}

// newKey returns a key that is valid once, for KeyLife. With an owner, only that user may use it.
func (x *sessions) newKey(owner string) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := x.now()
	var oldest digest
	for d, k := range x.keys {
		if !now.Before(k.expires) {
			delete(x.keys, d)
		} else if o, ok := x.keys[oldest]; !ok || k.expires.Before(o.expires) {
			oldest = d
		}
	}
	if len(x.keys) >= maxKeys {
		delete(x.keys, oldest)
	}
	text := rand.Text() // at least 128 bits
	x.keys[digestOf(text)] = key{expires: now.Add(KeyLife), owner: owner}
	return text
}

// redeem uses a key up. It returns the secret of a new session, or false.
func (x *sessions) redeem(text, owner string) (string, bool) {
	x.mu.Lock()
	k, ok := x.keys[digestOf(text)]
	if ok && (k.owner == "" || k.owner == owner) {
		delete(x.keys, digestOf(text))
	}
	x.mu.Unlock()
	if !ok || !x.now().Before(k.expires) || k.owner != "" && k.owner != owner {
		return "", false
	}
	return x.begin("", owner), true
}

// begin starts a session and returns its secret.
func (x *sessions) begin(token, owner string) string {
	secret := rand.Text() + rand.Text()
	now := x.now()
	s := &session{id: digestOf(secret), token: token, owner: owner, expires: now.Add(sessionLife), used: now,
		running: map[*inFlight]struct{}{}}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, old := range x.of {
		if !now.Before(old.expires) {
			x.drop(old)
		}
	}
	if token != "" {
		x.trim(maxOfToken, func(old *session) bool { return old.token == token })
	}
	x.trim(maxSessions, func(*session) bool { return true })
	x.of[s.id] = s
	return secret
}

// trim ends the oldest of some sessions, so that fewer than most remain. The caller holds mu.
func (x *sessions) trim(most int, of func(*session) bool) {
	for {
		var oldest *session
		n := 0
		for _, s := range x.of {
			if !of(s) {
				continue
			}
			n++
			if oldest == nil || s.used.Before(oldest.used) {
				oldest = s
			}
		}
		if n < most {
			return
		}
		x.drop(oldest)
	}
}

// find returns the session of a secret for a user, or nil.
func (x *sessions) find(secret, owner string) *session {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.of[digestOf(secret)]
	if s == nil || s.owner != "" && s.owner != owner {
		return nil
	}
	now := x.now()
	if !now.Before(s.expires) {
		x.drop(s)
		return nil
	}
	s.used = now
	return s
}

// end ends a session and cancels its requests.
func (x *sessions) end(s *session) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.drop(s)
}

func (x *sessions) drop(s *session) {
	delete(x.of, s.id)
	for r := range s.running {
		r.cancel()
	}
}

// during returns a context that ends with the session or when done is called. A session that has
// ended returns a context that has ended.
func (x *sessions) during(ctx context.Context, s *session) (_ context.Context, done func()) {
	ctx, cancel := context.WithDeadline(ctx, s.expires)
	r := &inFlight{cancel}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.of[s.id] != s {
		cancel()
		return ctx, func() {}
	}
	s.running[r] = struct{}{}
	return ctx, func() {
		cancel()
		x.mu.Lock()
		defer x.mu.Unlock()
		delete(s.running, r)
	}
}
