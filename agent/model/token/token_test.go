package token_test

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"

	"github.com/nearside-mesh/nearside/agent/model/token"
)

// web returns the claims that most tests use.
func web() token.Claims {
	return token.Claims{Subject: "default.web", Mesh: "default", Name: "web-*", Services: []string{"web", "web_*"},
		Audience: token.AudienceXDS}
}

// clock is a settable clock.
type clock struct{ t time.Time }

func (c *clock) now() time.Time          { return c.t }
func (c *clock) advance(d time.Duration) { c.t = c.t.Add(d) }
func newClock() *clock                   { return &clock{time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

// open returns keys in a new directory.
func open(t testing.TB, c *clock) (*token.Keys, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state", token.Dir)
	return token.Open(dir, nil, c.now), dir
}

func create(t testing.TB, k *token.Keys, c token.Claims, validFor time.Duration) string {
	t.Helper()
	text, err := k.Create(c, validFor)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// wantReason checks the reason for rejecting a token, and that the message contains no piece of the
// token.
func wantReason(t *testing.T, err error, text string, want token.Reason) {
	t.Helper()
	var refused *token.Error
	if !errors.As(err, &refused) {
		t.Fatalf("error %v, want a *token.Error that says %s", err, want)
	}
	if refused.Reason != want {
		t.Errorf("reason %s (%v), want %s", refused.Reason, err, want)
	}
	checkMessage(t, err, text)
}

func checkMessage(t *testing.T, err error, text string) {
	t.Helper()
	for piece := range strings.SplitSeq(text, ".") {
		if len(piece) > 8 && strings.Contains(err.Error(), piece) {
			t.Errorf("the message holds a piece of the token: %v", err)
		}
	}
	if len(err.Error()) > 400 || strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' || r == 0x7f }) {
		t.Errorf("the message is long or has control characters: %q", err)
	}
}

// signingKey reads the signing key, to sign tokens that Create does not produce.
func signingKey(t testing.TB, k *token.Keys, dir string) (ed25519.PrivateKey, string) {
	t.Helper()
	list, err := k.List()
	if err != nil || len(list) == 0 {
		t.Fatalf("no keys: %v", err)
	}
	data, err := os.ReadFile(filepath.Join(dir, list[0].ID+".pem"))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(data)
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return key.(ed25519.PrivateKey), list[0].ID
}

func TestCreateAndVerify(t *testing.T) {
	c := newClock()
	k, _ := open(t, c)
	for name, want := range map[string]token.Claims{
		"xds":    web(),
		"api":    {Subject: "ci@example.org", Audience: token.AudienceAPI},
		"egress": {Subject: "egress.*", Name: "egress.*", Audience: token.AudienceXDS},
	} {
		t.Run(name, func(t *testing.T) {
			text := create(t, k, want, time.Hour)
			got, err := k.Verify(text, want.Audience)
			if err != nil {
				t.Fatal(err)
			}
			if len(got.ID) != 32 || got.KeyID == "" {
				t.Errorf("id %q, key %q", got.ID, got.KeyID)
			}
			want.ID, want.KeyID = got.ID, got.KeyID
			want.Issued, want.NotBefore, want.Expires = c.t, c.t, c.t.Add(time.Hour)
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
			if read, err := token.Decode(text); err != nil || !cmp.Equal(read, got) {
				t.Errorf("Decode: %+v, %v", read, err)
			}
			if len(text) > 700 {
				t.Errorf("the token has %d bytes", len(text))
			}
		})
	}
}

func TestNodeIDs(t *testing.T) {
	for want, c := range map[string]token.Claims{
		"default.web-*": web(),
		".egress.out":   {Name: "egress.out", Audience: token.AudienceXDS},
		"":              {Audience: token.AudienceAPI},
	} {
		if got := c.NodeIDs(); got != want {
			t.Errorf("%+v: %q, want %q", c, got, want)
		}
	}
}

func TestCreateRefuses(t *testing.T) {
	k, dir := open(t, newClock())
	for name, c := range map[string]struct {
		edit func(*token.Claims)
		want string
	}{
		"no subject":     {func(c *token.Claims) { c.Subject = "" }, "subject"},
		"escape":         {func(c *token.Claims) { c.Subject = "a\x1b[2J" }, `\x1b`},
		"mesh with dot":  {func(c *token.Claims) { c.Mesh = "a.b" }, `mesh "a.b"`},
		"mesh glob":      {func(c *token.Claims) { c.Mesh = "*" }, `mesh "*"`},
		"no mesh":        {func(c *token.Claims) { c.Mesh = "" }, "mesh: required"},
		"no name":        {func(c *token.Claims) { c.Name = "" }, "name"},
		"capital":        {func(c *token.Claims) { c.Name = "Web" }, `name "Web"`},
		"egress alone":   {func(c *token.Claims) { c.Mesh, c.Name = "", "egress." }, "mesh: required"},
		"empty service":  {func(c *token.Claims) { c.Services = []string{""} }, "service"},
		"many services":  {func(c *token.Claims) { c.Services = make([]string, 65) }, "65 globs"},
		"no audience":    {func(c *token.Claims) { c.Audience = "" }, "audience"},
		"other audience": {func(c *token.Claims) { c.Audience = "x" }, token.AudienceXDS},
		"API with mesh":  {func(c *token.Claims) { c.Audience = token.AudienceAPI }, "give its subject a role"},
	} {
		t.Run(name, func(t *testing.T) {
			claims := web()
			c.edit(&claims)
			_, err := k.Create(claims, time.Hour)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
	for _, d := range []time.Duration{-time.Hour, 0, time.Millisecond, token.MaxValidity + time.Second} {
		if _, err := k.Create(web(), d); err == nil {
			t.Errorf("valid for %s", d)
		}
	}
	big := web()
	for range 62 {
		big.Services = append(big.Services, strings.Repeat("s", 253))
	}
	if _, err := k.Create(big, time.Hour); err == nil || !strings.Contains(err.Error(), "8192") {
		t.Errorf("a huge token: %v", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) > 1 {
		t.Errorf("refused tokens left %v", entries)
	}
}

// TestVerifyRefuses checks that each token is rejected for its reason, with a valid or invalid
// signature.
func TestVerifyRefuses(t *testing.T) {
	c := newClock()
	k, dir := open(t, c)
	good := create(t, k, web(), time.Hour)
	key, kid := signingKey(t, k, dir)
	public := key.Public().(ed25519.PublicKey)
	body := jwt.MapClaims{"jti": "0", "sub": "default.web", "aud": token.AudienceXDS, "mesh": "default", "name": "web-*",
		"iat": c.t.Unix(), "nbf": c.t.Unix(), "exp": c.t.Add(time.Hour).Unix()}
	sign := func(method jwt.SigningMethod, key any, header, claims map[string]any) string {
		b := maps.Clone(body)
		for name, v := range claims {
			if b[name] = v; v == nil {
				delete(b, name)
			}
		}
		tok := jwt.NewWithClaims(method, b)
		tok.Header["kid"] = kid
		for name, v := range header {
			if tok.Header[name] = v; v == nil {
				delete(tok.Header, name)
			}
		}
		text, err := tok.SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	eddsa := func(header, claims map[string]any) string {
		return sign(jwt.SigningMethodEdDSA, key, header, claims)
	}
	if _, err := k.Verify(eddsa(nil, nil), token.AudienceXDS); err != nil {
		t.Fatalf("the token that the others differ from: %v", err)
	}
	parts := strings.Split(good, ".")
	der, _ := x509.MarshalPKIXPublicKey(public)
	spki := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	_, foreign, _ := ed25519.GenerateKey(nil)
	cut := func(s string, n int) string { return s[:len(s)-n] }
	other := func(s string) string { // changes a character in the middle
		b := []byte(s)
		if b[len(b)/2] == 'A' {
			b[len(b)/2] = 'B'
		} else {
			b[len(b)/2] = 'A'
		}
		return string(b)
	}
	for name, c := range map[string]struct {
		text string
		want token.Reason
	}{
		"none": {sign(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, nil, nil),
			token.Algorithm},
		"none with a signature":   {eddsaHeader(t, "none", kid) + "." + parts[1] + "." + parts[2], token.Algorithm},
		"HS256 by the public key": {sign(jwt.SigningMethodHS256, []byte(public), nil, nil), token.Algorithm},
		"HS256 by its PEM":        {sign(jwt.SigningMethodHS256, spki, nil, nil), token.Algorithm},
		"HS512":                   {sign(jwt.SigningMethodHS512, []byte(public), nil, nil), token.Algorithm},
		"another case":            {eddsaHeader(t, "eddsa", kid) + "." + parts[1] + "." + parts[2], token.Algorithm},
		"two algorithms": {encode(`{"alg":"none","ALG":"EdDSA","kid":"`+kid+`"}`) + "." + parts[1] + "." + parts[2],
			token.BadSignature},
		"crit":            {eddsa(map[string]any{"crit": []string{"b64"}}, nil), token.Malformed},
		"empty crit":      {eddsa(map[string]any{"crit": []string{}}, nil), token.Malformed},
		"no kid":          {eddsa(map[string]any{"kid": nil}, nil), token.Malformed},
		"kid is a number": {eddsa(map[string]any{"kid": 1}, nil), token.Malformed},
		"kid of a file":   {eddsa(map[string]any{"kid": "../../etc/passwd"}, nil), token.UnknownKey},
		"kid with an escape": {eddsa(map[string]any{"kid": "\x1b[2J\n" + strings.Repeat("k", 200)}, nil),
			token.UnknownKey},
		"unknown kid":         {eddsa(map[string]any{"kid": "20200101-000000-00000000"}, nil), token.UnknownKey},
		"another key":         {sign(jwt.SigningMethodEdDSA, foreign, nil, nil), token.BadSignature},
		"changed claims":      {parts[0] + "." + eddsaBody(t, body, "name", "*") + "." + parts[2], token.BadSignature},
		"changed signature":   {parts[0] + "." + parts[1] + "." + other(parts[2]), token.BadSignature},
		"audience of the API": {eddsa(nil, map[string]any{"aud": token.AudienceAPI}), token.WrongAudience},
		"two audiences": {eddsa(nil, map[string]any{"aud": []string{token.AudienceXDS, token.AudienceAPI}}),
			token.Malformed},
		"services are a number": {eddsa(nil, map[string]any{"services": 1}), token.Malformed},
		"audience with an escape": {eddsa(nil, map[string]any{"aud": "\x1b[2J" + strings.Repeat("a", 900)}),
			token.WrongAudience},
		"no audience":          {eddsa(nil, map[string]any{"aud": nil}), token.Malformed},
		"audience is a number": {eddsa(nil, map[string]any{"aud": 1}), token.Malformed},
		"expired":              {eddsa(nil, map[string]any{"exp": c.t.Unix()}), token.Expired},
		"expired and forged": {sign(jwt.SigningMethodEdDSA, foreign, nil, map[string]any{"exp": c.t.Unix() - 1}),
			token.Expired},
		"no expiry":                 {eddsa(nil, map[string]any{"exp": nil}), token.Malformed},
		"expiry is a text":          {eddsa(nil, map[string]any{"exp": "never"}), token.Malformed},
		"not yet":                   {eddsa(nil, map[string]any{"nbf": c.t.Unix() + 31}), token.NotYetValid},
		"issued in the future":      {eddsa(nil, map[string]any{"iat": c.t.Unix() + 31}), token.NotYetValid},
		"no id":                     {eddsa(nil, map[string]any{"jti": nil}), token.Malformed},
		"no mesh":                   {eddsa(nil, map[string]any{"mesh": nil}), token.Malformed},
		"no name":                   {eddsa(nil, map[string]any{"name": nil}), token.Malformed},
		"huge":                      {parts[0] + "." + strings.Repeat("A", 1<<20) + "." + parts[2], token.Malformed},
		"huge header":               {strings.Repeat("A", 600) + "." + parts[1] + "." + parts[2], token.Malformed},
		"deep header":               {encode(strings.Repeat("[", 300)) + "." + parts[1] + "." + parts[2], token.Malformed},
		"empty":                     {"", token.Malformed},
		"dots":                      {"..", token.Malformed},
		"four parts":                {good + ".x", token.Malformed},
		"two parts":                 {parts[0] + "." + parts[1], token.Malformed},
		"cut":                       {cut(good, 1), token.Malformed},
		"with a line end":           {good + "\n", token.Malformed},
		"with the scheme":           {"Bearer " + good, token.Malformed},
		"header is null":            {encode("null") + "." + parts[1] + "." + parts[2], token.Malformed},
		"claims are null":           {eddsaRaw(t, key, kid, "null"), token.Malformed},
		"claims are a list":         {eddsaRaw(t, key, kid, "[1]"), token.Malformed},
		"expiry beyond all numbers": {eddsaRaw(t, key, kid, `{"aud":"nearside-xds","jti":"0","exp":1e400}`), token.Malformed},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := k.Verify(c.text, token.AudienceXDS)
			if err == nil {
				t.Fatalf("accepted: %+v", got)
			}
			wantReason(t, err, c.text, c.want)
			if got.Name != "" || got.ID != "" {
				t.Errorf("claims of a refused token: %+v", got)
			}
		})
	}
}

// TestLeeway checks that a clock that is 30 s ahead causes no rejection, and that expiry is exact
// to the second.
func TestLeeway(t *testing.T) {
	c := newClock()
	k, _ := open(t, c)
	text := create(t, k, web(), time.Minute)
	for _, step := range []struct {
		at   time.Duration
		want token.Reason
	}{
		{-31 * time.Second, token.NotYetValid}, {-30 * time.Second, ""}, {59 * time.Second, ""}, {time.Minute, token.Expired},
	} {
		c.t = newClock().t.Add(step.at)
		_, err := k.Verify(text, token.AudienceXDS)
		if step.want == "" && err != nil {
			t.Errorf("at %s: %v", step.at, err)
		} else if step.want != "" {
			wantReason(t, err, text, step.want)
		}
	}
}

func TestBearer(t *testing.T) {
	for header, want := range map[string]string{
		"Bearer abc":            "abc",
		"bearer abc":            "abc",
		"Basic abc":             "",
		"Bearer":                "",
		"Bearer ":               "",
		"":                      "",
		"Bearer abc|Bearer abc": "",
	} {
		if got, ok := token.Bearer(strings.Split(header, "|")); ok != (want != "") || ok && got != want {
			t.Errorf("%q: %q, %v", header, got, ok)
		}
	}
	if _, ok := token.Bearer(nil); ok {
		t.Error("no header has a token")
	}
}

func encode(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

func encodeJSON(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

func eddsaHeader(t testing.TB, alg, kid string) string {
	return encodeJSON(t, map[string]string{"alg": alg, "kid": kid, "typ": "JWT"})
}

func eddsaBody(t testing.TB, body jwt.MapClaims, name string, value any) string {
	b := maps.Clone(body)
	b[name] = value
	return encodeJSON(t, b)
}

// eddsaRaw signs any text as claims.
func eddsaRaw(t testing.TB, key ed25519.PrivateKey, kid, claims string) string {
	text := eddsaHeader(t, "EdDSA", kid) + "." + encode(claims)
	return text + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(key, []byte(text)))
}
