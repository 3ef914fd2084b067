package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// Buckets. meta holds the format and the mark; records the current resources by recordKey, except
// operators' resources, whose versions pool holds by recordKey, including tombstones; state holds
// other values of the pool; history the revisions of resources by historyKey; vips the owners of
// virtual addresses; quarantine the values that could not be loaded, by the name of their bucket,
// NUL, and their key; damaged the reasons why resources cannot be read, by recordKey.
const (
	bucketMeta       = "meta"
	bucketRecords    = "records"
	bucketHistory    = "history"
	bucketAddresses  = "vips" // created on first use
	bucketQuarantine = "quarantine"
	bucketDamaged    = "damaged" // created on first use
	bucketPool       = "pool"
	bucketState      = "state"

	metaFormat = "format"
	metaMark   = "revision" // upper bound of all assigned revisions: 8 bytes, big endian

	format      = "2"
	formatFirst = "1" // without pool and state; the pool had a file of its own

	// quarantineLimit limits the quarantine, and the list in Health.
	quarantineLimit = 1000
)

// errNotOurs is the error for an intact file that is not a state file of this program.
var errNotOurs = errors.New("the file lacks the buckets of a state file")

// edit holds all writes for one resource.
type edit struct {
	key     resource.Key
	record  []byte // the value; nil: delete
	history []rawValue
	burned  []uint64
}

// rawValue is one key and value of a bucket.
type rawValue struct{ key, value []byte }

// move moves a value to the quarantine.
type move struct {
	bucket string
	key    []byte
	reason error
}

// writeSet is one transaction.
type writeSet struct {
	mark      uint64
	through   uint64 // the transaction includes all pending changes up to this revision
	moves     []move
	marks     []Damaged
	forget    []resource.Key
	edits     []edit
	pool      []rawValue                      // a nil value deletes
	versions  map[resource.Key]*engine.Record // of pool
	moved     [][]byte                        // keys that the records bucket must not have
	state     []engine.Op
	queued    uint64            // the transaction includes the queued state of the pool up to this number
	addresses map[string]string // by key; "": delete
}

// create creates the buckets of a new file.
func (d *disk) create() error {
	return guard(func() error {
		return d.db.Update(func(tx *bolt.Tx) error {
			for _, name := range []string{bucketMeta, bucketRecords, bucketHistory, bucketQuarantine, bucketPool,
				bucketState} {
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

// write runs one transaction. It is on disk when write returns nil.
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
			if err := w.writePool(tx); err != nil {
				return err
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

// trim deletes all but the latest limit revisions of a record key.
func trim(history *bolt.Bucket, key []byte, limit int) error {
	var keys [][]byte
	c := history.Cursor()
	for k, _ := c.Seek(key); k != nil && bytes.HasPrefix(k, key); k, _ = c.Next() {
		keys = append(keys, k)
	}
	for _, k := range keys[:max(0, len(keys)-limit)] {
		if err := history.Delete(slices.Clone(k)); err != nil {
			return err
		}
	}
	return nil
}

// quarantine moves values to the quarantine. If that is full, it drops the first values by key.
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

// history returns the revisions of one resource, oldest first.
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

// getMeta returns false if a value is missing or damaged.
func getMeta(tx *bolt.Tx, key string) ([]byte, bool) {
	return unsealed(key, tx.Bucket([]byte(bucketMeta)).Get([]byte(key)))
}

// sealed returns a value of the meta bucket, or of an address: a CRC-32C over key and content (4
// bytes, big endian), and the content.
func sealed(key string, content []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, checksum([]byte(key), content)), content...)
}

// unsealed returns the content of a value, or false if it is damaged.
func unsealed(key string, v []byte) ([]byte, bool) {
	if len(v) < 4 || binary.BigEndian.Uint32(v) != checksum([]byte(key), v[4:]) {
		return nil, false
	}
	return v[4:], true
}
