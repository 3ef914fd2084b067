package store

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// salvaged is the readable part of a damaged file. The load of the new file verifies the checksums
// of the values.
type salvaged struct {
	values                   map[string][]rawValue // by bucket
	lost                     int                   // number of lost pages
	recordsLost, historyLost bool
}

// salvage reads all pages in use, even those that no tree reaches. It returns nil if the pages in
// use are unknown, because an unused page contains earlier revisions, which must not be restored.
func salvage(r io.ReaderAt, size int64) *salvaged {
	m, _, err := newestMeta(r, size)
	if err != nil || m.pages > m.there+1<<16 {
		return nil
	}
	c := &checker{r: r, meta: m, seen: make([]bool, m.pages)}
	unused := c.seen
	if err := c.freelist(); err != nil {
		c.seen = make([]bool, m.pages)
		if c.tree(m.root, nil, nil, 0) != nil {
			return nil
		}
		unused = make([]bool, m.pages)
		for i, used := range c.seen {
			unused[i] = !used
		}
	}
	s := &salvaged{values: map[string][]rawValue{}}
	whose := bucketsOf(r, m)
	for id := uint64(2); id < m.pages; {
		if unused[id] {
			id++
			continue
		}
		b, overflow, err := readPage(r, m, id)
		if err == nil {
			err = s.page(b)
		}
		if err != nil {
			s.lost++
			s.lose(whose[id])
		}
		// The rest of the page follows, up to the next valid page.
		end := id + overflow
		for id++; id < m.pages && !unused[id]; id++ {
			if _, _, own := readPage(r, m, id); own == nil {
				break
			}
			if id > end {
				s.lost++
				s.lose(whose[id])
			}
		}
		if id <= end {
			s.lost++
			s.lose("")
		}
	}
	if len(s.values[bucketRecords])+len(s.values[bucketHistory])+len(s.values[bucketPool]) == 0 {
		return nil
	}
	for _, v := range s.values[bucketMeta] {
		if f, ok := unsealed(metaFormat, v.value); ok && string(v.key) == metaFormat && string(f) != format &&
			string(f) != formatFirst {
			return nil // written by another version
		}
	}
	return s
}

// lose records that a page of a bucket is lost; "" means an unknown bucket.
func (s *salvaged) lose(bucket string) {
	s.recordsLost = s.recordsLost || bucket == bucketRecords || bucket == bucketPool || bucket == ""
	s.historyLost = s.historyLost || bucket == bucketHistory || bucket == ""
}

// readPage reads a page with its overflow, and returns the number of overflow pages.
func readPage(r io.ReaderAt, m *meta, id uint64) (b []byte, overflow uint64, err error) {
	if id >= m.there {
		return nil, 0, fmt.Errorf("page %d is beyond the end of the file", id)
	}
	head := make([]byte, pageHeader)
	if _, err := r.ReadAt(head, int64(id*m.pageSize)); err != nil {
		return nil, 0, fmt.Errorf("page %d: %w", id, err)
	}
	overflow = uint64(order.Uint32(head[12:]))
	if order.Uint64(head) != id || overflow >= min(m.pages, m.there)-id {
		return nil, 0, fmt.Errorf("page %d has another number in its header", id)
	}
	b = make([]byte, (overflow+1)*m.pageSize)
	if _, err := r.ReadAt(b, int64(id*m.pageSize)); err != nil {
		return nil, 0, fmt.Errorf("page %d: %w", id, err)
	}
	return b, overflow, nil
}

// page salvages the values of a page.
func (s *salvaged) page(b []byte) error {
	count := int(order.Uint16(b[10:]))
	switch flags := order.Uint16(b[8:]); flags {
	case flagLeaf:
		return s.leaf(b, count, 0)
	case flagBranch, flagFreelist, flagMeta:
		return nil
	default:
		return fmt.Errorf("flags %#x", flags)
	}
}

