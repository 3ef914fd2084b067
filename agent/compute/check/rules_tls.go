package check

//lint:file-ignore SA1019 fields that Envoy still reads are checked

import (
	"crypto/tls"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/compute/syntax"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// maxALPN is the size of the longest ALPN protocol, in bytes.
const maxALPN = 255

// checkCommonTLS checks TLS settings that both sides have.
func checkCommonTLS(s *subject, m *tlsv3.CommonTlsContext) {
	if len(m.GetTlsCertificates()) > 0 && len(m.GetTlsCertificateSdsSecretConfigs()) > 0 {
		s.report(94, finding.Reject, "tlsCertificates", "certificates must be inline or come from SDS, not both")
	}
	names := strings.Join(m.GetAlpnProtocols(), ",")
	for name := range strings.SplitSeq(names, ",") { // like Envoy, which crashes at an empty one
		if names != "" && (name == "" || len(name) > maxALPN) {
			s.report(96, finding.Reject, "alpnProtocols", "%q has a protocol of %d bytes: use 1 to %d", clip.Value(names),
				len(name), maxALPN)
		}
	}
}

// certificates returns the number of certificates of a context.
func certificates(m *tlsv3.CommonTlsContext) int {
	return len(m.GetTlsCertificates()) + len(m.GetTlsCertificateSdsSecretConfigs())
}

func checkDownstreamTLS(s *subject, m *tlsv3.DownstreamTlsContext) {
	c := m.GetCommonTlsContext()
	if m.GetOcspStaplePolicy() == tlsv3.DownstreamTlsContext_MUST_STAPLE {
		for i, own := range c.GetTlsCertificates() {
			if own.GetOcspStaple() == nil {
				s.report(92, finding.Reject, finding.Item("commonTlsContext/tlsCertificates", i),
					"with MUST_STAPLE each certificate needs an ocsp_staple")
			}
		}
		for i, sds := range c.GetTlsCertificateSdsSecretConfigs() {
			if sds.GetSdsConfig().GetAds() != nil {
				s.report(92, finding.Reject, finding.Item("commonTlsContext/tlsCertificateSdsSecretConfigs", i),
					"certificates of the agent have no ocsp_staple, which MUST_STAPLE needs: use LENIENT_STAPLING")
			}
		}
	}
	if certificates(c) == 0 && c.GetTlsCertificateProviderInstance() == nil && c.GetTlsCertificateCertificateProvider() ==
		nil && c.GetTlsCertificateCertificateProviderInstance() == nil && c.GetCustomTlsCertificateSelector() == nil {
		s.report(92, finding.Reject,
			"commonTlsContext", "a server needs a certificate: give tls_certificates or tls_certificate_sds_secret_configs")
	}
}

func checkUpstreamTLS(s *subject, m *tlsv3.UpstreamTlsContext) {
	if n := certificates(m.GetCommonTlsContext()); n > 1 {
		s.report(93, finding.Reject, "commonTlsContext", "a client uses one certificate, but %d are given", n)
	}
}

// Kinds of secrets.
const (
	secretCertificate = "a certificate"
	secretValidation  = "a validation context"
	secretTickets     = "session ticket keys"
	secretGeneric     = "a generic secret"
)

// checkSDS records a secret that the management server provides.
func checkSDS(s *subject, m *tlsv3.SdsSecretConfig) {
	if m.GetSdsConfig() == nil && m.GetName() != "" {
		s.refer(staticSecret, m.GetName(), "", 98, finding.Reject,
			"without sds_config it is a secret of the bootstrap: set sds_config")
		return
	}
	if c := m.GetSdsConfig(); c.GetAds() == nil && c.GetSelf() == nil || m.GetName() == "" {
		return
	}
	s.refer(envoy.KindSecret, m.GetName(), "", 98, finding.Unusable,
		"its users wait until initial_fetch_timeout and then cannot use TLS")
	r := &s.out.refs[len(s.out.refs)-1]
	for i := len(s.path) - 1; i >= 0 && r.secret == ""; i-- {
		switch s.path[i].field {
		case "tlsCertificateSdsSecretConfigs":
			r.secret = secretCertificate
		case "validationContextSdsSecretConfig":
			r.secret = secretValidation
		case "sessionTicketKeysSdsSecretConfig":
			r.secret = secretTickets
		}
	}
}

// staticSecret is the kind of a reference to a secret of the bootstrap.
const staticSecret = envoy.NumKinds + 2

// checkTickets checks session ticket keys.
func checkTickets(s *subject, m *tlsv3.TlsSessionTicketKeys) {
	const length = 80
	for i, k := range m.GetKeys() {
		if data, given := inline(k); given && len(data) != length {
			s.report(92, finding.Reject, finding.Item("keys", i), "a session ticket key has %d bytes, but this one has %d",
				length, len(data))
		}
	}
}

// checkSecret records the kind of a secret.
func checkSecret(s *subject, m *tlsv3.Secret) {
	switch m.GetType().(type) {
	case *tlsv3.Secret_TlsCertificate:
		s.out.secret = secretCertificate
	case *tlsv3.Secret_ValidationContext:
		s.out.secret = secretValidation
	case *tlsv3.Secret_SessionTicketKeys:
		s.out.secret = secretTickets
	case *tlsv3.Secret_GenericSecret:
		s.out.secret = secretGeneric
	default:
		s.report(97, finding.Reject, "", "the secret is empty: set a certificate or a validation context")
	}
}

// inline returns inline data, or false for data in a file or an environment variable.
func inline(d *corev3.DataSource) ([]byte, bool) {
	switch v := d.GetSpecifier().(type) {
	case *corev3.DataSource_InlineBytes:
		return v.InlineBytes, true
	case *corev3.DataSource_InlineString:
		return []byte(v.InlineString), true
	}
	return nil, false
}

// checkCertificate checks that a certificate is readable and matches its key. The findings never
// contain the key.
func checkCertificate(s *subject, m *tlsv3.TlsCertificate) {
	chain, given := inline(m.GetCertificateChain())
	key, keyGiven := inline(m.GetPrivateKey())
	switch {
	case m.GetPkcs12() != nil || m.GetPassword() != nil:
	case given && keyGiven:
		if _, err := tls.X509KeyPair(chain, key); err != nil {
			s.report(92, finding.Reject, "", "the certificate and its key cannot be used: %s", clip.Value(err.Error()))
		}
	case given:
		if err := syntax.PEMFault(chain); err != "" {
			s.report(92, finding.Reject, "certificateChain", "%s", err)
		}
	case m.GetCertificateChain() == nil && m.GetPrivateKeyProvider() == nil:
		s.report(92, finding.Reject, "certificateChain", "there is no certificate")
	}
}

// checkValidation checks how peers' certificates are validated.
func checkValidation(s *subject, m *tlsv3.CertificateValidationContext) {
	if v := m.GetCustomValidatorConfig(); v != nil && !strings.HasPrefix(v.GetName(), "envoy.tls.cert_validator.") {
		s.report(95, finding.Reject, "customValidatorConfig/name",
			"there is no certificate validator %q: use envoy.tls.cert_validator.spiffe", clip.Value(v.GetName()))
	}
	ca, given := inline(m.GetTrustedCa())
	if given {
		if err := syntax.PEMFault(ca); err != "" {
			s.report(92, finding.Reject, "trustedCa", "%s", err)
		}
	}
	if s.inside("envoy.extensions.transport_sockets.tls.v3.CommonTlsContext.CombinedCertificateValidationContext") {
		return // the CA certificates come from the secret
	}
	if m.GetTrustedCa() != nil || m.GetCaCertificateProviderInstance() != nil || m.GetSystemRootCerts() != nil ||
		m.GetCustomValidatorConfig() != nil {
		return
	}
	if len(m.GetMatchTypedSubjectAltNames()) > 0 || len(m.GetMatchSubjectAltNames()) > 0 {
		s.report(95, finding.Reject, "", "the names of peers are checked, but not the CA that certifies them: set trusted_ca")
	}
	if m.GetCrl() != nil {
		s.report(95, finding.Reject, "crl", "a certificate revocation list needs trusted_ca")
	}
}

// checkSANMatcher checks a matcher of a peer's names.
func checkSANMatcher(s *subject, m *tlsv3.SubjectAltNameMatcher) {
	if m.GetSanType() == tlsv3.SubjectAltNameMatcher_OTHER_NAME && m.GetOid() == "" {
		s.report(95, finding.Reject, "oid", "a name of type OTHER_NAME needs oid")
	}
}

// checkTLSParameters checks TLS versions and cipher suites.
func checkTLSParameters(s *subject, m *tlsv3.TlsParameters) {
	low, high := m.GetTlsMinimumProtocolVersion(), m.GetTlsMaximumProtocolVersion()
	if low != tlsv3.TlsParameters_TLS_AUTO && high != tlsv3.TlsParameters_TLS_AUTO && low > high {
		s.report(96, finding.Unusable, "tlsMinimumProtocolVersion",
			"the lowest version %s is above the highest, %s: Envoy loads it, but no handshake succeeds", low, high)
	}
	for i, a := range m.GetSignatureAlgorithms() {
		if !signatureNames[a] {
			s.report(96, finding.Reject, finding.Item("signatureAlgorithms", i), "BoringSSL has no signature algorithm %q",
				clip.Value(a))
		}
	}
	for i, c := range m.GetCipherSuites() {
		if strings.HasPrefix(c, "[") != strings.HasSuffix(c, "]") {
			s.report(96, finding.Reject, finding.Item("cipherSuites", i), "the brackets in %q do not match", clip.Value(c))
		}
		for name := range strings.SplitSeq(strings.Trim(c, "[]"), "|") {
			if !cipherNames[strings.TrimLeft(name, "!-+")] {
				s.report(96, finding.Reject, finding.Item("cipherSuites", i),
					"BoringSSL has no cipher suite %q (suites of TLS 1.3 are not configurable)", clip.Value(name))
			}
		}
	}
	for i, c := range m.GetEcdhCurves() {
		if !curveNames[c] {
			s.report(96, finding.Reject, finding.Item("ecdhCurves", i), "BoringSSL has no group %q", clip.Value(c))
		}
	}
}

// signatureNames lists BoringSSL's signature algorithms.
var signatureNames = map[string]bool{
	"rsa_pkcs1_sha256": true, "rsa_pkcs1_sha384": true, "rsa_pkcs1_sha512": true, "ecdsa_secp256r1_sha256": true,
	"ecdsa_secp384r1_sha384": true,
	"ecdsa_secp521r1_sha512": true, "rsa_pss_rsae_sha256": true, "rsa_pss_rsae_sha384": true,
	"rsa_pss_rsae_sha512": true, "ed25519": true, "rsa_pkcs1_sha1": true, "ecdsa_sha1": true,
}

// cipherNames lists BoringSSL's cipher suites up to TLS 1.2, and its names for groups of suites.
var cipherNames = map[string]bool{
	"ECDHE-ECDSA-AES128-GCM-SHA256": true, "ECDHE-RSA-AES128-GCM-SHA256": true, "ECDHE-ECDSA-AES256-GCM-SHA384": true,
	"ECDHE-RSA-AES256-GCM-SHA384": true, "ECDHE-ECDSA-CHACHA20-POLY1305": true, "ECDHE-RSA-CHACHA20-POLY1305": true,
	"ECDHE-ECDSA-AES128-SHA": true, "ECDHE-RSA-AES128-SHA": true, "ECDHE-ECDSA-AES256-SHA": true,
	"ECDHE-RSA-AES256-SHA": true, "ECDHE-ECDSA-AES128-SHA256": true, "ECDHE-RSA-AES128-SHA256": true,
	"ECDHE-PSK-AES128-CBC-SHA": true, "ECDHE-PSK-AES256-CBC-SHA": true, "ECDHE-PSK-CHACHA20-POLY1305": true,
	"AES128-GCM-SHA256": true, "AES256-GCM-SHA384": true, "AES128-SHA": true, "AES256-SHA": true, "DES-CBC3-SHA": true,
	"PSK-AES128-CBC-SHA": true, "PSK-AES256-CBC-SHA": true, "ALL": true, "HIGH": true, "aRSA": true, "aECDSA": true,
	"ECDHE": true, "kRSA": true, "AES128": true, "AES256": true, "CHACHA20": true, "AESGCM": true, "SHA1": true,
	"3DES": true, "PSK": true,
}

// curveNames lists BoringSSL's key exchange groups.
var curveNames = map[string]bool{
	"P-224": true, "P-256": true, "P-384": true, "P-521": true, "X25519": true, "X25519Kyber768Draft00": true,
	"X25519MLKEM768": true, "MLKEM1024": true, "prime256v1": true, "secp384r1": true, "secp521r1": true,
}
