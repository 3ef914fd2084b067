package identity

import (
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Tag returns the name for a tag in certificates of proxies.
func Tag(key, value string) string { return "kuma://" + key + "/" + value }

// Names returns the sorted names in the certificate of a proxy with the given tags: the SPIFFE ID
// of each of its services, and one name for each value of each tag. It fails if there is no service
// or a name is not a URI.
func Names(mesh string, tags map[string][]string) ([]string, error) {
	if len(tags[resource.TagService]) == 0 {
		return nil, fmt.Errorf("no inbound has the tag %s, which a proxy's certificate needs: add the tag",
			resource.TagService)
	}
	var out []string
	for _, service := range slices.Sorted(slices.Values(tags[resource.TagService])) {
		out = append(out, resource.SPIFFEID(mesh, service))
	}
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		for _, value := range slices.Sorted(slices.Values(tags[key])) {
			out = append(out, Tag(key, value))
		}
	}
	return slices.Compact(out), nil
}

// parseNames returns names in the form that certificates contain. Peers match them byte by byte, so
// a name whose URI form differs, for example by an escape, is invalid.
func parseNames(names []string) ([]*url.URL, error) {
	out := make([]*url.URL, len(names))
	for i, n := range names {
		u, err := url.Parse(n)
		if err != nil || u.String() != n {
			return nil, fmt.Errorf("%q is not a URI, so a certificate cannot contain it: rename the mesh, tag, or value", n)
		}
		out[i] = u
	}
	return out, nil
}

// namesOf returns the names in a certificate.
func namesOf(uris []*url.URL) []string {
	out := make([]string, len(uris))
	for i, u := range uris {
		out[i] = u.String()
	}
	return out
}

// Secrets holds the certificate, key, and trusted authorities of one proxy. It is immutable. The
// keeper returns the same pointer until something changes.
type Secrets struct {
	chain, key, authorities []byte
	until                   time.Time
}

// Certificate returns the proxy's certificate and the chain to an authority, as PEM. Callers must
// not modify it.
func (s *Secrets) Certificate() []byte { return s.chain }

// Key returns the private key as PEM. Callers must not modify, print, or log it.
func (s *Secrets) Key() []byte { return s.key }

// Authorities returns the authorities that other proxies' certificates are verified against, as
// PEM. Callers must not modify it.
func (s *Secrets) Authorities() []byte { return s.authorities }

// String returns the expiry of the certificate and no secret.
func (s Secrets) String() string {
	return fmt.Sprintf("certificate valid until %s", s.until.UTC().Format(time.RFC3339))
}

// Format prints String for every verb, so that fmt never prints a key.
func (s Secrets) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// Placeholder returns secrets for configs that are computed but not served.
func Placeholder() *Secrets { return placeholder }

var placeholder = &Secrets{chain: []byte(notHere), key: []byte(notHere), authorities: []byte(notHere)}

const notHere = "[made by the agent that serves the proxy]"
