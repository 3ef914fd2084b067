package substitution

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/clip"
)

// checkHeader checks "name" or "name?alternative".
func checkHeader(arg string) string {
	name, alternative, both := strings.Cut(arg, "?")
	switch {
	case strings.Contains(alternative, "?"):
		return "at most one alternative is allowed behind the name"
	case !HeaderName(name):
		return fmt.Sprintf("%q is not a header name", clip.Value(name))
	case both && !HeaderName(alternative):
		return fmt.Sprintf("%q is not a header name", clip.Value(alternative))
	}
	return ""
}

// HeaderName reports whether s is a token of RFC 9110, section 5.6.2, or an HTTP/2 pseudo-header.
func HeaderName(s string) bool {
	s = strings.TrimPrefix(s, ":")
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}

// checkQueryParams accepts how parameters are written.
func checkQueryParams(arg string) string {
	if arg == "ORIG" || arg == "DECODED" {
		return ""
	}
	return "give ORIG or DECODED"
}

// checkXFCC checks the name of a value in x-forwarded-client-cert.
func checkXFCC(arg string) string {
	if slices.Contains([]string{"by", "hash", "cert", "chain", "subject", "uri", "dns"}, strings.ToLower(arg)) {
		return ""
	}
	return "give By, Hash, Cert, Chain, Subject, URI or DNS"
}

func checkPath(arg string) string {
	form, from, _ := strings.Cut(arg, ":")
	from, _, _ = strings.Cut(from, ":")
	if !slices.Contains([]string{"", "WQ", "NQ"}, form) ||
		!slices.Contains([]string{"", "ORIG", "PATH", "ORIG_OR_PATH"}, from) {
		return "give WQ or NQ, and behind a colon ORIG, PATH or ORIG_OR_PATH"
	}
	return ""
}

// checkAnyMetadata accepts a kind of metadata with a namespace and keys.
func checkAnyMetadata(arg string) string {
	kind, _, _ := strings.Cut(arg, ":")
	if !slices.Contains([]string{"DYNAMIC", "CLUSTER", "ROUTE", "UPSTREAM_HOST", "LISTENER", "VIRTUAL_HOST",
		"LISTENER_FILTER_CHAIN"}, kind) {
		return "begin with DYNAMIC, CLUSTER, ROUTE, UPSTREAM_HOST, LISTENER, LISTENER_FILTER_CHAIN or VIRTUAL_HOST"
	}
	return ""
}

func checkGRPCStatus(arg string) string {
	if slices.Contains([]string{"CAMEL_STRING", "SNAKE_STRING", "NUMBER"}, arg) {
		return ""
	}
	return "give CAMEL_STRING, SNAKE_STRING or NUMBER"
}

// checkTime refuses what makes a line break of a time: Envoy looks for %[-_0^#]*[1-9]*(E|O)?n, and
// reads no format that spans lines.
func checkTime(arg string) string {
	for rest := arg; ; {
		_, after, found := strings.Cut(rest, "%")
		if !found {
			return ""
		}
		rest = after
		after = strings.TrimLeft(after, "-_0^#")
		after = strings.TrimLeft(after, "123456789")
		if strings.HasPrefix(after, "n") || strings.HasPrefix(after, "En") || strings.HasPrefix(after, "On") {
			return "the time format has a line break (%n): remove it"
		}
	}
}

// checkDuration checks "start:end" or "start:end:unit". Names of points beside the fixed ones are
// those that filters note; any is accepted.
func checkDuration(arg string) string {
	parts := strings.Split(arg, ":")
	switch {
	case len(parts) < 2 || len(parts) > 3:
		return "give two points in time and, if wanted, a unit: DS_RX_BEG:DS_TX_END:ms"
	case len(parts) == 3 && !slices.Contains([]string{"ms", "us", "ns"}, parts[2]):
		return fmt.Sprintf("%q is not a unit: give ms, us or ns", clip.Value(parts[2]))
	}
	return ""
}

// checkFilterState checks "key", "key:PLAIN", "key:TYPED" or "key:FIELD:name".
func checkFilterState(arg string) string {
	key, rest, _ := strings.Cut(arg, ":")
	form, field, _ := strings.Cut(rest, ":")
	switch {
	case key == "":
		return "the key is empty"
	case !slices.Contains([]string{"", "PLAIN", "TYPED", "FIELD"}, form):
		return fmt.Sprintf("%q is not a form: give PLAIN, TYPED or FIELD", clip.Value(form))
	case (form == "FIELD") != (field != ""):
		return "FIELD and the name of the field go together: key:FIELD:name"
	}
	return ""
}
