// Package identity makes and keeps what the proxies of a node prove themselves with under mutual
// TLS: an authority for each backend of a mesh, and from it a certificate for each proxy, with the
// names that its tags give it.
//
// It promises:
//   - A private key is in memory and in files that the agent's user alone can read. A file that
//     others could read, or could have written, is refused. Keys are in no message, log line or
//     error.
//   - What is valid stays: after a restart proxies have the certificates that they had.
//   - Certificates are renewed at four fifths of their life at the latest, each proxy at a time of
//     its own. An authority is trusted for a while before it signs, and as long as something that
//     it has signed is valid.
//   - A disk that takes no file costs nothing but the promise of the second point.
//
// Names, times and certificates are pure functions; [Keeper] holds the state, and reads the clock
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

// Options are what a [Keeper] needs. The zero value keeps everything in memory.
type Options struct {
	Dir string           // where authorities and certificates are kept; made when it is missing; "": nowhere
	Now func() time.Time // nil: time.Now
	Log *slog.Logger     // nil: nothing is logged
	// Pool exchanges authorities with other nodes. Nil: there are none.
	Pool Pool
}

// Keeper makes certificates, keeps them, and says when it wants to be asked again.
//
// It is used in passes: Begin, then Mesh for each mesh with mutual TLS, then Proxy for each proxy
// of it, then End. One goroutine at a time may do so; Expiries and Issued may be called at any
// time.
type Keeper struct {
	o     Options
	vault vault

	now, next  time.Time // of the pass; next is the zero time when nothing is due
	meshes     map[string]*meshState
	proxies    map[string]*proxy // by file
	unwritten  bool              // the last certificate of a proxy could not be written
	writeAgain time.Time
	expiries   atomic.Pointer[[]Expiry]
	issued     atomic.Pointer[map[[2]string]Issued] // by mesh and name
}

// meshState is what is trusted in a mesh, and who signs.
type meshState struct {
	name     string
	spec     *resource.MTLS
	seen     bool // in this pass
	backends map[string]*backend
	signer   *authority // nil: none can
	err      error      // why
	spreads  bool       // its first authority waits for other nodes
	trust    []byte     // PEM
	life     time.Duration

	// What trust was made from, where there is a pool.
	own        []byte
	others     *Others
	trustUntil time.Time // when something of it ends; zero: never
}

// Issued is the certificate that a proxy has.
type Issued struct {
	Backend string    // that has signed it; "": not known any more
	At      time.Time // when it was made
	Until   time.Time
	Made    int // how many were made for the proxy, this one included
}

// Expiry says when something ends.
type Expiry struct {
	Mesh  string
	What  string // ExpiryAuthority: the one that signs; ExpiryProxy: the first of the proxies'
	Until time.Time
}

// Values of Expiry.What.
const (
	ExpiryAuthority = "authority"
	ExpiryProxy     = "proxy"
)

// Open returns a keeper with the certificates that are in the directory.
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

// Begin begins a pass.
func (k *Keeper) Begin() {
	k.now, k.next = k.o.Now().UTC(), time.Time{}
	for _, st := range k.meshes {
		st.seen = false
	}
	for _, p := range k.proxies {
		p.used = false
	}
}

// due asks for a pass at a time.
func (k *Keeper) due(t time.Time) {
	if k.next.IsZero() || t.Before(k.next) {
		k.next = t
	}
}

// Mesh brings the authorities of a mesh, in which mutual TLS is enabled, up to the present. All
// backends that the mesh lists are trusted, so that another one can be enabled without an
// interruption; the enabled one signs. Warnings say what is wrong with some of it. It fails when no
// certificates can be made; proxies keep those that they have.
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
		st.err = fmt.Errorf("mtls.enabledBackend: %q has no authority that is valid", m.EnabledBackend)
	case st.signer != nil && st.err != nil:
		warnings = append(warnings, fmt.Sprintf("%v: %q signs instead", st.err, st.signer.backend))
		st.err = nil
	}
	return warnings, st.err
}

// proxySpan is how long certificates of proxies are valid.
func proxySpan(spec *resource.MTLSBackend, at string, warnings []string) (time.Duration, []string) {
	var configured time.Duration
	if spec.DPCert != nil {
		configured, _ = spec.DPCert.Rotation.Lifetime() // checked when the mesh was written
	}
	life := span(configured, proxyLife)
	if configured != 0 && configured < life {
		warnings = append(warnings,
			fmt.Sprintf("%s: dpCert.rotation.expiration: %v is less than the least, %v, which is taken", at, configured, life))
	}
	return life, warnings
}

// bundle is what the mesh trusts, in the order in which it lists its backends.
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

// choose returns the authority that signs: of the enabled backend, the youngest that every proxy
// knows. Where proxies have yet to learn of it, the one that has signed until now goes on.
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

// issuer returns the trusted authority that has signed a certificate, or nil.
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

// End ends a pass. exists says whether a dataplane is still there; what belongs to one that has
// been gone for some time is removed. It returns when the next pass is due at the latest, the zero
// time for never.
func (k *Keeper) End(exists func(mesh, dataplane string) bool) (next time.Time) {
	maps.DeleteFunc(k.meshes, func(_ string, st *meshState) bool { return !st.seen })
	k.tell()
	k.sweep(exists)
	k.measure()
	if !k.next.IsZero() && !k.next.After(k.now) {
		k.next = k.now.Add(retry) // what could not be done now is not tried again at once
	}
	return k.next
}

// Expiries returns when certificates end, as of the last pass, sorted by mesh and what they are.
func (k *Keeper) Expiries() []Expiry { return *k.expiries.Load() }

// Issued returns the certificate that a proxy has, as of the last pass, and whether there is one.
func (k *Keeper) Issued(mesh, name string) (Issued, bool) {
	x, ok := (*k.issued.Load())[[2]string{mesh, name}]
	return x, ok
}

func (k *Keeper) measure() {
	var out []Expiry
	first, issued := map[string]time.Time{}, map[[2]string]Issued{}
	for _, p := range k.proxies {
		if p.used && p.pair != nil {
			x := Issued{At: p.issued(), Until: p.until(), Made: p.made}
			if p.issuer != nil {
				x.Backend = p.issuer.backend
			}
			issued[[2]string{p.mesh, p.name}] = x
		}
		if until := p.until(); p.used && (first[p.mesh].IsZero() || until.Before(first[p.mesh])) {
			first[p.mesh] = until
		}
	}
	for name, st := range k.meshes {
		if st.signer != nil {
			out = append(out, Expiry{name, ExpiryAuthority, st.signer.cert.NotAfter})
		}
		if t := first[name]; !t.IsZero() {
			out = append(out, Expiry{name, ExpiryProxy, t})
		}
	}
	slices.SortFunc(out, func(a, b Expiry) int { return cmp.Or(cmp.Compare(a.Mesh, b.Mesh), cmp.Compare(a.What, b.What)) })
	k.expiries.Store(&out)
	k.issued.Store(&issued)
}
