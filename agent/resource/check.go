package resource

import (
	"net/netip"
	"slices"
	"strings"
)

// The checks that validation of several kinds shares. Each reports at the validator it is given.

// Protocols that a port may speak.
var protocols = [...]string{"http", "http2", "grpc", "tcp", "tls", "kafka"}

const maxTagValue = 253

// Port checks a port number, and says whether it is one.
func (v *Validator) Port(p uint32) bool {
	if p < 1 || p > 65535 {
		v.Faultf("%d is not a port: 1 to 65535 is allowed", p)
		return false
	}
	return true
}

// portOrZero allows the zero that stands for a default.
func (v *Validator) portOrZero(p uint32) {
	if p != 0 {
		v.Port(p)
	}
}

// OneOf checks that a value is one of those allowed, and says whether it is.
func (v *Validator) OneOf(s string, allowed ...string) bool {
	if slices.Contains(allowed, s) {
		return true
	}
	if s == "" {
		v.Faultf("the value is missing: give one of %s", strings.Join(allowed, ", "))
	} else {
		v.Faultf("%s is not allowed: give one of %s", quote(s), strings.Join(allowed, ", "))
	}
	return false
}

// optional checks a value that may be missing.
func (v *Validator) optional(s string, allowed ...string) {
	if s != "" {
		v.OneOf(s, allowed...)
	}
}

// name checks the name of a resource, a mesh, a zone or a port.
func (v *Validator) name(s string) {
	if reason := nameFault(s); reason != "" {
		v.Faultf("%s", reason)
	}
}

// optionalName checks a name that may be missing.
func (v *Validator) optionalName(s string) {
	if s != "" {
		v.name(s)
	}
}

// serverName checks the server name of TLS, which may be missing.
func (v *Validator) serverName(s string) {
	if s != "" {
		v.HostName(s, "a server name")
	}
}

// parseIP reads an IP address without a zone.
func parseIP(s string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(s)
	return a, err == nil && a.Zone() == ""
}

func (v *Validator) ip(s string) (netip.Addr, bool) {
	a, ok := parseIP(s)
	if !ok {
		v.Faultf("%s is not an IP address: write IPv4 or IPv6 without a zone", quote(s))
	}
	return a, ok
}

// bindIP checks an address that something is reached or listens at: an IP address, but not "any".
func (v *Validator) bindIP(s string) {
	if a, ok := v.ip(s); ok && a.IsUnspecified() {
		v.Faultf("%s stands for every address: give the one that is meant", quote(s))
	}
}

// Host checks an address that others dial: an IP address or a host name.
func (v *Validator) Host(s string) {
	if s == "" {
		v.Faultf("the address is missing: give an IP address or a host name")
		return
	}
	if a, ok := parseIP(s); ok {
		if a.IsUnspecified() {
			v.Faultf("%s stands for every address: give the one that others dial", quote(s))
		}
		return
	}
	v.HostName(s, "an IP address or a host name")
}

// HostName checks a DNS name as RFC 1123 section 2.1 has it, with the underscores that service names use and an
// optional dot at the end. The last label has a letter, so that a mistyped IP address does not pass for a name.
func (v *Validator) HostName(s, wanted string) {
	name := strings.TrimSuffix(s, ".")
	if name == "" || len(name) > maxName {
		v.Faultf("%s is not %s: a name has 1 to %d characters", quote(s), wanted, maxName)
		return
	}
	last := ""
	for label := range strings.SplitSeq(name, ".") {
		last = label
		if label == "" || len(label) > 63 {
			v.Faultf("%s is not %s: the parts between the dots have 1 to 63 characters", quote(s), wanted)
			return
		}
		if label[0] == '-' || label[len(label)-1] == '-' {
			v.Faultf("%s is not %s: the part %s begins or ends with '-'", quote(s), wanted, quote(label))
			return
		}
		for i := range len(label) {
			if c := label[i]; !alnum(c) && c != '-' && c != '_' {
				v.Faultf("%s is not %s: only letters, digits, '-', '_' and '.' are allowed", quote(s), wanted)
				return
			}
		}
	}
	if strings.Trim(last, "0123456789") == "" {
		v.Faultf("%s is not %s: the part behind the last dot has no letter, and it is not an IP address either", quote(s), wanted)
	}
}

// Tags checks names and values of tags. Any value may be "*" where the tags select.
func (v *Validator) Tags(tags map[string]string, selecting bool) {
	for _, k := range sortedKeys(tags) {
		at := v.Key(k)
		switch value := tags[k]; {
		case k == "":
			at.Faultf("the name of a tag is empty")
		case !tagChars(k, true):
			at.Faultf("the name of a tag has letters, digits, '.', '-', '_', ':' and '/' alone")
		case value == "":
			at.Faultf("the value of the tag is empty: give one or remove the tag")
		case selecting && value == "*":
		case len(value) > maxTagValue:
			at.Faultf("the value has %d characters, at most %d are allowed", len(value), maxTagValue)
		case !tagChars(value, false):
			at.Faultf("%s: the value of a tag has letters, digits, '.', '-', '_' and ':' alone", quote(value))
		}
	}
}

func tagChars(s string, slash bool) bool {
	for i := range len(s) {
		c := s[i]
		if !alnum(c) && c != '.' && c != '-' && c != '_' && c != ':' && (c != '/' || !slash) {
			return false
		}
	}
	return true
}

// serviceTags checks tags that make something part of a service.
func (v *Validator) serviceTags(tags map[string]string) {
	v.Tags(tags, false)
	if _, ok := tags[TagService]; !ok {
		v.Key(TagService).Faultf("the tag is missing: it names the service")
	}
	if p, ok := tags[TagProtocol]; ok && p != "" {
		v.Key(TagProtocol).OneOf(p, protocols[:]...)
	}
}

// matchLabels checks a selector by labels.
func (v *Validator) matchLabels(labels map[string]string) {
	for _, k := range sortedKeys(labels) {
		if reason := labelKeyFault(k); reason != "" {
			v.Key(k).Faultf("%s", reason)
		}
		if reason := wordFault(labels[k]); reason != "" {
			v.Key(k).Faultf("the value %s", reason)
		}
	}
}

// unset reports a field that is set where it has no meaning.
func (v *Validator) unset(set bool, field, format string, args ...any) {
	if set {
		v.Field(field).Faultf(format, args...)
	}
}

// validate checks that exactly one source is given.
func (s *DataSource) validate(v *Validator) {
	if s == nil {
		return
	}
	n := 0
	for _, set := range []bool{s.Secret != "", s.File != "", len(s.Inline) > 0, s.InlineString != ""} {
		if set {
			n++
		}
	}
	if n != 1 {
		v.Faultf("%d sources are given: give exactly one of secret, file, inline, inlineString", n)
	}
}

// keyPair checks that a certificate has its key.
func (v *Validator) keyPair(cert, key *DataSource) {
	switch {
	case cert != nil && key == nil:
		v.Field("clientKey").Faultf("the key is missing: clientCert needs one")
	case cert == nil && key != nil:
		v.Field("clientCert").Faultf("the certificate is missing: clientKey needs one")
	}
	cert.validate(v.Field("clientCert"))
	key.validate(v.Field("clientKey"))
}
