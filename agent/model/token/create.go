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

// Create makes a token with these claims that is valid from now on for some time; the id, the key
// and the times of c do not count. The newest key signs; when there is none, the first is made.
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
				return s.err // a key that is refused is no reason to make another one in silence
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

// Rotate makes a new key, which signs from now on, and returns its id. Tokens of the others stay
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

// ErrNoSuchKey is for a signing key that does not exist.
var ErrNoSuchKey = errors.New("there is no such signing key; nearside token keys lists them")

// Remove removes a key: its tokens are not valid any more. The key that signs is not removed while
// there are others.
func (k *Keys) Remove(kid string) error {
	return k.change(false, func(dir *files.Private, s *state) error {
		// Its file need not be one that can be used.
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
				return fmt.Errorf("signing key %s signs new tokens: make another one first, with: nearside token rotate", kid)
			}
			return dir.Remove(e.Name())
		}
		return fmt.Errorf("%s: %w", kid, ErrNoSuchKey)
	})
}

// addKey makes a key and puts it first in the list.
func addKey(dir *files.Private, s *state, now time.Time) error {
	if len(s.list) >= maxKeys {
		return fmt.Errorf("there are %d signing keys, which is the most: remove one whose tokens have expired, "+
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

// change changes the directory while no other process does, from a state that is its own. With
// create it is made when it does not exist.
func (k *Keys) change(create bool, do func(*files.Private, *state) error) error {
	err := k.changed(create, do)
	k.reread() // what was written counts at once in this process
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
