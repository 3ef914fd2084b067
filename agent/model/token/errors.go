package token

import (
	"fmt"

	"github.com/nearside-mesh/nearside/agent/base/clip"
)

// Reason says why a token is refused, in a word that can be a metric's label.
type Reason string

// The reasons.
const (
	Malformed     Reason = "malformed"       // no token of this package: size, form or claims
	Algorithm     Reason = "wrong_algorithm" // signed with anything but EdDSA
	UnknownKey    Reason = "unknown_key"     // signed by a key that is not there, or no longer
	WrongAudience Reason = "wrong_audience"  // for something else
	Expired       Reason = "expired"
	NotYetValid   Reason = "not_yet_valid"
	Revoked       Reason = "revoked"
	BadSignature  Reason = "bad_signature"
	Unavailable   Reason = "unavailable" // keys or revocations cannot be read; nothing is wrong with the token
)

// Error says that a token is refused. Its text holds neither the token nor its signature, and what
// it repeats of the token is short and escaped.
type Error struct {
	Reason Reason
	text   string
}

func (e *Error) Error() string { return e.text }

func refuse(r Reason, format string, args ...any) *Error {
	return &Error{Reason: r, text: fmt.Sprintf("token refused: "+format, args...)}
}

// quote shows text of a peer.
func quote(s string) string { return fmt.Sprintf("%q", clip.Value(s)) }
