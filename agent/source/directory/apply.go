package directory

import (
	"errors"
	"path/filepath"
	"slices"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
)

// apply brings the store up to date with s.files. s.mu is held.
func (s *Source) apply() {
	// If another source takes or releases a key between the plan and the batch, plan again.
	for range 8 {
		ops := s.plan()
		if len(ops) == 0 {
			return
		}
		_, err := s.o.Store.Apply(s.batch(ops))
		var conflict *store.ConflictError
		var gone *store.NotFoundError
		switch {
		case err == nil:
			s.logOps(ops)
			return
		case errors.As(err, &conflict), errors.As(err, &gone):
			continue
		case errors.Is(err, store.ErrClosed):
			return
		}
		s.applyEach(ops)
		return
	}
	s.o.Log.Warn("resource files will be applied later: other sources keep changing the same resources")
	s.reapply = true
}

func (s *Source) batch(ops []store.Op) store.Batch {
	return store.Batch{Source: store.Source{Kind: store.SourceFile}, Ops: ops}
}

// plan returns the operations that bring the store up to date, and records in the files which
// resources other sources hold.
func (s *Source) plan() []store.Op {
	snap := s.o.Store.Snapshot()
	holder, newcomers := make(map[resource.Key]string, len(s.files)), s.newcomers()
	var ops []store.Op
	for _, path := range s.order {
		f := s.files[path]
		if f == nil || s.publishedAs(f.dir) != "" {
			continue
		}
		before := f.conflicts
		f.conflicts, f.active = nil, 0
		src := store.Source{Kind: store.SourceFile, Detail: path}
		for _, r := range f.resources {
			if f.retained() && newcomers[r.Key] {
				continue
			}
			if first, ok := holder[r.Key]; ok {
				s.conflict(f, before, r.Key, store.Source{Kind: store.SourceFile, Detail: first})
				continue
			}
			rec, ok := snap.Get(r.Key)
			if ok && !rec.Source.YieldsTo(src) {
				s.conflict(f, before, r.Key, rec.Source)
				continue
			}
			holder[r.Key] = path
			f.active++
			if !ok || rec.Digest != r.Digest || rec.Source != src {
				ops = append(ops, store.Op{Put: r, Source: src})
			}
		}
	}
	for _, rec := range snap.BySource(store.SourceFile) {
		if _, ok := holder[rec.Key]; !ok && s.publishedAs(filepath.Dir(rec.Source.Detail)) == "" {
			ops = append(ops, store.Op{Delete: rec.Key, Source: rec.Source})
		}
	}
	return ops
}

// conflict records that a resource of f belongs to owner, and logs it once.
func (s *Source) conflict(f *fileState, before map[string]string, k resource.Key, owner store.Source) {
	if f.conflicts == nil {
		f.conflicts = map[string]string{}
	}
	f.conflicts[k.String()] = owner.String()
	if before[k.String()] == owner.String() {
		return
	}
	s.o.Log.Warn("resource of a file is not used: another source has it", "reason",
		store.Conflict{Key: k, Owner: owner, Wanted: store.Source{Kind: store.SourceFile, Detail: f.path}}.String())
}

// applyEach applies the operations one by one, so that an invalid one does not block the others.
func (s *Source) applyEach(ops []store.Op) {
	for _, op := range ops {
		_, err := s.o.Store.Apply(s.batch([]store.Op{op}))
		if err == nil {
			continue
		}
		s.o.Log.Error("cannot store a resource of a file", "file", op.Source.Detail, "error", err)
		if f := s.files[op.Source.Detail]; f != nil {
			f.faults = append(slices.Clip(f.faults), resource.Fault{File: f.path, Reason: "cannot be stored: " + err.Error()})
		}
	}
}

func (s *Source) logOps(ops []store.Op) {
	puts, deletes := 0, 0
	for _, op := range ops {
		if op.Put != nil {
			puts++
		} else {
			deletes++
		}
	}
	s.o.Log.Info("resource files applied", "put", puts, "deleted", deletes)
}
