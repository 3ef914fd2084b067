package peers

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/source/directory"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// maxDirectories limits the directories that PublishCheck lists.
const maxDirectories = 16

// PublishCheck reports the state of the published directories. It returns false if there are none.
func (s *Source) PublishCheck() (out api.Check, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out = api.Check{Name: "published-directories", OK: true}
	ids := map[string]bool{}
	for _, set := range s.dirs.sets {
		ids[set.id] = true
	}
	for i := range s.dirs.local {
		ids[s.dirs.local[i].ID] = true
	}
	var texts []string
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		text, degraded := s.directoryText(id)
		texts = append(texts, id+": "+text)
		out.Degraded = out.Degraded || degraded
	}
	if n := len(texts); n > maxDirectories {
		texts = append(texts[:maxDirectories], fmt.Sprintf("and %d more", n-maxDirectories))
	}
	if n := len(s.dirs.waiting); n > 0 {
		out.Degraded = true
		first := slices.SortedFunc(maps.Keys(s.dirs.waiting), resource.Key.Compare)[0]
		texts = append(texts, fmt.Sprintf("%s not in force on this node, the first is %s: %s", plural.Form(n,
			"1 published resource is", "%d published resources are"), first, s.dirs.waiting[first]))
	}
	out.Reason = strings.Join(texts, "; ")
	return out, len(ids) > 0
}

// directoryText describes the state of a directory, and reports whether it needs attention.
func (s *Source) directoryText(id string) (text string, degraded bool) {
	set := s.dirs.sets[directoryID(s.o.Cluster, id)]
	var local *directory.Published
	for i := range s.dirs.local {
		if p := &s.dirs.local[i]; p.ID == id {
			local = p
		}
	}
	if set == nil {
		text = "not published yet; this node uses its own files"
	} else {
		p := s.Publication(id)
		text = fmt.Sprintf("published by %s%s, %s", p.Node, commitText(p.Commit), plural.Count(len(set.resources),
			"resource"))
		owner := directoryID(s.o.Cluster, id)
		if publisherOf(owner, &set.body, s.candidates(id)) == (engine.NodeID{}) {
			text += "; no live node has these or later files, so the resources stay in force: update the directory on a " +
				"node, or run nearside forget with its id to delete them"
			degraded = true
		}
	}
	if local == nil {
		return text, degraded
	}
	mine := bodyOf(local)
	switch why := s.dirs.failed[id]; {
	case why != "":
		return text + "; this node cannot publish it: " + why, true
	case local.Fault != "":
		return text + "; this node cannot publish it: " + local.Fault, true
	case set != nil && mine.Digest != set.body.Digest && mine.Changed.After(set.body.Changed):
		return text + "; the files of this node are ahead" + commitText(mine.Commit), true
	case set != nil && mine.Digest != set.body.Digest:
		return text + "; the files of this node are behind" + commitText(mine.Commit), true
	}
	return text, degraded
}

// commitText returns text about a commit, or "" if it is unknown.
func commitText(commit string) string {
	if commit == "" {
		return ""
	}
	return " at commit " + shortCommit(commit)
}

// shortCommit returns the beginning of a hash, which identifies it in most repositories.
func shortCommit(commit string) string {
	if len(commit) >= 40 && strings.Trim(commit, "0123456789abcdef") == "" {
		return commit[:12]
	}
	return commit
}
