// Package suffix checks names and classifies their suffixes: public suffixes, below which different
// owners register names, and special-use names, which are no domains of the internet. It is pure.
package suffix

import (
	"fmt"
	"strings"

	"golang.org/x/net/publicsuffix"

	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// specialUse lists domains that are never delegated on the internet, with the RFC that reserves
// them.
var specialUse = map[string]string{
	"alt": "RFC 9476", "example": "RFC 6761", "home.arpa": "RFC 8375", "invalid": "RFC 6761", "local": "RFC 6762",
	"localhost": "RFC 6761", "onion": "RFC 7686", "test": "RFC 6761",
}

// SpecialUse returns the special-use domain of a name, such as "local (RFC 6762)", or "".
func SpecialUse(name string) string {
	for domain := name; domain != ""; {
		if rfc := specialUse[domain]; rfc != "" {
			return domain + " (" + rfc + ")"
		}
		_, domain, _ = strings.Cut(domain, ".")
	}
	return ""
}

// Public reports whether different owners register names below a suffix, such as com, co.uk, or
// github.io. Special-use names are not public.
func Public(name string) bool {
	if SpecialUse(name) != "" {
		return false
	}
	// The list has wildcards such as *.compute.amazonaws.com: each name below is a public suffix.
	for _, s := range [...]string{name, "x." + name} {
		if public, icann := publicsuffix.PublicSuffix(s); public == s && (icann || strings.Contains(s, ".")) {
			return true
		}
	}
	return false
}

// OfTemplate returns the suffix that all names of a HostnameGenerator's template have, from a whole
// label on. It returns "" if the template is invalid or the names have no such suffix.
func OfTemplate(template string) string {
	parts, err := resource.ParseHostnameTemplate(template)
	if err != nil || len(parts) < 2 {
		return ""
	}
	_, suffix, _ := strings.Cut(parts[len(parts)-1].Literal, ".")
	return Fold(suffix)
}

// Fold returns a name in lower case without outer dots.
func Fold(name string) string { return strings.ToLower(strings.Trim(name, ".")) }

// Refusal returns why a resource must not be created or changed to this content, or "". Agents
// keep an existing resource with such content, and warn.
func Refusal(r *resource.Resource) string {
	g, ok := r.Spec.(*resource.HostnameGenerator)
	if !ok {
		return ""
	}
	name := OfTemplate(g.Template)
	if parts, err := resource.ParseHostnameTemplate(g.Template); err == nil && len(parts) == 1 {
		name = Fold(parts[0].Literal) // one fixed name
	}
	if name == "" || !Public(name) {
		return ""
	}
	return fmt.Sprintf("%s is a public suffix, below which others own the names; "+
		"use a suffix of your organization, or one below mesh.local", strict.Quote(name))
}

// Field is the field that a refusal is about.
const Field = "spec.template"

// Hostname returns a name in the form used for lookups, or the reason why it is invalid.
func Hostname(s string) (name, reason string) {
	var faults []resource.Fault
	resource.NewValidator("", &faults).HostName(s, "a DNS name")
	if len(faults) > 0 {
		return "", faults[0].Reason
	}
	return strings.ToLower(strings.TrimSuffix(s, ".")), ""
}
