package peers

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// storage persists the pool in the file of the store. The store writes records itself, in the
// transactions of their changes.
type storage struct{ store *store.Store }

// Load implements [gossip.Storage].
func (s storage) Load() ([]engine.Op, error) {
	out := s.store.TakePoolState()
	for _, v := range s.store.Versions() {
		out = append(out, engine.Op{Bucket: engine.BucketRecords, Record: v})
	}
	return out, nil
}

// Write implements [gossip.Storage].
func (s storage) Write(ops []engine.Op) error { return s.store.WritePoolState(withoutRecords(ops)) }

// Later implements [gossip.Queue].
func (s storage) Later(ops []engine.Op) { s.store.QueuePoolState(withoutRecords(ops)) }

// Pending implements [gossip.Queue].
func (s storage) Pending() int { return s.store.PoolStateQueued() }

func withoutRecords(ops []engine.Op) []engine.Op {
	return slices.DeleteFunc(slices.Clone(ops), func(op engine.Op) bool { return op.Bucket == engine.BucketRecords })
}

// firstFile is the database of the pool in releases whose state file has the first format.
const firstFile = "gossip.db"

// Import returns the state of the pool in the database of earlier releases, or nothing if there is
// none. It skips unreadable records, which other nodes have too, and logs them. A database that
// cannot be read is an error.
func Import(dir string, log *slog.Logger) (out []engine.Op, err error) {
	path := filepath.Join(dir, firstFile)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	err = guard(func() error {
		db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: lockWait})
		if err != nil {
			return err
		}
		defer db.Close()
		return db.View(func(tx *bolt.Tx) error {
			return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
				return b.ForEach(func(k, v []byte) error {
					op := engine.Op{Bucket: string(name), Key: string(k), Value: slices.Clone(v)}
					if op.Bucket == engine.BucketRecords {
						if op.Record, err = engine.DecodeRecord(op.Value); err == nil {
							err = op.Record.Verify()
						}
						if err != nil {
							log.Warn("a record of the pool is unreadable and is skipped", "file", path, "error", err)
							return nil
						}
					}
					out = append(out, op)
					return nil
				})
			})
		})
	})
	if err != nil {
		return nil, &FileError{path, err}
	}
	return out, nil
}

// RetireImported renames the database of earlier releases after its state is in the store.
func RetireImported(dir string, st *store.Store) error {
	path := filepath.Join(dir, firstFile)
	if h := st.Health(); !h.Persistent || h.Pending > 0 {
		return nil
	}
	err := os.Rename(path, path+".format1")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// lockWait is how long to wait for another process that has the file open, as after a quick
// restart.
const lockWait = time.Second

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
