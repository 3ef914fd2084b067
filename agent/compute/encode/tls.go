package encode

import (
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of the TLS contexts, for the encoder below.
const (
	fieldCommonTLS   = 1 // UpstreamTlsContext
	fieldSNI         = 2
	fieldCombined    = 8  // CommonTlsContext
	fieldDefault     = 1  // CombinedCertificateValidationContext
	fieldTypedSANs   = 15 // CertificateValidationContext
	fieldSANType     = 1  // SubjectAltNameMatcher
	fieldSANMatcher  = 2
	fieldExactString = 1 // StringMatcher
	fieldPrefix      = 2
)

// UpstreamTLS encodes UpstreamTlsContexts that differ only in the server name and in the accepted
// SPIFFE IDs. It is not safe for concurrent use.
type UpstreamTLS struct {
	Members string // the common prefix of the mesh's SPIFFE IDs
	// Common holds the encoded fields of the CommonTlsContext but the validation context, and Trusted
	// those of the combined validation context but the default one.
	Common, Trusted []byte

	outer, inner []byte // scratch buffers
}

// Encode returns a context that accepts the given SPIFFE IDs, or all of the mesh if there are none.
// A proxy has thousands of them, and building messages is many times slower.
// TestUpstreamTLSIsCanonical compares the two.
func (t *UpstreamTLS) Encode(sni string, ids ...string) []byte {
	t.outer = t.outer[:0]
	if len(ids) == 0 {
		t.outer = t.appendSAN(t.outer, fieldPrefix, t.Members)
	}
	for _, id := range ids {
		t.outer = t.appendSAN(t.outer, fieldExactString, id)
	}
	t.inner = appendBytes(t.inner[:0], fieldDefault, t.outer)
	t.inner = append(t.inner, t.Trusted...)
	t.outer = append(t.outer[:0], t.Common...)
	t.outer = appendBytes(t.outer, fieldCombined, t.inner)
	out := appendBytes(make([]byte, 0, len(t.outer)+len(sni)+16), fieldCommonTLS, t.outer)
	if sni != "" {
		out = appendString(out, fieldSNI, sni)
	}
	return out
}

// appendSAN appends a matcher of one URI.
func (t *UpstreamTLS) appendSAN(b []byte, how protowire.Number, uri string) []byte {
	var buf [256]byte
	m := appendString(buf[:0], how, uri)
	t.inner = appendVarint(t.inner[:0], fieldSANType, uint64(tlsv3.SubjectAltNameMatcher_URI))
	t.inner = appendBytes(t.inner, fieldSANMatcher, m)
	return appendBytes(b, fieldTypedSANs, t.inner)
}
