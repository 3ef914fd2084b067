package identity_test

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/identity"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// pool is the pool of one node, with settable authorities of other nodes.
type pool struct {
	announced       []identity.Authorities
	others          *identity.Others
	nodes, ignorant int
}

func (p *pool) Tell(list []identity.Authorities)   { p.announced = list }
func (p *pool) Others() *identity.Others           { return p.others }
func (p *pool) Announced() (others, without int)   { return p.nodes, p.ignorant }
func (p *pool) hear(list ...*identity.Authorities) { p.others = identity.NewOthers(list) }

// inPool returns the world of a node in a pool.
func inPool(t *testing.T) (*world, *pool) {
	w, p := newWorld(t), &pool{others: identity.NewOthers(nil)}
	w.k = identity.Open(identity.Options{Dir: w.dir, Now: func() time.Time { return w.now }, Pool: p,
		Log: slog.New(slog.DiscardHandler)})
	return w, p
}

// travel returns a node's announcement as other nodes parse it.
func travel(t *testing.T, p *pool, until time.Time) (out []*identity.Authorities) {
	t.Helper()
	for _, a := range p.announced {
		a.Until = until
		body, err := a.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(body, []byte("PRIVATE")) {
			t.Errorf("a key travels: %s", body)
		}
		got, err := identity.ParseAuthorities(a.Mesh, a.Backend, body)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, got)
	}
	return out
}

// TestOthers checks that the proxies of two nodes with a builtin backend trust each other, with the
// same bytes, as long as a certificate is valid.
func TestOthers(t *testing.T) {
	m := builtin("one", "two")
	a, pa := inPool(t)
	b, pb := inPool(t)
	first := a.one(m)
	b.one(m)
	if err := b.believes(b.one(m), first); err == nil {
		t.Fatal("trusted before it was told")
	}
	pa.hear(travel(t, pb, time.Time{})...)
	pb.hear(travel(t, pa, time.Time{})...)
	x, y := a.one(m), b.one(m)
	a.trusts(x, y)
	b.trusts(y, x)
	if !bytes.Equal(x.Authorities(), y.Authorities()) || blocks(x.Authorities()) != 4 {
		t.Errorf("%d and %d authorities", blocks(x.Authorities()), blocks(y.Authorities()))
	}
	if a.one(m) != x {
		t.Error("new secrets without a reason")
	}

	// A leaving node announces an end time. Its authority is trusted until then, and a pass is due
	// at that time.
	until := a.now.Add(time.Hour)
	pa.hear(travel(t, pb, until)...)
	a.trusts(a.one(m), y)
	a.now = until.Add(-time.Second)
	a.trusts(a.one(m), y)
	if a.next.After(until) {
		t.Errorf("the next pass is due at %v, want %v", a.next, until)
	}
	a.now = until
	if got := a.one(m); blocks(got.Authorities()) != 2 || a.believes(got, y) == nil {
		t.Error("trusted for too long")
	}

	// Authorities of other nodes never sign here.
	pa.hear(travel(t, pb, time.Time{})...)
	if got := leaf(t, a.one(m)); got.CheckSignatureFrom(mustParse(t, pa.announced[0].Certificates[0])) != nil {
		t.Error("somebody else's authority has signed")
	}
	// A provided backend of the same name trusts only its configured authority.
	root := newOwn(t, "root", a.now.Add(time.Hour*1000), nil, nil)
	p := provided(&resource.DataSource{Inline: root.pem}, &resource.DataSource{Inline: root.keyPEM(t)})
	p.EnabledBackend, p.Backends[0].Name = "one", "one"
	if got := a.one(p); blocks(got.Authorities()) != 1 {
		t.Error("a provided backend trusts others")
	}
}

