package token

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/nearside-mesh/nearside/agent/base/files"
)

// Dir is the name of the directory below paths.state.
const Dir = "tokens"

// How often the directory is looked at, at most: for what verifies, and for a token whose key is
// not known.
const (
	checkEvery        = time.Second
	checkUnknownEvery = 100 * time.Millisecond
)

// unsettled is how long after a change another one may leave no trace in the times of files.
const unsettled = 100 * time.Millisecond

const (
	keySuffix   = ".pem"
	maxKeyBytes = 4 << 10
	maxKeys     = 16
)

// pemType is that of PKCS#8 (RFC 7468, section 10).
const pemType = "PRIVATE KEY"

// Keys are the signing keys below a directory and the list of revoked tokens. All methods are safe
// for concurrent use, and several processes may have the same directory open.
type Keys struct {
	dir    string
	log    *slog.Logger
	now    func() time.Time
	parser *jwt.Parser

	read  sync.Mutex // held by whoever looks at the directory; readers do not wait for it, but for the first one
	state atomic.Pointer[state]
}

// state is what was read last. It does not change.
type state struct {
	checked  time.Time // when the directory was looked at
	stamp    string    // of its files then
	settled  bool      // a later change shows in the stamp
	keys     map[string]ed25519.PublicKey
	list     []Key                // the newest first
	revoked  map[string]time.Time // token id → until
	err      error                // what of the directory is refused or cannot be read
	unusable error                // why no token can be verified
}

// Key is one signing key.
type Key struct {
	ID      string
	Created time.Time
	Signs   bool // new tokens; the others only verify
}

// Open returns the keys below a directory, which need not exist before a token is made. now is the
// clock; log is told when what is refused or cannot be read changes. Nothing is read before the
// first call of a method.
func Open(dir string, log *slog.Logger, now func() time.Time) *Keys {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if now == nil {
		now = time.Now
	}
	return &Keys{dir: dir, log: log, now: now, parser: newParser()}
}

// Err says what of the directory is refused or cannot be read, with the remedy; nil when all is
// well.
func (k *Keys) Err() error { return k.current(checkEvery).err }

// List returns the signing keys, the newest first.
func (k *Keys) List() ([]Key, error) {
	s := k.reread()
	return append([]Key(nil), s.list...), s.err
}

// current returns what is known, after a look at the directory when the last one is longer ago. It
// waits for the disk only when nothing is known.
func (k *Keys) current(every time.Duration) *state {
	s := k.state.Load()
	if s == nil {
		k.read.Lock()
		defer k.read.Unlock()
		if s = k.state.Load(); s == nil {
			s = k.load(nil)
		}
		return s
	}
	if s.fresh(k.now(), every) || !k.read.TryLock() {
		return s
	}
	defer k.read.Unlock()
	if s = k.state.Load(); !s.fresh(k.now(), every) {
		s = k.load(s)
	}
	return s
}

func (s *state) fresh(now time.Time, every time.Duration) bool {
	d := now.Sub(s.checked)
	return d >= 0 && d < every
}

// reread looks at the directory now.
func (k *Keys) reread() *state {
	k.read.Lock()
	defer k.read.Unlock()
	return k.load(k.state.Load())
}

