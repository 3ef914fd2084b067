package sign

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
)

func testKey(n byte) Signer {
	return Key(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, ed25519.SeedSize)))
}

func TestVerify(t *testing.T) {
	k, content := testKey(1), []byte("content")
	s, err := Make(k, "domain", content)
	if err != nil || len(s) != Size {
		t.Fatalf("signature of %d bytes, %v", len(s), err)
	}
	pub, err := Verify("domain", content, s)
	if err != nil || !pub.Equal(k.Public()) || Claimed(s) != Fingerprint(pub) {
		t.Fatalf("key %x, %v", pub, err)
	}
	stolen := append(bytes.Clone(testKey(2).Public()), s[ed25519.PublicKeySize:]...)
	for name, x := range map[string]struct {
		domain    string
		content   string
		signature []byte
		want      error
	}{
		"other domain":        {"other", "content", s, ErrInvalid},
		"domain with content": {"domain\x00c", "ontent", s, ErrInvalid},
		"other content":       {"domain", "Content", s, ErrInvalid},
		"longer content":      {"domain", "content ", s, ErrInvalid},
		"none":                {"domain", "content", nil, ErrSize},
		"truncated":           {"domain", "content", s[:Size-1], ErrSize},
		"longer":              {"domain", "content", append(bytes.Clone(s), 0), ErrSize},
		"other key":           {"domain", "content", stolen, ErrInvalid},
		"changed":             {"domain", "content", append(bytes.Clone(s[:Size-1]), s[Size-1]^1), ErrInvalid},
	} {
		if _, err := Verify(x.domain, []byte(x.content), x.signature); !errors.Is(err, x.want) {
			t.Errorf("%s: %v, want %v", name, err, x.want)
		}
	}
}

// TestVerifyRefusesWeakKeys uses the neutral element as key: the equation of ed25519 then holds for
// every content.
func TestVerifyRefusesWeakKeys(t *testing.T) {
	one := make([]byte, 32)
	one[0] = 1
	s := append(append(bytes.Clone(one), one...), make([]byte, 32)...)
	if !ed25519.Verify(one, []byte("anything"), s[32:]) {
		t.Fatal("the signature fits no content")
	}
	if _, err := Verify("domain", []byte("anything"), s); !errors.Is(err, ErrWeak) {
		t.Error(err)
	}
	for _, y := range smallOrder {
		b, err := hex.DecodeString(y)
		if err != nil || len(b) != ed25519.PublicKeySize || !weak(b) {
			t.Errorf("%s: %v", y, err)
		}
	}
	if weak(testKey(1).Public()) {
		t.Error("a good key is weak")
	}
}

type broken struct {
	Signer
	size int
	err  error
}

func (b broken) Sign([]byte) ([]byte, error) { return make([]byte, b.size), b.err }

func TestMakeFails(t *testing.T) {
	gone := errors.New("the agent has stopped")
	if _, err := Make(broken{testKey(1), 64, gone}, "d", nil); !errors.Is(err, gone) {
		t.Error(err)
	}
	if _, err := Make(broken{testKey(1), 63, nil}, "d", nil); err == nil || !strings.Contains(err.Error(), "63 bytes") {
		t.Error(err)
	}
}

// TestFingerprint checks that a key keeps its ID: nodes and trust files name keys by it.
func TestFingerprint(t *testing.T) {
	id := Fingerprint(testKey(1).Public())
	if id.String() != "70151c38a81befda68689d2f9a4d2aa7" {
		t.Errorf("fingerprint %s", id)
	}
	if got, err := ParseID(id.String()); got != id || err != nil {
		t.Errorf("%s, %v", got, err)
	}
	for _, s := range []string{"", "00", strings.Repeat("0", 31), strings.Repeat("x", 32), strings.Repeat("0", 34)} {
		if _, err := ParseID(s); err == nil {
			t.Errorf("%q was parsed", s)
		}
	}
}

// FuzzVerify checks that no signature makes Verify panic, and that a valid one is valid only for
// its content.
func FuzzVerify(f *testing.F) {
	s, err := Make(testKey(1), "domain", []byte("content"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add("domain", []byte("content"), s)
	f.Add("", []byte(nil), []byte(nil))
	f.Add("domain", []byte("content"), make([]byte, Size))
	f.Fuzz(func(t *testing.T, domain string, content, signature []byte) {
		pub, err := Verify(domain, content, signature)
		if err != nil {
			return
		}
		if Claimed(signature) != Fingerprint(pub) {
			t.Error("the signature is by another key than it claims")
		}
		if _, err := Verify(domain, append(bytes.Clone(content), 1), signature); err == nil {
			t.Error("the signature fits two contents")
		}
		signature = bytes.Clone(signature)
		signature[Size-1] ^= 0x20
		if _, err := Verify(domain, content, signature); err == nil {
			t.Error("a changed signature is valid")
		}
	})
}

func BenchmarkMake(b *testing.B) {
	k, content := testKey(1), make([]byte, 1000)
	for b.Loop() {
		if _, err := Make(k, "domain", content); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	content := make([]byte, 1000)
	s, err := Make(testKey(1), "domain", content)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := Verify("domain", content, s); err != nil {
			b.Fatal(err)
		}
	}
}
