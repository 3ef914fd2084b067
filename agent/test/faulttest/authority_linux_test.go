package faulttest_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// authority writes a CA that is valid during a time to DIR/NAME.crt and DIR/NAME.key.
func (n *node) authority(t testing.TB, name string, begins, ends time.Time) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	agenttest.Do(t, err)
	cert, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(begins.UnixNano()),
		Subject: pkix.Name{CommonName: name}, NotBefore: begins, NotAfter: ends, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign}, &x509.Certificate{SerialNumber: big.NewInt(1)}, &key.PublicKey, key)
	agenttest.Do(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	agenttest.Do(t, err)
	agenttest.Write(t, n.path(name+".crt"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})))
	agenttest.WriteSecret(t, n.path(name+".key"),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
}

// provided returns a Mesh with a provided CA in $DIR/NAME.crt and $DIR/NAME.key.
func provided(mesh, name string) string {
	return "---\n{type: Mesh, name: " + mesh + ", mtls: {enabledBackend: own, backends: [{name: own, type: provided, " +
		"conf: {cert: {file: $DIR/" + name + ".crt}, key: {file: $DIR/" + name + ".key}}}]}}\n"
}
