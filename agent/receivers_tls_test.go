package agent_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// certificateOf returns a self-signed certificate and its key in PEM format.
func certificateOf(t *testing.T, serial int64) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	agenttest.Do(t, err)
	from := &x509.Certificate{SerialNumber: big.NewInt(serial), DNSNames: []string{"logs"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, from, from, &k.PublicKey, k)
	agenttest.Do(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(k)
	agenttest.Do(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
}

// TestReceiverCertificatesAreReplaced checks that replaced certificate files apply to new
// connections, that unusable files change nothing and are reported, and that open connections
// continue.
func TestReceiverCertificatesAreReplaced(t *testing.T) {
	dir := agenttest.ShortDir(t)
	agenttest.Do(t, os.Mkdir(filepath.Join(dir, "resources"), 0o755))
	position := func(name string, content []byte) {
		t.Helper()
		path := filepath.Join(dir, name)
		agenttest.Do(t, os.WriteFile(path+".new", content, 0o600), os.Rename(path+".new", path))
	}
	cert, key := certificateOf(t, 1)
	firstCA, firstKey := certificateOf(t, 10)
	position("cert", cert)
	position("key", key)
	position("ca", firstCA)
	r := agenttest.Up(t, dir, agent.Deps{},
		fmt.Sprintf(`accessLog.receivers=[{name: a, address: "127.0.0.1:0", file: a.log, tls: {cert: %[1]s/cert, key: %[1]s/key, clientCA: %[1]s/ca}}]`, dir))
	dial := func(cert, key []byte) (*tls.Conn, int64, error) {
		pair, err := tls.X509KeyPair(cert, key)
		agenttest.Do(t, err)
		// #nosec G402 -- the test checks only the serial number
		c, err := tls.Dial("tcp", r.Receivers()[0].Address,
			&tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}})
		if err != nil {
			return nil, 0, err
		}
		return c, c.ConnectionState().PeerCertificates[0].SerialNumber.Int64(), nil
	}
	// stored sends a line and waits until it is in the file. It returns false if the connection is
	// refused.
	lines := uint64(0)
	stored := func(c *tls.Conn) bool {
		_, err := io.WriteString(c, "line\n")
		if err == nil {
			err = c.CloseWrite()
		}
		if err == nil {
			_, err = io.Copy(io.Discard, c)
		}
		c.Close()
		if err != nil {
			return false
		}
		lines++
		received(t, r, lines)
		return true
	}
	open, serial, err := dial(firstCA, firstKey)
	agenttest.Do(t, err)
	if serial != 1 {
		t.Fatalf("serial %d", serial)
	}

	position("cert", []byte("garbage"))
	agenttest.Eventually(t, "it is told", func() bool {
		return strings.Contains(r.Receivers()[0].Health, "tls.cert and tls.key: ") &&
			strings.Contains(r.Receivers()[0].Health, "the previous certificates stay in use")
	})
	c, serial, err := dial(firstCA, firstKey)
	agenttest.Do(t, err)
	if serial != 1 || !stored(c) {
		t.Errorf("with garbage in the file: serial %d", serial)
	}

	cert, key = certificateOf(t, 2)
	position("key", key)
	position("cert", cert)
	agenttest.Eventually(t, "the new one is served", func() bool {
		c, serial, err := dial(firstCA, firstKey)
		agenttest.Do(t, err)
		return stored(c) && serial == 2
	})
	agenttest.Eventually(t, "the receiver is healthy", func() bool { return r.Receivers()[0].Health == "" })

	nextCA, nextKey := certificateOf(t, 11)
	position("ca", nextCA)
	agenttest.Eventually(t, "clients of the new authority are taken", func() bool {
		c, _, err := dial(nextCA, nextKey)
		return err == nil && stored(c)
	})
	if c, _, err := dial(firstCA, firstKey); err == nil && stored(c) {
		t.Error("a client of the authority before is taken")
	}
	if !stored(open) {
		t.Error("a connection of before is cut")
	}
}
