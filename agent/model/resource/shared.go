package resource

import (
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/strict"
)

// Sharer deduplicates equal maps across decoders. It is safe for concurrent use.
type Sharer interface {
	// Share returns the map of a key: a known one, or the result of make. The caller may reuse key.
	Share(key []byte, make func() map[string]string) map[string]string
}

// Sharing returns a registry that deduplicates the tags of outbounds. Hundreds of proxies that list
// the same thousand outbounds have equal tags, and each map takes 400 bytes. The maps are never
// modified, so equal ones can be shared.
func (r *Registry) Sharing(s Sharer) *Registry {
	out := *r
	out.tags = func(d *strict.Decoder, pairs []strict.Pair) map[string]string { return sharedTags(s, d, pairs) }
	return &out
}

// Limits of shared maps.
const (
	maxSharedPairs = 4   // per map
	maxSharedBytes = 255 // all strings of a map with their lengths
)

// sharedTags returns the map of tag pairs; nil if they are not shared.
func sharedTags(s Sharer, d *strict.Decoder, pairs []strict.Pair) map[string]string {
	if len(pairs) > maxSharedPairs || !d.Below("outbound") {
		return nil
	}
	key := make([]byte, 0, maxSharedBytes+1)
	for i := range pairs {
		p := &pairs[i]
		if p.Value.Kind != strict.String || len(key)+len(p.Key)+len(p.Value.Text)+2 > maxSharedBytes {
			return nil
		}
		// The length prefixes make the encoding unambiguous.
		key = append(append(key, byte(len(p.Key))), p.Key...)
		key = append(append(key, byte(len(p.Value.Text))), p.Value.Text...)
	}
	return s.Share(key, func() map[string]string {
		out := make(map[string]string, len(pairs))
		for i := range pairs {
			out[strings.Clone(pairs[i].Key)] = strings.Clone(pairs[i].Value.Text) // the clone does not retain the document
		}
		return out
	})
}
