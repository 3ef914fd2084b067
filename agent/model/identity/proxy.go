package identity

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	// maxProxies limits the stored certificates. It is more than the number of proxies on a node.
	maxProxies = 16384
	// keepGone is the time for which a certificate is stored after its dataplane is gone, because
	// an Envoy that sends its dataplane may restart.
	keepGone = 10 * time.Minute
)

// proxy is the certificate of one proxy.
type proxy struct {
	mesh, name string // "" for a certificate from a file with a hashed name, until its first use
	file       string
	pair       *pair // nil before the first certificate
	names      []string
	issuer     *authority // nil if not searched yet, or not trusted
	key        []byte
	secrets    *Secrets
	used       bool // in this pass
	dirty      bool // not saved
	number     int  // number of certificates created
	goneSince  time.Time
}

func (p *proxy) until() time.Time {
	if p.pair == nil {
		return time.Time{}
	}
	return p.pair.cert.NotAfter
}

func (p *proxy) issued() time.Time { return p.pair.cert.NotBefore.Add(backdate) }

func (p *proxy) renewal() time.Time { return proxyRenewal(p.issued(), p.until(), p.file) }

// Proxy returns the secrets of a proxy with the given tags. It creates a new certificate if the
// current one is due, has other names, or comes from an authority that no longer signs. Call Mesh
// for the mesh earlier in the same pass. Proxy fails if there is no valid certificate.
func (k *Keeper) Proxy(mesh, name string, tags map[string][]string) (*Secrets, error) {
	st := k.meshes[mesh]
	if st == nil || !st.seen {
		return nil, fmt.Errorf("mesh %q does not enable mutual TLS", mesh)
	}
	names, err := Names(mesh, tags)
	if err != nil {
		return nil, err
	}
	file := fileOf(mesh, proxyPrefix, name)
	p := k.proxies[file]
	if p == nil {
		if len(k.proxies) >= maxProxies {
			return nil, fmt.Errorf("the agent stores %d certificates, the maximum: remove dataplanes that are "+
				"not used", len(k.proxies))
		}
		p = &proxy{file: file}
	}
	p.mesh, p.name, p.used = mesh, name, true
	if reason := p.stale(k, st, names); reason != "" {
		if err := k.renew(p, st, names, reason); err != nil {
			return nil, err
		}
	}
	if len(st.trust) == 0 {
		return nil, st.err
	}
	k.proxies[file] = p
	k.due(p.renewal())
	k.keepProxy(p)
	if p.secrets == nil || &p.secrets.authorities[0] != &st.trust[0] {
		p.secrets = &Secrets{chain: p.pair.certPEM(), key: p.key, authorities: st.trust, until: p.until()}
	}
	return p.secrets, nil
}

// stale returns the reason for replacing a certificate, or "".
func (p *proxy) stale(k *Keeper, st *meshState, names []string) string {
	if p.pair == nil {
		return "no certificate yet"
	}
	if p.issuer == nil || !st.trusts(p.issuer) {
		p.issuer = st.issuer(p.pair)
	}
	switch {
	case !slices.Equal(p.names, names):
		return "its tags have changed"
	case k.now.Before(p.pair.cert.NotBefore) || !k.now.Before(p.until()):
		return "it is not valid now"
	case p.issuer == nil:
		return "its authority is no longer trusted"
	case st.signer != nil &&
		(p.issuer.backend != st.signer.backend || !p.issuer.replaced.IsZero() && p.issuer != st.signer):
		return "another authority signs"
	case !k.now.Before(p.renewal()):
		return "it is due"
	case p.until().Sub(p.issued()) > st.life+time.Second:
		return "its lifetime exceeds that of the mesh"
	}
	return ""
}

// renew creates a certificate. On failure the current certificate stays in use while it is valid.
func (k *Keeper) renew(p *proxy, st *meshState, names []string, reason string) error {
	fresh, key, err := issue(st, names, k.now)
	if err != nil {
		if p.pair != nil && p.issuer != nil && slices.Equal(p.names, names) && k.now.Before(p.until()) &&
			!k.now.Before(p.pair.cert.NotBefore) {
			return nil
		}
		return err
	}
	k.o.Log.Debug("certificate created", "mesh", p.mesh, "dataplane", p.name, "reason", reason,
		"expires", fresh.cert.NotAfter)
	p.pair, p.key, p.names, p.issuer, p.secrets, p.dirty = fresh, key, names, st.signer, nil, true
	p.number++
	return nil
}

