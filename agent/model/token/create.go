package token

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/nearside-mesh/nearside/agent/base/files"
)

// Create returns a token with the given claims that is valid from now for validFor. It ignores the
// id, key, and times in c. The newest key signs. If there is no key, Create generates one.
func (k *Keys) Create(c Claims, validFor time.Duration) (string, error) {
	if err := c.Check(); err != nil {
		return "", err
	}
	if validFor < time.Second || validFor > MaxValidity {
		return "", fmt.Errorf("validity %s: want 1s to %s (10 years)", validFor, MaxValidity)
	}
	var text string
	err := k.change(true, func(dir *files.Private, s *state) error {
		if s.unusable != nil {
			return s.unusable
		}
		if len(s.list) == 0 {
			if s.err != nil {
				return s.err // a rejected key must not be replaced silently
			}
			if err := addKey(dir, s, k.now()); err != nil {
				return err
			}
		}
		c.KeyID = s.list[0].ID
		key, err := readPrivate(dir, c.KeyID)
		if err != nil {
			return err
		}
		c.ID = randomHex(16)
		c.Issued = k.now().UTC().Truncate(time.Second)
		c.NotBefore, c.Expires = c.Issued, c.Issued.Add(validFor)
		text, err = sign(&c, key)
		return err
	})
	return text, err
}

func sign(c *Claims, key ed25519.PrivateKey) (string, error) {
	p, err := c.payload()
	if err != nil {
		return "", err
	}
	t := jwt.NewWithClaims(jwt.SigningMethodEdDSA, p)
	t.Header["kid"] = c.KeyID
	text, err := t.SignedString(key)
	if err == nil && len(text) > MaxBytes {
		return "", fmt.Errorf("the token would have %d bytes, at most %d are allowed: name fewer or shorter services",
			len(text), MaxBytes)
	}
	return text, err
}

// Rotate generates a key that signs from now on, and returns its id. Tokens of other keys remain
// valid until [Keys.Remove].
func (k *Keys) Rotate() (kid string, err error) {
	err = k.change(true, func(dir *files.Private, s *state) error {
		if err := addKey(dir, s, k.now()); err != nil {
			return err
		}
		kid = s.list[0].ID
		return nil
	})
	return kid, err
}

// ErrNoSuchKey is the error for a signing key that does not exist.
var ErrNoSuchKey = errors.New("the signing key does not exist; nearside token keys lists all keys")

// Remove removes a key, which invalidates its tokens. The signing key can be removed only if it is
// the only one.
func (k *Keys) Remove(kid string) error {
	return k.change(false, func(dir *files.Private, s *state) error {
		// The key's file may be invalid.
		if _, ok := keyTime(kid); !ok {
			return fmt.Errorf("%s: %w", quote(kid), ErrNoSuchKey)
		}
		entries, err := dir.List()
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.Name() != kid+keySuffix {
				continue
			}
			if len(s.list) > 1 && s.list[0].ID == kid {
				return fmt.Errorf("signing key %s signs new tokens: create another one first, with: nearside token rotate", kid)
			}
			return dir.Remove(e.Name())
		}
		return fmt.Errorf("%s: %w", kid, ErrNoSuchKey)
	})
}

// addKey generates a key and adds it at the head of the list.
func addKey(dir *files.Private, s *state, now time.Time) error {
	if len(s.list) >= maxKeys {
		return fmt.Errorf("there are %d signing keys, the maximum: remove one whose tokens have expired, "+
			"with: nearside token rotate --remove KID", len(s.list))
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	kid := newKeyID(now, s.list)
	if err := dir.Write(kid+keySuffix, pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: der})); err != nil {
		return err
	}
	created, _ := keyTime(kid)
	s.list = append([]Key{{ID: kid, Created: created, Signs: true}}, s.list...)
	return nil
}

// change modifies the directory under a lock between processes. do gets a private copy of the
// state. With create, a missing directory is created.
func (k *Keys) change(create bool, do func(*files.Private, *state) error) error {
	err := k.changed(create, do)
	k.reread() // the change is visible to this process at once
	return err
}

func (k *Keys) changed(create bool, do func(*files.Private, *state) error) error {
	open := files.OpenPrivate
	if create {
		open = files.MakePrivate
	}
	dir, err := open(k.dir)
	if err != nil {
		return fmt.Errorf("signing keys of tokens: %w", err)
	}
	defer dir.Close()
	if err := dir.Lock(); err != nil {
		return fmt.Errorf("lock %s: %w", k.dir, err)
	}
	entries, _, _, err := look(dir)
	if err != nil {
		return fmt.Errorf("signing keys of tokens: %w", err)
	}
	return do(dir, readState(dir, entries, nil))
}
