package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Buckets: meta has the format and the mark; records the present resources by recordKey; history
// their revisions by historyKey; vips who has which virtual address; quarantine the values that
// could not be loaded, by the name of their bucket, NUL and their key; damaged, by recordKey, why a
// resource cannot be read.
const (
	bucketMeta       = "meta"
	bucketRecords    = "records"
	bucketHistory    = "history"
	bucketAddresses  = "vips" // missing until there is one
	bucketQuarantine = "quarantine"
	bucketDamaged    = "damaged" // missing until there is one

	metaFormat = "format"
	metaMark   = "revision" // the highest revision that may have been handed out: 8 bytes, big endian

	format = "1"

	// quarantineLimit bounds the quarantine, and what Health says about it.
	quarantineLimit = 1000
)

// errNotOurs is a file that is whole, but not a state file of this program.
var errNotOurs = errors.New("the file lacks the buckets of a state file")

// edit is all that is to be written of one resource.
type edit struct {
	key     resource.Key
	record  []byte // the value; nil: delete
	history []rawValue
	burned  []uint64
}

// rawValue is one key and value of a bucket.
type rawValue struct{ key, value []byte }

// move takes a value to the quarantine.
type move struct {
	bucket string
	key    []byte
	reason error
}

// writeSet is one transaction.
type writeSet struct {
	mark      uint64
	through   uint64 // all that is pending up to this revision is part of it
	moves     []move
	marks     []Damaged
	forget    []resource.Key
	edits     []edit
	addresses map[string]string // by key; "": delete
}

// create makes the buckets of a new file.
func (d *disk) create() error {
	return guard(func() error {
		return d.db.Update(func(tx *bolt.Tx) error {
			for _, name := range []string{bucketMeta, bucketRecords, bucketHistory, bucketQuarantine} {
				if _, err := tx.CreateBucket([]byte(name)); err != nil {
					return fmt.Errorf("bucket %s: %w", name, err)
				}
			}
			if err := putMeta(tx, metaFormat, []byte(format)); err != nil {
				return err
			}
			return putMeta(tx, metaMark, make([]byte, 8))
		})
	})
}

// write makes one transaction of w, on disk when it returns nil.
func (d *disk) write(w writeSet) error {
	return guard(func() error {
		return d.db.Update(func(tx *bolt.Tx) error {
			if err := quarantine(tx, w.moves); err != nil {
				return err
			}
			history := tx.Bucket([]byte(bucketHistory))
			for _, k := range w.forget {
				if err := trim(history, recordKey(k), 0); err != nil {
					return err
				}
			}
			for _, e := range w.edits {
				if err := errors.Join(e.write(tx.Bucket([]byte(bucketRecords)), history),
					unmark(tx, recordKey(e.key))); err != nil {
					return fmt.Errorf("%s: %w", e.key, err)
				}
			}
			if err := putDamaged(tx, w.marks); err != nil {
				return err
			}
			if err := putAddresses(tx, w.addresses); err != nil {
				return err
			}
			return putMeta(tx, metaMark, binary.BigEndian.AppendUint64(nil, w.mark))
		})
	})
}

func (e edit) write(records, history *bolt.Bucket) error {
	key := recordKey(e.key)
	var err error
	if e.record == nil {
		err = records.Delete(key)
	} else {
		err = records.Put(key, e.record)
	}
	for _, r := range e.burned {
		err = errors.Join(err, history.Delete(historyKey(e.key, r)))
	}
	for _, h := range e.history {
		err = errors.Join(err, history.Put(h.key, h.value))
	}
	return errors.Join(err, trim(history, key, HistoryLimit))
}

// trim leaves the latest keep revisions below a record key.
func trim(history *bolt.Bucket, key []byte, keep int) error {
	var keys [][]byte
	c := history.Cursor()
	for k, _ := c.Seek(key); k != nil && bytes.HasPrefix(k, key); k, _ = c.Next() {
		keys = append(keys, k)
	}
	for _, k := range keys[:max(0, len(keys)-keep)] {
		if err := history.Delete(slices.Clone(k)); err != nil {
			return err
		}
	}
	return nil
}

// quarantine moves values aside; when it is full, the first in the order of their keys are dropped.
func quarantine(tx *bolt.Tx, moves []move) error {
	if len(moves) == 0 {
		return nil
	}
	q := tx.Bucket([]byte(bucketQuarantine))
	for _, m := range moves {
		from := tx.Bucket([]byte(m.bucket))
		value := slices.Clone(from.Get(m.key))
		if err := q.Put(append([]byte(m.bucket+"\x00"), m.key...), value); err != nil {
			return fmt.Errorf("quarantine: %w", err)
		}
		if err := from.Delete(m.key); err != nil {
			return fmt.Errorf("quarantine: %w", err)
		}
	}
	return trim(q, nil, quarantineLimit)
}

// history reads the revisions of one resource, oldest first.
func (d *disk) history(k resource.Key) (out []rawValue, err error) {
	prefix := recordKey(k)
	err = guard(func() error {
		return d.db.View(func(tx *bolt.Tx) error {
			c := tx.Bucket([]byte(bucketHistory)).Cursor()
			for key, v := c.Seek(prefix); bytes.HasPrefix(key, prefix); key, v = c.Next() {
				out = append(out, rawValue{slices.Clone(key), slices.Clone(v)})
			}
			return nil
		})
	})
	return out, err
}

// putMeta writes a value of the meta bucket.
func putMeta(tx *bolt.Tx, key string, content []byte) error {
	if err := tx.Bucket([]byte(bucketMeta)).Put([]byte(key), sealed(key, content)); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

// getMeta returns false for a value that is missing or damaged.
func getMeta(tx *bolt.Tx, key string) ([]byte, bool) {
	return unsealed(key, tx.Bucket([]byte(bucketMeta)).Get([]byte(key)))
}

// sealed makes a value of the meta bucket, or of an address: a CRC-32C over key and content (4
// bytes, big endian) and the content.
func sealed(key string, content []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, checksum([]byte(key), content)), content...)
}

// unsealed returns the content of a value, false when it is damaged.
func unsealed(key string, v []byte) ([]byte, bool) {
	if len(v) < 4 || binary.BigEndian.Uint32(v) != checksum([]byte(key), v[4:]) {
		return nil, false
	}
	return v[4:], true
}