func issue(st *meshState, names []string, now time.Time) (*pair, []byte, error) {
	if st.signer == nil {
		return nil, nil, st.err
	}
	p, err := newProxy(st.signer.pair, names, st.life, now)
	if err != nil {
		return nil, nil, fmt.Errorf("creating a certificate failed: %w", err)
	}
	key, err := p.keyPEM()
	return p, key, err
}

// keepProxy saves a certificate without waiting for the disk, because a lost certificate is simply
// recreated.
func (k *Keeper) keepProxy(p *proxy) {
	if !p.dirty {
		return
	}
	if k.now.Before(k.writeAgain) {
		k.due(k.writeAgain)
		return
	}
	content := slices.Concat(fmt.Appendf(nil, madeLine+"\n", p.number), p.pair.certPEM(), p.key)
	if err := k.vault.write(p.file, content, false); err != nil {
		if !k.unwritten {
			k.o.Log.Warn("certificates cannot be saved and will be replaced at a restart",
				"file", k.vault.path(p.file), "error", err)
		}
		k.unwritten, k.writeAgain = true, k.now.Add(retry)
		k.due(k.writeAgain)
		return
	}
	if k.unwritten {
		k.o.Log.Info("certificates can be saved again")
	}
	p.dirty, k.unwritten = false, false
}

// madeLine precedes the certificate in its file and holds the number of certificates created so
// far. PEM readers skip it.
const madeLine = "certificates made for this proxy: %d"

// loadProxies reads the stored certificates. An unusable one is recreated on its next use.
func (k *Keeper) loadProxies() {
	bad := 0
	var first error
	for _, file := range k.vault.files() {
		if len(k.proxies) >= maxProxies {
			break
		}
		p := &proxy{file: file}
		p.mesh, p.name, _ = proxyOf(file)
		if err := p.load(&k.vault); err != nil {
			if bad++; bad == 1 {
				first = fmt.Errorf("%s: %w", k.vault.path(file), err)
			}
		}
		k.proxies[file] = p
	}
	if bad > 0 {
		k.o.Log.Warn("stored certificates of proxies are unusable and will be replaced on their next use",
			"files", bad, "first", first)
	}
}

func (p *proxy) load(v *vault) error {
	data, err := v.read(p.file)
	if err != nil {
		return err
	}
	read, err := parsePair(data, data)
	if err != nil {
		return fmt.Errorf("it is damaged: %w", err)
	}
	if read.cert.IsCA || len(read.cert.URIs) == 0 {
		return errors.New("it is damaged: it is not a proxy certificate")
	}
	key, err := read.keyPEM()
	if err != nil {
		return err
	}
	p.pair, p.key, p.names = read, key, namesOf(read.cert.URIs)
	if _, err := fmt.Sscanf(string(data[:min(len(data), 64)]), madeLine, &p.number); err != nil || p.number < 1 {
		p.number = 1 // written before certificates were counted
	}
	return nil
}

// sweep removes the certificates of removed dataplanes, and unused expired ones.
func (k *Keeper) sweep(exists func(mesh, dataplane string) bool) {
	for file, p := range k.proxies {
		expired := !p.used && !k.now.Before(p.until())
		switch {
		case p.used || p.name == "" || exists(p.mesh, p.name):
			p.goneSince = time.Time{}
		case p.goneSince.IsZero():
			p.goneSince = k.now
		}
		gone := !p.goneSince.IsZero()
		if !expired && gone && k.now.Before(p.goneSince.Add(keepGone)) {
			k.due(p.goneSince.Add(keepGone))
			continue
		}
		if !expired && !gone {
			continue
		}
		if err := k.vault.remove(file); err != nil {
			k.o.Log.Warn("the certificate of a removed dataplane cannot be deleted", "file", k.vault.path(file), "error", err)
			k.due(k.now.Add(retry))
			continue
		}
		delete(k.proxies, file)
	}
}
