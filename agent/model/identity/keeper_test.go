package identity_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nearside-mesh/nearside/agent/model/identity"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// TestCertificate checks the certificate of a proxy as its peers do.
func TestCertificate(t *testing.T) {
	w := newWorld(t)
	got := w.ask("default", builtin("ca-1"), "web", "backend")
	c := leaf(t, got["web"])
	var names []string
	for _, u := range c.URIs {
		names = append(names, u.String())
	}
	want := []string{"spiffe://default/web", "kuma://kuma.io/service/web", "kuma://kuma.io/zone/east", "kuma://team/front"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
	if k, ok := c.PublicKey.(*ecdsa.PublicKey); !ok || k.Curve.Params().BitSize != 256 {
		t.Errorf("the key is %T", c.PublicKey)
	}
	if c.IsCA || len(c.Subject.Names) > 0 || c.SerialNumber.BitLen() < 64 ||
		c.SerialNumber.Cmp(leaf(t, got["backend"]).SerialNumber) == 0 {
		t.Errorf("the certificate is not one of a proxy: CA %v, subject %v, serial number %v",
			c.IsCA, c.Subject, c.SerialNumber)
	}
	if from, until := w.now.Sub(c.NotBefore), c.NotAfter.Sub(w.now); from != time.Minute || until != 24*time.Hour {
		t.Errorf("it is valid from %v ago, for %v", from, until)
	}
	w.trusts(got["backend"], got["web"])
	w.trusts(got["web"], got["backend"])
	if want := w.now.Add(24 * time.Hour / 5 * 4); w.next.After(want) || w.next.Before(want.Add(-2*time.Hour)) {
		t.Errorf("the next pass is due at %v, want at most two hours before %v", w.next, want)
	}
}

// TestExpirationIsHonoured checks that certificates have the lifetimes and key sizes of the mesh.
func TestExpirationIsHonoured(t *testing.T) {
	w := newWorld(t)
	m := builtin("ca-1")
	m.Backends[0].Conf = &resource.MTLSConf{CACert: &resource.BuiltinCA{RSABits: 2048, Expiration: "10d"}}
	m.Backends[0].DPCert = &resource.DPCert{Rotation: &resource.Rotation{Expiration: "2d"}}
	s := w.one(m)
	if got := leaf(t, s).NotAfter.Sub(w.now); got != 48*time.Hour {
		t.Errorf("the certificate is valid for %v, want 48h", got)
	}
	block, _ := pem.Decode(s.Authorities())
	root, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if k, ok := root.PublicKey.(*rsa.PublicKey); !ok || k.N.BitLen() != 2048 || root.NotAfter.Sub(w.now) != 240*time.Hour {
		t.Errorf("the authority has a %T and is valid until %v", root.PublicKey, root.NotAfter)
	}
	// A shorter lifetime applies at once, a longer one from the next certificate.
	shorter := builtin("ca-1")
	shorter.Backends[0].DPCert = &resource.DPCert{Rotation: &resource.Rotation{Expiration: "1h"}}
	if got := leaf(t, w.one(shorter)).NotAfter.Sub(w.now); got != time.Hour {
		t.Errorf("after the change the certificate is valid for %v, want 1h", got)
	}
	before := w.one(shorter)
	if w.one(m) != before {
		t.Error("a certificate was replaced because it could be valid for longer")
	}
	tiny := builtin("ca-1")
	tiny.Backends[0].DPCert = &resource.DPCert{Rotation: &resource.Rotation{Expiration: "1s"}}
	if got := leaf(t, w.one(tiny)).NotAfter.Sub(w.now); got != time.Minute || len(w.warn) != 1 ||
		!strings.Contains(w.warn[0], "mtls.backends[0] (ca-1): dpCert.rotation.expiration: 1s") {
		t.Errorf("the least life: got %v and %q", got, w.warn)
	}
}

// TestNothingChangesWithoutAReason checks that each pass returns the same pointer, and a restart
// the same bytes.
func TestNothingChangesWithoutAReason(t *testing.T) {
	w := newWorld(t)
	m := builtin("ca-1", "ca-2")
	first := w.one(m)
	w.now = w.now.Add(time.Hour)
	if w.one(m) != first {
		t.Error("the secrets are another value in the next pass")
	}
	w.start()
	unchanged := w.one(m)
	if !bytes.Equal(first.Certificate(), unchanged.Certificate()) || !bytes.Equal(first.Key(), unchanged.Key()) ||
		!bytes.Equal(first.Authorities(), unchanged.Authorities()) {
		t.Error("a restart changed the secrets")
	}
	// The number of certificates survives restarts.
	for number := 1; number <= 3; number++ {
		if is, ok := w.k.Issued("default", "web"); !ok || is.Number != number {
			t.Errorf("%d certificates were created, want %d", is.Number, number)
		}
		w.now = w.now.Add(24 * time.Hour)
		w.one(m)
		w.start()
		w.one(m)
	}
}

// TestRenewal steps through the life of a certificate at the times when passes are due.
func TestRenewal(t *testing.T) {
	w := newWorld(t)
	m := builtin("ca-1")
	names := make([]string, 40)
	for i := range names {
		names[i] = fmt.Sprintf("dp-%d", i)
	}
	old := w.ask("default", m, names...)
	began := w.now
	renewed := map[string]time.Duration{}
	for passes := 0; len(renewed) < len(names); passes++ {
		if passes > 100 || !w.next.After(w.now) {
			t.Fatalf("after %d passes %d are renewed, the next is due at %v", passes, len(renewed), w.next)
		}
		w.now = w.next
		for n, s := range w.ask("default", m, names...) {
			if _, ok := renewed[n]; !ok && s != old[n] {
				renewed[n] = w.now.Sub(began)
				if !leaf(t, s).NotAfter.Equal(w.now.Add(24 * time.Hour).Truncate(time.Second)) {
					t.Errorf("%s: the new one is valid until %v", n, leaf(t, s).NotAfter)
				}
				w.trusts(old[n], s)
				w.trusts(s, old[n])
			}
		}
	}
	early, late := 48*time.Hour, time.Duration(0)
	for _, d := range renewed {
		early, late = min(early, d), max(late, d)
	}
	if early < 17*time.Hour || late > 24*time.Hour/5*4 || late-early < time.Hour {
		t.Errorf("renewed between %v and %v: want from 72 to 80 percent of a day, spread", early, late)
	}
}

// TestRenewalOfAuthority checks that the successor is trusted before it signs, and that the old
// authority is trusted until it expires.
func TestRenewalOfAuthority(t *testing.T) {
	w := newWorld(t)
	m := builtin("ca-1")
	m.Backends[0].Conf = &resource.MTLSConf{CACert: &resource.BuiltinCA{Expiration: "100d"}}
	first := w.one(m)
	end := w.now.Add(100 * 24 * time.Hour)
	w.now = w.now.Add(80*24*time.Hour - time.Second)
	before := w.one(m)
	if blocks(before.Authorities()) != 1 {
		t.Fatal("the successor is created too early")
	}
	w.now = w.now.Add(time.Second)
	renewed := w.one(m)
	if blocks(renewed.Authorities()) != 2 || !bytes.Equal(renewed.Certificate(), before.Certificate()) {
		t.Errorf("the successor is not trusted in advance: %d authorities, new certificate %v",
			blocks(renewed.Authorities()), !bytes.Equal(renewed.Certificate(), before.Certificate()))
	}
	if got := w.next.Sub(w.now); got != time.Minute {
		t.Errorf("the next pass is due after %v, want when the successor may sign", got)
	}
	w.now = w.now.Add(time.Minute)
	w.start() // with a restart
	fresh := w.ask("default", m, "web", "other")
	w.trusts(renewed, fresh["other"])
	w.trusts(fresh["other"], renewed)
	if err := w.believes(first, fresh["other"]); err == nil {
		t.Error("the old authority signs still")
	}
	// Certificates of the old authority are renewed at their usual time, before it expires.
	for w.now.Before(end) {
		s := w.one(m)
		w.trusts(s, s)
		w.now = w.now.Add(6 * time.Hour)
	}
	if got := w.one(m); blocks(got.Authorities()) != 1 {
		t.Error("an authority that has ended is trusted still")
	}
}

// TestSwitchOfBackend checks that listed backends are trusted, so that one can be listed, then
// enabled, and then the other one removed.
func TestSwitchOfBackend(t *testing.T) {
	w := newWorld(t)
	a := w.one(builtin("ca-1"))

	// With both changes in one edit, the new backend is trusted first.
	both := builtin("ca-2", "ca-1")
	b := w.one(both)
	if blocks(b.Authorities()) != 2 || !bytes.Equal(a.Certificate(), b.Certificate()) {
		t.Error("the certificate was replaced before its new authority could be known")
	}
	w.now = w.next
	c := w.one(both)
	if bytes.Equal(b.Certificate(), c.Certificate()) {
		t.Error("the enabled backend does not sign")
	}
	w.trusts(b, c)
	w.trusts(c, b)

	// A removed backend is no longer trusted.
	d := w.one(builtin("ca-2"))
	if !bytes.Equal(c.Certificate(), d.Certificate()) || w.believes(d, a) == nil {
		t.Error("a backend that was removed is trusted still, or the certificate was replaced")
	}
	// After it is added back, it has the same authority.
	e := w.one(builtin("ca-1"))
	w.trusts(a, e)
}

// TestMeshes checks that meshes do not trust each other.
func TestMeshes(t *testing.T) {
	w := newWorld(t)
	a, b := w.ask("default", builtin("ca"), "web")["web"], w.ask("other", builtin("ca"), "web")["web"]
	if w.believes(a, b) == nil || w.believes(b, a) == nil {
		t.Error("proxies of two meshes believe each other")
	}
	var got []string
	for _, e := range w.k.Expiries() {
		got = append(got, e.Mesh+" "+e.What)
	}
	if diff := cmp.Diff([]string{"default authority", "other authority", "other proxy"}, got); diff != "" {
		t.Error(diff) // the last pass asked for the proxy of only one mesh
	}
}

// TestTagsChange checks that the names in the certificate follow the tags.
func TestTagsChange(t *testing.T) {
	w := newWorld(t)
	m := builtin("ca")
	ask := func(tags map[string][]string) (*identity.Secrets, error) {
		w.k.Begin()
		defer w.k.End(func(string, string) bool { return true })
		if _, err := w.k.Mesh("default", m); err != nil {
			t.Fatal(err)
		}
		return w.k.Proxy("default", "web", tags)
	}
	a, err := ask(tags("web"))
	if err != nil {
		t.Fatal(err)
	}
	more := tags("web")
	more[resource.TagService] = []string{"web", "admin"}
	b, err := ask(more)
	if err != nil || a == b {
		t.Fatalf("the certificate stays as it is: %v", err)
	}
	if n := leaf(t, b).URIs; n[0].String() != "spiffe://default/admin" || n[1].String() != "spiffe://default/web" {
		t.Errorf("got %v", n)
	}
	for bad, tags := range map[string]map[string][]string{
		"kuma.io/service": {"team": {"x"}},
		`"kuma://a:b/c"`:  {resource.TagService: {"web"}, "a:b": {"c"}},
		`"kuma://a..b/c"`: {resource.TagService: {"web"}, "a..b": {"c"}},
		"fewer or shorter": {resource.TagService: {"web"}, "k": func() (l []string) {
			for i := range 2000 {
				l = append(l, fmt.Sprintf("%040d", i))
			}
			return l
		}()},
	} {
		if _, err := ask(tags); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("got %v, want an error with %s", err, bad)
		}
	}
	if unchanged, err := ask(more); err != nil || unchanged != b {
		t.Errorf("after a failure: %v", err)
	}
}

