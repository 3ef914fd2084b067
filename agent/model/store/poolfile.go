package store

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// A value of the pool bucket is like one of the records bucket, but its content is an encoded
// [engine.Record], which exists for deleted resources too. A value of the state bucket is like one
// of the meta bucket; its key is the name of a bucket of the engine, NUL, and the key there.

// poolSeal and stateSeal separate the checksums of these buckets from those of others.
const (
	poolSeal  = bucketPool + "\x00"
	stateSeal = bucketState + "\x00"
)

// poolValue returns the value of a version. r is the visible record of its key, or nil.
func (s *Store) poolValue(k resource.Key, v *engine.Record, r *Record) ([]byte, error) {
	h := header{Modified: v.HLC.Time().UTC(), Source: s.sourceOf(v), Author: v.Author,
		Signer: signerText(v.Signer()), Deleted: v.Deleted}
	if r != nil && r.Source.Operators() {
		h.Revision, h.Created, h.Modified, h.Source, h.Author = r.Revision, r.Created, r.Modified, r.Source, r.Author
		h.Signer = signerText(r.Signer)
	}
	return wrap(append([]byte(poolSeal), recordKey(k)...), h, v.Encoded())
}

// poolValues adds the values of the versions that are not on disk, and of those whose visible
// record has changed. The caller holds both locks.
func (s *Store) poolValues(w *writeSet, p *plan, next *table, edited map[resource.Key][]entry) error {
	w.versions = maps.Clone(s.pool.unwritten)
	current := func(k resource.Key) *engine.Record { return s.pool.versions[k] }
	if p != nil {
		for k, c := range p.pool {
			w.versions[k] = c.version
		}
		current = func(k resource.Key) *engine.Record { return s.current(p, k) }
	}
	for k := range edited {
		if v := current(k); v != nil {
			w.versions[k] = v
		}
	}
	if s.state.full {
		maps.Copy(w.versions, s.pool.versions)
		for k := range w.versions {
			w.versions[k] = current(k)
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(w.versions), resource.Key.Compare) {
		v := w.versions[k]
		if v == nil {
			w.pool = append(w.pool, rawValue{key: recordKey(k)})
			continue
		}
		value, err := s.poolValue(k, v, next.get(k))
		if err != nil {
			return err
		}
		w.pool = append(w.pool, rawValue{recordKey(k), value})
		if r := next.get(k); r == nil || s.versioned(p, r) {
			w.moved = append(w.moved, recordKey(k))
		}
	}
	w.state, w.queued = s.pool.queue.all()
	return nil
}

// versioned reports whether the pool bucket has a record of the table. The caller holds s.mu.
func (s *Store) versioned(p *plan, r *Record) bool {
	if !s.shared(r.Source, r.Key.Kind) {
		return false
	}
	if p == nil {
		p = &plan{}
	}
	return s.current(p, r.Key) != nil
}

// writePool writes versions and state of the pool.
func (w *writeSet) writePool(tx *bolt.Tx) error {
	for _, name := range []string{bucketPool, bucketState} { // a file of the first format has none
		if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
			return fmt.Errorf("bucket %s: %w", name, err)
		}
	}
	versions, state := tx.Bucket([]byte(bucketPool)), tx.Bucket([]byte(bucketState))
	var err error
	for _, v := range w.pool {
		if v.value == nil {
			err = errors.Join(err, versions.Delete(v.key))
		} else {
			err = errors.Join(err, versions.Put(v.key, v.value))
		}
	}
	for _, k := range w.moved {
		err = errors.Join(err, tx.Bucket([]byte(bucketRecords)).Delete(k))
	}
	for _, op := range w.state {
		k := stateKey(op)
		if op.Value == nil {
			err = errors.Join(err, state.Delete([]byte(k)))
		} else {
			err = errors.Join(err, state.Put([]byte(k), sealed(stateSeal+k, op.Value)))
		}
	}
	if err != nil {
		return fmt.Errorf("pool: %w", err)
	}
	if f, ok := getMeta(tx, metaFormat); ok && string(f) == format {
		return nil
	}
	return putMeta(tx, metaFormat, []byte(format))
}

