package identity

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	// maxProxies bounds the certificates that are kept: more than there can be proxies on a node.
	maxProxies = 16384
	// keepGone is how long a certificate outlives its dataplane: Envoys bring theirs, and are
	// restarted.
	keepGone = 10 * time.Minute
)

// proxy is the certificate of one proxy.
type proxy struct {
	mesh, name string // "" when it was read from a file that does not tell, until it is asked for
	file       string
	pair       *pair // nil: none yet
	names      []string
	issuer     *authority // nil: not looked for yet, or not trusted
	key        []byte
	secrets    *Secrets
	used       bool // in this pass
	dirty      bool // not on disk
	made       int  // certificates, by this process
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

// Proxy returns the secrets of a proxy with the given tags, made anew when those that it has are
// due, have other names or come from an authority that signs no longer. Mesh must have been called
// for the mesh in this pass. It fails when there are none that are valid.
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
			return nil, fmt.Errorf("the agent keeps %d certificates, which is the most it may: remove dataplanes that are "+
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

// stale says why a certificate has to be replaced, "" when it need not be.
func (p *proxy) stale(k *Keeper, st *meshState, names []string) string {
	if p.pair == nil {
		return "it has none"
	}
	if p.issuer == nil || !st.trusts(p.issuer) {
		p.issuer = st.issuer(p.pair)
	}
	switch {
	case !slices.Equal(p.names, names):
		return "its tags have changed"
	case k.now.Before(p.pair.cert.NotBefore) || !k.now.Before(p.until()):
		return "it is not valid at this time"
	case p.issuer == nil:
		return "its authority is not trusted any more"
	case st.signer != nil &&
		(p.issuer.backend != st.signer.backend || !p.issuer.replaced.IsZero() && p.issuer != st.signer):
		return "another authority signs"
	case !k.now.Before(p.renewal()):
		return "it is due"
	case p.until().Sub(p.issued()) > st.life+time.Second:
		return "it is valid for longer than the mesh wants"
	}
	return ""
}

// renew makes a certificate. Where that fails and the present one is good, it stays.
func (k *Keeper) renew(p *proxy, st *meshState, names []string, reason string) error {
	fresh, key, err := issue(st, names, k.now)
	if err != nil {
		if p.pair != nil && p.issuer != nil && slices.Equal(p.names, names) && k.now.Before(p.until()) &&
			!k.now.Before(p.pair.cert.NotBefore) {
			return nil
		}
		return err
	}
	k.o.Log.Debug("a certificate is made", "mesh", p.mesh, "dataplane", p.name, "reason", reason,
		"expires", fresh.cert.NotAfter)
	p.pair, p.key, p.names, p.issuer, p.secrets, p.dirty = fresh, key, names, st.signer, nil, true
	p.made++
	return nil
}

func issue(st *meshState, names []string, now time.Time) (*pair, []byte, error) {
	if st.signer == nil {
		return nil, nil, st.err
	}
	p, err := newProxy(st.signer.pair, names, st.life, now)
	if err != nil {
		return nil, nil, fmt.Errorf("no certificate can be made: %w", err)
	}
	key, err := p.keyPEM()
	return p, key, err
}

// keepProxy writes a certificate that is not on disk. It does not wait for the disk: one that is
// lost is made again.
func (k *Keeper) keepProxy(p *proxy) {
	if !p.dirty {
		return
	}
	if k.now.Before(k.writeAgain) {
		k.due(k.writeAgain)
		return
	}
	content := slices.Concat(fmt.Appendf(nil, madeLine+"\n", p.made), p.pair.certPEM(), p.key)
	if err := k.vault.write(p.file, content, false); err != nil {
		if !k.unwritten {
			k.o.Log.Warn("certificates cannot be written; they are in memory, and a restart makes others",
				"file", k.vault.path(p.file), "error", err)
		}
		k.unwritten, k.writeAgain = true, k.now.Add(retry)
		k.due(k.writeAgain)
		return
	}
	if k.unwritten {
		k.o.Log.Info("certificates can be written again")
	}
	p.dirty, k.unwritten = false, false
}

// madeLine stands in front of the certificate in its file: how many there were, this one included.
// Readers of PEM pass over it.
const madeLine = "certificates made for this proxy: %d"

// loadProxies reads the certificates that are kept. One that cannot be used is made again when it
// is asked for.
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
		k.o.Log.Warn("certificates of proxies cannot be used; others are made when they are asked for",
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
		return errors.New("it is damaged: it is not the certificate of a proxy")
	}
	key, err := read.keyPEM()
	if err != nil {
		return err
	}
	p.pair, p.key, p.names = read, key, namesOf(read.cert.URIs)
	if _, err := fmt.Sscanf(string(data[:min(len(data), 64)]), madeLine, &p.made); err != nil || p.made < 1 {
		p.made = 1 // it was written before they were counted
	}
	return nil
}

// sweep removes certificates of dataplanes that are gone, and those that nobody asks for and that
// have expired.
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
			k.o.Log.Warn("a certificate of a dataplane that is gone cannot be removed", "file", k.vault.path(file), "error", err)
			k.due(k.now.Add(retry))
			continue
		}
		delete(k.proxies, file)
	}
}
