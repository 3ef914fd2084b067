package token

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Limits of a token in bytes. An Ed25519 signature has 64 bytes, which are 86 in base64url.
const (
	MaxBytes       = 8 << 10
	maxHeader      = 512
	signatureBytes = 86
)

// leeway is the maximum by which the clock of the creating node may be ahead of the verifying
// node's.
const leeway = 30 * time.Second

// algorithm is the only accepted algorithm.
const algorithm = "EdDSA"

// Verify verifies a token for an audience and returns its claims. The error is an *[Error]. Verify
// is safe for concurrent use. It reads the disk at most once per second, and for a token with an
// unknown key, which may be new.
func (k *Keys) Verify(text, audience string) (Claims, error) {
	kid, err := header(text)
	if err != nil {
		return Claims{}, err
	}
	s := k.current(checkEvery)
	_, known := s.keys[kid]
	if !known {
		s = k.next()
		_, known = s.keys[kid]
	}
	switch {
	case s.unusable != nil:
		return Claims{}, unavailable()
	case !known:
		return Claims{}, unknownKey(kid)
	}
	var p payload
	// ParseWithClaims would link the parser's validation of claims; see fieldrule.
	t, parts, err := k.parser.ParseUnverified(text, &p)
	if err != nil {
		return Claims{}, refusal(err)
	}
	kid, _ = t.Header["kid"].(string) // as seen by the parser that also splits off the signature
	key, known := s.keys[kid]
	switch {
	case t.Method != jwt.SigningMethodEdDSA:
		return Claims{}, badSignature()
	case !known:
		return Claims{}, unknownKey(kid)
	}
	if err := s.admit(&p, audience, k.now()); err != nil {
		return Claims{}, err
	}
	if jwt.SigningMethodEdDSA.Verify(parts[0]+"."+parts[1], t.Signature, key) != nil {
		return Claims{}, badSignature()
	}
	c, err := p.claims(kid)
	if err != nil || c.Check() != nil {
		return Claims{}, refuse(Malformed,
			"its claims are not those of nearside; create a new one with: nearside token create")
	}
	return c, nil
}

// refusal converts errors of the parser. It does not quote them, because they may contain parts of
// the token.
func refusal(err error) error {
	var refused *Error
	if errors.As(err, &refused) {
		return refused
	}
	return malformed("its claims cannot be decoded")
}

func badSignature() *Error { return refuse(BadSignature, "its signature is not valid") }

func malformed(what string) *Error {
	return refuse(Malformed, "%s; give exactly one complete token from nearside token create", what)
}

// unavailable returns the error for peers; [Keys.Err] has the details.
func unavailable() *Error {
	return refuse(Unavailable,
		"the agent cannot read its signing keys or the list of revoked tokens; on its node, nearside token keys says why")
}

func unknownKey(kid string) *Error {
	return refuse(UnknownKey, "signing key %s is unknown; the key was removed, or another agent created the token",
		quote(kid))
}

// Decode returns the claims of a token without any verification, including signature and times. The
// error is an *[Error].
func Decode(text string) (Claims, error) {
	kid, err := header(text)
	if err != nil {
		return Claims{}, err
	}
	var p payload
	if _, _, err := newParser().ParseUnverified(text, &p); err != nil {
		return Claims{}, refusal(err)
	}
	c, err := p.claims(kid)
	if err != nil {
		return Claims{}, refusal(err)
	}
	return c, nil
}

// Bearer returns the token in the values of an authorization header (RFC 6750, section 2.1). ok is
// false if there are several values or another scheme.
func Bearer(values []string) (text string, ok bool) {
	if len(values) != 1 {
		return "", false
	}
	scheme, text, _ := strings.Cut(values[0], " ")
	return text, strings.EqualFold(scheme, "Bearer") && text != ""
}

func newParser() *jwt.Parser { return jwt.NewParser(jwt.WithStrictDecoding()) }

// header checks the form and the header of a token, and returns the id of its key. It is cheap for
// any text.
func header(text string) (kid string, err error) {
	if len(text) > MaxBytes {
		return "", refuse(Malformed, "it has more than %d bytes", MaxBytes)
	}
	if !only(text, "-_.", true) { // base64 decoders skip line breaks
		return "", malformed("it contains characters that are invalid in a token")
	}
	first, rest, ok := strings.Cut(text, ".")
	_, signature, ok2 := strings.Cut(rest, ".")
	if !ok || !ok2 || strings.Contains(signature, ".") {
		return "", malformed("it does not have three parts separated by dots")
	}
	if len(first) > maxHeader {
		return "", malformed("its header is too long")
	}
	var h struct {
		Alg, Kid *string
		Crit     json.RawMessage
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(first)
	if err != nil || json.Unmarshal(raw, &h) != nil {
		return "", malformed("its header cannot be decoded")
	}
	switch {
	case h.Alg == nil:
		return "", malformed("its header names no algorithm")
	case *h.Alg != algorithm:
		return "", refuse(Algorithm, "the algorithm %s is not accepted, only %s is", quote(*h.Alg), algorithm)
	case h.Kid == nil || *h.Kid == "":
		return "", malformed("its header names no signing key (kid)")
	case h.Crit != nil: // RFC 7515 section 4.1.11: no extension is supported
		return "", malformed("its header names critical extensions (crit), and none is supported")
	case len(signature) != signatureBytes:
		return "", malformed("its signature is truncated or not Ed25519")
	}
	return *h.Kid, nil
}

// admit checks the claims that need no signature.
func (s *state) admit(p *payload, audience string, now time.Time) *Error {
	switch {
	case p.Audience == "":
		return malformed("its audience (aud) is missing")
	case string(p.Audience) != audience:
		return refuse(WrongAudience, "its audience is %s, not %q", quote(string(p.Audience)), audience)
	case p.ExpiresAt == nil:
		return malformed("its expiry (exp) is missing")
	case p.ID == "" || len(p.ID) > maxID:
		return malformed("its id (jti) is missing or too long")
	}
	if err := s.standing(p.ID, p.ExpiresAt.Time, now); err != nil {
		return err
	}
	for _, begins := range [...]*jwt.NumericDate{p.NotBefore, p.IssuedAt} {
		if begins != nil && begins.After(now.Add(leeway)) {
			return refuse(NotYetValid, "it is not valid before %s, and the time here is %s; check the clocks",
				begins.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
		}
	}
	return nil
}

// standing checks the conditions that can change while a token is in use.
func (s *state) standing(id string, expires, now time.Time) *Error {
	if !now.Before(expires) {
		return refuse(Expired, "it expired at %s; create a new one with: nearside token create",
			expires.UTC().Format(time.RFC3339))
	}
	if until, ok := s.revoked[id]; ok && now.Before(until) {
		return refuse(Revoked, "it was revoked; create a new one with: nearside token create")
	}
	return nil
}

// Recheck checks a token that Verify has accepted before, at a fraction of the cost, for
// connections that outlive the call. The error is an *[Error] if the token has expired or was
// revoked, if its key was removed, or if keys or revocations cannot be read. Like Verify it is safe
// for concurrent use and reads the disk at most once per second.
func (k *Keys) Recheck(c *Claims) error {
	s := k.current(checkEvery)
	if s.unusable != nil {
		return unavailable()
	}
	if _, ok := s.keys[c.KeyID]; !ok {
		return unknownKey(c.KeyID)
	}
	if err := s.standing(c.ID, c.Expires, k.now()); err != nil {
		return err
	}
	return nil
}
