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
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// loaded is the content of a file. Checksums are verified, but resources are not decoded.
type loaded struct {
	mark      uint64
	markKnown bool // false if the mark is damaged
	first     bool // the file has the first format
	records   []rawValue
	pool      []rawValue
	state     []engine.Op
	last      map[resource.Key]*lastRevision
	damaged   []move
	marked    map[resource.Key]Damaged
	addresses map[string]string

	// A part of the bucket is lost, so names may be missing.
	recordsLost, historyLost bool
	// newer holds revisions of a change that the file has lost; nil if there is no sign of one.
	newer map[resource.Key]uint64
}

// lastRevision is the last revision of a resource.
type lastRevision struct {
	rawValue
	damage error // why it cannot be read
	count  int   // number of revisions of the resource
}

// load reads a file. It returns nil if the file has no buckets, which happens after a crash during
// its creation.
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
	// No newer version wrote a damaged format.
	f, known := getMeta(tx, metaFormat)
	if known && string(f) != format && string(f) != formatFirst {
		return nil, &FormatError{Path: path, Format: string(f)}
	}
	for _, name := range []string{bucketRecords, bucketHistory, bucketQuarantine} {
		if tx.Bucket([]byte(name)) == nil {
			return nil, errNotOurs
		}
	}
	l := &loaded{first: string(f) == formatFirst || tx.Bucket([]byte(bucketPool)) == nil}
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
	if err := l.loadPool(tx); err != nil {
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

// scanHistory finds damaged revisions, and the last revision of each resource.
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

// adopt initializes the store with the content of a file. It is called once, before the store is
// shared.
//
// The record of a resource determines its content. If the record cannot be read, the last revision
// of an intact history replaces it. All other resources are [Damaged], because a lost revision may
// have been a deletion.
func (s *Store) adopt(l *loaded) {
	x := &loading{s: s, l: l, records: &table{}, damaged: map[resource.Key]Damaged{},
		verified: engine.VerifiedBefore(l.state)}
	for _, m := range l.damaged {
		s.quarantine(m, false)
	}
	maps.Copy(s.addresses, l.addresses)
	inRecords := map[resource.Key]bool{}
	for _, v := range l.records {
		k, err := parseRecordKey(v.key)
		if err != nil {
			continue // load returns none of these
		}
		inRecords[k] = true
		x.record(k, v)
	}
	s.pool.state = l.state
	for _, v := range l.pool {
		k, err := parseRecordKey(v.key)
		if err != nil {
			continue // load returns none of these
		}
		x.version(k, v, x.records.get(k) != nil)
		inRecords[k] = true
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
		s.backlog[k] = &pending{} // deletes the record on disk
		x.mark(k, errNewerOnDisk, true)
	}
	for k, d := range x.damaged {
		d.Holds = d.Holds && (s.opt.Idle == nil || !s.opt.Idle(k.Kind))
		x.damaged[k] = d
	}
	s.revision = l.mark
	s.evict()
	s.snap.Store(s.newSnapshot(l.mark, x.records, x.damaged))
}

// loading holds the state of [Store.adopt].
type loading struct {
	s       *Store
	l       *loaded
	records *table
	damaged map[resource.Key]Damaged

	verified bool // the signatures of all versions were verified before they were stored
	foreign  bool // the current value is of another node with a later release; this one has never used it
}

// mark marks a resource that cannot be read. If a later version may be able to read it, the mark is
// not stored.
func (x *loading) mark(k resource.Key, reason error, stored bool) {
	if _, ok := x.damaged[k]; ok {
		return
	}
	d := Damaged{Key: k, Reason: reason.Error(), Since: x.s.now(), Holds: !x.foreign}
	if stored {
		x.s.state.marks = append(x.s.state.marks, d)
	}
	d.stored = stored
	x.damaged[k] = d
	x.s.opt.Log.Error("a resource cannot be read from the state file", "resource", k.String(), "reason", d.Reason,
		"remedy", d.Remedy())
}

var (
	errNoDeletion  = errors.New("its last revision, a change or a deletion, is lost")
	errNewerOnDisk = errors.New("the last change of the file is lost, and with it a later revision")
)

// record adopts a record, or the part of it that can be read.
func (x *loading) record(k resource.Key, v rawValue) {
	if mark, marked := x.l.marked[k]; marked {
		x.damaged[k] = mark
	}
	e, err := decodeEntry(x.s.opt.Decode, k, v.key, v.value)
	if err == nil && e.Deleted {
		err = errors.New("the record is marked as deleted")
	}
	if err == nil {
		x.adopt(k, e)
		return
	}
	_, verr := verify(v.key, v.value)
	x.unreadable(bucketRecords, k, v, err, verr == nil)
}

// adopt adopts a readable record.
func (x *loading) adopt(k resource.Key, e entry) {
	x.records.put(k, e.record())
	if _, marked := x.l.marked[k]; marked { // a version without marks has written it
		delete(x.damaged, k)
		x.s.pendingOf(k)
	}
	last := x.l.last[k]
	if last == nil || last.damage != nil || !bytes.Equal(last.key, historyKey(k, e.Revision.Revision)) {
		x.s.pendingOf(k).add(e) // so that the history does not end with an older revision
	}
}

// unreadable adopts the part of a record that can be read. whole means that the value is intact:
// another version has written it.
func (x *loading) unreadable(bucket string, k resource.Key, v rawValue, err error, whole bool) {
	mark, marked := x.l.marked[k]
	if marked {
		x.damaged[k] = mark
	}
	last := x.l.last[k]
	switch r, ok := x.restored(k); {
	case marked:
	case ok:
		x.records.put(k, r)
	case last == nil && !x.l.historyLost && !whole:
		// No other value has this name, so it is the damaged name of another resource.
	default:
		x.mark(k, err, !whole)
	}
	if !whole {
		x.s.quarantine(move{bucket, v.key, err}, x.records.get(k) != nil)
	} else {
		x.s.notice(Quarantined{Bucket: bucket, Key: k.String(), Reason: err.Error()})
	}
}

// absent handles a resource with a history but without a record.
func (x *loading) absent(k resource.Key) {
	if _, marked := x.damaged[k]; marked {
		return
	}
	last := x.l.last[k]
	if last.damage != nil {
		// A deleted resource has at least two revisions. A single revision belongs to another
		// resource whose name is damaged.
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

// restored returns a record from the last known revision of a resource. The next commit writes it.
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

// quarantine moves a value with the next commit, and logs it.
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
	s.opt.Log.Error("a stored value cannot be loaded and was quarantined", "bucket", q.Bucket, "key", q.Key,
		"reason", q.Reason, "restored", q.Restored)
	if len(s.state.quarantined) < quarantineLimit {
		s.state.quarantined = append(s.state.quarantined, q)
	}
}

// readHistory returns the decodable revisions of a resource on disk.
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