// load looks at the directory, and reads what is in it when it has changed. The lock is held.
func (k *Keys) load(last *state) *state {
	s := k.loaded(last)
	s.checked = k.now()
	if text := errorText(s.err); text != "" && (last == nil || text != errorText(last.err)) {
		k.log.Warn("signing keys of tokens", "error", s.err)
	}
	k.state.Store(s)
	return s
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func (k *Keys) loaded(last *state) *state {
	dir, err := files.OpenPrivate(k.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return &state{}
	}
	if err != nil {
		return failed(last, err)
	}
	defer dir.Close()
	entries, stamp, settled, err := look(dir)
	if err != nil {
		return failed(last, err)
	}
	if last != nil && last.settled && last.stamp == stamp && last.err == nil {
		same := *last
		return &same
	}
	s := readState(dir, entries, last)
	s.stamp, s.settled = stamp, settled
	return s
}

// failed is the state when the directory cannot be read: what is refused counts for nothing, and a
// fault of the disk leaves what was known.
func failed(last *state, err error) *state {
	err = fmt.Errorf("signing keys of tokens: %w", err)
	var refused *files.RefusedError
	if errors.As(err, &refused) || last == nil {
		return &state{err: err, unusable: err}
	}
	s := *last
	s.err, s.settled = err, false
	return &s
}

// look lists the directory, with a stamp that is another one when a file has changed.
func look(dir *files.Private) (entries []fs.FileInfo, stamp string, settled bool, err error) {
	self, err := dir.Stat()
	if err != nil {
		return nil, "", false, err
	}
	if entries, err = dir.List(); err != nil {
		return nil, "", false, err
	}
	var b strings.Builder
	newest := self.ModTime()
	for _, e := range append([]fs.FileInfo{self}, entries...) {
		fmt.Fprintf(&b, "%q %v %d %d", e.Name(), e.Mode(), e.Size(), e.ModTime().UnixNano())
		if sys, ok := e.Sys().(*syscall.Stat_t); ok {
			fmt.Fprintf(&b, " %d %d", sys.Ino, sys.Uid)
		}
		if b.WriteByte('\n'); e.ModTime().After(newest) {
			newest = e.ModTime()
		}
	}
	return entries, b.String(), time.Since(newest) > unsettled, nil
}

// readState reads the files. One that the disk does not give keeps what was read of it before.
func readState(dir *files.Private, entries []fs.FileInfo, last *state) *state {
	s := &state{keys: map[string]ed25519.PublicKey{}}
	var faults []error
	for i := len(entries) - 1; i >= 0; i-- { // names begin with the time, so the newest comes first
		kid, ok := strings.CutSuffix(entries[i].Name(), keySuffix)
		created, known := keyTime(kid)
		if !ok || !known {
			if ok {
				faults = append(faults,
					fmt.Errorf("%s is not the name of a signing key; move the file away", quote(entries[i].Name())))
			}
			continue
		}
		if len(s.list) == maxKeys {
			faults = append(faults, fmt.Errorf("more than %d signing keys: older ones are not used; "+
				"remove them with: nearside token rotate --remove KID", maxKeys))
			break
		}
		public, err := readPublic(dir, kid)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			faults = append(faults, err)
			if public = keptKey(last, kid, err); public == nil {
				continue
			}
		}
		s.keys[kid] = public
		s.list = append(s.list, Key{ID: kid, Created: created, Signs: len(s.list) == 0})
	}
	revoked, err := readRevoked(dir)
	if err != nil {
		faults = append(faults, err)
		if last == nil || last.unusable != nil {
			s.unusable = err
		} else {
			revoked = last.revoked
		}
	}
	s.revoked = revoked
	s.err = errors.Join(faults...)
	return s
}

// keptKey returns the key that was read before, unless its file is refused or holds no key.
func keptKey(last *state, kid string, err error) ed25519.PublicKey {
	var refused *files.RefusedError
	if last == nil || errors.As(err, &refused) || errors.Is(err, errNoKey) {
		return nil
	}
	return last.keys[kid]
}

// errNoKey is for a file that is no signing key.
var errNoKey = errors.New("not a signing key (a PKCS#8 PEM block with an Ed25519 key); restore the file, " +
	"or remove it and make new tokens")

func readPublic(dir *files.Private, kid string) (ed25519.PublicKey, error) {
	key, err := readPrivate(dir, kid)
	if err != nil {
		return nil, err
	}
	return key.Public().(ed25519.PublicKey), nil
}

func readPrivate(dir *files.Private, kid string) (ed25519.PrivateKey, error) {
	data, err := dir.Read(kid+keySuffix, maxKeyBytes)
	if err != nil {
		return nil, err
	}
	key, err := parseKey(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kid+keySuffix, err)
	}
	return key, nil
}

// parseKey reads one signing key, and nothing beside it.
func parseKey(data []byte) (ed25519.PrivateKey, error) {
	block, rest := pem.Decode(data)
	if block == nil || block.Type != pemType || strings.TrimSpace(string(rest)) != "" {
		return nil, errNoKey
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	key, ok := parsed.(ed25519.PrivateKey)
	if err != nil || !ok {
		return nil, errNoKey
	}
	return key, nil
}
