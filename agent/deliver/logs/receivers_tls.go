package logs

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

// certificatesEach is the minimum interval of checks for changed files.
const certificatesEach = time.Second

// certificates holds the TLS configuration of a receiver. Handshakes check the files for changes,
// so new certificates apply to the next connection. If new files are invalid, the previous ones
// stay in use.
type certificates struct {
	cert, key, clientCA string // paths
	log                 *slog.Logger

	mu      sync.Mutex
	conf    *tls.Config
	files   [3]os.FileInfo // files of conf
	checked time.Time
	err     error // why the current files are not used
}

// openCertificates loads the files. It returns nil without TLS.
func openCertificates(cert, key, clientCA string, log *slog.Logger) (*certificates, error) {
	if cert == "" {
		return nil, nil
	}
	c := &certificates{cert: cert, key: key, clientCA: clientCA, log: log, checked: time.Now()}
	c.files = c.stat()
	var err error
	c.conf, err = c.load()
	return c, err
}

// server returns a server config that gets the certificates for each connection, or nil. Sessions
// are not resumed, because that would bypass a changed clientCA.
func (c *certificates) server() *tls.Config {
	if c == nil {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, SessionTicketsDisabled: true,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			conf, _ := c.current()
			return conf, nil
		}}
}

// current returns the current configuration, and why it differs from the files.
func (c *certificates) current() (*tls.Config, error) {
	if c == nil {
		return nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.checked) < certificatesEach {
		return c.conf, c.err
	}
	c.checked = time.Now()
	now := c.stat()
	if sameFiles(now, c.files) {
		c.err = nil
		return c.conf, nil
	}
	next, err := c.load()
	if err != nil {
		if c.err == nil {
			c.log.Error("new certificates are invalid; the previous ones stay in use", "error", err)
		}
		c.err = fmt.Errorf("%w; the previous certificates stay in use", err)
		return c.conf, c.err
	}
	c.conf, c.files, c.err = next, now, nil
	c.log.Info("certificates reloaded", "cert", c.cert)
	return c.conf, nil
}

func (c *certificates) stat() (out [3]os.FileInfo) {
	for i, path := range []string{c.cert, c.key, c.clientCA} {
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
func (c *certificates) load() (*tls.Config, error) {
	if st, err := os.Stat(c.key); err == nil && st.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("tls.key: %s is accessible to other users (mode %#o): create a new key with mode 0600",
			c.key, st.Mode().Perm())
	}
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return nil, fmt.Errorf("tls.cert and tls.key: %w", err)
	}
	out := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, SessionTicketsDisabled: true}
	if c.clientCA == "" {
		return out, nil
	}
	pem, err := os.ReadFile(c.clientCA)
	if err != nil {
		return nil, fmt.Errorf("tls.clientCA: %w", err)
	}
	out.ClientCAs, out.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !out.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, errors.New("tls.clientCA: " + c.clientCA + " contains no PEM certificate")
	}
	return out, nil
}
