package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// loaded is the content of a file, its checksums verified and its resources not yet decoded.
type loaded struct {
	mark      uint64
	markKnown bool // false: the mark is damaged
	records   []rawValue
	last      []rawValue // the last revision of each resource, where it is not damaged
	damaged   []move
	addresses map[string]string
}

// load reads a file. It returns nil for one that has no buckets, as a crash right after its creation leaves it.
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
		if _, err := parseRecordKey(k); err != nil {
			l.damaged = append(l.damaged, move{bucketRecords, slices.Clone(k), err})
			return nil
		}
		l.records = append(l.records, rawValue{slices.Clone(k), slices.Clone(v)})
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := l.loadAddresses(tx); err != nil {
		return nil, err
	}
	return l, l.scanHistory(tx.Bucket([]byte(bucketHistory)))
}

// scanHistory finds damaged revisions and the last one of each resource. A resource whose last revision is damaged has
// none: what came before it says nothing about the present.
func (l *loaded) scanHistory(b *bolt.Bucket) error {
	var last rawValue
	var prefix []byte
	closeChain := func() {
		if last.value != nil {
			l.last = append(l.last, rawValue{slices.Clone(last.key), slices.Clone(last.value)})
		}
		last = rawValue{}
	}
	err := b.ForEach(func(k, v []byte) error {
		_, revision, err := parseHistoryKey(k)
		if err != nil {
			l.damaged = append(l.damaged, move{bucketHistory, slices.Clone(k), err})
			return nil
		}
		if p := k[:len(k)-8]; !bytes.Equal(p, prefix) {
			closeChain()
			prefix = p
		}
		if !l.markKnown {
			l.mark = max(l.mark, revision)
		}
		last = rawValue{k, v}
		if _, err := verify(k, v); err != nil {
			l.damaged = append(l.damaged, move{bucketHistory, slices.Clone(k), err})
			last = rawValue{}
		}
		return nil
	})
	closeChain()
	return err
}

// adopt makes the content of a file that of the store. It is called once, while nobody else has the store.
func (s *Store) adopt(l *loaded) {
	records := &table{}
	for _, m := range l.damaged {
		s.quarantine(m, false)
	}
	maps.Copy(s.addresses, l.addresses)
	history := make(map[resource.Key]rawValue, len(l.last))
	for _, v := range l.last {
		k, _, err := parseHistoryKey(v.key)
		if err != nil {
			continue // scanHistory leaves none of these
		}
		history[k] = v
	}
	for _, v := range l.records {
		k, err := parseRecordKey(v.key)
		if err != nil {
			continue // load leaves none of these
		}
		e, err := decodeEntry(s.opt.Decode, k, v.key, v.value)
		if err == nil && e.Deleted {
			err = errors.New("a record that says that it is deleted")
		}
		if err == nil {
			records.put(k, e.record())
			continue
		}
		m := move{bucketRecords, v.key, err}
		restored, rerr := s.restore(k, history[k])
		if rerr == nil && restored != nil {
			records.put(k, restored)
		}
		delete(history, k)
		s.quarantine(m, records.get(k) != nil)
	}
	for k, v := range history {
		if records.get(k) != nil {
			continue
		}
		h, _, err := unwrap(v.key, v.value)
		if err == nil && h.Deleted {
			s.tombs[k] = tomb{revision: h.Revision, source: h.Source.Kind}
			continue
		}
		// The record is lost or was put in quarantine by an earlier run; its last revision is still there.
		r, err := s.restore(k, v)
		if err == nil && r != nil {
			records.put(k, r)
			s.opt.Log.Warn("restored a resource from its history", "resource", k.String(), "revision", r.Revision)
			continue
		}
		s.notice(Quarantined{Bucket: bucketHistory, Key: k.String(), Reason: fmt.Sprint(err)})
	}
	s.revision = l.mark
	s.evict()
	s.snap.Store(newSnapshot(l.mark, records))
}

// restore makes a record from the last revision of a resource and has it written with the next commit.
func (s *Store) restore(k resource.Key, v rawValue) (*Record, error) {
	if v.value == nil {
		return nil, errors.New("no history")
	}
	e, err := decodeEntry(s.opt.Decode, k, v.key, v.value)
	if err != nil {
		return nil, err
	}
	if !e.Deleted {
		s.backlog[k] = &pending{}
	}
	return e.record(), nil
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
