package resource

import (
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/strict"
)

// Sharer keeps one of equal maps, for all who decode. It may be used by many goroutines at once.
type Sharer interface {
	// Share returns the map of a key, which may be used again afterwards: the known one or the one
	// that is made now.
	Share(key []byte, make func() map[string]string) map[string]string
}

// Sharing returns the registry with a sharer of the tags of outbounds: hundreds of proxies that
// list the same thousand outbounds have the same tags, and each map takes 400 bytes. They are never
// changed, so equal ones can be one.
func (r *Registry) Sharing(s Sharer) *Registry {
	out := *r
	out.tags = func(d *strict.Decoder, pairs []strict.Pair) map[string]string { return sharedTags(s, d, pairs) }
	return &out
}

// Bounds of the maps that are shared.
const (
	maxSharedPairs = 4   // of one map
	maxSharedBytes = 255 // of the texts of one map, and of their lengths
)

// sharedTags returns the tags that the pairs of a mapping make; nil where they are not shared.
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
		// With their lengths in front, no two lists of texts are alike.
		key = append(append(key, byte(len(p.Key))), p.Key...)
		key = append(append(key, byte(len(p.Value.Text))), p.Value.Text...)
	}
	return s.Share(key, func() map[string]string {
		out := make(map[string]string, len(pairs))
		for i := range pairs {
			out[strings.Clone(pairs[i].Key)] = strings.Clone(pairs[i].Value.Text) // a part of the document else
		}
		return out
	})
}
