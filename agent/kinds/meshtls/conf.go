package meshtls

import (
	"slices"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// Modes of an inbound.
const (
	strict     = "Strict"     // only clients with a certificate of the mesh
	permissive = "Permissive" // others too
)

// Conf says how connections of the mesh are encrypted.
type Conf struct {
	TLSVersion *Version `json:"tlsVersion,omitempty"`
	TLSCiphers []string `json:"tlsCiphers,omitempty"` // of TLS 1.2 and older; TLS 1.3 has its own
	Mode       *string  `json:"mode,omitempty"`       // of inbounds; without it that of the Mesh
}

// Version bounds the versions of TLS. A bound that is not given, or TLSAuto, is Envoy's.
type Version struct {
	Min *string `json:"min,omitempty"`
	Max *string `json:"max,omitempty"`
}

const auto = "TLSAuto"

// versions are the names of the versions, from old to new, at the index that Envoy has for them.
func versions() []string {
	return []string{
		tlsv3.TlsParameters_TLS_AUTO: auto,
		tlsv3.TlsParameters_TLSv1_0:  "TLS10",
		tlsv3.TlsParameters_TLSv1_1:  "TLS11",
		tlsv3.TlsParameters_TLSv1_2:  "TLS12",
		tlsv3.TlsParameters_TLSv1_3:  "TLS13",
	}
}

// ciphers are those that are strong enough for a mesh and that Envoy knows.
func ciphers() []string {
	return []string{
		"ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305",
		"ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-CHACHA20-POLY1305",
	}
}

// protocol returns Envoy's value for a bound; the automatic one for nil.
func protocol(bound *string) tlsv3.TlsParameters_TlsProtocol {
	if bound == nil {
		return tlsv3.TlsParameters_TLS_AUTO
	}
	return tlsv3.TlsParameters_TlsProtocol(max(0, slices.Index(versions(), *bound)))
}

// contradicts reports whether no version lies between the bounds.
func (v *Version) contradicts() bool {
	return v != nil && protocol(v.Min) > protocol(v.Max) && protocol(v.Max) != tlsv3.TlsParameters_TLS_AUTO
}

// Validate checks names and bounds.
func (c *Conf) Validate(v *resource.Validator) {
	if c.Mode != nil {
		v.Field("mode").OneOf(*c.Mode, strict, permissive)
	}
	if t := c.TLSVersion; t != nil {
		at := v.Field("tlsVersion")
		known := true
		if t.Min != nil {
			known = at.Field("min").OneOf(*t.Min, versions()...)
		}
		if t.Max != nil {
			known = at.Field("max").OneOf(*t.Max, versions()...) && known
		}
		if known && t.contradicts() {
			at.Field("min").Faultf("%s is newer than the maximum, %s: no version is left", *t.Min, *t.Max)
		}
	}
	seen := make(map[string]bool, len(c.TLSCiphers))
	for i, s := range c.TLSCiphers {
		at := v.Field("tlsCiphers").Index(i)
		if at.OneOf(s, ciphers()...) && seen[s] {
			at.Faultf("%s stands twice: remove it here", s)
		}
		seen[s] = true
	}
}
