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

// Minimum intervals between reads of the directory: for verification, and for its stamp. A token
// with an unknown key has none.
const (
	checkEvery = time.Second
	stampEvery = 100 * time.Millisecond
)

// unsettled is the time after a change during which another change may not alter the files' times.
const unsettled = 100 * time.Millisecond

const (
	keySuffix   = ".pem"
	maxKeyBytes = 4 << 10
	maxKeys     = 16
)

// pemType is the PEM type of PKCS#8 (RFC 7468, section 10).
const pemType = "PRIVATE KEY"

// Keys holds the signing keys in a directory and the list of revoked tokens. All methods are safe
// for concurrent use, and several processes may open the same directory.
type Keys struct {
	dir    string
	log    *slog.Logger
	now    func() time.Time
	parser *jwt.Parser

	read  sync.Mutex    // held while the directory is read
	begun atomic.Uint64 // number of reads
	state atomic.Pointer[state]
}

// state holds the results of the last read. It is immutable.
type state struct {
	checked  time.Time // when the directory was read
	stamp    string    // of its files at that time
	settled  bool      // any later change alters the stamp
	keys     map[string]ed25519.PublicKey
	list     []Key                // newest first
	revoked  map[string]time.Time // token id → end of the revocation
	err      error                // rejected or unreadable parts of the directory
	unusable error                // why no token can be verified
}

// Key is one signing key.
type Key struct {
	ID      string
	Created time.Time
	Signs   bool // signs new tokens; all other keys only verify
}

// Open returns the keys of a directory. The directory may be missing until the first token is
// created. now is the clock. Changes of the set of rejected or unreadable files are logged to log.
// Nothing is read before the first method call.
func Open(dir string, log *slog.Logger, now func() time.Time) *Keys {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if now == nil {
		now = time.Now
	}
	return &Keys{dir: dir, log: log, now: now, parser: newParser()}
}

// Err describes the rejected or unreadable parts of the directory, with the remedy; nil if there
// are none.
func (k *Keys) Err() error { return k.current(checkEvery).err }

// Stamp returns a text that differs after a change of the keys or of the revoked tokens. It reads
// the directory if the last read is older than 100 ms.
func (k *Keys) Stamp() string { return k.current(stampEvery).stamp }

// List returns the signing keys, newest first.
func (k *Keys) List() ([]Key, error) {
	s := k.reread()
	return append([]Key(nil), s.list...), s.err
}

// current returns the state. It reads the directory first if the last read is older than every.
// Only the first call waits for the disk.
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

// next returns the state of a read that began after the call. Concurrent calls share one, so that
// many tokens with unknown keys cause few reads.
func (k *Keys) next() *state {
	before := k.begun.Load()
	k.read.Lock()
	defer k.read.Unlock()
	if k.begun.Load() != before {
		return k.state.Load()
	}
	return k.load(k.state.Load())
}

// reread reads the directory now.
func (k *Keys) reread() *state {
	k.read.Lock()
	defer k.read.Unlock()
	return k.load(k.state.Load())
}

// load lists the directory and reads its files if they have changed. The caller holds the lock.
func (k *Keys) load(last *state) *state {
	k.begun.Add(1)
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

// failed returns the state if the directory cannot be read. A rejected directory counts as empty;
// after a disk fault the last state remains.
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

// look lists the directory and returns a stamp that differs if a file has changed.
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

// readState reads the files. For a file that the disk fails to return, it retains the last
// contents.
func readState(dir *files.Private, entries []fs.FileInfo, last *state) *state {
	s := &state{keys: map[string]ed25519.PublicKey{}}
	var faults []error
	for i := len(entries) - 1; i >= 0; i-- { // names begin with the time, so the newest is last
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
			continue // removed in the meantime
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

// keptKey returns the key from the last state, unless its file is rejected or contains no key.
func keptKey(last *state, kid string, err error) ed25519.PublicKey {
	var refused *files.RefusedError
	if last == nil || errors.As(err, &refused) || errors.Is(err, errNoKey) {
		return nil
	}
	return last.keys[kid]
}

// errNoKey is the error for a file that is not a signing key.
var errNoKey = errors.New("not a signing key (a PKCS#8 PEM block with an Ed25519 key); restore the file, " +
	"or remove it and create new tokens")

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

// parseKey parses one signing key without any other content.
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
