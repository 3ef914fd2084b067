package store

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// Revision is one past or current state of a resource.
type Revision struct {
	Revision uint64
	Time     time.Time // UTC
	Source   Source
	Author   string
	Signer   sign.ID // see [Record]
	Deleted  bool
	Resource *resource.Resource // nil if Deleted
}

// pending holds the changes of one resource that are not on disk.
type pending struct {
	entries []entry  // the latest HistoryLimit, oldest first
	burned  []uint64 // revisions that a failed commit may have left on disk
	newest  uint64   // revision of the last change: a commit up to it leaves nothing pending
}

// tomb is a deleted resource with a stored history.
type tomb struct {
	revision uint64 // of the deletion
	source   string // kind of the deleting source
}

// History returns the latest HistoryLimit revisions of a resource, oldest first. It includes
// deletions, and covers deleted and recreated resources. It omits revisions on disk that cannot be
// decoded.
func (s *Store) History(key resource.Key) []Revision {
	s.mu.Lock()
	d, top, unseen := s.disk, s.revision, s.unseen
	var recent []entry
	burned := map[uint64]bool{}
	if p := s.backlog[key]; p != nil {
		recent = slices.Clone(p.entries)
		for _, r := range p.burned {
			burned[r] = true
		}
	}
	s.mu.Unlock()

	byRevision := map[uint64]Revision{}
	if d != nil {
		for _, e := range s.readHistory(d, key) {
			r := e.Revision.Revision
			if !burned[r] && r <= top && (r <= unseen[0] || r > unseen[1]) {
				byRevision[r] = e.Revision
			}
		}
	}
	// After a commit between the two reads, some revisions are in both.
	for _, e := range recent {
		byRevision[e.Revision.Revision] = e.Revision
	}
	out := slices.SortedFunc(maps.Values(byRevision), func(a, b Revision) int {
		return cmp.Compare(a.Revision, b.Revision)
	})
	return out[max(0, len(out)-HistoryLimit):]
}

// appendHistory retains changes that are not on disk. The caller holds s.mu.
func (s *Store) appendHistory(changes []entry) {
	for _, e := range changes {
		s.pendingOf(e.key).add(e)
	}
}

func (p *pending) add(e entry) {
	if len(p.entries) == HistoryLimit {
		p.entries = slices.Delete(p.entries, 0, 1)
	}
	p.entries = append(p.entries, e)
	p.newest = e.Revision.Revision
}

// burn records the revisions and versions of a plan whose commit failed, or was overtaken. The next
// commit replaces them. The caller holds s.mu.
func (s *Store) burn(failed *plan) {
	for _, e := range failed.changes {
		p := s.pendingOf(e.key)
		p.burned = append(p.burned, e.Revision.Revision)
		p.newest = max(p.newest, e.Revision.Revision)
	}
	for k := range failed.pool {
		s.pool.unwritten[k] = s.pool.versions[k]
	}
}

// pendingOf returns the pending changes of a resource. The caller holds s.mu.
func (s *Store) pendingOf(key resource.Key) *pending {
	p := s.backlog[key]
	if p == nil {
		p = &pending{}
		s.backlog[key] = p
	}
	return p
}

// bury updates the list of deleted resources, and drops the oldest histories beyond the limit. The
// caller holds s.mu.
func (s *Store) bury(changes []entry) {
	buried := false
	for _, e := range changes {
		if e.Deleted {
			s.tombs[e.key] = tomb{revision: e.Revision.Revision, source: e.Source.Kind}
			buried = true
		} else {
			delete(s.tombs, e.key)
		}
	}
	if buried {
		s.evict()
	}
}

// evict drops the oldest histories of deleted resources beyond the limit. The caller holds s.mu.
func (s *Store) evict() {
	count := map[string]int{}
	over := false
	for _, t := range s.tombs {
		count[t.source]++
		over = over || count[t.source] > TombstoneLimit
	}
	if !over {
		return
	}
	oldest := slices.SortedFunc(maps.Keys(s.tombs), func(a, b resource.Key) int {
		return cmp.Compare(s.tombs[a].revision, s.tombs[b].revision)
	})
	for _, k := range oldest {
		source := s.tombs[k].source
		if count[source] <= TombstoneLimit {
			continue
		}
		count[source]--
		delete(s.tombs, k)
		s.forgetKey(k)
	}
}

// forgetKey drops the history of a resource. The caller holds s.mu.
func (s *Store) forgetKey(k resource.Key) {
	if s.opt.Path == "" {
		delete(s.backlog, k)
		return
	}
	if p := s.backlog[k]; p != nil {
		p.entries, p.newest = nil, s.revision // the key remains, so that the commit deletes its record on disk
	}
	s.forget = append(s.forget, k)
}
