package store_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/nearside-mesh/nearside/agent/model/store"
)

// modelRecord is the model of one resource.
type modelRecord struct {
	text     string
	source   store.Source
	revision uint64
}

// model is a store implemented as a map.
type model struct {
	records map[string]modelRecord
	history map[string][]modelRecord // text "" is a deletion
	highest uint64
}

func (m model) clone() model {
	c := model{records: maps.Clone(m.records), history: map[string][]modelRecord{}, highest: m.highest}
	for k, v := range m.history {
		c.history[k] = slices.Clone(v)
	}
	return c
}

// apply applies an op of a source, and reports whether it is allowed. fix sets the revision.
func (m *model) apply(src store.Source, op store.Op) bool {
	name := op.Delete.Name
	if op.Put != nil {
		name = op.Put.Name
	}
	old, ok := m.records[name]
	foreign := old.source != src && !(old.source.Kind == store.SourceFile && src.Kind == store.SourceFile)
	switch {
	case ok && foreign, !ok && op.Put == nil, op.IfRevision != nil && *op.IfRevision != old.revision:
		return false
	case op.Put != nil && ok && old.text == text(op.Put) && old.source == src:
		return true
	}
	m.highest++
	rec := modelRecord{source: src, revision: m.highest}
	if op.Put != nil {
		rec.text = text(op.Put)
		m.records[name] = rec
	} else {
		delete(m.records, name)
	}
	h := append(m.history[name], rec)
	m.history[name] = h[max(0, len(h)-store.HistoryLimit):]
	return true
}

func TestModel(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		path := fmt.Sprintf("%s/%d.db", dir, n)
		s, err := store.Open(options(path))
		if err != nil {
			rt.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		m := model{records: map[string]modelRecord{}, history: map[string][]modelRecord{}}
		degraded := false
		fault := errors.New("no space left on device")
		sources := rapid.SampledFrom([]store.Source{api, fileA, fileB, envoy})
		names := rapid.SampledFrom([]string{"a", "aa", "b"})
		rt.Repeat(map[string]func(*rapid.T){
			"apply": func(rt *rapid.T) {
				src := sources.Draw(rt, "source")
				var ops []store.Op
				for range rapid.IntRange(1, 4).Draw(rt, "ops") {
					name := names.Draw(rt, "name")
					op := store.Op{Delete: key(name)}
					if rapid.IntRange(0, 3).Draw(rt, "kind") > 0 {
						op = store.Op{Put: res(name, rapid.SampledFrom([]string{"x", "y", "z"}).Draw(rt, "text"))}
					}
					if rapid.IntRange(0, 4).Draw(rt, "conditional") == 0 {
						have := m.records[name].revision
						if rapid.Bool().Draw(rt, "wrong") {
							have += 1 << 60 // also beyond the revisions of earlier ops in the batch
						}
						op.IfRevision = &have
					}
					ops = append(ops, op)
				}
				// When the disk fails, it determines the next revisions: take them from the store.
				tryOut := m.clone()
				allowed := true
				for _, op := range ops {
					if !tryOut.apply(src, op) {
						allowed = false
					}
				}
				changes := tryOut.highest > m.highest
				before := s.Snapshot()
				_, err := s.Apply(store.Batch{Source: src, Durable: src == api, Ops: ops})
				var durability *store.DurabilityError
				switch {
				case allowed && degraded && changes && src == api:
					if !errors.As(err, &durability) {
						rt.Fatalf("an API write while the disk takes none: %v", err)
					}
					allowed = false
				case allowed != (err == nil):
					rt.Fatalf("allowed %t, error %v", allowed, err)
				}
				if !allowed || !changes {
					if s.Snapshot() != before {
						rt.Fatal("a refused or empty batch made a snapshot")
					}
					return
				}
				m.highest = s.Snapshot().Revision() - (tryOut.highest - m.highest)
				if m.highest < before.Revision() {
					rt.Fatalf("revision %d after %d", s.Snapshot().Revision(), before.Revision())
				}
				for _, op := range ops {
					// A condition on a revision of an earlier op in the batch was checked above.
					op.IfRevision = nil
					m.apply(src, op)
				}
			},
			"reopen": func(rt *rapid.T) {
				if degraded {
					s.SetFault(nil)
					degraded = false
				}
				if err := s.Close(); err != nil {
					rt.Fatal(err)
				}
				if s, err = store.Open(options(path)); err != nil {
					rt.Fatal(err)
				}
			},
			"disk full": func(*rapid.T) { degraded = true; s.SetFault(func() error { return fault }) },
			"disk free": func(rt *rapid.T) {
				degraded = false
				s.SetFault(nil)
				if err := s.Flush(); err != nil {
					rt.Fatal(err)
				}
			},
			"": func(rt *rapid.T) { compare(rt, s, m) },
		})
	})
}

func compare(rt *rapid.T, s *store.Store, m model) {
	snap := s.Snapshot()
	if snap.Len() != len(m.records) || snap.Set().Len() != len(m.records) {
		rt.Fatalf("%d records, want %d", snap.Len(), len(m.records))
	}
	for name, w := range m.records {
		r, ok := snap.Get(key(name))
		if !ok || text(r.Resource) != w.text || r.Source != w.source || r.Revision != w.revision {
			rt.Fatalf("%s: %+v, want %+v", name, r, w)
		}
	}
	for name, w := range m.history {
		var got []modelRecord
		for _, r := range s.History(key(name)) {
			rec := modelRecord{source: r.Source, revision: r.Revision}
			if !r.Deleted {
				rec.text = text(r.Resource)
			}
			got = append(got, rec)
		}
		if !slices.Equal(got, w) {
			rt.Fatalf("history of %s:\n%v, want\n%v", name, got, w)
		}
	}
}
