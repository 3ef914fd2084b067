package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// loaded is the content of a file, its checksums verified and its resources not yet decoded.
type loaded struct {
	mark      uint64
	markKnown bool // false: the mark is damaged
	records   []rawValue
	last      map[resource.Key]*lastRevision
	damaged   []move
	marked    map[resource.Key]Damaged
	addresses map[string]string

	// Something of the bucket is lost, so that a name may be missing in it.
	recordsLost, historyLost bool
	// newer are revisions of a change that the file has lost. Nil where there is no sign of one.
	newer map[resource.Key]uint64
}

// lastRevision is the last revision of a resource.
type lastRevision struct {
	rawValue
	damage error // why it cannot be read
	count  int   // revisions of the resource
}

// load reads a file. It returns nil for one that has no buckets, as a crash right after its
// creation leaves it.
func (d *disk) load() (l *loaded, err error) {
	err = guard(func() error {
		return d.db.View(func(tx *bolt.Tx) (err error) {
			if k, _ := tx.Cursor().First(); k != nil {
				l, err = load(tx, d.path)
			}
			return err
		})
	})
	return l, err
}

func load(tx *bolt.Tx, path string) (*loaded, error) {
	if tx.Bucket([]byte(bucketMeta)) == nil {
		return nil, errNotOurs
	}
	// A format that is damaged was not written by a newer version.
	if f, ok := getMeta(tx, metaFormat); ok && string(f) != format {
		return nil, &FormatError{Path: path, Format: string(f)}
	}
	for _, name := range []string{bucketRecords, bucketHistory, bucketQuarantine} {
		if tx.Bucket([]byte(name)) == nil {
			return nil, errNotOurs
		}
	}
	l := &loaded{}
	if m, ok := getMeta(tx, metaMark); ok && len(m) == 8 {
		l.mark, l.markKnown = binary.BigEndian.Uint64(m), true
	}
	err := tx.Bucket([]byte(bucketRecords)).ForEach(func(k, v []byte) error {
		_, err := parseRecordKey(k)
		if err != nil {
			l.damaged = append(l.damaged, move{bucketRecords, slices.Clone(k), err})
		} else {
			l.records = append(l.records, rawValue{slices.Clone(k), slices.Clone(v)})
			_, err = verify(k, v)
		}
		l.recordsLost = l.recordsLost || err != nil // the name may be damaged
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := l.loadDamaged(tx); err != nil {
		return nil, err
	}
	if err := l.loadAddresses(tx); err != nil {
		return nil, err
	}
	return l, l.scanHistory(tx.Bucket([]byte(bucketHistory)))
}

// scanHistory finds damaged revisions and the last one of each resource.
func (l *loaded) scanHistory(b *bolt.Bucket) error {
	l.last = map[resource.Key]*lastRevision{}
	var last lastRevision
	closeChain := func() {
		if k, _, err := parseHistoryKey(last.key); err == nil {
			l.last[k] = &lastRevision{rawValue{slices.Clone(last.key), slices.Clone(last.value)}, last.damage, last.count}
		}
		last = lastRevision{}
	}
	err := b.ForEach(func(k, v []byte) error {
		_, revision, err := parseHistoryKey(k)
		if err != nil {
			l.damaged = append(l.damaged, move{bucketHistory, slices.Clone(k), err})
			l.historyLost = true
			return nil
		}
		if last.key == nil || !bytes.Equal(k[:len(k)-8], last.key[:max(len(last.key)-8, 0)]) {
			closeChain()
		}
		if !l.markKnown {
			l.mark = max(l.mark, revision)
		}
		_, err = verify(k, v)
		if err != nil {
			l.damaged = append(l.damaged, move{bucketHistory, slices.Clone(k), err})
			l.historyLost = true // the name may be damaged
		}
		last = lastRevision{rawValue{k, v}, err, last.count + 1}
		return nil
	})
	closeChain()
	return err
}

// adopt makes the content of a file that of the store. It is called once, while nobody else has the
// store.
//
// A resource is in force as its record says. Where that cannot be read, the last revision of its
// history stands in for it, provided that the history is whole. All else is [Damaged]: of what was
// lost nobody knows whether it was a deletion.
func (s *Store) adopt(l *loaded) {
	x := &loading{s: s, l: l, records: &table{}, damaged: map[resource.Key]Damaged{}}
	for _, m := range l.damaged {
		s.quarantine(m, false)
	}
	maps.Copy(s.addresses, l.addresses)
	inRecords := map[resource.Key]bool{}
	for _, v := range l.records {
		k, err := parseRecordKey(v.key)
		if err != nil {
			continue // load leaves none of these
		}
		inRecords[k] = true
		x.record(k, v)
	}
	for k, d := range l.marked {
		if !inRecords[k] {
			x.damaged[k] = d
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(l.last), resource.Key.Compare) {
		if !inRecords[k] {
			x.absent(k)
		}
	}
	for k, revision := range l.newer {
		r := x.records.get(k)
		if known := l.last[k]; r != nil && r.Revision >= revision ||
			r == nil && known != nil && bytes.Compare(known.key, historyKey(k, revision)) >= 0 {
			continue
		}
		x.records.put(k, nil)
		delete(s.tombs, k)
		s.backlog[k] = &pending{} // the record on disk goes
		x.mark(k, errNewerOnDisk, true)
	}
	s.revision = l.mark
	s.evict()
	s.snap.Store(newSnapshot(l.mark, x.records, x.damaged))
}

// loading is the work of [Store.adopt].
type loading struct {
	s       *Store
	l       *loaded
	records *table
	damaged map[resource.Key]Damaged
}

// mark says that a resource cannot be read. For what a later version may be able to read nothing is
// stored.
func (x *loading) mark(k resource.Key, reason error, stored bool) {
	if _, ok := x.damaged[k]; ok {
		return
	}
	d := Damaged{Key: k, Reason: reason.Error(), Since: x.s.now()}
	if stored {
		x.s.state.marks = append(x.s.state.marks, d)
	}
	d.stored = stored
	x.damaged[k] = d
	x.s.opt.Log.Error("a resource cannot be read and is not in force; roll it back, write it again or delete it",
		"resource", k.String(), "reason", d.Reason)
}

var (
	errNoDeletion  = errors.New("its last revision is lost: neither its content nor its deletion is there")
	errNewerOnDisk = errors.New("the last change of the file is lost, and with it a later revision")
)

// record takes a record over, or what can be found out of it.
func (x *loading) record(k resource.Key, v rawValue) {
	last := x.l.last[k]
	mark, marked := x.l.marked[k]
	if marked {
		x.damaged[k] = mark
	}
	e, err := decodeEntry(x.s.opt.Decode, k, v.key, v.value)
	if err == nil && e.Deleted {
		err = errors.New("a record that says that it is deleted")
	}
	if err == nil {
		x.records.put(k, e.record())
		if marked { // a version that knows no marks has written it
			delete(x.damaged, k)
			x.s.pendingOf(k)
		}
		if last == nil || last.damage != nil || !bytes.Equal(last.key, historyKey(k, e.Revision.Revision)) {
			x.s.pendingOf(k).add(e) // so that the history does not end in an older one
		}
		return
	}
	_, verr := verify(v.key, v.value)
	whole := verr == nil // another version has written it
	switch r, ok := x.restored(k); {
	case marked:
	case ok:
		x.records.put(k, r)
	case last == nil && !x.l.historyLost && !whole:
		// Nothing else knows the name: it is that of another resource, damaged.
	default:
		x.mark(k, err, !whole)
	}
	if !whole {
		x.s.quarantine(move{bucketRecords, v.key, err}, x.records.get(k) != nil)
	} else {
		x.s.notice(Quarantined{Bucket: bucketRecords, Key: k.String(), Reason: err.Error()})
	}
}

// absent finds out what has become of a resource that has a history and no record.
func (x *loading) absent(k resource.Key) {
	if _, marked := x.damaged[k]; marked {
		return
	}
	last := x.l.last[k]
	if last.damage != nil {
		// Who was deleted has two revisions at least: a single one is that of another resource, its name
		// damaged.
		if last.count > 1 || x.l.recordsLost {
			x.mark(k, last.damage, true)
		}
		return
	}
	h, _, err := unwrap(last.key, last.value)
	if err == nil && h.Deleted {
		x.s.tombs[k] = tomb{revision: h.Revision, source: h.Source.Kind}
		return
	}
	r, ok := x.restored(k)
	if !ok || !x.l.recordsLost {
		x.mark(k, errNoDeletion, true)
		return
	}
	x.records.put(k, r)
	x.s.opt.Log.Warn("restored a resource from its history", "resource", k.String(), "revision", r.Revision)
}

// restored makes a record from the last revision of a resource, if that is known, and has it
// written with the next commit.
func (x *loading) restored(k resource.Key) (*Record, bool) {
	last := x.l.last[k]
	if last == nil || last.damage != nil || x.l.historyLost {
		return nil, false
	}
	e, err := decodeEntry(x.s.opt.Decode, k, last.key, last.value)
	if err != nil || e.Deleted {
		return nil, false
	}
	x.s.pendingOf(k)
	return e.record(), true
}

// quarantine has a value moved with the next commit and tells about it.
func (s *Store) quarantine(m move, restored bool) {
	s.state.moves = append(s.state.moves, m)
	name := fmt.Sprintf("%q", m.key)
	if k, err := parseRecordKey(m.key); err == nil {
		name = k.String()
	} else if k, r, err := parseHistoryKey(m.key); err == nil {
		name = fmt.Sprintf("%s@%d", k, r)
	}
	s.notice(Quarantined{Bucket: m.bucket, Key: name, Reason: m.reason.Error(), Restored: restored})
}

func (s *Store) notice(q Quarantined) {
	s.opt.Log.Error("a stored value cannot be loaded and is kept aside", "bucket", q.Bucket, "key", q.Key,
		"reason", q.Reason, "restored", q.Restored)
	if len(s.state.quarantined) < quarantineLimit {
		s.state.quarantined = append(s.state.quarantined, q)
	}
}

// readHistory returns what is on disk of a resource's history and can be decoded.
func (s *Store) readHistory(d *disk, key resource.Key) []entry {
	raw, err := d.history(key)
	if err != nil {
		s.opt.Log.Error("the history of a resource cannot be read", "resource", key.String(), "error", err)
	}
	out := make([]entry, 0, len(raw))
	for _, v := range raw {
		e, err := decodeEntry(s.opt.Decode, key, v.key, v.value)
		if err != nil {
			s.opt.Log.Warn("a revision cannot be decoded", "resource", key.String(), "error", err)
			continue
		}
		out = append(out, e)
	}
	return out
}
