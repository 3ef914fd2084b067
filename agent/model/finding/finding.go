package finding

import (
	"strconv"
	"strings"
)

// Severity is the consequence of a fault in Envoy, the worst first.
type Severity uint8

const (
	Reject   Severity = iota // Envoy rejects the resource
	Unusable                 // Envoy accepts it, but it never works
	Warning                  // it has an unexpected effect: a shadowed rule, an ambiguous prefix
	Lint                     // it could be simpler or clearer
)

// String returns the name of the severity: reject, unusable, warning, or lint.
func (s Severity) String() string {
	return [...]string{"reject", "unusable", "warning", "lint"}[min(s, Lint)]
}

// MarshalText returns String, so that JSON contains a word.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Blocks reports whether a resource with such a finding must not be sent.
func (s Severity) Blocks() bool { return s <= Unusable }

// Finding is one result of the check for a resource.
type Finding struct {
	Rule     int      // number in [Rules]
	Severity Severity //
	Position          // position of the fault
	Message  string   // the value, the limit, and the remedy
	// Others are further positions involved: the other one of two equal filter chains, or the
	// listener with the same address.
	Others []Position
}

// Facts are properties of the proxy and its host that the config does not contain. The zero value
// assumes as little as possible: an unpatched Envoy of any supported version on an unknown host.
type Facts struct {
	// StaticClusters are the clusters of the bootstrap. References to them are valid, and CDS
	// cannot replace them.
	StaticClusters []string
	// SecretsLater is true if the contents of secrets are created when the config is sent, for
	// example in a check without the certificate authority. Their contents then count as valid.
	// References to secrets that the config lacks are still found.
	SecretsLater bool
	// RE2Limit is the runtime value re2.max_program_size.error_level; 0 means Envoy's default, 100.
	RE2Limit uint32
	// NoIPv6 is true if the host has no IPv6, so that IPv6 listeners cannot bind.
	NoIPv6 bool
	// LowestPort is the lowest port that Envoy may bind; 0 means any port.
	LowestPort uint16
	// NoTransparent is true if Envoy lacks CAP_NET_ADMIN, which transparent sockets require.
	NoTransparent bool
	// Extensions are type URLs of extensions that this Envoy has but this program does not know.
	Extensions []string
	// Build is the Envoy's description of its build; nil if unknown.
	Build *Build
	// Taken maps ports that other processes hold, as "address:port", to a description of the
	// holder.
	Taken map[string]string
	// Host describes the Envoy's process and the files that it sees; nil if unknown.
	Host *Host
}

// Host describes the process of an Envoy and its host. It is immutable.
type Host struct {
	// Unwritable maps the log files that Envoy cannot open to the reason and the remedy.
	Unwritable map[string]string
	// Guessed is true if Envoy may see other files than the agent does. An unwritable file is then
	// only a warning.
	Guessed bool
	// OpenFiles is the hard limit on open files of the process; 0 if unknown.
	OpenFiles uint64
	// Workers is the number of threads that serve connections; 0 if unknown.
	Workers int
	// Resolver describes how the name servers have changed since the Envoy read them; "" if they
	// have not, or that is unknown.
	Resolver string
}

// Matters reports whether the host, which may be nil, can cause findings.
func (h *Host) Matters() bool { return h != nil && len(h.Unwritable) > 0 }

// Item returns the pointer to an element of a repeated field.
func Item(field string, index int, more ...string) string {
	p := field + "/" + strconv.Itoa(index)
	for _, m := range more {
		p += "/" + m
	}
	return p
}

// PointerKey escapes a key for a JSON pointer (RFC 6901, section 3).
func PointerKey(k string) string {
	for i := range len(k) {
		if k[i] == '~' || k[i] == '/' {
			return pointerEscapes.Replace(k)
		}
	}
	return k
}

// Position is a location in a resource.
type Position struct {
	Type     string `json:"type,omitempty"`     // type URL
	Resource string `json:"resource,omitempty"` // its name
	// Pointer is a JSON pointer (RFC 6901) into the JSON form of the resource, with field names in
	// lowerCamelCase. Fields packed in an Any are below the Any. "" is the resource itself.
	Pointer string `json:"pointer,omitempty"`
}

// Below returns a position below p.
func (p Position) Below(keys ...string) Position {
	for _, k := range keys {
		p.Pointer += "/" + PointerKey(k)
	}
	return p
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")
