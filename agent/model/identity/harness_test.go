package identity_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"path/filepath"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/identity"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/secret"
)

// world is a keeper with its directory and clock.
type world struct {
	t    *testing.T
	dir  string
	now  time.Time
	k    *identity.Keeper
	log  bytes.Buffer
	gone map[string]bool // dataplanes
	next time.Time
	warn []string
	mesh map[string]*resource.MTLS
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, dir: filepath.Join(t.TempDir(), "identity"), now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
		gone: map[string]bool{}, mesh: map[string]*resource.MTLS{}}
	w.start()
	return w
}

// start simulates a restart of the agent.
func (w *world) start() {
	w.k = identity.Open(identity.Options{Dir: w.dir, Now: func() time.Time { return w.now },
		Log: slog.New(slog.NewTextHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
}

// builtin returns a mesh with builtin backends. The first one is enabled.
func builtin(names ...string) *resource.MTLS {
	m := &resource.MTLS{EnabledBackend: names[0]}
	for _, n := range names {
		m.Backends = append(m.Backends, resource.MTLSBackend{Name: n, Type: resource.BackendBuiltin})
	}
	return m
}

func tags(service string) map[string][]string {
	return map[string][]string{resource.TagService: {service}, "team": {"front"}, resource.TagZone: {"east"}}
}

// ask runs one pass over the meshes. The proxies have the names of their services.
func (w *world) ask(mesh string, m *resource.MTLS, names ...string) map[string]*identity.Secrets {
	w.t.Helper()
	out, err := w.try(mesh, m, names...)
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

func (w *world) try(mesh string, m *resource.MTLS, names ...string) (map[string]*identity.Secrets, error) {
	w.mesh[mesh] = m
	w.k.Begin()
	defer func() {
		w.next = w.k.End(func(mesh, dataplane string) bool { return !w.gone[dataplane] })
	}()
	for n, m := range w.mesh {
		warn, err := w.k.Mesh(n, m)
		if n != mesh {
			continue
		}
		w.warn = warn
		if err != nil && len(names) == 0 {
			return nil, err
		}
	}
	out := map[string]*identity.Secrets{}
	for _, n := range names {
		s, err := w.k.Proxy(mesh, n, tags(n))
		if err != nil {
			return nil, err
		}
		out[n] = s
	}
	return out, nil
}

func (w *world) one(m *resource.MTLS) *identity.Secrets { return w.ask("default", m, "web")["web"] }

// leaf parses a proxy's certificate, and checks that it matches the key.
func leaf(t *testing.T, s *identity.Secrets) *x509.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(s.Certificate(), s.Key())
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// believes returns the reason why a proxy rejects the certificate of another one.
func (w *world) believes(s, peer *identity.Secrets) error {
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM(s.Authorities())
	between.AppendCertsFromPEM(peer.Certificate())
	_, err := leaf(w.t, peer).Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: w.now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	return err
}

func (w *world) trusts(s, peer *identity.Secrets) {
	w.t.Helper()
	if err := w.believes(s, peer); err != nil {
		w.t.Errorf("a proxy is not believed at %v: %v", w.now, err)
	}
}

func blocks(b []byte) int { return bytes.Count(b, []byte("BEGIN CERTIFICATE")) }

// own is an authority that an organization runs itself.
type own struct {
	cert *x509.Certificate
	key  any
	pem  []byte // certificate and chain
}

func (o own) keyPEM(t *testing.T) []byte {
	der, err := x509.MarshalPKCS8PrivateKey(o.key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// newOwn returns a root, or with a parent an intermediate authority.
func newOwn(t *testing.T, name string, until time.Time, parent *own, edit func(*x509.Certificate)) own {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return sign(t, name, until, parent, k, k.Public(), edit)
}

func newRSA(t *testing.T, bits int, until time.Time) own {
	t.Helper()
	k, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		t.Fatal(err)
	}
	return sign(t, "rsa", until, nil, k, k.Public(), nil)
}

func sign(t *testing.T, name string, until time.Time, parent *own, key, public any, edit func(*x509.Certificate)) own {
	t.Helper()
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: until.Add(-10 * 365 * 24 * time.Hour), NotAfter: until,
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	if edit != nil {
		edit(c)
	}
	by, with := c, key
	if parent != nil {
		by, with = parent.cert, parent.key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, by, public, with)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	out := own{cert: cert, key: key, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
	if parent != nil {
		out.pem = append(out.pem, parent.pem...)
	}
	return out
}

// keyOf returns the key source that corresponds to a data source.
func keyOf(d *resource.DataSource) *resource.KeySource {
	if d == nil {
		return nil
	}
	return &resource.KeySource{Secret: d.Secret, File: d.File, Inline: secret.NewBytes(d.Inline),
		InlineString: secret.NewText(d.InlineString)}
}

func provided(cert, key *resource.DataSource) *resource.MTLS {
	return &resource.MTLS{EnabledBackend: "own", Backends: []resource.MTLSBackend{
		{Name: "own", Type: resource.BackendProvided, Conf: &resource.MTLSConf{Cert: cert, Key: keyOf(key)}},
	}}
}
