package peers

import (
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine"
)

// TestPublisherOf checks which node publishes a directory, independently of the order in which the
// candidates are known.
func TestPublisherOf(t *testing.T) {
	dir := directoryID("default", "/srv/mesh")
	node := func(n byte) engine.NodeID { return engine.NodeID{n} }
	of := func(n byte, digest string, at int64) candidate {
		return candidate{node(n), directoryBody{Digest: digest, Changed: time.Unix(at, 0)}}
	}
	all := []engine.NodeID{node(1), node(2), node(3)}
	best := byte(1)
	for rank(node(best), dir, all) != 0 {
		best++
	}
	first, second := best%3+1, (best+1)%3+1 // the others
	for name, c := range map[string]struct {
		published *directoryBody
		list      []candidate
		want      byte
	}{
		"none":    {want: 0},
		"by rank": {list: []candidate{of(1, "x", 1), of(2, "x", 1), of(3, "x", 1)}, want: best},
		"by rank although another is later": {list: []candidate{of(best, "x", 1), of(first, "x", 9), of(second, "x", 1)},
			want: best},
		"the latest content first": {list: []candidate{of(best, "old", 1), of(first, "new", 2)}, want: first},
		"the current one": {published: &directoryBody{Node: node(first).String(), Digest: "x"},
			list: []candidate{of(1, "x", 1), of(2, "x", 1), of(3, "x", 1)}, want: first},
		"the current one with an older checkout": {published: &directoryBody{Node: node(first).String(), Digest: "x"},
			list: []candidate{of(best, "y", 9), of(first, "old", 1)}, want: first},
		"one with the published content": {published: &directoryBody{Node: node(second).String(), Digest: "x"},
			list: []candidate{of(best, "old", 1), of(first, "x", 1)}, want: first},
		"the published content before a later one": {published: &directoryBody{Node: node(second).String(), Digest: "x"},
			list: []candidate{of(best, "new", 9), of(first, "x", 1)}, want: first},
		"the latest if none has the published content": {published: &directoryBody{Node: node(second).String(),
			Digest: "x"}, list: []candidate{of(best, "old", 1), of(first, "new", 9)}, want: first},
		"a checkout without a time before": {published: &directoryBody{Node: node(second).String(), Digest: "x"},
			list: []candidate{of(first, "old", 1)}, want: first},
		"none later than the published content": {published: &directoryBody{Node: node(second).String(), Digest: "x",
			Changed: time.Unix(5, 0)}, list: []candidate{of(best, "old", 1), of(first, "same time", 5)}, want: 0},
		"one later than the published content": {published: &directoryBody{Node: node(second).String(), Digest: "x",
			Changed: time.Unix(5, 0)}, list: []candidate{of(best, "old", 1), of(first, "new", 6)}, want: first},
	} {
		want := engine.NodeID{}
		if c.want != 0 {
			want = node(c.want)
		}
		for range max(len(c.list), 1) {
			if got := publisherOf(dir, c.published, c.list); got != want {
				t.Errorf("%s: %s publishes, want %s", name, got, want)
			}
			if len(c.list) > 0 {
				c.list = append(c.list[1:], c.list[0])
			}
		}
	}
}

// TestDirectoryIDs checks that the owner of a directory depends on the cluster and the whole ID.
func TestDirectoryIDs(t *testing.T) {
	seen := map[engine.NodeID]string{}
	for _, p := range [][2]string{{"a", "b"}, {"a", "c"}, {"b", "b"}, {"ab", ""}, {"", "ab"}, {`a" "`, "b"}} {
		id := directoryID(p[0], p[1])
		if other, taken := seen[id]; taken || id != directoryID(p[0], p[1]) {
			t.Errorf("%q: the ID of %q", p, other)
		}
		seen[id] = strings.Join(p[:], "/")
	}
}

// TestDirectoryItem checks that items with the longest values can be published, and that a commit
// is shown in its short form only if it is a hash.
func TestDirectoryItem(t *testing.T) {
	long := strings.Repeat("ü", 126)
	item := directoryBody{Node: strings.Repeat("f", 32), Commit: long, Author: long, Digest: strings.Repeat("f", 32),
		Changed: time.Unix(1<<33, 1).UTC()}.item("/" + strings.Repeat("d", 252))
	if err := engine.CheckOwn([]engine.OwnItem{item}); err != nil {
		t.Error(err)
	}
	for commit, want := range map[string]string{"": "", "v1.2": " at commit v1.2",
		strings.Repeat("1a", 20): " at commit 1a1a1a1a1a1a",
		strings.Repeat("z", 40):  " at commit " + strings.Repeat("z", 40)} {
		if got := commitText(commit); got != want {
			t.Errorf("%q is shown as %q, want %q", commit, got, want)
		}
	}
}
