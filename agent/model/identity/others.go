package identity

import (
	"bytes"
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Pool exchanges the authorities of builtin backends with the other nodes of a mesh: each node
// makes its own, and the proxies of all trust all of them. Keys never leave a node.
type Pool interface {
	// Tell gives others all authorities of this node.
	Tell([]Authorities)
	// Others are those of other nodes. Whoever calls gets the same value until something has changed.
	Others() *Others
	// Told returns how many other nodes are there, and how many of them do not have what was told.
	Told() (others, without int)
}

// Authorities are those of one builtin backend of one node, and what they need to be trusted
// elsewhere.
type Authorities struct {
	Mesh, Backend string
	Certificates  [][]byte // DER, the oldest first
	// Life is how long certificates are valid that these sign: for so long they are trusted after
	// their node has given them up.
	Life time.Duration
	// Until is when the last certificate that these have signed ends; zero: they are in use.
	Until time.Time
}

// authoritiesBody is how authorities travel.
type authoritiesBody struct {
	Certificates string     `json:"certificates"` // PEM
	LifeSeconds  int64      `json:"lifeSeconds"`
	Until        *time.Time `json:"until,omitempty"`
}

// Encode returns what [ParseAuthorities] reads.
func (a *Authorities) Encode() ([]byte, error) {
	b := authoritiesBody{LifeSeconds: int64(a.Life / time.Second)}
	if !a.Until.IsZero() {
		until := a.Until.UTC().Truncate(time.Second)
		b.Until = &until
	}
	for _, der := range a.Certificates {
		b.Certificates += string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	return json.Marshal(b)
}

// maxOther bounds an authority of another node in bytes: one with an RSA key of 8192 bits has 2.5
// KiB.
const maxOther = 8 << 10

// ParseAuthorities reads the authorities that another node has of a backend. It refuses what a node
// would not make: the proxies here are to trust it.
func ParseAuthorities(mesh, backend string, body []byte) (*Authorities, error) {
	var b authoritiesBody
	d := json.NewDecoder(bytes.NewReader(body))
	if err := d.Decode(&b); err != nil {
		return nil, fmt.Errorf("it cannot be read: %w", err)
	}
	a := &Authorities{Mesh: mesh, Backend: backend,
		Life: span(time.Duration(min(max(b.LifeSeconds, 0), int64(mostLife/time.Second)))*time.Second, proxyLife)}
	if b.Until != nil {
		a.Until = *b.Until
	}
	rest := []byte(b.Certificates)
	for len(bytes.TrimSpace(rest)) > 0 {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return nil, errors.New("certificates: it is no PEM")
		}
		if len(a.Certificates) == maxAuthorities {
			return nil, fmt.Errorf("certificates: at most %d are allowed", maxAuthorities)
		}
		if err := checkOther(mesh, backend, block); err != nil {
			return nil, fmt.Errorf("certificates[%d]: %w", len(a.Certificates), err)
		}
		a.Certificates = append(a.Certificates, block.Bytes)
	}
	return a, nil
}

func checkOther(mesh, backend string, block *pem.Block) error {
	if block.Type != "CERTIFICATE" {
		return fmt.Errorf("it is of the type %.32q, want CERTIFICATE", block.Type)
	}
	if n := len(block.Bytes); n > maxOther {
		return fmt.Errorf("it has %d bytes, at most %d are allowed", n, maxOther)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return err
	}
	switch {
	case c.Subject.String() != rootSubject(mesh, backend).String():
		return fmt.Errorf("it is the one of %.128q", c.Subject)
	case len(c.URIs) != 1 || c.URIs[0].String() != "spiffe://"+mesh:
		return fmt.Errorf("it is not of the trust domain %q", mesh)
	case !c.IsCA || !c.BasicConstraintsValid || c.KeyUsage&x509.KeyUsageCertSign == 0:
		return errors.New("it may not sign others")
	case !selfSigned(c):
		return errors.New("it has not signed itself")
	}
	switch key := c.PublicKey.(type) {
	case *ecdsa.PublicKey:
		if key.Curve == elliptic.P256() || key.Curve == elliptic.P384() || key.Curve == elliptic.P521() {
			return nil
		}
	case *rsa.PublicKey:
		if n := key.N.BitLen(); n >= 2048 && n <= 8192 {
			return nil
		}
	}
	return errors.New("its key is of another sort than nodes make")
}

// maxOthers bounds the authorities of other nodes in one backend.
const maxOthers = 8192

// other is one authority of another node.
type other struct {
	cert  *x509.Certificate
	until time.Time // when nothing that it has signed is valid any more
}

// Others are the authorities of other nodes. It is immutable.
type Others struct {
	backends map[[2]string][]other // by mesh and backend, sorted
	over     map[[2]string]int     // how many are not trusted since there are too many
}

// NewOthers returns the authorities of other nodes, each once.
func NewOthers(list []*Authorities) *Others {
	o := &Others{backends: map[[2]string][]other{}, over: map[[2]string]int{}}
	for _, a := range list {
		k := [2]string{a.Mesh, a.Backend}
		for _, der := range a.Certificates {
			c, err := x509.ParseCertificate(der)
			if err != nil {
				continue // it was parsed before
			}
			until := c.NotAfter
			if !a.Until.IsZero() && a.Until.Before(until) {
				until = a.Until
			}
			o.backends[k] = append(o.backends[k], other{c, until})
		}
	}
	for k, all := range o.backends {
		slices.SortFunc(all, func(x, y other) int { return cmp.Or(compareCerts(x.cert, y.cert), y.until.Compare(x.until)) })
		all = slices.CompactFunc(all, func(x, y other) bool { return x.cert.Equal(y.cert) })
		if n := len(all); n > maxOthers {
			o.over[k], all = n-maxOthers, all[:maxOthers]
		}
		o.backends[k] = all
	}
	return o
}

// noOthers are those of an agent without a pool.
var noOthers = NewOthers(nil)

// Equal reports whether two say the same.
func (o *Others) Equal(x *Others) bool {
	return maps.Equal(o.over, x.over) && maps.EqualFunc(o.backends, x.backends, func(a, b []other) bool {
		return slices.EqualFunc(a, b, func(a, b other) bool { return a.until.Equal(b.until) && a.cert.Equal(b.cert) })
	})
}

// compareCerts orders authorities the same on every node, the oldest first.
func compareCerts(a, b *x509.Certificate) int {
	return cmp.Or(a.NotBefore.Compare(b.NotBefore), bytes.Compare(a.Raw, b.Raw))
}

// refreshTrust makes what the mesh trusts anew where something of it has changed: its own
// authorities, and in builtin backends those of other nodes.
func (st *meshState) refreshTrust(k *Keeper) (warnings []string) {
	own, others := st.bundle(st.spec), noOthers
	if k.o.Pool != nil {
		others = k.o.Pool.Others()
	}
	for i := range st.spec.Backends {
		b := &st.spec.Backends[i]
		if n := others.over[[2]string{st.name, b.Name}]; n > 0 && b.Type == resource.BackendBuiltin {
			warnings = append(warnings, fmt.Sprintf("mtls.backends[%d] (%s): %d authorities of other nodes are not trusted, "+
				"at most %d are: use a provided one", i, b.Name, n, maxOthers))
		}
	}
	if bytes.Equal(own, st.own) && others == st.others && (st.trustUntil.IsZero() || k.now.Before(st.trustUntil)) {
		if !st.trustUntil.IsZero() {
			k.due(st.trustUntil)
		}
		return warnings
	}
	st.own, st.others, st.trustUntil = own, others, time.Time{}
	var out []byte
	seen := map[string]bool{}
	add := func(c *x509.Certificate) {
		if !seen[string(c.Raw)] {
			seen[string(c.Raw)] = true
			out = append(out, certBlock(c)...)
		}
	}
	for i := range st.spec.Backends {
		b := st.backends[st.spec.Backends[i].Name]
		all := []*x509.Certificate{}
		for _, a := range b.list {
			all = append(append(all, a.cert), a.above...)
		}
		if b.kind == resource.BackendBuiltin {
			for _, x := range others.backends[[2]string{st.name, b.name}] {
				if k.now.Before(x.until) {
					all = append(all, x.cert)
					st.changesAt(x.until)
				}
			}
			slices.SortFunc(all, compareCerts)
		}
		for _, c := range all {
			add(c)
		}
	}
	if !st.trustUntil.IsZero() {
		k.due(st.trustUntil)
	}
	if !bytes.Equal(out, st.trust) {
		st.trust = out
	}
	return warnings
}

// changesAt notes when an authority of another node is not trusted any more.
func (st *meshState) changesAt(t time.Time) {
	if st.trustUntil.IsZero() || t.Before(st.trustUntil) {
		st.trustUntil = t
	}
}

// tell gives other nodes the authorities that this one has made.
func (k *Keeper) tell() {
	if k.o.Pool == nil {
		return
	}
	var out []Authorities
	for _, name := range slices.Sorted(maps.Keys(k.meshes)) {
		st := k.meshes[name]
		for i := range st.spec.Backends {
			spec := &st.spec.Backends[i]
			b := st.backends[spec.Name]
			if b.kind != resource.BackendBuiltin || len(b.list) == 0 {
				continue
			}
			life, _ := proxySpan(spec, "", nil)
			a := Authorities{Mesh: name, Backend: b.name, Life: life}
			for _, x := range b.list {
				a.Certificates = append(a.Certificates, x.cert.Raw)
				x.told = true
			}
			out = append(out, a)
		}
	}
	k.o.Pool.Tell(out)
}

// ErrSpreading says that no certificates are made yet since other nodes are to know the authority
// first. It takes some seconds at most.
var ErrSpreading = errors.New("the other nodes are being told of the authority of this one")

const (
	// spreading is how long a first authority waits at most until other nodes have it. It is less than
	// a step in which mutual TLS is switched.
	spreading = 4 * time.Second
	// spreadLook is how often is looked whether they have it.
	spreadLook = 200 * time.Millisecond
	// spreadServe is how long their proxies have to take it.
	spreadServe = time.Second
)

// spreads reports whether a first authority is still to wait until other nodes have it.
func (a *authority) spreads(k *Keeper) bool {
	age := k.now.Sub(a.since)
	if k.o.Pool == nil || age < 0 || age >= spreading {
		return false
	}
	others, without := k.o.Pool.Told()
	if others == 0 {
		return false
	}
	if a.told && a.spreadAt.IsZero() && without == 0 {
		a.spreadAt = k.now
	}
	if !a.spreadAt.IsZero() && !k.now.Before(a.spreadAt.Add(spreadServe)) {
		return false
	}
	k.due(k.now.Add(spreadLook))
	return true
}
