package rollout

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

const (
	maxReason    = 2 << 10  // size in bytes of the message of a client that is stored
	maxMessage   = 32 << 10 // size in bytes of the message that is searched for names
	maxNackNames = 64
)

// namesIn returns the names of the resources that an error message of a client contains. A name
// counts only as a whole word that is not part of the longer name of another resource.
func namesIn(message string, resources []*draft.Resource) map[string]struct{} {
	found := map[string]struct{}{}
	if len(message) > maxMessage {
		message = message[:maxMessage]
	}
	longestFirst := slices.Clone(resources)
	slices.SortStableFunc(longestFirst, func(a, b *draft.Resource) int { return len(b.Name) - len(a.Name) })
	taken := make([]bool, len(message))
	for _, r := range longestFirst {
		if r.Name == "" {
			continue
		}
		for from := 0; ; {
			i := strings.Index(message[from:], r.Name)
			if i < 0 {
				break
			}
			i += from
			end := i + len(r.Name)
			from = i + 1
			if taken[i] || taken[end-1] || i > 0 && nameByte(message[i-1]) || end < len(message) && nameByte(message[end]) {
				continue
			}
			for k := i; k < end; k++ {
				taken[k] = true
			}
			found[r.Name] = struct{}{}
			from = end
		}
	}
	return found
}

// quotesWhole reports whether an Envoy that rejects a response with this message has applied
// nothing of the response. If a resource violates a rule of the API, Envoy quotes it with all names
// in it and rejects the response. Otherwise Envoy applies listeners and clusters one by one, and
// its message has a fixed prefix and the names of those that it could not apply.
func quotesWhole(rank int, message string) bool {
	if rank == draft.RankListener || rank == draft.RankCluster {
		return !strings.HasPrefix(message, "Error adding/updating ")
	}
	return strings.Contains(message, "Proto constraint validation failed")
}

// nameByte reports whether a byte next to a name makes the name part of a longer word.
func nameByte(b byte) bool {
	return b == '-' || b == '_' || b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' ||
		b >= utf8.RuneSelf
}

// firstNames returns a copy of the first names of a list.
func firstNames(names []string, max int) []string {
	return slices.Clone(names[:min(len(names), max)])
}
