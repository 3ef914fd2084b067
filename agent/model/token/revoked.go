package token

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/files"
)

// revokedFile lists the revoked tokens, one per line: the id and the end of the revocation.
const revokedFile = "revoked"

// Limits of that file.
const (
	maxRevoked      = 10000
	maxRevokedBytes = 1 << 20
)

// Revocation is a revoked token. It ends when the token has expired.
type Revocation struct {
	ID    string
	Until time.Time
}

// Revoke revokes a token by its id. until is the token's expiry or a later time, after which the
// entry is dropped. The id may be unknown.
func (k *Keys) Revoke(id string, until time.Time) error {
	if !validID(id) {
		return fmt.Errorf("token id %s: want 1 to %d letters, digits, '-' and '_'", quote(id), maxID)
	}
	until = until.UTC().Truncate(time.Second)
	now := k.now()
	if !until.After(now) || until.Sub(now) > MaxValidity {
		return fmt.Errorf("until %s: want a time in the next %d days, at or after the expiry of the token",
			until.Format(time.RFC3339), MaxValidity/(24*time.Hour))
	}
	return k.change(true, func(dir *files.Private, s *state) error {
		if s.unusable != nil {
			return s.unusable
		}
		list := map[string]time.Time{}
		for id, t := range s.revoked {
			if t.After(now) {
				list[id] = t
			}
		}
		if until.After(list[id]) {
			list[id] = until
		}
		if len(list) > maxRevoked {
			return fmt.Errorf("%d tokens are revoked, the maximum: rotate the signing key and remove the old one "+
				"instead, with: nearside token rotate --remove KID", maxRevoked)
		}
		return dir.Write(revokedFile, formatRevoked(list))
	})
}

// Revocations returns the currently revoked tokens, sorted by id.
func (k *Keys) Revocations() ([]Revocation, error) {
	s := k.reread()
	var out []Revocation
	for _, id := range slices.Sorted(maps.Keys(s.revoked)) {
		if k.now().Before(s.revoked[id]) {
			out = append(out, Revocation{id, s.revoked[id]})
		}
	}
	return out, s.err
}

func validID(id string) bool { return id != "" && len(id) <= maxID && only(id, "-_", true) }

func formatRevoked(list map[string]time.Time) []byte {
	var b strings.Builder
	for _, id := range slices.Sorted(maps.Keys(list)) {
		fmt.Fprintf(&b, "%s %s\n", id, list[id].UTC().Format(time.RFC3339))
	}
	return []byte(b.String())
}

func readRevoked(dir *files.Private) (map[string]time.Time, error) {
	data, err := dir.Read(revokedFile, maxRevokedBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseRevoked(string(data))
}

// parseRevoked parses the list. A single invalid line, or a truncated last line, makes the whole
// list unusable.
func parseRevoked(text string) (map[string]time.Time, error) {
	out := map[string]time.Time{}
	n := 0
	for line := range strings.Lines(text) {
		n++
		id, when, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		until, err := time.Parse(time.RFC3339, when)
		if !ok || err != nil || !validID(id) || !strings.HasSuffix(line, "\n") {
			return nil, fmt.Errorf("line %d of the file %s cannot be read: restore the file, "+
				"or, if you know its token, remove the line and revoke the token again; until then no token is accepted", n,
				revokedFile)
		}
		if len(out) == maxRevoked {
			return nil, fmt.Errorf("the file %s has more than %d lines: remove expired entries; "+
				"until then no token is accepted", revokedFile, maxRevoked)
		}
		out[id] = until
	}
	return out, nil
}