// loadPool reads the versions and the state of the pool.
func (l *loaded) loadPool(tx *bolt.Tx) error {
	if b := tx.Bucket([]byte(bucketPool)); b != nil {
		err := b.ForEach(func(k, v []byte) error {
			_, err := parseRecordKey(k)
			if err != nil {
				l.damaged = append(l.damaged, move{bucketPool, slices.Clone(k), err})
			} else {
				l.pool = append(l.pool, rawValue{slices.Clone(k), slices.Clone(v)})
				_, err = verify(append([]byte(poolSeal), k...), v)
			}
			l.recordsLost = l.recordsLost || err != nil // the name may be damaged
			return nil
		})
		if err != nil {
			return err
		}
	}
	b := tx.Bucket([]byte(bucketState))
	if b == nil {
		return nil
	}
	return b.ForEach(func(k, v []byte) error {
		content, ok := unsealed(stateSeal+string(k), v)
		name, key, found := strings.Cut(string(k), "\x00")
		if !ok || !found {
			l.damaged = append(l.damaged, move{bucketState, slices.Clone(k), errors.New("the checksum is wrong")})
			return nil
		}
		l.state = append(l.state, engine.Op{Bucket: name, Key: key, Value: slices.Clone(content)})
		return nil
	})
}

// decodeVersion decodes a value of the pool bucket. It verifies the signature if an earlier build
// may have stored the version.
func decodeVersion(k resource.Key, v rawValue, verified bool) (h header, r *engine.Record, err error) {
	rest, err := verify(append([]byte(poolSeal), v.key...), v.value)
	if err != nil {
		return h, nil, err
	}
	h, body, err := splitHeader(rest)
	if err != nil {
		return h, nil, err
	}
	if verified {
		r, err = engine.LoadRecord(body)
	} else if r, err = engine.DecodeRecord(body); err == nil {
		err = r.Verify()
	}
	if err != nil {
		return h, nil, err
	}
	if resource.Key(r.Key) != k {
		return h, nil, fmt.Errorf("the value contains %s", r.Key)
	}
	return h, r, nil
}

// version adopts a value of the pool bucket. local reports whether the records bucket has the
// resource too, which then shadows the version.
func (x *loading) version(k resource.Key, v rawValue, local bool) {
	h, r, err := decodeVersion(k, v, x.verified)
	if err != nil {
		_, verr := verify(append([]byte(poolSeal), v.key...), v.value)
		if local {
			x.s.quarantine(move{bucketPool, v.key, err}, true)
			return
		}
		x.unreadable(bucketPool, k, v, err, verr == nil)
		return
	}
	x.s.pool.versions[k] = r
	switch {
	case local:
		if r.Deleted {
			return
		}
		x.s.pool.waiting[k] = shadowed(x.records.get(k).Source)
	case Reserved(k.Kind):
	case r.Deleted:
		if last := x.l.last[k]; last != nil && last.damage == nil {
			x.s.tombs[k] = tomb{revision: h.Revision, source: h.Source.Kind}
		}
	default:
		x.decoded(k, v, h, r)
	}
}

// decoded adopts the content of a version.
func (x *loading) decoded(k resource.Key, v rawValue, h header, r *engine.Record) {
	op := x.s.Merge(r)
	if op.Put == nil {
		x.s.pool.waiting[k] = op.Reason
		x.foreign = op.Source.Kind != SourceAPI
		x.unreadable(bucketPool, k, v, errors.New(op.Reason), true)
		x.foreign = false
		return
	}
	if h.Revision == 0 { // it was shadowed, and what shadowed it is lost
		h.Revision, h.Created = x.l.mark, h.Modified
	}
	src := op.Source
	if r.Origin == "" && h.Source.Kind == src.Kind {
		src = h.Source // it may have a name
	}
	x.adopt(k, entry{key: k, created: h.Created, version: r, Revision: Revision{Revision: h.Revision, Time: h.Modified,
		Source: src, Author: h.Author, Signer: r.Signer(), Resource: op.Put}})
}

