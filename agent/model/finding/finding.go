package finding

import (
	"strconv"
	"strings"
)

// Severity says what Envoy makes of a fault, the worst first.
type Severity uint8

const (
	Reject   Severity = iota // Envoy refuses the resource
	Unusable                 // Envoy loads it, and it never works
	Warning                  // it works otherwise than it reads: a shadowed rule, an ambiguous prefix
	Lint                     // it could be written better
)

// String names the severity: reject, unusable, warning or lint.
func (s Severity) String() string {
	return [...]string{"reject", "unusable", "warning", "lint"}[min(s, Lint)]
}

// MarshalText is String, so that a severity is a word in JSON.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Blocks reports whether a resource with such a finding must not be sent.
func (s Severity) Blocks() bool { return s <= Unusable }

// Finding is something that the check has to say about a resource.
type Finding struct {
	Rule     int      // its number in [Rules]
	Severity Severity //
	Place             // what is wrong
	Message  string   // the value, the bound and the remedy
	// Others are the further places that have a part in it: the other one of two equal chains, the
	// listener with the same address.
	Others []Place
}

// Facts are what is true of the proxy and its host beside the config. The zero value says as little
// as possible: an unpatched Envoy of any supported version on a host about which nothing is known.
type Facts struct {
	// StaticClusters are those of the bootstrap; references to them are good, and CDS cannot replace
	// them.
	StaticClusters []string
	// SecretsLater is true where what the secrets of the config hold is made when it is sent, as when
	// it is checked without the authority that makes it: it is taken as good. What refers to a secret
	// that the config has not is found.
	SecretsLater bool
	// RE2Limit is the runtime value re2.max_program_size.error_level; 0 stands for Envoy's
	// default, 100.
	RE2Limit uint32
	// NoIPv6 is true where the host has no IPv6: listeners on it cannot bind.
	NoIPv6 bool
	// LowestPort is the lowest port that Envoy may bind; 0 for no bound.
	LowestPort uint16
	// NoTransparent is true where Envoy lacks CAP_NET_ADMIN, which transparent sockets need.
	NoTransparent bool
	// Extensions are the type URLs of extensions that this Envoy has and the program does not know.
	Extensions []string
	// Build is what the Envoy says of itself; nil where that is not known.
	Build *Build
	// Taken are ports that others than this proxy hold: "address:port" to a word about the holder.
	Taken map[string]string
	// Host is what is known of the Envoy's process and of the files that it sees; nil for nothing.
	Host *Host
}

// Host is what is known of the process of an Envoy, and of the host around it. It is not changed.
type Host struct {
	// Unwritable are the files that Envoy cannot open for its logs, with the reason and what to do.
	Unwritable map[string]string
	// Guessed is true where Envoy may see other files than those that were looked at: what is
	// unwritable there is no more than a warning.
	Guessed bool
	// OpenFiles is how many files the process may have open, as the hard limit is; 0 where that is not
	// known.
	OpenFiles uint64
	// Workers are the threads that serve connections; 0 where that is not known.
	Workers int
	// Resolver says how the name servers have changed since the Envoy has read which they are; ""
	// where they have not, or that is not known.
	Resolver string
}

// Matters reports whether the check can find anything because of the host, which may be nil.
func (h *Host) Matters() bool { return h != nil && len(h.Unwritable) > 0 }

// Part names an element of a repeated field.
func Part(field string, index int, more ...string) string {
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

// Place is a part of a resource.
type Place struct {
	Type     string `json:"type,omitempty"`     // type URL
	Resource string `json:"resource,omitempty"` // its name
	// Pointer is a JSON pointer (RFC 6901) into the resource as JSON, with field names in
	// lowerCamelCase; what is packed in an Any stands in the Any. "" is the resource itself.
	Pointer string `json:"pointer,omitempty"`
}

// Below is a place inside the place.
func (p Place) Below(keys ...string) Place {
	for _, k := range keys {
		p.Pointer += "/" + PointerKey(k)
	}
	return p
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")