// leaf salvages the readable values, including those of inline buckets.
func (s *salvaged) leaf(b []byte, count, depth int) error {
	var first error
	for i := range count {
		k, v, flags, err := leafElement(b, i, count)
		if err == nil && flags == flagBucket {
			if len(v) >= 16+pageHeader && order.Uint64(v) == 0 && depth < 2 {
				err = s.leaf(v[16:], int(order.Uint16(v[16+10:])), depth+1)
			}
		} else if err == nil {
			err = s.value(k, v)
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// value determines the bucket of a value by its key and checksum.
func (s *salvaged) value(k, v []byte) error {
	put := func(bucket string) {
		s.values[bucket] = append(s.values[bucket], rawValue{slices.Clone(k), slices.Clone(v)})
	}
	_, recordErr := parseRecordKey(k)
	_, _, historyErr := parseHistoryKey(k)
	_, isSealed := unsealed(string(k), v)
	_, isMark := unsealed(damagedSeal+string(k), v)
	_, isState := unsealed(stateSeal+string(k), v)
	_, versionErr := verify(append([]byte(poolSeal), k...), v)
	quarantined := slices.ContainsFunc([]string{bucketRecords, bucketHistory, bucketAddresses, bucketDamaged, bucketPool,
		bucketState}, func(b string) bool {
		return len(k) > len(b) && string(k[:len(b)+1]) == b+"\x00"
	})
	if _, err := verify(k, v); err != nil && !isSealed && !isMark && !isState && versionErr != nil && !quarantined {
		s.lose("") // the key may be damaged, and with it the bucket
	}
	switch {
	case quarantined:
		put(bucketQuarantine)
	case isMark:
		put(bucketDamaged)
	case isState:
		put(bucketState)
	case versionErr == nil:
		put(bucketPool)
	case isSealed && (string(k) == metaFormat || string(k) == metaMark):
		put(bucketMeta)
	case isSealed:
		put(bucketAddresses)
	case recordErr == nil:
		put(bucketRecords)
	case historyErr == nil:
		put(bucketHistory)
	default:
		return errors.New("the value belongs to no bucket")
	}
	return nil
}

// bucketsOf walks the intact trees and returns the bucket of each page.
func bucketsOf(r io.ReaderAt, m *meta) map[uint64]string {
	out := map[uint64]string{}
	var walk func(id uint64, bucket string, depth int)
	walk = func(id uint64, bucket string, depth int) {
		if _, seen := out[id]; seen || id < 2 || id >= m.pages || depth > maxDepth {
			return
		}
		out[id] = bucket
		b, _, err := readPage(r, m, id)
		if err != nil {
			return
		}
		count := int(order.Uint16(b[10:]))
		switch order.Uint16(b[8:]) {
		case flagBranch:
			for i := range count {
				if e, err := element(b, i, count); err == nil {
					walk(order.Uint64(e[8:]), bucket, depth+1)
				}
			}
		case flagLeaf:
			for i := range count {
				if k, v, flags, err := leafElement(b, i, count); err == nil && flags == flagBucket && bucket == "" && len(v) >= 16 {
					walk(order.Uint64(v), string(k), depth+1)
				}
			}
		}
	}
	walk(m.root, "", 0)
	return out
}

// lostChange returns the highest revisions of resources in all pages, used or not, if a meta page
// is damaged. They show whether the file has lost its last change. Otherwise it returns nil.
func lostChange(r io.ReaderAt, size int64) map[resource.Key]uint64 {
	m, both, err := newestMeta(r, size)
	if err != nil || both {
		return nil
	}
	all := &salvaged{values: map[string][]rawValue{}}
	for id := uint64(2); id < min(m.pages, m.there); id++ {
		if b, _, err := readPage(r, m, id); err == nil {
			_ = all.page(b) // unused pages may contain anything
		}
	}
	out := map[resource.Key]uint64{}
	for _, v := range all.values[bucketHistory] {
		if _, err := verify(v.key, v.value); err == nil {
			if k, revision, err := parseHistoryKey(v.key); err == nil {
				out[k] = max(out[k], revision)
			}
		}
	}
	return out
}

// store writes the salvaged values into a new file next to path, and returns its name.
func (s *salvaged) store(path string) (name string, err error) {
	name = path + ".salvaged"
	if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	f, _, err := lockFile(name, os.O_RDWR)
	if err != nil {
		return "", err
	}
	d, err := openBolt(f, name, false)
	if err != nil {
		return "", err
	}
	if err = d.create(); err == nil {
		err = guard(func() error { return d.db.Update(s.fill) })
	}
	if err = errors.Join(err, d.close()); err != nil {
		_ = os.Remove(name)
		return "", fmt.Errorf("writing the readable content of %s failed: %w", path, err)
	}
	return name, nil
}

// intact reports whether a bucket of resources has a value with a correct checksum.
func intact(bucket string, key, value []byte) bool {
	if bucket == bucketPool {
		key = append([]byte(poolSeal), key...)
	}
	_, err := verify(key, value)
	return value != nil && err == nil
}

func (s *salvaged) fill(tx *bolt.Tx) error {
	versions := tx.Bucket([]byte(bucketPool)) // filled before the records
	for _, bucket := range slices.Sorted(maps.Keys(s.values)) {
		b, err := tx.CreateBucketIfNotExists([]byte(bucket))
		if err != nil {
			return err
		}
		list := s.values[bucket]
		slices.SortStableFunc(list, func(x, y rawValue) int { return slices.Compare(x.key, y.key) })
		for _, v := range list {
			if intact(bucket, v.key, b.Get(v.key)) || bucket == bucketRecords && intact(bucketPool, v.key, versions.Get(v.key)) {
				continue // the other one is damaged, perhaps in its key
			}
			if err := b.Put(v.key, v.value); err != nil {
				return err
			}
		}
	}
	return nil
}
