package store

import (
	"cmp"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/draft"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// Renew seals new versions, with the same content, of this node's resources whose versions are
// older than before. A node that joins a pool for the first time renews its old versions, because
// the pool cannot tell them from deleted ones.
func (s *Store) Renew(before time.Time) error {
	s.sealing.Lock()
	defer s.sealing.Unlock()
	s.mu.Lock()
	p := &plan{}
	for _, v := range s.pool.versions {
		k := resource.Key(v.Key)
		r := s.Snapshot().records.get(k)
		if v.Deleted || !v.HLC.Time().Before(before) || r == nil || r.Source.Kind != SourceAPI {
			continue
		}
		if id := v.Signer(); id != (sign.ID{}) && id != s.pool.self() {
			continue // this node cannot sign for an operator
		}
		e := entryOf(r)
		e.direct = true
		p.changes = append(p.changes, e)
	}
	slices.SortFunc(p.changes, func(a, b entry) int { return a.key.Compare(b.key) })
	committed, err := s.seal(p)
	if err == nil {
		s.pool.merge(p.pool)
	}
	s.mu.Unlock()
	if err != nil || len(p.pool) == 0 {
		return err
	}
	err = s.Flush()
	if committed != nil {
		committed()
	}
	return err
}

// seal adds versions to the operators' changes of a plan. committed may be nil. The caller holds
// s.mu.
func (s *Store) seal(p *plan) (committed func(), err error) {
	var puts []engine.Put
	var changes []*entry
	for i := range p.changes {
		e := &p.changes[i]
		if e.version != nil || !s.shared(e.Source, e.key.Kind) || !e.direct {
			continue
		}
		if err := s.encode(e); err != nil {
			return nil, err
		}
		put := engine.Put{Key: engine.Key(e.key), Delete: e.Deleted, Author: clip(e.Author)}
		if !e.Deleted {
			put.Body, put.MediaType = e.body, MediaType
		}
		puts, changes = append(puts, put), append(changes, e)
	}
	for _, v := range p.signed {
		puts = append(puts, engine.Put{Key: v.Key, Version: v})
	}
	if len(puts) == 0 {
		return nil, nil
	}
	var versions []*engine.Record
	if s.pool.sealer != nil {
		versions, committed, err = s.pool.sealer.Seal(puts)
	} else {
		versions, err = s.successors(puts)
	}
	if err != nil {
		return nil, err
	}
	for i, e := range changes {
		e.version = versions[i]
		p.version(e.key, poolChange{version: versions[i]})
	}
	return committed, nil
}

// MediaType is the media type of resources in the pool.
const MediaType = "application/json"

// maxAuthor limits the author of a version in bytes.
const maxAuthor = 253

func clip(author string) string { return author[:min(len(author), maxAuthor)] }

// successors seals changes without a pool. The caller holds s.mu.
func (s *Store) successors(puts []engine.Put) ([]*engine.Record, error) {
	var out []*engine.Record
	latest := map[engine.Key]*engine.Record{}
	for _, put := range puts {
		parent := latest[put.Key]
		if parent == nil {
			parent = s.pool.versions[resource.Key(put.Key)]
		}
		if put.Version != nil {
			if err := draft.Check(put.Version, s.now(), parent, s.origin()); err != nil {
				return nil, err
			}
		}
		r, err := engine.Successor(s.now(), parent, put, s.origin())
		if err != nil {
			return nil, err
		}
		latest[put.Key] = r
		out = append(out, r)
	}
	return out, nil
}

// sealed returns a batch for a second plan, with the versions of the first one. Operators' changes
// that the first plan found unnecessary are omitted.
func (s *Store) sealed(b Batch, p *plan) Batch {
	versions := map[int]*engine.Record{}
	for i := range p.changes {
		if e := &p.changes[i]; e.direct {
			versions[e.op] = e.version
		}
	}
	out := b
	out.On, out.Ops = nil, nil
	for i, op := range b.Ops {
		switch v, changed := versions[i]; {
		case op.Signed:
			op.Signed, op.sealed = false, true
		case v != nil:
			op.Version, op.IfRevision, op.sealed = v, nil, true
		case !changed && s.shared(cmp.Or(op.Source, b.Source), op.key().Kind):
			continue
		}
		out.Ops = append(out.Ops, op)
	}
	return out
}
