package resource

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/agent/model/secret"
)

// Checks that several kinds share. Each reports its faults to the validator.

// Protocols of ports.
var protocols = [...]string{"http", "http2", "grpc", "tcp", "tls", "kafka"}

const maxTagValue = 253

// Port checks a port number and reports whether it is valid.
func (v *Validator) Port(p uint32) bool {
	if p < 1 || p > 65535 {
		v.Faultf("%d is not a port: 1 to 65535 is allowed", p)
		return false
	}
	return true
}

// portOrZero accepts zero, which selects a default.
func (v *Validator) portOrZero(p uint32) {
	if p != 0 {
		v.Port(p)
	}
}

// OneOf checks that a value is among those allowed and reports whether it is.
func (v *Validator) OneOf(s string, allowed ...string) bool {
	if slices.Contains(allowed, s) {
		return true
	}
	if s == "" {
		v.Faultf("the value is missing: give one of %s", strings.Join(allowed, ", "))
	} else {
		v.Faultf("%s is not allowed: give one of %s", strict.Quote(s), strings.Join(allowed, ", "))
	}
	return false
}

// optional checks a value that may be empty.
func (v *Validator) optional(s string, allowed ...string) {
	if s != "" {
		v.OneOf(s, allowed...)
	}
}

// name checks the name of a resource, mesh, zone, or port.
func (v *Validator) name(s string) {
	if reason := nameFault(s); reason != "" {
		v.Faultf("%s", reason)
	}
}

// optionalName checks a name that may be empty.
func (v *Validator) optionalName(s string) {
	if s != "" {
		v.name(s)
	}
}

// serverName checks a TLS server name, which may be empty.
func (v *Validator) serverName(s string) {
	if s != "" {
		v.HostName(s, "a server name")
	}
}

// parseIP parses an IP address without a zone.
func parseIP(s string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(s)
	return a, err == nil && a.Zone() == ""
}

func (v *Validator) ip(s string) (netip.Addr, bool) {
	a, ok := parseIP(s)
	if !ok {
		v.Faultf("%s is not an IP address: write IPv4 or IPv6 without a zone", strict.Quote(s))
	}
	return a, ok
}

// bindIP checks an IP address to listen on or connect to. The unspecified address is invalid.
func (v *Validator) bindIP(s string) {
	if a, ok := v.ip(s); ok && a.IsUnspecified() {
		v.Faultf("%s means every address: give a specific one", strict.Quote(s))
	}
}

// Host checks an address to connect to: an IP address or a host name.
func (v *Validator) Host(s string) {
	if s == "" {
		v.Faultf("the address is missing: give an IP address or a host name")
		return
	}
	if a, ok := parseIP(s); ok {
		if a.IsUnspecified() {
			v.Faultf("%s means every address: give the one that others connect to", strict.Quote(s))
		}
		return
	}
	v.HostName(s, "an IP address or a host name")
}

// HostName checks a DNS name by RFC 1123 section 2.1, with underscores as in service names and an
// optional final dot. The last label must contain a letter, so that a mistyped IP address is not
// accepted as a name.
func (v *Validator) HostName(s, wanted string) {
	name := strings.TrimSuffix(s, ".")
	if name == "" || len(name) > maxName {
		v.Faultf("%s is not %s: a name has 1 to %d characters", strict.Quote(s), wanted, maxName)
		return
	}
	last := ""
	for label := range strings.SplitSeq(name, ".") {
		last = label
		if label == "" || len(label) > 63 {
			v.Faultf("%s is not %s: the parts between the dots have 1 to 63 characters", strict.Quote(s), wanted)
			return
		}
		if label[0] == '-' || label[len(label)-1] == '-' {
			v.Faultf("%s is not %s: the part %s begins or ends with '-'", strict.Quote(s), wanted, strict.Quote(label))
			return
		}
		for i := range len(label) {
			if c := label[i]; !alnum(c) && c != '-' && c != '_' {
				v.Faultf("%s is not %s: only letters, digits, '-', '_' and '.' are allowed", strict.Quote(s), wanted)
				return
			}
		}
	}
	if strings.Trim(last, "0123456789") == "" {
		v.Faultf("%s is not %s: the part after the last dot has no letter, and it is not an IP address",
			strict.Quote(s), wanted)
	}
}

