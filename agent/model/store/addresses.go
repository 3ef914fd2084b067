package store

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	bolt "go.etcd.io/bbolt"
)

// Addresses returns the stored virtual addresses, as text by a key that the caller chose.
func (s *Store) Addresses() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.addresses)
}

// SetAddresses stores addresses; "" deletes one. They are on disk when it returns nil. If the disk
// rejects them, they stay in memory and are written with the next commit.
func (s *Store) SetAddresses(changes map[string]string) error {
	if err := s.noteAddresses(changes); err != nil {
		return err
	}
	return s.Flush()
}

func (s *Store) noteAddresses(changes map[string]string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	for k, v := range changes {
		if k == "" || len(k) > maxKey {
			return fmt.Errorf("the key of an address has %d bytes; 1 to %d are allowed", len(k), maxKey)
		}
		if v == "" {
			delete(s.addresses, k)
		} else {
			s.addresses[k] = v
		}
	}
	if s.opt.Path != "" {
		maps.Copy(s.unwritten, changes)
	}
	return nil
}

func putAddresses(tx *bolt.Tx, addresses map[string]string) error {
	if len(addresses) == 0 {
		return nil
	}
	b, err := tx.CreateBucketIfNotExists([]byte(bucketAddresses))
	if err != nil {
		return fmt.Errorf("bucket %s: %w", bucketAddresses, err)
	}
	for _, k := range slices.Sorted(maps.Keys(addresses)) {
		if v := addresses[k]; v == "" {
			err = errors.Join(err, b.Delete([]byte(k)))
		} else {
			err = errors.Join(err, b.Put([]byte(k), sealed(k, []byte(v))))
		}
	}
	return err
}

// loadAddresses reads all addresses and finds the damaged ones.
func (l *loaded) loadAddresses(tx *bolt.Tx) error {
	l.addresses = map[string]string{}
	b := tx.Bucket([]byte(bucketAddresses))
	if b == nil {
		return nil
	}
	return b.ForEach(func(k, v []byte) error {
		if content, ok := unsealed(string(k), v); ok {
			l.addresses[string(k)] = string(content)
		} else {
			l.damaged = append(l.damaged, move{bucketAddresses, slices.Clone(k), errors.New("the checksum is wrong")})
		}
		return nil
	})
}
