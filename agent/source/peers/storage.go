package peers

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/nearside-mesh/nearside/gossip/engine"
)

// storage persists the pool in a database file.
type storage struct {
	db      *bolt.DB
	damaged string // new name of a damaged file; "" if there was none
}

// lockWait is how long to wait for another process that has the file open, as after a quick
// restart.
const lockWait = time.Second

// openStorage opens or creates the file. It renames a damaged file; then the state comes from peers
// again.
func openStorage(path string, now time.Time) (*storage, error) {
	s, err := open(path)
	if err == nil || errors.Is(err, fs.ErrPermission) || errors.Is(err, berrors.ErrTimeout) {
		return s, err
	}
	damaged := fmt.Sprintf("%s.damaged-%d", path, now.Unix())
	if os.Rename(path, damaged) != nil {
		return nil, err
	}
	if s, err = open(path); err != nil {
		return nil, err
	}
	s.damaged = damaged
	return s, nil
}

func open(path string) (s *storage, err error) {
	err = guard(func() error {
		db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: lockWait})
		s = &storage{db: db}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if _, err := s.Load(); err != nil {
		_ = s.db.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// guard converts panics of the database, and faults in its memory map, to errors. They mean a
// damaged file or disk.
func guard(f func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		if r := recover(); r != nil {
			err = fmt.Errorf("the file is damaged: %v", r)
		}
	}()
	return f()
}

// Load implements [gossip.Storage].
func (s *storage) Load() (out []engine.Op, err error) {
	err = guard(func() error {
		return s.db.View(func(tx *bolt.Tx) error {
			return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
				return b.ForEach(func(k, v []byte) error {
					out = append(out, engine.Op{Bucket: string(name), Key: string(k), Value: append([]byte{}, v...)})
					return nil
				})
			})
		})
	})
	return out, err
}

// Write implements [gossip.Storage] with one transaction. It is on disk when Write returns.
func (s *storage) Write(ops []engine.Op) error {
	return guard(func() error {
		return s.db.Update(func(tx *bolt.Tx) error {
			for _, op := range ops {
				b, err := tx.CreateBucketIfNotExists([]byte(op.Bucket))
				if err != nil {
					return err
				}
				if op.Value == nil {
					err = b.Delete([]byte(op.Key))
				} else {
					err = b.Put([]byte(op.Key), op.Value)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	})
}

func (s *storage) close() error { return s.db.Close() }
