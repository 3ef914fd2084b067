package receive

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/accesslog/accesslogtest"
)

// selfSigned returns a self-signed certificate.
func selfSigned(t *testing.T, name string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	from := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, from, from, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// TestTLS receives lines over TLS, only from clients with a certificate of the authority.
func TestTLS(t *testing.T) {
	server, roots := selfSigned(t, "receiver")
	client, clients := selfSigned(t, "sender")
	stranger, _ := selfSigned(t, "stranger")
	to := &accesslogtest.Collector{}
	r := receive(t, Options{To: &locked{to: to}, Drain: patience,
		TLS: &tls.Config{Certificates: []tls.Certificate{server}, ClientCAs: clients,
			ClientAuth: tls.RequireAndVerifyClientCert}})
	dial := func(certs ...tls.Certificate) *tls.Conn {
		return tls.Client(r.dial(), &tls.Config{RootCAs: roots, ServerName: "receiver", Certificates: certs})
	}
	for i, c := range []net.Conn{dial(), dial(stranger), r.dial()} {
		_, _ = c.Write([]byte("from nobody\n"))
		if _, err := c.Read(make([]byte, 100)); err == nil && i < 2 {
			t.Error("a client without a valid certificate is accepted")
		}
		c.Close()
		accesslogtest.Eventually(t, "the failed handshake is counted", func() bool {
			return r.Stats().Failed == uint64(i)+1
		})
	}
	c := dial(client)
	want := strings.Repeat(accesslogtest.Line(1, 1), 3000)
	send(t, c, want+"idle now, ")
	accesslogtest.Eventually(t, "the lines are stored", func() bool { return r.Stats().Written == 3000 })
	send(t, c, "and back\n")
	accesslogtest.Eventually(t, "the last line is stored", func() bool { return r.Stats().Written == 3001 })
	// The receiver sends a close alert, and reads until the sender closes.
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_, _ = c.Read(make([]byte, 1))
		_, _ = c.Write([]byte("goodbye"))
		c.Close()
	}()
	r.end()
	<-closed
	r.balance()
	if to.String() != want+"idle now, and back\ngoodbye\n" {
		t.Errorf("%d bytes are stored; stats %+v", to.Len(), r.Stats())
	}
}
