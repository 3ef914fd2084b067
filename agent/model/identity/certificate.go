package identity

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"time"
)

// maxCertificate limits the certificate of a proxy in bytes. BoringSSL, Envoy's TLS library,
// accepts chains of up to 100 KB.
const maxCertificate = 64 << 10

// pair is a certificate with its key, and the chain above it.
type pair struct {
	cert  *x509.Certificate
	above []*x509.Certificate
	key   crypto.Signer
}

// certPEM returns the certificate and the certificates above it that are not self-signed, which a
// peer may lack.
func (p *pair) certPEM() []byte {
	out := certBlock(p.cert)
	for _, c := range p.above {
		if !selfSigned(c) {
			out = append(out, certBlock(c)...)
		}
	}
	return out
}

// keyPEM returns the key as PKCS #8.
func (p *pair) keyPEM() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(p.key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func certBlock(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

func selfSigned(c *x509.Certificate) bool {
	return bytes.Equal(c.RawSubject, c.RawIssuer) && c.CheckSignatureFrom(c) == nil
}

// parsePair parses a PEM chain and the key of its first certificate. Errors do not quote the input.
func parsePair(certPEM, keyPEM []byte) (*pair, error) {
	t, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, err
	}
	key, ok := t.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("a key of type %T cannot sign", t.PrivateKey)
	}
	p := &pair{key: key}
	for i, der := range t.Certificate {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("certificate %d of the chain: %w", i+1, err)
		}
		if i == 0 {
			p.cert = c
		} else {
			p.above = append(p.above, c)
		}
	}
	return p, nil
}

// checkAuthority returns an error if a pair cannot sign for proxies (X509-SVID, sections 4.1 and
// 4.3).
func checkAuthority(p *pair) error {
	switch c := p.cert; {
	case !c.IsCA:
		return errors.New("the certificate is not an authority's: create one with the basic constraint CA:TRUE")
	case c.KeyUsage&x509.KeyUsageCertSign == 0:
		return errors.New("the certificate cannot sign others: create one with the key usage keyCertSign")
	case c.KeyUsage&x509.KeyUsageKeyAgreement != 0:
		return errors.New("the certificate has the key usage keyAgreement, which an authority must not have: make " +
			"one without")
	}
	switch key := p.key.Public().(type) {
	case *ecdsa.PublicKey:
		return nil
	case *rsa.PublicKey:
		if n := key.N.BitLen(); n < 2048 {
			return fmt.Errorf("the RSA key has %d bits: create one with at least 2048", n)
		}
		return nil
	default:
		return fmt.Errorf("a key of type %T is not supported: create an ECDSA or RSA key", key)
	}
}

// newRoot creates an authority: a key and its certificate. The key is RSA of the given size, or
// ECDSA P-256 for 0.
func newRoot(mesh, backend string, rsaBits int, life time.Duration, now time.Time) (*pair, error) {
	uris, err := parseNames([]string{"spiffe://" + mesh})
	if err != nil {
		return nil, err
	}
	var key crypto.Signer
	if rsaBits > 0 {
		key, err = rsa.GenerateKey(rand.Reader, rsaBits)
	} else {
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{
		Subject:               rootSubject(mesh, backend),
		URIs:                  uris,
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(life),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	return sign(t, &pair{cert: t, key: key}, key)
}

// rootSubject names the mesh and the backend of an authority. parseRoots compares it to detect a
// file in the wrong place.
func rootSubject(mesh, backend string) pkix.Name {
	return pkix.Name{Organization: []string{"nearside"}, OrganizationalUnit: []string{backend}, CommonName: mesh}
}

// newProxy creates the certificate of a proxy. It expires no later than the authority.
func newProxy(authority *pair, names []string, life time.Duration, now time.Time) (*pair, error) {
	uris, err := parseNames(names)
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	until := now.Add(life)
	if until.After(authority.cert.NotAfter) {
		until = authority.cert.NotAfter
	}
	p, err := sign(&x509.Certificate{
		URIs:                  uris, // the only identity of a certificate without a subject
		NotBefore:             now.Add(-backdate),
		NotAfter:              until,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}, authority, key)
	if err != nil {
		return nil, err
	}
	if n := len(p.cert.Raw); n > maxCertificate {
		return nil, fmt.Errorf("the certificate would have %d bytes, but at most %d are allowed: give the dataplane fewer "+
			"or shorter tags", n, maxCertificate)
	}
	if !selfSigned(authority.cert) {
		p.above = append([]*x509.Certificate{authority.cert}, authority.above...)
	}
	return p, nil
}

// sign creates the certificate of a key, with a random serial number.
func sign(t *x509.Certificate, by *pair, key crypto.Signer) (*pair, error) {
	der, err := x509.CreateCertificate(rand.Reader, t, by.cert, key.Public(), by.key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &pair{cert: cert, key: key}, nil
}