// migrate gives versions to operators' resources that have none. With first, the file has the first
// format or is new, so the store also adopts the pool's state from the file of earlier releases. It
// is called once, before the store is shared.
func (s *Store) migrate(first bool) error {
	var ops []Op
	if first && s.opt.Import != nil {
		imported, err := s.opt.Import()
		if err != nil {
			return fmt.Errorf("the pool of an earlier release: %w", err)
		}
		for _, op := range imported {
			if op.Record == nil {
				s.pool.state = append(s.pool.state, op)
				continue
			}
			op := s.Merge(op.Record)
			ops = append(ops, op)
			if later, err := s.laterThan(op.Version); err != nil {
				return err
			} else if later != nil {
				ops = append(ops, s.Merge(later))
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if first {
		s.QueuePoolState(s.pool.state)
	}
	if len(ops) > 0 {
		p, err := s.prepare(Batch{Source: Source{Kind: SourceGossip}, Ops: ops})
		if err != nil {
			return err
		}
		s.appendHistory(p.changes)
		s.swap(p)
	}
	return s.restoreVersions()
}

// laterThan returns a successor of an imported version with the content of the store, if the store
// has a change that was made after the version and without the pool. It returns nil otherwise.
func (s *Store) laterThan(v *engine.Record) (*engine.Record, error) {
	k := resource.Key(v.Key)
	list := s.History(k)
	if len(list) == 0 {
		return nil, nil
	}
	// A write of an earlier release has its time before the version.
	last := list[len(list)-1]
	if last.Source.Kind != SourceAPI || !last.Time.After(v.HLC.Time().Add(time.Millisecond)) {
		return nil, nil
	}
	put := engine.Put{Key: v.Key, Delete: last.Deleted, Author: clip(last.Author)}
	if !last.Deleted {
		e := entry{key: k, Revision: last}
		if err := s.encode(&e); err != nil {
			return nil, err
		}
		put.Body, put.MediaType = e.body, MediaType
	}
	if bytes.Equal(put.Body, v.Body) && put.Delete == v.Deleted {
		return nil, nil
	}
	return engine.Successor(last.Time, v, put, s.origin())
}

// restoreVersions gives versions to operators' resources without one. The caller holds s.mu.
func (s *Store) restoreVersions() error {
	for r := range s.Snapshot().records.all() {
		if !s.shared(r.Source, r.Key.Kind) || s.pool.versions[r.Key] != nil {
			continue
		}
		v, err := s.restoredVersion(entryOf(r))
		if err != nil {
			return fmt.Errorf("%s: %w", r.Key, err)
		}
		s.pool.merge(map[resource.Key]poolChange{r.Key: {version: v}})
	}
	return nil
}

// keepFirstFormat copies a file of the first format, for a return to the release that wrote it.
func (s *Store) keepFirstFormat() {
	name := s.opt.Path + ".format1"
	if err := s.disk.copyTo(name); err != nil {
		s.opt.Log.Error("cannot keep a copy of the state file for a return to the earlier release", "copy", name,
			"error", err)
		return
	}
	s.opt.Log.Info("the state file has a new format; a copy for a return to the earlier release exists", "copy", name)
}

// copyTo copies the file. The copy exists completely or not at all, also after a power loss.
func (d *disk) copyTo(name string) error {
	f, err := os.OpenFile(name+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = guard(func() error {
		return d.db.View(func(tx *bolt.Tx) error { _, err := tx.WriteTo(f); return err })
	})
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), name); err != nil {
		return err
	}
	return syncDir(name)
}
