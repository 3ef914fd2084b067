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

// Pool exchanges the authorities of builtin backends with the other nodes of a mesh. Each node
// creates its authorities, and the proxies of all nodes trust all of them. Keys never leave a node.
type Pool interface {
	// Tell announces all authorities of this node.
	Tell([]Authorities)
	// Others returns the authorities of other nodes. It returns the same pointer until something
	// changes.
	Others() *Others
	// Announced returns the number of other nodes, and the number of those without the last
	// announcement.
	Announced() (others, without int)
}

// Authorities holds the authorities of one builtin backend of one node, with the data that other
// nodes need to trust them.
type Authorities struct {
	Mesh, Backend string
	Certificates  [][]byte // DER, the oldest first
	// Life is the lifetime of certificates that these authorities sign. Other nodes trust them for
	// this time after their node has dropped them.
	Life time.Duration
	// Until is when the last certificate signed by them expires; zero while they are in use.
	Until time.Time
}

// authoritiesBody is the wire form of Authorities.
type authoritiesBody struct {
	Certificates string     `json:"certificates"` // PEM
	LifeSeconds  int64      `json:"lifeSeconds"`
	Until        *time.Time `json:"until,omitempty"`
}

// Encode returns the form that [ParseAuthorities] accepts.
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

// maxOther limits an authority of another node in bytes. One with an RSA key of 8192 bits has 2.5
// KiB.
const maxOther = 8 << 10

// ParseAuthorities parses the authorities of another node's backend. It rejects any that a node
// would not create, because local proxies will trust them.
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
			return nil, errors.New("certificates: it is not PEM")
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
		return fmt.Errorf("it has the type %.32q, want CERTIFICATE", block.Type)
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
		return fmt.Errorf("it belongs to %.128q", c.Subject)
	case len(c.URIs) != 1 || c.URIs[0].String() != "spiffe://"+mesh:
		return fmt.Errorf("it does not belong to the trust domain %q", mesh)
	case !c.IsCA || !c.BasicConstraintsValid || c.KeyUsage&x509.KeyUsageCertSign == 0:
		return errors.New("it cannot sign certificates")
	case !selfSigned(c):
		return errors.New("it is not self-signed")
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
	return errors.New("nodes create no keys of its type")
}

// maxOthers limits the authorities of other nodes in one backend.
const maxOthers = 8192

// other is one authority of another node.
type other struct {
	cert  *x509.Certificate
	until time.Time // when the last certificate signed by it expires
}

// Others holds the authorities of other nodes. It is immutable.
type Others struct {
	backends map[[2]string][]other // by mesh and backend, sorted
	over     map[[2]string]int     // number of authorities that are not trusted because of the limit
}

// NewOthers returns the authorities of other nodes without duplicates.
func NewOthers(list []*Authorities) *Others {
	o := &Others{backends: map[[2]string][]other{}, over: map[[2]string]int{}}
	for _, a := range list {
		k := [2]string{a.Mesh, a.Backend}
		for _, der := range a.Certificates {
			c, err := x509.ParseCertificate(der)
			if err != nil {
				continue // already validated
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

// noOthers is used by an agent without a pool.
var noOthers = NewOthers(nil)

// Equal reports whether both hold the same authorities.
func (o *Others) Equal(x *Others) bool {
	return maps.Equal(o.over, x.over) && maps.EqualFunc(o.backends, x.backends, func(a, b []other) bool {
		return slices.EqualFunc(a, b, func(a, b other) bool { return a.until.Equal(b.until) && a.cert.Equal(b.cert) })
	})
}

// compareCerts sorts authorities the same way on every node, the oldest first.
func compareCerts(a, b *x509.Certificate) int {
	return cmp.Or(a.NotBefore.Compare(b.NotBefore), bytes.Compare(a.Raw, b.Raw))
}

// refreshTrust rebuilds the mesh's trust bundle if an input has changed: its own authorities, and
// in builtin backends those of other nodes.
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

// changesAt records the time when the trust in another node's authority ends.
func (st *meshState) changesAt(t time.Time) {
	if st.trustUntil.IsZero() || t.Before(st.trustUntil) {
		st.trustUntil = t
	}
}

// tell announces the authorities of this node.
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
				x.announced = true
			}
			out = append(out, a)
		}
	}
	k.o.Pool.Tell(out)
}

// ErrSpreading means that no certificate is created yet, because other nodes must know the
// authority first. This takes a few seconds at most.
var ErrSpreading = errors.New("this node's authority is being announced to other nodes")

const (
	// spreading is the maximum time for which a first authority waits for other nodes. It is less
	// than one step of an mTLS switch.
	spreading = 4 * time.Second
	// spreadLook is the interval for checking whether other nodes have it.
	spreadLook = 200 * time.Millisecond
	// spreadServe is the time for their proxies to receive it.
	spreadServe = time.Second
)

// spreads reports whether a first authority still waits for other nodes.
func (a *authority) spreads(k *Keeper) bool {
	age := k.now.Sub(a.since)
	if k.o.Pool == nil || age < 0 || age >= spreading {
		return false
	}
	others, without := k.o.Pool.Announced()
	if others == 0 {
		return false
	}
	if a.announced && a.spreadAt.IsZero() && without == 0 {
		a.spreadAt = k.now
	}
	if !a.spreadAt.IsZero() && !k.now.Before(a.spreadAt.Add(spreadServe)) {
		return false
	}
	k.due(k.now.Add(spreadLook))
	return true
}
