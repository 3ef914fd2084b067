// Package certfiles serves TLS with certificates from files that may be replaced at any time. It
// starts no goroutines.
package certfiles

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// checkEach is the minimum interval of checks for changed files.
const checkEach = time.Second

// Options names the files of a server.
type Options struct {
	Cert, Key string
	ClientCA  string // "": clients need no certificate
	// Keys is the config key of the files in errors.
	Keys      string
	Protocols []string // application protocols (ALPN); nil: none
	Log       *slog.Logger
}

// Files holds the TLS configuration of a server. Handshakes check the files for changes, so new
// certificates apply to the next connection. If new files are invalid, the previous ones stay in
// use. It is safe for concurrent use.
type Files struct {
	Options

	mu      sync.Mutex
	conf    *tls.Config
	files   [3]os.FileInfo // files of conf
	checked time.Time
	err     error // why the current files are not used
}

// Open loads the files. It returns nil if o.Cert is empty. With an error, the files are not valid,
// and handshakes fail until they are.
func Open(o Options) (*Files, error) {
	if o.Cert == "" {
		return nil, nil
	}
	c := &Files{Options: o, checked: time.Now()}
	c.files = c.stat()
	c.conf, c.err = c.load()
	return c, c.err
}

// Server returns a server config that gets the certificates for each connection, or nil. Sessions
// are not resumed, because that would bypass a changed clientCA.
func (c *Files) Server() *tls.Config {
	if c == nil {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, SessionTicketsDisabled: true, NextProtos: c.Protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			conf, err := c.Current()
			if conf != nil {
				return conf, nil
			}
			return nil, err
		}}
}

// Names reports whether the certificate in use is valid for a host.
func (c *Files) Names(host string) bool {
	conf, _ := c.Current()
	return conf != nil && conf.Certificates[0].Leaf.VerifyHostname(host) == nil
}

// Current returns the current configuration, and why it differs from the files.
func (c *Files) Current() (*tls.Config, error) {
	if c == nil {
		return nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.checked) < checkEach {
		return c.conf, c.err
	}
	c.checked = time.Now()
	now := c.stat()
	if sameFiles(now, c.files) {
		if c.conf != nil {
			c.err = nil
		}
		return c.conf, c.err
	}
	next, err := c.load()
	if err != nil {
		if c.conf != nil {
			if c.err == nil {
				c.Log.Error("new certificates are invalid; the previous ones stay in use", "error", err)
			}
			err = fmt.Errorf("%w; the previous certificates stay in use", err)
		}
		c.err = err
		return c.conf, c.err
	}
	c.conf, c.files, c.err = next, now, nil
	c.Log.Info("certificates reloaded", "cert", c.Cert)
	return c.conf, nil
}

func (c *Files) stat() (out [3]os.FileInfo) {
	for i, path := range []string{c.Cert, c.Key, c.ClientCA} {
		if path != "" {
			out[i], _ = os.Stat(path) // load reports the error
		}
	}
	return out
}

func sameFiles(a, b [3]os.FileInfo) bool {
	for i := range a {
		switch {
		case (a[i] == nil) != (b[i] == nil):
			return false
		case a[i] != nil && !(os.SameFile(a[i], b[i]) && a[i].Size() == b[i].Size() && a[i].ModTime().Equal(b[i].ModTime()) &&
			a[i].Mode() == b[i].Mode()):
			return false
		}
	}
	return true
}

// load loads the certificate of the receiver and the CAs of its clients.
func (c *Files) load() (*tls.Config, error) {
	if st, err := os.Stat(c.Key); err == nil && st.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s.key: %s is accessible to other users (mode %#o): create a new key with mode 0600",
			c.Keys, c.Key, st.Mode().Perm())
	}
	pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
	if err != nil {
		return nil, fmt.Errorf("%s.cert and %s.key: %w", c.Keys, c.Keys, err)
	}
	out := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, SessionTicketsDisabled: true,
		NextProtos: c.Protocols}
	if c.ClientCA == "" {
		return out, nil
	}
	pem, err := os.ReadFile(c.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("%s.clientCA: %w", c.Keys, err)
	}
	out.ClientCAs, out.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !out.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, errors.New(c.Keys + ".clientCA: " + c.ClientCA + " contains no PEM certificate")
	}
	return out, nil
}
