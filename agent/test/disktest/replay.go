package disktest

import (
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
)

// Replay computes contents of the disk after a number of recorded operations. It is not safe for
// concurrent use.
type Replay struct {
	operations []Operation
	next       int
	seen       map[string]*inode   // the names that the program sees
	names      []map[string]*inode // that the disk may have: the first one is synced
}

// newReplay returns a replay that begins with the durable content of files.
func newReplay(files map[string][]byte, operations []Operation) *Replay {
	r := &Replay{operations: operations, seen: map[string]*inode{}}
	for name, data := range files {
		f := newInode()
		f.write(-1, 0, data)
		f.sync(false)
		r.seen[name] = f
	}
	r.names = []map[string]*inode{maps.Clone(r.seen)}
	return r
}

// Position returns the number of replayed operations.
func (r *Replay) Position() int { return r.next }

// Step replays one operation, and returns false if there is none.
func (r *Replay) Step() (Operation, bool) {
	if r.next == len(r.operations) {
		return Operation{}, false
	}
	o := r.operations[r.next]
	r.apply(r.next, o)
	r.next++
	return o, true
}

func (r *Replay) apply(number int, o Operation) {
	f := r.seen[o.Path]
	switch {
	case o.Kind == Sync && f != nil:
		f.sync(o.Failed)
	case o.Failed:
	case o.Kind == SyncDir:
		r.names = []map[string]*inode{maps.Clone(r.seen)}
	case o.Kind == Write && f != nil:
		f.write(number, o.Offset, o.Data)
	case o.Kind == Resize && f != nil:
		f.resize(number, o.Offset)
	case o.Kind == Create && f != nil:
		if o.Empty {
			f.resize(number, 0)
		}
	case o.Kind == Create, o.Kind == Rename, o.Kind == Link, o.Kind == Remove:
		if o.Kind == Create {
			r.seen[o.Path] = newInode()
		} else {
			rename(r.seen, o)
		}
		r.names = append(r.names, maps.Clone(r.seen))
	}
}

// Crash writes files that the disk may have after a power loss at this position into a new
// directory. The same random numbers give the same files.
func (r *Replay) Crash(random *rand.Rand, dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	names := r.names[random.IntN(len(r.names))]
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if err := os.WriteFile(filepath.Join(dir, name), names[name].content(random, r.next), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// rename applies a change of names other than Create.
func rename(names map[string]*inode, o Operation) {
	f := names[o.Path]
	if o.To != "" && f != nil {
		names[o.To] = f
	}
	if o.Kind != Link {
		delete(names, o.Path)
	}
}
