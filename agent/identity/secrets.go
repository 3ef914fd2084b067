package identity

import (
	"fmt"
	"io"
	"time"
)

// Secrets is what one proxy gets: what it proves itself with, and whom it believes. It is immutable; as long as nothing
// has changed, the keeper returns the same pointer.
type Secrets struct {
	chain, key, authorities []byte
	until                   time.Time
}

// Certificate returns the proxy's certificate and what leads from it to an authority, as PEM. It must not be changed.
func (s *Secrets) Certificate() []byte { return s.chain }

// Key returns the private key, as PEM. It must not be changed, shown or logged.
func (s *Secrets) Key() []byte { return s.key }

// Authorities returns the certificates that those of other proxies are checked against, as PEM. It must not be changed.
func (s *Secrets) Authorities() []byte { return s.authorities }

// String says until when the certificate is valid, and nothing secret.
func (s Secrets) String() string {
	return fmt.Sprintf("certificate valid until %s", s.until.UTC().Format(time.RFC3339))
}

// Format writes the same as String, so that no verb of fmt shows a key.
func (s Secrets) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// Placeholder returns what stands for the secrets of a proxy where a config is computed but not served.
func Placeholder() *Secrets { return placeholder }

var placeholder = &Secrets{chain: []byte(notHere), key: []byte(notHere), authorities: []byte(notHere)}

const notHere = "[made by the agent that serves the proxy]"
