package identity_test

import (
	"bytes"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// TestProvided checks authorities that the operator provides.
func TestProvided(t *testing.T) {
	w := newWorld(t)
	until := w.now.Add(8 * 365 * 24 * time.Hour)
	root := newOwn(t, "root", until, nil, nil)
	mid := newOwn(t, "mid", until, &root, nil)
	ca := newOwn(t, "ca", until, &mid, nil)
	big := newRSA(t, 2048, until)
	for name, o := range map[string]own{"root": root, "intermediate": ca, "rsa": big} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := w.ask("default", provided(&resource.DataSource{Inline: o.pem},
				&resource.DataSource{InlineString: string(o.keyPEM(t))}), "web", "backend")
			w.trusts(s["web"], s["backend"])
			c := leaf(t, s["web"])
			if err := c.CheckSignatureFrom(o.cert); err != nil || c.NotAfter.Sub(w.now) != 24*time.Hour {
				t.Errorf("signed by %v until %v: %v", c.Issuer, c.NotAfter, err)
			}
			// A peer that trusts only the root follows the chain.
			pool, between := x509.NewCertPool(), x509.NewCertPool()
			pool.AddCert(root.cert)
			pool.AddCert(big.cert)
			between.AppendCertsFromPEM(s["web"].Certificate())
			if _, err := c.Verify(x509.VerifyOptions{Roots: pool, Intermediates: between, CurrentTime: w.now,
				KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
				t.Error(err)
			}
			if want := blocks(o.pem); blocks(s["web"].Authorities()) != want || len(w.warn) > 0 {
				t.Errorf("%d certificates are trusted, want %d; warnings %q", blocks(s["web"].Authorities()), want, w.warn)
			}
			if list, err := filepath.Glob(w.file("ca-*")); err != nil || len(list) > 0 {
				t.Errorf("the key of somebody else is written: %v, %v", list, err)
			}
		})
	}
}

// TestProvidedFaults checks that each error names the field, the fault, and the remedy.
func TestProvidedFaults(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	until := now.Add(8 * 365 * 24 * time.Hour)
	good, other := newOwn(t, "good", until, nil, nil), newOwn(t, "other", until, nil, nil)
	inline := func(o own) (*resource.DataSource, *resource.DataSource) {
		return &resource.DataSource{Inline: o.pem}, &resource.DataSource{Inline: o.keyPEM(t)}
	}
	cert, key := inline(good)
	_, otherKey := inline(other)
	dir := t.TempDir()
	open := filepath.Join(dir, "open.pem")
	if err := os.WriteFile(open, good.keyPEM(t), 0o644); err != nil {
		t.Fatal(err)
	}
	group := filepath.Join(dir, "group.pem")
	if err := os.WriteFile(group, good.keyPEM(t), 0o640); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	with := func(end time.Time, edit func(*x509.Certificate)) (*resource.DataSource, *resource.DataSource) {
		return inline(newOwn(t, "x", end, nil, edit))
	}
	notCA, notCAKey := with(until, func(c *x509.Certificate) { c.IsCA = false })
	noSign, noSignKey := with(until, func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageCRLSign })
	agree, agreeKey := with(until, func(c *x509.Certificate) { c.KeyUsage |= x509.KeyUsageKeyAgreement })
	expired, expiredKey := with(now.Add(-time.Second), nil)
	future, futureKey := with(now.Add(20*365*24*time.Hour), nil)
	small, smallKey := inline(newRSA(t, 1024, until))
	for want, c := range map[string][2]*resource.DataSource{
		"conf.cert and conf.key are not a certificate and its key":                   {cert, otherKey},
		"conf.cert: the certificate is not an authority's":                           {notCA, notCAKey},
		"conf.cert: the certificate cannot sign others":                              {noSign, noSignKey},
		"the key usage keyAgreement":                                                 {agree, agreeKey},
		"conf.cert: the certificate expired at 2026-03-01T11:59:59Z":                 {expired, expiredKey},
		"conf.cert: the certificate is not valid before ":                            {future, futureKey},
		"conf.cert: the RSA key has 1024 bits: create one with at least 2048":        {small, smallKey},
		`conf.key: the secret "s" cannot be read: this agent stores no secrets; use`: {cert, {Secret: "s"}},
		"conf.cert: stat /does/not/exist":                                            {{File: "/does/not/exist"}, key},
		"open.pem is accessible to users other than its owner (mode 0644)":           {cert, {File: open}},
		"group.pem is accessible to users other than its owner (mode 0640)":          {cert, {File: group}},
		"not a regular file; replace it by a regular file":                           {cert, {File: fifo}},
		"conf.cert and conf.key are missing":                                         {nil, nil},
	} {
		w := newWorld(t)
		_, err := w.try("default", provided(c[0], c[1]), "web")
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "mtls.backends[0] (own): ") {
			t.Errorf("got %v, want %q", err, want)
		}
		if err != nil && (strings.Contains(err.Error(), "PRIVATE") || len(err.Error()) > 400) {
			t.Errorf("the error shows too much: %v", err)
		}
	}
	// A faulty backend that is listed but not enabled only loses its trust.
	w := newWorld(t)
	m := provided(cert, key)
	m.Backends = append(m.Backends, resource.MTLSBackend{Name: "bad", Type: resource.BackendProvided,
		Conf: &resource.MTLSConf{Cert: cert, Key: keyOf(otherKey)}})
	w.one(m)
	if !strings.Contains(w.warned(), "mtls.backends[1] (bad): ") || len(w.warn) != 1 {
		t.Errorf("got warnings %q", w.warn)
	}
}

