package identity

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// maxAuthorities limits the authorities of one backend: the signing one, its successor, and
// leftovers of clock jumps.
const maxAuthorities = 4

// retry is the delay after a failed read or write.
const retry = 30 * time.Second

// authority is a trusted certificate authority.
type authority struct {
	*pair
	backend   string
	since     time.Time // start of the trust
	announced bool      // announced to other nodes
	spreadAt  time.Time // when all other nodes had it; zero if unknown
	replaced  time.Time // when its owner replaced it; zero while in force
}

func (a *authority) valid(now time.Time) bool {
	return !now.Before(a.cert.NotBefore) && now.Before(a.cert.NotAfter)
}

// settledAt returns the time by which every proxy knows the authority.
func (a *authority) settledAt() time.Time {
	return a.since.Add(min(settlingTime, a.cert.NotAfter.Sub(a.cert.NotBefore)/20))
}

func (a *authority) settled(now time.Time) bool { return !now.Before(a.settledAt()) }

// trust returns the certificates to trust, as PEM.
func (a *authority) trust() []byte {
	out := certBlock(a.cert)
	for _, c := range a.above {
		out = append(out, certBlock(c)...)
	}
	return out
}

// backend holds the authorities of one backend of a mesh.
type backend struct {
	mesh, name, kind string
	list             []*authority // oldest first

	// Fields of a builtin backend.
	loaded, dirty bool
	retryAt       time.Time
	notes         []string // faults of its file
	unwritten     error

	// Fields of a provided backend.
	source source
}

// refresh updates the authorities. It fails if there is none; other problems are returned as
// warnings.
func (b *backend) refresh(k *Keeper, spec *resource.MTLSBackend) ([]string, error) {
	if spec.Type == resource.BackendProvided {
		return b.refreshProvided(k, spec)
	}
	return b.refreshBuiltin(k, spec)
}

func (b *backend) refreshBuiltin(k *Keeper, spec *resource.MTLSBackend) ([]string, error) {
	if err := b.load(k); err != nil {
		k.due(k.now.Add(retry))
		return nil, err
	}
	if n := len(b.list); n > 0 {
		b.list = slices.DeleteFunc(b.list, func(a *authority) bool { return !k.now.Before(a.cert.NotAfter) })
		b.dirty = b.dirty || len(b.list) < n
	}
	warnings := slices.Clone(b.notes)
	newest := b.newest(k.now)
	if newest == nil || !k.now.Before(rootRenewal(newest.since, newest.cert.NotAfter)) {
		created, err := b.make(k, spec)
		switch {
		case err != nil && newest == nil:
			return nil, err
		case err != nil:
			warnings = append(warnings, fmt.Sprintf("creating the authority's successor failed: %v", err))
			k.due(k.now.Add(retry))
		default:
			newest = created
		}
	}
	k.due(rootRenewal(newest.since, newest.cert.NotAfter))
	b.remember(k)
	if b.unwritten != nil {
		warnings = append(warnings,
			fmt.Sprintf("its authority cannot be saved and will be replaced at a restart: %v; "+
				"free space, or give the agent's user access to the directory", b.unwritten))
	}
	return warnings, nil
}

// newest returns the youngest valid authority, or nil.
func (b *backend) newest(now time.Time) *authority {
	for _, a := range slices.Backward(b.list) {
		if a.valid(now) {
			return a
		}
	}
	return nil
}

// load reads the file once. A damaged file is moved aside. All proxies of this node then get new
// certificates at once, which is better than none.
func (b *backend) load(k *Keeper) error {
	if b.loaded {
		return nil
	}
	file := fileOf(b.mesh, caPrefix, b.name)
	data, err := k.vault.read(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		b.list, err = parseRoots(data, b.mesh, b.name)
		if err != nil {
			b.list = nil
			note := fmt.Sprintf("its authority was damaged (%v)", err)
			if to, err := k.vault.setAside(file); err == nil {
				note += " and was moved to " + to
			}
			b.notes = []string{note + "; a new one was created"}
			k.o.Log.Error("a certificate authority was damaged; a new one was created", "mesh", b.mesh, "backend", b.name,
				"file", k.vault.path(file), "error", err)
		}
	}
	b.loaded = true
	return nil
}