// Tags checks the names and values of tags. With selecting, the value "*" is allowed.
func (v *Validator) Tags(tags map[string]string, selecting bool) {
	for _, k := range sortedKeys(tags) {
		at := v.Key(k)
		switch value := tags[k]; {
		case k == "":
			at.Faultf("the name of a tag is empty")
		case !tagChars(k, true):
			at.Faultf("the name of a tag may contain only letters, digits, '.', '-', '_', ':' and '/'")
		case value == "":
			at.Faultf("the value of the tag is empty: give one")
		case selecting && value == "*":
		case len(value) > maxTagValue:
			at.Faultf("the value has %d characters, at most %d are allowed", len(value), maxTagValue)
		case !tagChars(value, false):
			at.Faultf("%s: the value of a tag may contain only letters, digits, '.', '-', '_' and ':'", strict.Quote(value))
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

// serviceTags checks the tags of an instance of a service.
func (v *Validator) serviceTags(tags map[string]string) {
	v.Tags(tags, false)
	if _, ok := tags[TagService]; !ok {
		v.Key(TagService).Faultf("the tag is missing: it names the service")
	}
	if p, ok := tags[TagProtocol]; ok && p != "" {
		v.Key(TagProtocol).OneOf(p, protocols[:]...)
	}
}

// matchLabels checks a label selector.
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

// unset reports a field that is set but has no meaning here.
func (v *Validator) unset(set bool, field, format string, args ...any) {
	if set {
		v.Field(field).Faultf(format, args...)
	}
}

// validate checks that exactly one source is set.
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
	switch {
	case n != 1:
		v.Faultf("%d sources are given: give exactly one of secret, file, inline, inlineString", n)
	case secret.IsRedacted(s.InlineString):
		v.Field("inlineString").Faultf("%s", secret.Missing)
	}
}

// keyPair checks that a certificate has its key.
func (v *Validator) keyPair(cert *DataSource, key *KeySource) {
	switch {
	case cert != nil && key == nil:
		v.Field("clientKey").Faultf("the key is missing: clientCert needs one")
	case cert == nil && key != nil:
		v.Field("clientCert").Faultf("the certificate is missing: clientKey needs one")
	}
	cert.validate(v.Field("clientCert"))
	key.Source().validate(v.Field("clientKey"))
}

// Limits of names and labels, as in Kubernetes and Kuma.
const (
	maxName       = 253
	maxLabelName  = 63
	maxLabelValue = 63
)

// nameFault describes the fault in the name of a resource or mesh, or returns "".
func nameFault(name string) string {
	switch {
	case name == "":
		return "the name is missing"
	case len(name) > maxName:
		return fmt.Sprintf("the name has %d characters, at most %d are allowed", len(name), maxName)
	}
	for i := range len(name) {
		if c := name[i]; !lower(c) && c != '-' && c != '.' && c != '_' {
			return fmt.Sprintf("%s is not a name: only lower-case letters, digits, '-', '.' and '_' are allowed",
				strict.Quote(name))
		}
	}
	if !lower(name[0]) || !lower(name[len(name)-1]) {
		return fmt.Sprintf("%s is not a name: it must begin and end with a lower-case letter or a digit", strict.Quote(name))
	}
	return ""
}

// maxMeshName is the maximum length of a mesh's name, so that the node ids of its proxies fit.
const maxMeshName = 63

// meshNameFault describes the fault in the name of a mesh, or returns "". The node id of an Envoy
// is the name of the mesh, a dot, and the name of the Dataplane, so a mesh with a dot could have no
// proxies.
func meshNameFault(name string) string {
	switch reason := nameFault(name); {
	case reason != "":
		return reason
	case strings.Contains(name, "."):
		return fmt.Sprintf("%s is not the name of a mesh: it has a dot, which ends the name of the mesh in the node ids of "+
			"proxies; use '-' instead", strict.Quote(name))
	case len(name) > maxMeshName:
		return fmt.Sprintf("the name of the mesh has %d characters, and at most %d fit into the node ids of proxies",
			len(name), maxMeshName)
	}
	return ""
}

// SPIFFEID returns the identity of a service's proxies. The mesh is the trust domain (SPIFFE-ID,
// section 2).
func SPIFFEID(mesh, service string) string { return "spiffe://" + mesh + "/" + service }

func lower(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }
func alnum(c byte) bool { return lower(c) || c >= 'A' && c <= 'Z' }

// wordFault checks a label value, or the part of a label key after the slash: letters, digits, '-',
// '_', and '.', with a letter or digit at both ends.
func wordFault(s string) string {
	for i := range len(s) {
		if c := s[i]; !alnum(c) && c != '-' && c != '.' && c != '_' {
			return fmt.Sprintf("%s: only letters, digits, '-', '_' and '.' are allowed", strict.Quote(s))
		}
	}
	if s != "" && (!alnum(s[0]) || !alnum(s[len(s)-1])) {
		return fmt.Sprintf("%s must begin and end with a letter or a digit", strict.Quote(s))
	}
	return ""
}

// labelKeyFault checks a label key: an optional DNS name with a slash, and a word.
func labelKeyFault(key string) string {
	prefix, word, found := strings.Cut(key, "/")
	if !found {
		word = prefix
	} else if len(prefix) > maxName || nameFault(prefix) != "" {
		return fmt.Sprintf("the part of the key before '/' must be a lower-case DNS name of at most %d characters", maxName)
	}
	switch reason := wordFault(word); {
	case word == "":
		return "the key is empty"
	case len(word) > maxLabelName:
		return fmt.Sprintf("the key has %d characters, at most %d are allowed", len(word), maxLabelName)
	case reason != "":
		return "the key " + reason
	}
	return ""
}

// processFault checks the value of [LabelUnit] or [LabelCgroup].
func processFault(key, s string) string {
	unit := key == LabelUnit
	switch {
	case len(s) > maxName:
		return fmt.Sprintf("has %d characters, at most %d are allowed", len(s), maxName)
	case unit && !strings.HasSuffix(s, ".service") && !strings.HasSuffix(s, ".scope"):
		return strict.Quote(s) + " is not a unit; write it like envoy@web.service"
	case !unit && !strings.HasPrefix(s, "/"):
		return strict.Quote(s) + " is not a path of a cgroup; write it like /system.slice/envoy@web.service"
	}
	for i := range len(s) {
		if c := s[i]; !alnum(c) && !strings.ContainsRune(`-_.:@\`, rune(c)) && (unit || c != '/' && c != '*') {
			return fmt.Sprintf("%s: the character %q is not allowed", strict.Quote(s), c)
		}
	}
	return ""
}

// validateLabels checks the labels of a resource.
func validateLabels(v *Validator, desc Descriptor, labels map[string]string) {
	for _, k := range sortedKeys(labels) {
		at, value := v.Key(k), labels[k]
		if reason := labelKeyFault(k); reason != "" {
			at.Faultf("%s", reason)
		}
		if k == LabelUnit || k == LabelCgroup {
			if reason := processFault(k, value); reason != "" {
				at.Faultf("the value %s", reason)
			}
		} else if len(value) > maxLabelValue && k != LabelDisplayName && k != LabelNamespace {
			at.Faultf("the value has %d characters, at most %d are allowed", len(value), maxLabelValue)
		} else if reason := wordFault(value); reason != "" {
			at.Faultf("the value %s", reason)
		}
		if k != LabelEffect {
			continue
		}
		switch {
		case !desc.Policy:
			at.Faultf("kind %s is not a policy, so it cannot be a shadow: to see the effect of a change, use nearside diff",
				desc.Kind)
		case value != EffectShadow:
			at.Faultf("%s is not an effect: write %s; without the label, the policy is active",
				strict.Quote(value), EffectShadow)
		}
	}
}