// TestProvidedFiles checks that changed files are read and that the two authorities overlap.
func TestProvidedFiles(t *testing.T) {
	w := newWorld(t)
	until := w.now.Add(8 * 365 * 24 * time.Hour)
	dir := t.TempDir()
	m := provided(&resource.DataSource{File: filepath.Join(dir, "cert")},
		&resource.DataSource{File: filepath.Join(dir, "key")})
	put := func(o own, key []byte) {
		t.Helper()
		for name, b := range map[string][]byte{"cert": o.pem, "key": key} {
			if err := errors.Join(os.WriteFile(filepath.Join(dir, name+".new"), b, 0o600),
				os.Rename(filepath.Join(dir, name+".new"), filepath.Join(dir, name))); err != nil {
				t.Fatal(err)
			}
		}
	}
	a, b := newOwn(t, "a", until, nil, nil), newOwn(t, "b", until, nil, nil)
	put(a, a.keyPEM(t))
	first := w.one(m)
	if got := w.next.Sub(w.now); got != time.Minute {
		t.Fatalf("the files are looked at again after %v", got)
	}

	put(b, []byte("half a key"))
	w.now = w.next
	if w.one(m) != first || !strings.Contains(w.warned(), "the previous authority remains in force") {
		t.Errorf("with a broken file: warnings %q", w.warn)
	}
	put(b, b.keyPEM(t))
	w.now = w.next
	trusted := w.one(m)
	if blocks(trusted.Authorities()) != 2 || !bytes.Equal(trusted.Certificate(), first.Certificate()) || len(w.warn) != 0 {
		t.Errorf("the new one is not trusted before it signs; warnings %q", w.warn)
	}
	w.now = w.next
	signed := w.one(m)
	if err := leaf(t, signed).CheckSignatureFrom(b.cert); err != nil {
		t.Errorf("the new one does not sign: %v", err)
	}
	w.trusts(trusted, signed)
	w.trusts(signed, trusted)
	w.now = w.now.Add(10 * time.Minute)
	if s := w.one(m); blocks(s.Authorities()) != 1 {
		t.Error("the one that was replaced is trusted still")
	}
	// Near the expiry there is a warning.
	w.now = until.Add(-time.Hour)
	s := w.one(m)
	if c := leaf(t, s); !c.NotAfter.Equal(until) || !strings.Contains(w.warned(), "expires at") {
		t.Errorf("valid until %v, beyond its authority; warnings %q", c.NotAfter, w.warn)
	}
	w.now = until
	if _, err := w.try("default", m, "web"); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("after the end: %v", err)
	}
}
