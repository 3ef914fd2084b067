package resource

import (
	"fmt"
	"strings"
)

// Bounds of names and labels, as Kubernetes and Kuma have them.
const (
	maxName       = 253
	maxLabelName  = 63
	maxLabelValue = 63
)

// nameFault says what is wrong with the name of a resource or a mesh, "" when nothing is.
func nameFault(name string) string {
	switch {
	case name == "":
		return "the name is missing"
	case len(name) > maxName:
		return fmt.Sprintf("the name has %d characters, at most %d are allowed", len(name), maxName)
	}
	for i := range len(name) {
		if c := name[i]; !lower(c) && c != '-' && c != '.' && c != '_' {
			return fmt.Sprintf("%s is not a name: only lower-case letters, digits, '-', '.' and '_' are allowed", quote(name))
		}
	}
	if !lower(name[0]) || !lower(name[len(name)-1]) {
		return fmt.Sprintf("%s is not a name: it must begin and end with a lower-case letter or a digit", quote(name))
	}
	return ""
}

// SPIFFEID is the name that proxies of a service prove themselves with in their mesh, which is the trust domain
// (SPIFFE-ID, section 2).
func SPIFFEID(mesh, service string) string { return "spiffe://" + mesh + "/" + service }

func lower(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }
func alnum(c byte) bool { return lower(c) || c >= 'A' && c <= 'Z' }

// wordFault checks a label value or the part of a label key behind the slash: letters, digits, '-', '_' and '.' that
// begin and end with a letter or digit.
func wordFault(s string) string {
	for i := range len(s) {
		if c := s[i]; !alnum(c) && c != '-' && c != '.' && c != '_' {
			return fmt.Sprintf("%s: only letters, digits, '-', '_' and '.' are allowed", quote(s))
		}
	}
	if s != "" && (!alnum(s[0]) || !alnum(s[len(s)-1])) {
		return fmt.Sprintf("%s must begin and end with a letter or a digit", quote(s))
	}
	return ""
}

// labelKeyFault checks a label key: an optional DNS name and a slash, then a word.
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

// validateLabels checks the labels of a resource.
func validateLabels(v *Validator, desc Descriptor, labels map[string]string) {
	for _, k := range sortedKeys(labels) {
		at, value := v.Key(k), labels[k]
		if reason := labelKeyFault(k); reason != "" {
			at.Faultf("%s", reason)
		}
		if len(value) > maxLabelValue && k != LabelDisplayName && k != LabelNamespace {
			at.Faultf("the value has %d characters, at most %d are allowed", len(value), maxLabelValue)
		} else if reason := wordFault(value); reason != "" {
			at.Faultf("the value %s", reason)
		}
		if k != LabelEffect {
			continue
		}
		switch {
		case !desc.Policy:
			at.Faultf("kind %s is not a policy and has no effect to change; remove the label", desc.Kind)
		case value != EffectShadow:
			at.Faultf("%s is not an effect: write %s, or remove the label", quote(value), EffectShadow)
		}
	}
}
