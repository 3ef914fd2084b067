package secrettest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"
)

// Leaks searches data for known secrets. It finds any 24 characters of a key in PEM, base64, hex,
// or fmt's decimal form of bytes, and any 16 raw bytes. Only the private part of a key counts. The
// zero value has no secrets. Leaks is not safe for concurrent use.
type Leaks struct {
	parts map[int]*parts // by length
}

// parts holds substrings of one length.
type parts struct {
	names map[string]string // name of the secret by substring
	maybe [1 << 16]bool     // by mark: false if no substring has this mark, for a fast check
}

// mark returns a hash of four bytes of a text.
func mark[T string | []byte](text T) uint16 {
	n := len(text)
	four := uint32(text[0]) | uint32(text[n/3])<<8 | uint32(text[2*n/3])<<16 | uint32(text[n-1])<<24
	return uint16(four * 0x9e3779b1 >> 16)
}

const (
	textPart = 24 // characters
	rawPart  = 16 // bytes
)

// Text adds a text. If it is shorter than textPart, only the whole text counts as a leak.
func (l *Leaks) Text(name, text string) { l.add(name, text, textPart) }

func (l *Leaks) add(name, text string, n int) {
	n = min(n, len(text))
	if n == 0 {
		return
	}
	if l.parts == nil {
		l.parts = map[int]*parts{}
	}
	if l.parts[n] == nil {
		l.parts[n] = &parts{names: map[string]string{}}
	}
	for i := 0; i+n <= len(text); i++ {
		piece := text[i : i+n]
		l.parts[n].names[piece] = name
		l.parts[n].maybe[mark(piece)] = true
	}
}

// Key adds the first private key of a PEM text. It fails the test if there is none.
func (l *Leaks) Key(tb testing.TB, name string, text []byte) {
	tb.Helper()
	if !l.pem(name, text) {
		tb.Fatalf("%s: there is no ECDSA or RSA key in PEM", name)
	}
}

// pem adds the first private key of a PEM text and reports whether there is one.
func (l *Leaks) pem(name string, text []byte) bool {
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return false
		}
		key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			key, _ = x509.ParseECPrivateKey(block.Bytes)
		}
		switch key := key.(type) {
		case *ecdsa.PrivateKey:
			if key != nil && l.scalar(name, key, block) {
				return true
			}
		case *rsa.PrivateKey:
			l.add(name+" (raw)", string(key.D.Bytes()), rawPart)
			l.add(name+" (raw)", string(key.Primes[0].Bytes()), rawPart)
			body := base64.StdEncoding.EncodeToString(block.Bytes)
			l.Text(name+" (base64)", body[len(body)/2:]) // after the public half
			return true
		}
	}
}

// scalar adds the private number of a key in all its forms.
func (l *Leaks) scalar(name string, key *ecdsa.PrivateKey, block *pem.Block) bool {
	d, err := key.Bytes()
	if err != nil {
		return false
	}
	l.add(name+" (raw)", string(d), rawPart)
	l.Text(name+" (hex)", hex.EncodeToString(d))
	l.Text(name+" (hex)", strings.ToUpper(hex.EncodeToString(d)))
	l.Text(name+" (numbers)", strings.Trim(fmt.Sprint(d), "[]"))
	l.Text(name+" (numbers)", strings.ReplaceAll(strings.Trim(fmt.Sprintf("%#v", d), "[]byte{}"), ", ", ","))
	l.Text(name+" (decimal)", new(big.Int).SetBytes(d).String())
	sec1, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return false
	}
	text := pem.EncodeToMemory(block)
	for form, whole := range map[string][]byte{"alone": d, "in PKCS #8": block.Bytes, "in SEC 1": sec1} {
		at := bytes.Index(whole, d)
		for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
			l.Text(name+" (base64 "+form+")", enc.EncodeToString(whole)[(at+2)/3*4:(at+len(d))/3*4])
		}
	}
	// Also add the base64 encoding of the PEM text, with its line breaks. The key follows a
	// certificate whose length varies, so it can start at any of the three offsets in a base64
	// group.
	const perLine = 64
	at := bytes.Index(block.Bytes, d)
	position := func(i int) int { return bytes.IndexByte(text, '\n') + 1 + i + i/perLine }
	from, to := position((at+2)/3*4), position((at+len(d))/3*4)
	for before := range 3 {
		shifted := base64.StdEncoding.EncodeToString(append(make([]byte, before), text...))
		l.Text(name+" (base64 of PEM)", shifted[(from+before+2)/3*4:(to+before)/3*4])
	}
	return true
}

// In returns the name of a secret that occurs in data, with the matching part, or "" if there is
// none.
func (l *Leaks) In(data []byte) string {
	for n, parts := range l.parts {
		for i := 0; i+n <= len(data); i++ {
			if !parts.maybe[mark(data[i:i+n])] {
				continue
			}
			if name, ok := parts.names[string(data[i:i+n])]; ok {
				return fmt.Sprintf("%s at byte %d: %q", name, i, data[max(0, i-60):min(len(data), i+n+20)])
			}
		}
	}
	return ""
}

// Authority creates a CA certificate with a key, both in PEM format.
func Authority(tb testing.TB, name string) (cert, key []byte) {
	tb.Helper()
	return AuthorityOf(tb, name, time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour))
}

// AuthorityOf creates a CA certificate with a validity period.
func AuthorityOf(tb testing.TB, name string, from, until time.Time) (cert, key []byte) {
	tb.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	t := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: from, NotAfter: until,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, private.Public(), private)
	if err != nil {
		tb.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		tb.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})
}