func mustParse(t *testing.T, der []byte) *x509.Certificate {
	t.Helper()
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestOthersFirst checks that a first authority signs after the other nodes had time to trust it,
// but no later than after four seconds.
func TestOthersFirst(t *testing.T) {
	for name, c := range map[string]struct {
		ignorantFor, want time.Duration
	}{
		"known at once": {0, 1200 * time.Millisecond},
		"known later":   {2 * time.Second, 3 * time.Second},
		"never":         {time.Hour, 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			w, p := inPool(t)
			p.nodes, p.ignorant = 3, 1
			start := w.now
			for {
				if w.now.Sub(start) >= c.ignorantFor {
					p.ignorant = 0
				}
				_, err := w.try("default", builtin("one"), "web")
				if err == nil {
					break
				}
				if !strings.Contains(err.Error(), "being announced") || len(p.announced) != 1 {
					t.Fatal(err, p.announced)
				}
				if d := w.next.Sub(w.now); d <= 0 || d > time.Second {
					t.Fatalf("the next pass is due in %v", d)
				}
				w.now = w.next
			}
			if got := w.now.Sub(start); got != c.want {
				t.Errorf("after %v, want %v", got, c.want)
			}
		})
	}
	w, p := inPool(t)
	p.nodes = 0
	w.one(builtin("one")) // no other node has to know
	w, _ = inPool(t)
	w.one(builtin("one"))
	w.now = w.now.Add(time.Minute)
	p = &pool{others: identity.NewOthers(nil), nodes: 3, ignorant: 3}
	w.k = identity.Open(identity.Options{Dir: w.dir, Now: func() time.Time { return w.now }, Pool: p})
	w.one(builtin("one")) // other nodes know it from before the restart
}

// TestHostileAuthorities checks that authorities that no node creates are not trusted.
func TestHostileAuthorities(t *testing.T) {
	w, p := inPool(t)
	w.one(builtin("one"))
	good := mustParse(t, p.announced[0].Certificates[0])
	foreign := newOwn(t, "root", w.now.Add(time.Hour), nil, nil)
	domain := newOwn(t, "root", w.now.Add(time.Hour), nil, func(c *x509.Certificate) { c.Subject = good.Subject })
	noCA := newOwn(t, "root", w.now.Add(time.Hour), nil, func(c *x509.Certificate) {
		c.Subject, c.URIs, c.IsCA = good.Subject, good.URIs, false
	})
	signed := newOwn(t, "root", w.now.Add(time.Hour), &foreign, func(c *x509.Certificate) {
		c.Subject, c.URIs = good.Subject, good.URIs
	})
	giant := newOwn(t, "root", w.now.Add(time.Hour), nil, func(c *x509.Certificate) {
		c.Subject, c.URIs, c.DNSNames = good.Subject, good.URIs, strings.Fields(strings.Repeat("a.example ", 1000))
	})
	body := func(text string) []byte {
		b, err := json.Marshal(map[string]any{"certificates": text, "lifeSeconds": 60})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	self, err := (&identity.Authorities{Certificates: [][]byte{good.Raw}}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		mesh, backend string
		body          []byte
		want          string
	}{
		"another mesh":     {"other", "one", self, "it belongs to"},
		"another backend":  {"default", "two", self, "it belongs to"},
		"any root":         {"default", "one", body(string(foreign.pem)), "it belongs to"},
		"no trust domain":  {"default", "one", body(string(domain.pem)), "trust domain"},
		"no authority":     {"default", "one", body(string(noCA.pem)), "cannot sign"},
		"signed by others": {"default", "one", body(string(signed.pem)), "is not self-signed"},
		"giant":            {"default", "one", body(string(giant.pem)), "at most 8192"},
		"a key":            {"default", "one", body(string(foreign.keyPEM(t))), "has the type"},
		"no PEM":           {"default", "one", body("x"), "it is not PEM"},
		"no JSON":          {"default", "one", []byte("x"), "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := identity.ParseAuthorities(c.mesh, c.backend, c.body); err == nil ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	many := make([][]byte, 5)
	for i := range many {
		many[i] = good.Raw
	}
	five, err := (&identity.Authorities{Certificates: many}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := identity.ParseAuthorities("default", "one", five); err == nil ||
		!strings.Contains(err.Error(), "at most 4") {
		t.Error(err)
	}
}

func FuzzParseAuthorities(f *testing.F) {
	f.Add([]byte(`{"certificates":"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n","lifeSeconds":-1,"until":"2026-01-01T00:00:00Z"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		a, err := identity.ParseAuthorities("default", "one", body)
		if err != nil {
			return
		}
		identity.NewOthers([]*identity.Authorities{a, a})
		if a.Life < time.Minute {
			t.Errorf("life %v", a.Life)
		}
	})
}
