package rotation

import (
	"errors"
	"io/fs"
	"sync/atomic"
	"syscall"
)

// Stats are counts since Open. They are read without waiting for writers or the disk, so they may
// belong to moments that are a little apart.
type Stats struct {
	Bytes          uint64 // written, markers and added LFs included
	Size           int64  // of the active file, at the last write or look
	LinesDropped   uint64 // by DropNewest
	BytesDropped   uint64
	Retries        uint64 // writes that failed
	Rotations      uint64
	RotationErrors uint64
	Oversize       uint64 // lines longer than MaxFileSize
	TornTails      uint64 // files found without an LF at their end, which got one
	Outside        uint64 // times that the active file was renamed, removed, truncated or written to by others
	Removed        uint64 // backups removed for their number or age
	Purged         uint64 // backups removed because the disk was full
	RemoveErrors   uint64
	Compressed     uint64 // backups
	CompressErrors uint64
	SyncErrors     uint64
	// Health is nil while all that is written reaches its file, and else says what is wrong and since
	// when lines wait or are dropped. The agent is not ready with it.
	Health error
}

type counters struct {
	size atomic.Int64
	bytes, linesDropped, bytesDropped, retries, rotations, rotationErrors, oversize, tornTails, outside,
	removed, purged, removeErrors, compressed, compressErrors, syncErrors atomic.Uint64
}

// Kinds of faults, each of which ends by itself.
const (
	faultWrite = iota
	faultRotate
	faultSync
	faultOutside
	faultKinds
)

type faults [faultKinds]atomic.Pointer[error]

// set keeps the fault of a kind; nil ends it.
func (f *faults) set(kind int, err error) {
	if err == nil {
		if f[kind].Load() != nil {
			f[kind].Store(nil)
		}
		return
	}
	f[kind].Store(&err)
}

// Stats returns the counts and the health. It never waits.
func (f *File) Stats() Stats {
	c := &f.count
	s := Stats{
		Bytes: c.bytes.Load(), Size: c.size.Load(), LinesDropped: c.linesDropped.Load(), BytesDropped: c.bytesDropped.Load(),
		Retries: c.retries.Load(), Rotations: c.rotations.Load(), RotationErrors: c.rotationErrors.Load(),
		Oversize: c.oversize.Load(), TornTails: c.tornTails.Load(),
		Outside: c.outside.Load(), Removed: c.removed.Load(), Purged: c.purged.Load(), RemoveErrors: c.removeErrors.Load(),
		Compressed: c.compressed.Load(), CompressErrors: c.compressErrors.Load(), SyncErrors: c.syncErrors.Load(),
	}
	var errs []error
	for i := range f.faults {
		if err := f.faults[i].Load(); err != nil {
			errs = append(errs, *err)
		}
	}
	s.Health = errors.Join(errs...)
	return s
}

// causeText returns the system's words for an error, without the path.
func causeText(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	if err == nil {
		return "unknown"
	}
	return err.Error()
}

// isFull reports whether an error goes away with more space.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, errMinFree)
}

// isGone reports whether an error says that a file is not there.
func isGone(err error) bool { return errors.Is(err, fs.ErrNotExist) }
