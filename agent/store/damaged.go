package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// Damaged is a resource whose present content cannot be read. It is not in force, and no earlier revision of it is: what it says now may be
// the opposite. It stays so until somebody writes or deletes it, or the version that can read it runs.
type Damaged struct {
	Key    resource.Key
	Reason string
	Since  time.Time // UTC; when it was found

	stored bool // on disk it is marked as damaged
}

// damagedBody is what the file says of one. That it says anything counts: a body that is damaged itself still marks the resource.
type damagedBody struct {
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
}

// damagedSeal keeps the checksums of this bucket apart from others.
const damagedSeal = bucketDamaged + "\x00"

// Damaged returns what is known of a resource that cannot be read.
func (s *Snapshot) Damaged(k resource.Key) (Damaged, bool) {
	d, ok := s.damaged[k]
	return d, ok
}

// AllDamaged returns the resources that cannot be read, by kind, mesh and name.
func (s *Snapshot) AllDamaged() []Damaged {
	return slices.SortedFunc(maps.Values(s.damaged), func(a, b Damaged) int { return a.Key.Compare(b.Key) })
}

// healed returns what is still damaged after changes: what somebody has written or deleted is not.
func healed(damaged map[resource.Key]Damaged, changes []entry) map[resource.Key]Damaged {
	out, copied := damaged, false
	for _, e := range changes {
		if _, ok := out[e.key]; !ok {
			continue
		}
		if !copied {
			out, copied = maps.Clone(damaged), true
		}
		delete(out, e.key)
	}
	return out
}

// marks are those of the next transaction: new ones, all where the file lacks them, but not of what p changes. s.mu is held.
func (s *Store) marks(p *plan) []Damaged {
	if !s.state.full && len(s.state.marks) == 0 {
		return nil
	}
	left := s.Snapshot().damaged
	if p != nil {
		left = healed(left, p.changes)
	}
	list := s.state.marks
	if s.state.full {
		list = slices.DeleteFunc(s.Snapshot().AllDamaged(), func(d Damaged) bool { return !d.stored })
	}
	return slices.DeleteFunc(slices.Clone(list), func(d Damaged) bool { _, ok := left[d.Key]; return !ok })
}

// putDamaged marks resources in the file.
func putDamaged(tx *bolt.Tx, list []Damaged) error {
	if len(list) == 0 {
		return nil
	}
	b, err := tx.CreateBucketIfNotExists([]byte(bucketDamaged))
	if err != nil {
		return fmt.Errorf("bucket %s: %w", bucketDamaged, err)
	}
	for _, d := range list {
		body, err := json.Marshal(damagedBody{d.Reason, d.Since})
		if err != nil {
			return fmt.Errorf("%s: %w", d.Key, err)
		}
		k := recordKey(d.Key)
		if err := b.Put(k, sealed(damagedSeal+string(k), body)); err != nil {
			return fmt.Errorf("%s: %w", d.Key, err)
		}
	}
	return nil
}

// unmark removes the mark of a resource that was written or deleted.
func unmark(tx *bolt.Tx, key []byte) error {
	if b := tx.Bucket([]byte(bucketDamaged)); b != nil {
		return b.Delete(key)
	}
	return nil
}

// loadDamaged reads the marks.
func (l *loaded) loadDamaged(tx *bolt.Tx) error {
	l.marked = map[resource.Key]Damaged{}
	b := tx.Bucket([]byte(bucketDamaged))
	if b == nil {
		return nil
	}
	return b.ForEach(func(k, v []byte) error {
		key, err := parseRecordKey(k)
		if err != nil {
			l.damaged = append(l.damaged, move{bucketDamaged, slices.Clone(k), err})
			return nil
		}
		var body damagedBody
		if content, ok := unsealed(damagedSeal+string(k), v); !ok || json.Unmarshal(content, &body) != nil {
			body.Reason = "its last revision was damaged on disk"
		}
		l.marked[key] = Damaged{Key: key, Reason: body.Reason, Since: body.Since, stored: true}
		return nil
	})
}

// loading is the work of [Store.adopt].
type loading struct {
	s       *Store
	l       *loaded
	records *table
	history map[resource.Key]rawValue // the last revisions, where they can be read
	damaged map[resource.Key]Damaged
}

// mark says that a resource cannot be read. For what a later version may be able to read nothing is stored.
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
	x.s.opt.Log.Error("a resource cannot be read and is not in force; roll it back, write it again or delete it", "resource", k.String(), "reason", d.Reason)
}

var (
	errNoDeletion  = errors.New("its last revision is lost: neither its content nor its deletion is there")
	errNewerOnDisk = errors.New("the last change of the file is lost, and with it a later revision")
)

// record takes a record over, or what can be found out of it.
func (x *loading) record(k resource.Key, v rawValue) {
	last, marked := x.history[k], false
	if d, ok := x.l.marked[k]; ok {
		x.damaged[k], marked = d, true
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
		if last.value == nil || !slices.Equal(last.key, historyKey(k, e.Revision.Revision)) {
			x.s.pendingOf(k).add(e) // so that the history does not end in an older one
		}
		return
	}
	whole := false
	if _, verr := verify(v.key, v.value); verr == nil {
		whole = true // another version has written it
	}
	switch r, ok := x.restored(k); {
	case marked:
	case ok:
		x.records.put(k, r)
	case last.value == nil && x.l.last[k] == nil && !x.l.historyLost && !whole:
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
		// Who was deleted has two revisions at least: a single one is that of another resource, its name damaged.
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

// restored makes a record from the last revision of a resource, if that is known, and has it written with the next commit.
func (x *loading) restored(k resource.Key) (*Record, bool) {
	v, ok := x.history[k]
	if !ok || x.l.historyLost {
		return nil, false
	}
	e, err := decodeEntry(x.s.opt.Decode, k, v.key, v.value)
	if err != nil || e.Deleted {
		return nil, false
	}
	x.s.pendingOf(k)
	return e.record(), true
}
