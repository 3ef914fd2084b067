package rollout

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

// listVersion is a content hash over the names and versions of those resources of a list that want
// admits.
func listVersion(list []*draft.Resource, want func(name string) bool) string {
	h := sha256.New()
	var buf []byte
	for _, r := range list {
		if want(r.Name) {
			buf = append(buf[:0], r.Name...)
			buf = append(buf, 0)
			buf = append(buf, r.Version...)
			buf = append(buf, 0)
			h.Write(buf)
		}
	}
	var sum [sha256.Size]byte
	return hex.EncodeToString(h.Sum(sum[:0])[:8])
}
