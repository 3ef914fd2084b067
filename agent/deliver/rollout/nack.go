package rollout

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

const (
	maxReason    = 2 << 10  // bytes of a client's message that are kept
	maxMessage   = 32 << 10 // bytes of it that are searched for names
	maxNackNames = 64
)

// namesIn returns the names of those resources that a client's error message mentions. A name
// counts where it stands by itself: not as a part of a longer word, nor of the longer name of
// another resource.
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

// quotesWhole reports whether an Envoy that rejects a response with a message has taken nothing of
// it, whatever names the message has. Envoy reads a response as a whole, and quotes the resource
// that breaks a rule of its API, with all names in it. Of what it has read it takes listeners and
// clusters one by one, and names those that it cannot take in words of its own.
func quotesWhole(rank int, message string) bool {
	if rank == draft.RankListener || rank == draft.RankCluster {
		return !strings.HasPrefix(message, "Error adding/updating ")
	}
	return strings.Contains(message, "Proto constraint validation failed")
}

// nameByte says whether a byte next to a name makes it a part of a longer word.
func nameByte(b byte) bool {
	return b == '-' || b == '_' || b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' ||
		b >= utf8.RuneSelf
}

// firstNames returns a copy of the first names of a list.
func firstNames(names []string, max int) []string {
	return slices.Clone(names[:min(len(names), max)])
}
