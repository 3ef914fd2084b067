package resource

import (
	"reflect"
	"strings"
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
	out.sharer = s
	return &out
}

var outboundList = reflect.TypeFor[[]Outbound]()

// Bounds of the maps that are shared.
const (
	maxSharedPairs = 4   // of one map
	maxSharedBytes = 255 // of the texts of one map, and of their lengths
)

// sharedTags returns the tags that the pairs of a mapping make; nil where they are not shared.
func (d *decoder) sharedTags(pairs []pair) map[string]string {
	if len(pairs) > maxSharedPairs {
		return nil
	}
	key := make([]byte, 0, maxSharedBytes+1)
	for i := range pairs {
		p := &pairs[i]
		if p.value.kind != nodeString || len(key)+len(p.key)+len(p.value.text)+2 > maxSharedBytes {
			return nil
		}
		// With their lengths in front, no two lists of texts are alike.
		key = append(append(key, byte(len(p.key))), p.key...)
		key = append(append(key, byte(len(p.value.text))), p.value.text...)
	}
	return d.sharer.Share(key, func() map[string]string {
		out := make(map[string]string, len(pairs))
		for i := range pairs {
			out[strings.Clone(pairs[i].key)] = strings.Clone(pairs[i].value.text) // a part of the document else
		}
		return out
	})
}
