// Package identity creates and stores the mTLS identities of a node's proxies: an authority for
// each backend of a mesh, and a certificate for each proxy with the names from its tags.
//
// Guarantees:
//   - Private keys are in memory and in files that only the agent's user can read. A file that
//     others can read or write is rejected. No message, log line, or error contains a key.
//   - Valid certificates remain in use: after a restart, proxies have the same certificates.
//   - Certificates are renewed after at most four fifths of their lifetime, at different times for
//     different proxies. An authority is trusted for a while before it signs, and as long as a
//     certificate that it signed is valid.
//   - If the disk rejects writes, only the second guarantee is lost.
//
// Names, times, and certificates are pure functions. [Keeper] holds the state, and reads the clock
// and the files.
package identity

import (
	"bytes"
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Options configures a [Keeper]. The zero value keeps everything in memory.
type Options struct {
	Dir string           // directory of authorities and certificates, created if missing; "" stores nothing
	Now func() time.Time // nil: time.Now
	Log *slog.Logger     // nil disables logging
	// Pool exchanges authorities with other nodes; nil if there are none.
	Pool Pool
}

// Keeper creates and stores certificates, and reports when the next pass is due.
//
// A pass consists of Begin, then Mesh for each mesh with mutual TLS, then Proxy for each of its
// proxies, then End. Only one goroutine at a time may run a pass. Expiries and Issued are safe for
// concurrent use.
type Keeper struct {
	o     Options
	vault vault

	now, next  time.Time // of the pass; next is zero if nothing is due
	meshes     map[string]*meshState
	proxies    map[string]*proxy // by file
	unwritten  bool              // the last certificate of a proxy could not be saved
	writeAgain time.Time
	expiries   atomic.Pointer[[]Expiry]
	issued     atomic.Pointer[map[[2]string]Issued] // by mesh and name
}

// meshState holds the trust bundle and the signer of a mesh.
type meshState struct {
	name     string
	spec     *resource.MTLS
	seen     bool // in this pass
	backends map[string]*backend
	signer   *authority // nil if no authority can sign
	err      error      // why there is no signer
	spreads  bool       // its first authority waits for other nodes
	trust    []byte     // PEM
	life     time.Duration

	// Inputs of trust, with a pool.
	own        []byte
	others     *Others
	trustUntil time.Time // when the first of them expires; zero: never
}

// Issued describes the certificate of a proxy.
type Issued struct {
	Backend string    // signing backend; "" if it is no longer known
	At      time.Time // creation time
	Until   time.Time
	Number  int // number of certificates created for the proxy, including this one
}

// Expiry is the expiry of a certificate.
type Expiry struct {
	Mesh  string
	What  string // ExpiryAuthority: the signing authority; ExpiryProxy: the first proxy certificate to expire
	Until time.Time
	Life  time.Duration // of the certificate, from its issue until Until
}

// Values of Expiry.What.
const (
	ExpiryAuthority = "authority"
	ExpiryProxy     = "proxy"
)

// Open returns a keeper with the certificates in the directory.
func Open(o Options) *Keeper {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	k := &Keeper{o: o, vault: vault{o.Dir}, meshes: map[string]*meshState{}, proxies: map[string]*proxy{}}
	k.expiries.Store(new([]Expiry))
	k.issued.Store(new(map[[2]string]Issued))
	k.loadProxies()
	return k
}

// Begin starts a pass.
func (k *Keeper) Begin() {
	k.now, k.next = k.o.Now().UTC(), time.Time{}
	for _, st := range k.meshes {
		st.seen = false
	}
	for _, p := range k.proxies {
		p.used = false
	}
}

// due requests a pass at time t.
func (k *Keeper) due(t time.Time) {
	if k.next.IsZero() || t.Before(k.next) {
		k.next = t
	}
}

// Mesh updates the authorities of a mesh with mutual TLS. All listed backends are trusted, so that
// switching the enabled backend causes no interruption; the enabled backend signs. The warnings
// describe partial failures. Mesh fails if no certificate can be created; proxies then keep their
// certificates.
func (k *Keeper) Mesh(name string, m *resource.MTLS) (warnings []string, err error) {
	st := k.meshes[name]
	if st == nil {
		st = &meshState{name: name, backends: map[string]*backend{}}
		k.meshes[name] = st
	}
	st.spec, st.seen, st.err = m, true, nil
	listed := map[string]bool{}
	for i := range m.Backends {
		spec := &m.Backends[i]
		at := backendAt(m, i)
		b := st.backends[spec.Name]
		if b == nil || b.kind != spec.Type {
			b = &backend{mesh: name, name: spec.Name, kind: spec.Type}
			st.backends[spec.Name] = b
		}
		listed[spec.Name] = true
		notes, err := b.refresh(k, spec)
		for _, n := range notes {
			warnings = append(warnings, at+": "+n)
		}
		switch {
		case err == nil:
		case spec.Name == m.EnabledBackend:
			st.err = fmt.Errorf("%s: %w", at, err)
		default:
			warnings = append(warnings, unusable(at, err))
		}
		if spec.Name == m.EnabledBackend {
			st.life, warnings = proxySpan(spec, at, warnings)
		}
	}
	maps.DeleteFunc(st.backends, func(n string, _ *backend) bool { return !listed[n] })
	warnings = append(warnings, st.refreshTrust(k)...)
	st.signer = st.choose(k)
	switch {
	case st.signer == nil && st.err == nil && st.spreads:
		st.err = fmt.Errorf("mtls.enabledBackend: %q: %w", m.EnabledBackend, ErrSpreading)
	case st.signer == nil && st.err == nil:
		st.err = fmt.Errorf("mtls.enabledBackend: %q has no valid authority", m.EnabledBackend)
	case st.signer != nil && st.err != nil:
		warnings = append(warnings, fmt.Sprintf("%v: %q signs instead", st.err, st.signer.backend))
		st.err = nil
	}
	return warnings, st.err
}

// proxySpan returns the lifetime of proxy certificates.
func proxySpan(spec *resource.MTLSBackend, at string, warnings []string) (time.Duration, []string) {
	var configured time.Duration
	if spec.DPCert != nil {
		configured, _ = spec.DPCert.Rotation.Lifetime() // validated when the mesh was written
	}
	life := span(configured, proxyLife)
	if configured != 0 && configured < life {
		warnings = append(warnings,
			fmt.Sprintf("%s: dpCert.rotation.expiration: %v is below the minimum, %v, which is used", at, configured, life))
	}
	return life, warnings
}

// bundle returns the trusted certificates of the mesh, in the order of its backends.
func (st *meshState) bundle(m *resource.MTLS) []byte {
	var out []byte
	for i := range m.Backends {
		b := st.backends[m.Backends[i].Name]
		for _, a := range b.list {
			if t := a.trust(); !bytes.Contains(out, t) {
				out = append(out, t...)
			}
		}
	}
	return out
}

// choose returns the signing authority: the youngest of the enabled backend that every proxy knows.
// Until proxies know it, the previous one continues to sign.
func (st *meshState) choose(k *Keeper) *authority {
	st.spreads = false
	b := st.backends[st.spec.EnabledBackend]
	if b == nil {
		return nil
	}
	var known, coming *authority
	for _, a := range b.list {
		switch {
		case !a.valid(k.now):
		case !a.settled(k.now):
			coming = a
		case known == nil || a.replaced.IsZero() || !known.replaced.IsZero():
			known = a
		}
	}
	if s := st.signer; known == nil && s != nil && s.valid(k.now) && st.trusts(s) {
		known = s
	}
	st.spreads = known == nil && coming != nil && coming.spreads(k)
	switch {
	case st.spreads:
		return nil
	case known == nil:
		return coming
	}
	if coming != nil && coming != known {
		k.due(coming.settledAt())
	}
	return known
}

func (st *meshState) trusts(a *authority) bool {
	b := st.backends[a.backend]
	return b != nil && slices.Contains(b.list, a)
}

// issuer returns the trusted authority that signed a certificate, or nil.
func (st *meshState) issuer(p *pair) *authority {
	for i := range st.spec.Backends {
		for _, a := range slices.Backward(st.backends[st.spec.Backends[i].Name].list) {
			if p.cert.CheckSignatureFrom(a.cert) == nil {
				return a
			}
		}
	}
	return nil
}

// End ends a pass. exists reports whether a dataplane exists; files of a dataplane that has been
// gone for some time are removed. End returns the time when the next pass is due, or the zero time.
func (k *Keeper) End(exists func(mesh, dataplane string) bool) (next time.Time) {
	maps.DeleteFunc(k.meshes, func(_ string, st *meshState) bool { return !st.seen })
	k.tell()
	k.sweep(exists)
	k.measure()
	if !k.next.IsZero() && !k.next.After(k.now) {
		k.next = k.now.Add(retry) // a failed action is not retried at once
	}
	return k.next
}

// Expiries returns the expiries as of the last pass, sorted by mesh and kind.
func (k *Keeper) Expiries() []Expiry { return *k.expiries.Load() }

// Issued returns the certificate of a proxy as of the last pass; false if there is none.
func (k *Keeper) Issued(mesh, name string) (Issued, bool) {
	x, ok := (*k.issued.Load())[[2]string{mesh, name}]
	return x, ok
}

func (k *Keeper) measure() {
	var out []Expiry
	first, issued := map[string]Expiry{}, map[[2]string]Issued{}
	for _, p := range k.proxies {
		if p.used && p.pair != nil {
			x := Issued{At: p.issued(), Until: p.until(), Number: p.number}
			if p.issuer != nil {
				x.Backend = p.issuer.backend
			}
			issued[[2]string{p.mesh, p.name}] = x
		}
		if !p.used || p.pair == nil {
			continue
		}
		if e, ok := first[p.mesh]; !ok || p.until().Before(e.Until) {
			first[p.mesh] = Expiry{p.mesh, ExpiryProxy, p.until(), p.until().Sub(p.issued())}
		}
	}
	for name, st := range k.meshes {
		if st.signer != nil {
			cert := st.signer.cert
			out = append(out, Expiry{name, ExpiryAuthority, cert.NotAfter, cert.NotAfter.Sub(cert.NotBefore)})
		}
		if e, ok := first[name]; ok {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b Expiry) int { return cmp.Or(cmp.Compare(a.Mesh, b.Mesh), cmp.Compare(a.What, b.What)) })
	k.expiries.Store(&out)
	k.issued.Store(&issued)
}