// TestClockJumps checks that a certificate is replaced when a clock jump in either direction makes
// it invalid.
func TestClockJumps(t *testing.T) {
	w := newWorld(t)
	m := builtin("ca")
	w.one(m)
	for _, jump := range []time.Duration{
		-5 * 365 * 24 * time.Hour, 20 * 365 * 24 * time.Hour, -15 * 365 * 24 * time.Hour,
	} {
		w.now = w.now.Add(jump)
		s := w.ask("default", m, "web", "backend")
		w.trusts(s["backend"], s["web"])
		w.trusts(s["web"], s["backend"])
		if n := blocks(s["web"].Authorities()); n > 4 {
			t.Errorf("%d authorities have piled up", n)
		}
	}
}

// TestGoneDataplanes checks that certificates of removed dataplanes are deleted, but not at once.
func TestGoneDataplanes(t *testing.T) {
	w := newWorld(t)
	m := builtin("ca")
	long := strings.Repeat("x", 250)
	first := w.ask("default", m, "web", "backend", long)
	files := func() []string {
		list, err := filepath.Glob(filepath.Join(w.dir, "default", "proxy-*"))
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	if len(files()) != 3 {
		t.Fatalf("got %v, want three files", files())
	}
	w.gone["web"] = true
	w.start()
	w.ask("default", m, "backend")
	w.now = w.now.Add(9 * time.Minute)
	w.gone["web"] = false
	if s := w.ask("default", m, "web")["web"]; !bytes.Equal(s.Certificate(), first["web"].Certificate()) {
		t.Error("a dataplane that came back has another certificate")
	}
	w.gone["web"] = true
	w.ask("default", m, "backend")
	if got := w.next.Sub(w.now); got != 10*time.Minute {
		t.Errorf("the next pass is due after %v, want when the certificate is removed", got)
	}
	w.now = w.next
	w.ask("default", m, "backend")
	if l := files(); len(l) != 2 || slices.Contains(l, filepath.Join(w.dir, "default", "proxy-web.pem")) {
		t.Errorf("got %v, want no file of web", l)
	}
	// An unused certificate is deleted when it has expired.
	w.now = w.now.Add(25 * time.Hour)
	w.ask("default", m, "backend")
	if l := files(); len(l) != 1 {
		t.Errorf("got %v, want the file of backend alone", l)
	}
}

// TestFilesArePrivate checks the modes of all created files and directories.
func TestFilesArePrivate(t *testing.T) {
	w := newWorld(t)
	w.ask("default", builtin("ca-1", "ca-2"), "web", "backend")
	n := 0
	err := filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		want := fs.FileMode(0o600)
		if d.IsDir() {
			want = 0o700
		}
		if st.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v", path, st.Mode().Perm(), want)
		}
		n++
		return nil
	})
	if err != nil || n != 6 {
		t.Errorf("%d files and directories, %v; want 6", n, err)
	}
}

// TestNoKeyIsShown prints the secrets with fmt, JSON, and slog in all ways.
func TestNoKeyIsShown(t *testing.T) {
	w := newWorld(t)
	s := w.one(builtin("ca"))
	j, err := json.Marshal([]any{s, *s})
	if err != nil {
		t.Fatal(err)
	}
	shown := string(j) + w.log.String()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		shown += fmt.Sprintf(verb, s) + fmt.Sprintf(verb, *s)
	}
	key := string(s.Key())
	for _, bad := range []string{"PRIVATE KEY", strings.Split(key, "\n")[1], fmt.Sprintf("%x", key[:40]), "45 45 45"} {
		if strings.Contains(shown, bad) {
			t.Errorf("%q is shown", bad)
		}
	}
	if !strings.Contains(shown, "certificate valid until 2026-03-02T12:00:00Z") {
		t.Errorf("what is shown does not say how long it is valid: %s", shown)
	}
}
