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

// Damaged is a resource whose current content cannot be read. It is not in a set, and neither is an
// earlier revision, because the lost content may have been the opposite. It remains damaged until
// it is written or deleted, or until a version that can read it runs.
type Damaged struct {
	Key    resource.Key
	Reason string
	Since  time.Time // UTC; time of discovery
	// Holds means that its content may be in force on proxies, which must not lose it.
	Holds bool

	stored bool // marked as damaged on disk
}

// holds reports whether the config of a mesh's proxies may depend on the resource.
func (d *Damaged) holds(mesh string) bool {
	switch {
	case !d.Holds:
		return false
	case d.Key.Kind == "Mesh":
		return d.Key.Name == mesh
	}
	return d.Key.Mesh == "" || d.Key.Mesh == mesh
}

// Remedy returns what ends the damage.
func (d *Damaged) Remedy() string {
	name := d.Key.Kind + " " + d.Key.Name
	if d.Key.Mesh != "" {
		name += " -m " + d.Key.Mesh
	}
	return "write it again with nearside apply -f FILE (nearside history " + name + " shows earlier content), or, if it " +
		"should not exist, run nearside delete " + name
}

// damagedBody is the stored form of a mark. Its existence counts: even a mark with a damaged body
// marks the resource.
type damagedBody struct {
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
}

// damagedSeal separates the checksums of this bucket from those of others.
const damagedSeal = bucketDamaged + "\x00"

// Damaged returns the details of a resource that cannot be read.
func (s *Snapshot) Damaged(k resource.Key) (Damaged, bool) {
	d, ok := s.damaged[k]
	return d, ok
}

// Holder returns the first damaged resource on which the config of a mesh's proxies may depend.
// Until it is written or deleted, no config of the mesh is complete.
func (s *Snapshot) Holder(mesh string) (first Damaged, ok bool) {
	for _, d := range s.damaged {
		if d.holds(mesh) && (!ok || d.Key.Compare(first.Key) < 0) {
			first, ok = d, true
		}
	}
	return first, ok
}

// AllDamaged returns the resources that cannot be read, sorted by kind, mesh, and name.
func (s *Snapshot) AllDamaged() []Damaged {
	return slices.SortedFunc(maps.Values(s.damaged), func(a, b Damaged) int { return a.Key.Compare(b.Key) })
}

// healed returns the resources that are still damaged after changes. A write or deletion heals a
// resource.
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

// marks returns the marks for the next transaction: new ones, or all if the file is new, without
// the resources that p changes. The caller holds s.mu.
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

// unmark removes the mark of a resource after a write or deletion.
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
		l.marked[key] = Damaged{Key: key, Reason: body.Reason, Since: body.Since, Holds: true, stored: true}
		return nil
	})
}
