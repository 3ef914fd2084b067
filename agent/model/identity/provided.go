package identity

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/files"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// recheck is the interval for checking files that the agent does not write.
const recheck = time.Minute

// source identifies the input of a provided authority, to detect changes.
type source struct {
	conf      *resource.MTLSConf
	cert, key stamp
	checkAt   time.Time
	err       error
}

// stamp identifies a version of a file.
type stamp struct {
	inode    uint64
	size     int64
	modified time.Time
}

func stampOf(path string) stamp {
	st, err := os.Stat(path)
	if err != nil {
		return stamp{}
	}
	out := stamp{size: st.Size(), modified: st.ModTime()}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		out.inode = sys.Ino
	}
	return out
}

func (b *backend) refreshProvided(k *Keeper, spec *resource.MTLSBackend) ([]string, error) {
	if spec.Conf == nil || spec.Conf.Cert == nil || spec.Conf.Key == nil {
		return nil, errors.New("conf.cert and conf.key are missing: give the certificate and the key of the authority")
	}
	b.list = slices.DeleteFunc(b.list, func(a *authority) bool {
		return !a.replaced.IsZero() && !k.now.Before(a.replaced.Add(overlap)) || !k.now.Before(a.cert.NotAfter)
	})
	if b.changed(k, spec.Conf) {
		b.read(k, spec.Conf)
	}
	if spec.Conf.Cert.File != "" || spec.Conf.Key.File != "" {
		k.due(b.source.checkAt)
	}
	now := b.newest(k.now)
	switch {
	case now == nil && b.source.err != nil:
		return nil, b.source.err
	case now == nil:
		return nil, errors.New("the authority's certificate has expired or is not valid yet: set another one")
	case b.source.err != nil:
		return []string{fmt.Sprintf("%v: the previous authority remains in force", b.source.err)}, nil
	}
	for _, a := range b.list {
		if !a.replaced.IsZero() {
			k.due(a.replaced.Add(overlap))
		}
	}
	if at := rootRenewal(now.cert.NotBefore, now.cert.NotAfter); k.now.Before(at) {
		k.due(at)
		return nil, nil
	}
	k.due(now.cert.NotAfter)
	return []string{ending(now.pair)}, nil
}

// changed reports whether the input of an authority may have changed.
func (b *backend) changed(k *Keeper, conf *resource.MTLSConf) bool {
	if b.source.conf != conf {
		return true
	}
	if conf.Cert.File == "" && conf.Key.File == "" || k.now.Before(b.source.checkAt) {
		return false
	}
	b.source.checkAt = k.now.Add(recheck)
	return b.source.err != nil || b.source.cert != stampOf(conf.Cert.File) || b.source.key != stampOf(conf.Key.File)
}

// read reads the authority. If it is unusable, the current one remains in force.
func (b *backend) read(k *Keeper, conf *resource.MTLSConf) {
	b.source = source{conf: conf, cert: stampOf(conf.Cert.File), key: stampOf(conf.Key.File), checkAt: k.now.Add(recheck)}
	p, err := providedPair(conf)
	if err == nil {
		err = inTime(p, k.now)
	}
	if b.source.err = err; err != nil {
		return
	}
	a := &authority{pair: p, backend: b.name}
	if n := len(b.list); n > 0 {
		if last := b.list[n-1]; last.cert.Equal(p.cert) {
			last.pair = p // the chain above may have changed
			return
		}
		a.since = k.now
		for _, old := range b.list {
			if old.replaced.IsZero() {
				old.replaced = k.now
			}
		}
	}
	b.list = append(b.list, a)
	b.list = b.list[max(0, len(b.list)-maxAuthorities):]
	k.o.Log.Info("certificate authority loaded", "mesh", b.mesh, "backend", b.name, "expires", p.cert.NotAfter)
}

func providedPair(conf *resource.MTLSConf) (*pair, error) {
	cert, err := readSource(conf.Cert, false)
	if err != nil {
		return nil, fmt.Errorf("conf.cert: %w", err)
	}
	key, err := readSource(conf.Key.Source(), true)
	if err != nil {
		return nil, fmt.Errorf("conf.key: %w", err)
	}
	p, err := parsePair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("conf.cert and conf.key are not a certificate and its key: %w", err)
	}
	if err := checkAuthority(p); err != nil {
		return nil, fmt.Errorf("conf.cert: %w", err)
	}
	return p, nil
}

// readSource returns the bytes of a data source. It does not read a key from a file that users
// other than its owner can read or write.
func readSource(d *resource.DataSource, secret bool) ([]byte, error) {
	switch {
	case len(d.Inline) > 0:
		return d.Inline, nil
	case d.InlineString != "":
		return []byte(d.InlineString), nil
	case d.File == "":
		return nil, fmt.Errorf("the secret %q cannot be read: this agent stores no secrets; use file, inline, "+
			"or inlineString", d.Secret)
	}
	f, err := files.OpenRegular(d.File)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case secret && st.Mode().Perm()&0o077 != 0:
		return nil, &refusedError{d.File,
			fmt.Sprintf("is accessible to users other than its owner (mode %#o) and contains a private key", st.Mode().Perm()),
			fmt.Sprintf("create a new key, make the agent's user %d the owner of the file, and change its mode to 0600",
				os.Geteuid())}
	}
	return readAll(f)
}
