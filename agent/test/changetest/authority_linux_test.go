package changetest_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tls "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// authority is a builtin authority of mesh shop, as a control plane makes it.
type authority struct {
	t               testing.TB
	cert            *x509.Certificate
	key             *rsa.PrivateKey
	certPEM, keyPEM []byte
	issued          map[string]*tls.TlsCertificate // by name of the proxy
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	agenttest.Do(t, err)
	der, err := x509.CreateCertificate(rand.Reader, template(), template(), key.Public(), key)
	agenttest.Do(t, err)
	cert, err := x509.ParseCertificate(der)
	agenttest.Do(t, err)
	return &authority{t: t, cert: cert, key: key, certPEM: encoded("CERTIFICATE", der),
		keyPEM: encoded("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key)), issued: map[string]*tls.TlsCertificate{}}
}

func template() *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{Organization: []string{"Kuma"},
		OrganizationalUnit: []string{"Mesh"}, CommonName: "shop"}, URIs: uris("spiffe://shop"),
		NotBefore: now.Add(-time.Minute), NotAfter: now.Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign}
}

func encoded(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func uris(list ...string) (out []*url.URL) {
	for _, s := range list {
		u, err := url.Parse(s)
		if err != nil {
			panic(err)
		}
		out = append(out, u)
	}
	return out
}

// fill adds the authority or the certificate of a proxy to a recorded secret.
func (a *authority) fill(s *tls.Secret, p *kumaProxy) {
	inline := func(b []byte) *core.DataSource {
		return &core.DataSource{Specifier: &core.DataSource_InlineBytes{InlineBytes: b}}
	}
	if strings.HasPrefix(s.Name, "mesh_ca:") {
		s.Type = &tls.Secret_ValidationContext{ValidationContext: &tls.CertificateValidationContext{
			TrustedCa: inline(a.certPEM)}}
		return
	}
	if a.issued[p.name] == nil {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		agenttest.Do(a.t, err)
		now := time.Now()
		der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(now.UnixNano()),
			URIs:      uris("spiffe://shop/"+p.service, "kuma://kuma.io/service/"+p.service),
			NotBefore: now.Add(-time.Minute), NotAfter: now.Add(time.Hour), BasicConstraintsValid: true,
			KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}},
			a.cert, key.Public(), a.key)
		agenttest.Do(a.t, err)
		pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
		agenttest.Do(a.t, err)
		a.issued[p.name] = &tls.TlsCertificate{CertificateChain: inline(encoded("CERTIFICATE", der)),
			PrivateKey: inline(encoded("PRIVATE KEY", pkcs8))}
	}
	s.Type = &tls.Secret_TlsCertificate{TlsCertificate: a.issued[p.name]}
}
