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

// Tag returns the name that the certificates of proxies with a tag hold.
func Tag(key, value string) string { return "kuma://" + key + "/" + value }

// Names returns the names in the certificate of a proxy with the given tags: the SPIFFE ID of each
// of its services, and one for each value of each tag, sorted. It fails when there is no service,
// or when a name is not a URI.
func Names(mesh string, tags map[string][]string) ([]string, error) {
	if len(tags[resource.TagService]) == 0 {
		return nil, fmt.Errorf("no inbound in use has the tag %s, which is what a proxy proves itself with: give one the tag",
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

// parseNames returns names as a certificate holds them. Others match them byte by byte, so that one
// which would be written in another way, with an escape for example, is none.
func parseNames(names []string) ([]*url.URL, error) {
	out := make([]*url.URL, len(names))
	for i, n := range names {
		u, err := url.Parse(n)
		if err != nil || u.String() != n {
			return nil, fmt.Errorf("%q is not a URI, and so no certificate can hold it: rename the mesh, tag or value", n)
		}
		out[i] = u
	}
	return out, nil
}

// namesOf returns the names that a certificate holds.
func namesOf(uris []*url.URL) []string {
	out := make([]string, len(uris))
	for i, u := range uris {
		out[i] = u.String()
	}
	return out
}

// Secrets is what one proxy gets: what it proves itself with, and whom it believes. It is
// immutable; as long as nothing has changed, the keeper returns the same pointer.
type Secrets struct {
	chain, key, authorities []byte
	until                   time.Time
}

// Certificate returns the proxy's certificate and what leads from it to an authority, as PEM. It
// must not be changed.
func (s *Secrets) Certificate() []byte { return s.chain }

// Key returns the private key, as PEM. It must not be changed, shown or logged.
func (s *Secrets) Key() []byte { return s.key }

// Authorities returns the certificates that those of other proxies are checked against, as PEM. It
// must not be changed.
func (s *Secrets) Authorities() []byte { return s.authorities }

// String says until when the certificate is valid, and nothing secret.
func (s Secrets) String() string {
	return fmt.Sprintf("certificate valid until %s", s.until.UTC().Format(time.RFC3339))
}

// Format writes the same as String, so that no verb of fmt shows a key.
func (s Secrets) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// Placeholder returns what stands for the secrets of a proxy where a config is computed but not
// served.
func Placeholder() *Secrets { return placeholder }

var placeholder = &Secrets{chain: []byte(notHere), key: []byte(notHere), authorities: []byte(notHere)}

const notHere = "[made by the agent that serves the proxy]"
