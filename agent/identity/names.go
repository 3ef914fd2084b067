package identity

import (
	"fmt"
	"maps"
	"net/url"
	"slices"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// Tag returns the name that the certificates of proxies with a tag hold.
func Tag(key, value string) string { return "kuma://" + key + "/" + value }

// Names returns the names in the certificate of a proxy with the given tags: the SPIFFE ID of each of its services, and
// one for each value of each tag, sorted. It fails when there is no service, or when a name is not a URI.
func Names(mesh string, tags map[string][]string) ([]string, error) {
	if len(tags[resource.TagService]) == 0 {
		return nil, fmt.Errorf("no inbound in use has the tag %s, which is what a proxy proves itself with: give one the tag", resource.TagService)
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

// parseNames returns names as a certificate holds them. Others match them byte by byte, so that one which would be
// written in another way, with an escape for example, is none.
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
