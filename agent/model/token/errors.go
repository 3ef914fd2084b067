package token

import (
	"fmt"

	"github.com/nearside-mesh/nearside/agent/base/clip"
)

// Reason is the reason for rejecting a token, in a form usable as a metric label.
type Reason string

// Reasons.
const (
	Malformed     Reason = "malformed"       // not a token of this package: size, form, or claims
	Algorithm     Reason = "wrong_algorithm" // not signed with EdDSA
	UnknownKey    Reason = "unknown_key"     // signed by an unknown or removed key
	WrongAudience Reason = "wrong_audience"  // for another purpose
	Expired       Reason = "expired"
	NotYetValid   Reason = "not_yet_valid"
	Revoked       Reason = "revoked"
	BadSignature  Reason = "bad_signature"
	Unavailable   Reason = "unavailable" // keys or revocations cannot be read; the token may be valid
)

// Error is the error for a rejected token. Its text contains neither the token nor its signature.
// Quoted parts are short and escaped.
type Error struct {
	Reason Reason
	text   string
}

func (e *Error) Error() string { return e.text }

func refuse(r Reason, format string, args ...any) *Error {
	return &Error{Reason: r, text: fmt.Sprintf("token refused: "+format, args...)}
}

// quote quotes text from a peer.
func quote(s string) string { return fmt.Sprintf("%q", clip.Value(s)) }