func (b *backend) make(k *Keeper, spec *resource.MTLSBackend) (*authority, error) {
	var conf resource.BuiltinCA
	if spec.Conf != nil && spec.Conf.CACert != nil {
		conf = *spec.Conf.CACert
	}
	life, err := conf.Lifetime()
	if err != nil {
		return nil, err
	}
	p, err := newRoot(b.mesh, b.name, int(conf.RSABits), span(life, rootLife), k.now)
	if err != nil {
		return nil, fmt.Errorf("creating a certificate authority failed: %w", err)
	}
	a := &authority{pair: p, backend: b.name, since: k.now}
	b.list = append(b.list, a)
	b.list = b.list[max(0, len(b.list)-maxAuthorities):]
	b.dirty, b.retryAt = true, time.Time{}
	k.o.Log.Info("certificate authority created", "mesh", b.mesh, "backend", b.name, "expires", p.cert.NotAfter)
	return a, nil
}

// remember saves the authorities if they have changed.
func (b *backend) remember(k *Keeper) {
	if !b.dirty {
		return
	}
	if k.now.Before(b.retryAt) {
		k.due(b.retryAt)
		return
	}
	data, err := encodeRoots(b.list)
	if err == nil {
		err = k.vault.write(fileOf(b.mesh, caPrefix, b.name), data, true)
	}
	b.unwritten = err
	if err != nil {
		b.retryAt = k.now.Add(retry)
		k.due(b.retryAt)
		return
	}
	b.dirty = false
}

// encodeRoots encodes authorities as PEM, each certificate followed by its key.
func encodeRoots(list []*authority) ([]byte, error) {
	var out []byte
	for _, a := range list {
		key, err := a.keyPEM()
		if err != nil {
			return nil, err
		}
		out = append(append(out, certBlock(a.cert)...), key...)
	}
	return out, nil
}

// parseRoots parses the result of encodeRoots.
func parseRoots(data []byte, mesh, name string) ([]*authority, error) {
	var out []*authority
	for len(bytes.TrimSpace(data)) > 0 {
		cert, rest := pem.Decode(data)
		if cert == nil {
			return nil, errors.New("it is not PEM")
		}
		key, rest := pem.Decode(rest)
		if key == nil {
			return nil, errors.New("a certificate is not followed by its private key")
		}
		data = rest
		p, err := parsePair(pem.EncodeToMemory(cert), pem.EncodeToMemory(key))
		if err == nil {
			err = checkAuthority(p)
		}
		if err != nil {
			return nil, err
		}
		if p.cert.Subject.String() != rootSubject(mesh, name).String() {
			return nil, fmt.Errorf("it belongs to %s", p.cert.Subject)
		}
		out = append(out, &authority{pair: p, backend: name, since: p.cert.NotBefore.Add(backdate)})
		if len(out) > maxAuthorities {
			return nil, fmt.Errorf("it holds more than %d authorities", maxAuthorities)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("it is empty")
	}
	return out, nil
}

const (
	// backdate makes new certificates valid for proxies whose clocks are behind.
	backdate = time.Minute
	// settlingTime is the time for which an authority is trusted before it signs, so that every proxy
	// knows it before the first certificate is used.
	settlingTime = time.Minute
	// overlap is the time for which a replaced authority remains trusted.
	overlap = 10 * time.Minute

	proxyLife = 24 * time.Hour            // default of dpCert.rotation.expiration
	rootLife  = 10 * 365 * 24 * time.Hour // default of conf.caCert.expiration
	leastLife = time.Minute               // of a certificate; below it, proxies would be busy with renewals
	mostLife  = 100 * 365 * 24 * time.Hour
)

// span bounds a configured lifetime; 0 selects the default.
func span(configured, otherwise time.Duration) time.Duration {
	if configured == 0 {
		configured = otherwise
	}
	return min(max(configured, leastLife), mostLife)
}

// rootRenewal returns the time at which an authority gets a successor: after four fifths of its
// lifetime.
func rootRenewal(from, until time.Time) time.Time { return from.Add(until.Sub(from) / 5 * 4) }

// proxyRenewal returns the time at which the certificate of a proxy is replaced: after 72 to 80
// percent of its lifetime. The exact time depends only on the name of the proxy, so that the
// certificates of a node are not all replaced at once.
func proxyRenewal(from, until time.Time, proxy string) time.Time {
	h := fnv.New32a()
	h.Write([]byte(proxy))
	life := until.Sub(from)
	early := time.Duration(float64(life) * 0.08 * float64(h.Sum32()) / (1 << 32))
	return from.Add(life/5*4 - early)
}

// systemAuthorities are the files with the system's trusted authorities: Debian and Alpine, Fedora,
// SUSE, OpenELEC.
var systemAuthorities = [...]string{
	"/etc/ssl/certs/ca-certificates.crt",
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
	"/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/ssl/ca-bundle.pem",
	"/etc/ssl/cert.pem",
}

// SystemCA returns the file with the system's trusted authorities, or "".
func SystemCA() string {
	for _, path := range systemAuthorities {
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() {
			return path
		}
	}
	return ""
}
