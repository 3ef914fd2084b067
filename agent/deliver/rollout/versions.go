package rollout

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

// listVersion returns a content hash of the names and versions of the resources of a list for which
// want returns true.
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
