package route

import (
	"strings"

	"github.com/nearside-mesh/nearside/agent/envoy/substitution"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// maxHeaderValue bounds the value of a header, as Envoy does.
const maxHeaderValue = 16384

// CheckMutable checks the name of a header that is changed. Envoy leaves the pseudo-headers, and Host with them, to
// rewrites.
func CheckMutable(v *resource.Validator, name string) {
	if strings.HasPrefix(name, ":") || strings.EqualFold(name, "host") {
		v.Faultf("%q cannot be changed as a header: rewrite the host or the path instead", name)
		return
	}
	v.HeaderName(name)
}

// CheckHeaderValue checks a value, which Envoy takes for a format string.
func CheckHeaderValue(v *resource.Validator, s string) {
	if len(s) > maxHeaderValue {
		v.Faultf("the value has %d characters, at most %d are allowed", len(s), maxHeaderValue)
		return
	}
	v.HeaderValue(s)
	if _, err := substitution.ParseFormat(s); err != nil {
		v.Faultf("%q: %v; write %%%% for a percent sign", s, err)
	}
}
