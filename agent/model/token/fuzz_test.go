package token_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/token"
)

// FuzzVerify checks that only tokens from Create are accepted, and that no message contains a part
// of the token.
func FuzzVerify(f *testing.F) {
	c := newClock()
	k, _ := open(f, c)
	good := create(f, k, web(), time.Hour)
	parts := strings.Split(good, ".")
	f.Add(good)
	f.Add(parts[0] + "." + parts[1] + ".")
	f.Add(encode(`{"alg":"none"}`) + "." + parts[1] + ".")
	f.Add(encode(`{"alg":"EdDSA","kid":"\u001b[2J","crit":["b64"],"b64":false}`) + "." + parts[1] + "." + parts[2])
	f.Add(parts[0] + "." + encode(`{"aud":["nearside-xds","x"],"exp":1e309,"services":null}`) + "." + parts[2])
	f.Add(parts[0] + "." + encode(`{"aud":"nearside-xds","exp":-1,"jti":"\u0000"}`) + "." + parts[2])
	f.Add(parts[0] + "." + encode(`{"aud":"nearside-xds","exp":1e15,"nbf":-1e15,"iat":9e18}`) + "." + parts[2])
	f.Add(strings.Repeat("A", 9000))
	f.Add("a.b.c.d")
	f.Fuzz(func(t *testing.T, text string) {
		_, err := k.Verify(text, token.AudienceXDS)
		if err == nil {
			if text != good {
				t.Fatalf("accepted: %q", text)
			}
			return
		}
		var refused *token.Error
		if !errors.As(err, &refused) || refused.Reason == "" || refused.Reason == token.Unavailable {
			t.Fatalf("error %v", err)
		}
		if len(err.Error()) > 400 || strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' || r == 0x7f }) {
			t.Fatalf("message %q", err)
		}
		said, err := token.Decode(text)
		if err != nil && !errors.As(err, &refused) {
			t.Fatalf("Decode: %v", err)
		}
		if _, err := json.Marshal(said); err != nil {
			t.Fatalf("what a token says cannot be shown: %v", err)
		}
	})
}

// FuzzFiles checks that only the valid token is accepted for any contents of the files in the
// directory, and that no message contains them.
func FuzzFiles(f *testing.F) {
	c := newClock()
	k, dir := open(f, c)
	good := create(f, k, web(), time.Hour)
	_, kid := signingKey(f, k, dir)
	key, err := os.ReadFile(filepath.Join(dir, kid+".pem"))
	must(f, err)
	f.Add(key, []byte("0 2027-01-01T00:00:00Z\n"))
	f.Add(key[:len(key)/2], []byte("0 2027-01-01T00:00:00Z"))
	f.Add([]byte("-----BEGIN PRIVATE KEY-----\nKEY1: x\n\nMAA=\n-----END PRIVATE KEY-----\n"), []byte("\n"))
	f.Add(append(key, "x"...), []byte("a b c\n"))
	root := f.TempDir()
	f.Fuzz(func(t *testing.T, key, revoked []byte) {
		dir, err := os.MkdirTemp(root, "state") // 0700
		must(t, err)
		defer os.RemoveAll(dir)
		must(t, os.WriteFile(filepath.Join(dir, kid+".pem"), key, 0o600))
		must(t, os.WriteFile(filepath.Join(dir, "revoked"), revoked, 0o600))
		k := token.Open(dir, nil, c.now)
		_, _ = k.Verify(good, token.AudienceXDS)
		if err := k.Err(); err != nil &&
			(len(err.Error()) > 600 || len(key) > 20 && strings.Contains(err.Error(), string(key))) {
			t.Fatalf("error %v", err)
		}
		if _, err := k.Verify("a.b.c", token.AudienceXDS); err == nil {
			t.Fatal("accepted")
		}
	})
}
