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

// certificatesEach is the least time between two looks at the files of certificates.
const certificatesEach = time.Second

// certificates are what a receiver serves TLS with, and whose clients it takes. The files are
// looked at with each handshake, so that others in their place hold for the next connection. Where
// they cannot be used, those before go on to hold.
type certificates struct {
	cert, key, clientCA string // paths
	log                 *slog.Logger

	mu     sync.Mutex
	conf   *tls.Config
	files  [3]os.FileInfo // that conf is from
	looked time.Time
	err    error // why the files that are there now are not used
}

// openCertificates reads the files; nil where there is to be no TLS.
func openCertificates(cert, key, clientCA string, log *slog.Logger) (*certificates, error) {
	if cert == "" {
		return nil, nil
	}
	c := &certificates{cert: cert, key: key, clientCA: clientCA, log: log, looked: time.Now()}
	c.files = c.stat()
	var err error
	c.conf, err = c.load()
	return c, err
}

// server is the config of a server that asks for the certificates of each connection; nil for nil.
// Sessions are not resumed, since that would go past another clientCA.
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

// current returns what holds now, and why that is not what is in the files.
func (c *certificates) current() (*tls.Config, error) {
	if c == nil {
		return nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) < certificatesEach {
		return c.conf, c.err
	}
	c.looked = time.Now()
	now := c.stat()
	if sameFiles(now, c.files) {
		c.err = nil
		return c.conf, nil
	}
	next, err := c.load()
	if err != nil {
		if c.err == nil {
			c.log.Error("new certificates cannot be used, and those before are served on", "error", err)
		}
		c.err = fmt.Errorf("%w; the certificates before are served on", err)
		return c.conf, c.err
	}
	c.conf, c.files, c.err = next, now, nil
	c.log.Info("other certificates are served now", "cert", c.cert)
	return c.conf, nil
}

func (c *certificates) stat() (out [3]os.FileInfo) {
	for i, path := range []string{c.cert, c.key, c.clientCA} {
		if path != "" {
			out[i], _ = os.Stat(path) // what is wrong with it is said by load
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

// load reads the certificate of the receiver and the authorities of its clients.
func (c *certificates) load() (*tls.Config, error) {
	if st, err := os.Stat(c.key); err == nil && st.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("tls.key: %s is open to others (mode %#o): make a new key with the mode 0600",
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
		return nil, errors.New("tls.clientCA: " + c.clientCA + " holds no certificate in PEM")
	}
	return out, nil
}
