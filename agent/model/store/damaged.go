package store

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Damaged is a resource whose present content cannot be read. It is not in force, and no earlier
// revision of it is: what it says now may be the opposite. It stays so until somebody writes or
// deletes it, or the version that can read it runs.
type Damaged struct {
	Key    resource.Key
	Reason string
	Since  time.Time // UTC; when it was found

	stored bool // on disk it is marked as damaged
}

// damagedBody is what the file says of one. That it says anything counts: a body that is damaged
// itself still marks the resource.
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

// marks are those of the next transaction: new ones, all where the file lacks them, but not of what
// p changes. s.mu is held.
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
