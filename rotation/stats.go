package rotation

import (
	"errors"
	"io/fs"
	"sync/atomic"
	"syscall"
)

// Stats holds counters since Open. They are read without locks, so they may be slightly
// inconsistent.
type Stats struct {
	Bytes          uint64 // written, including markers and added LFs
	Size           int64  // of the active file, at the last write or check
	LinesDropped   uint64 // by DropNewest
	BytesDropped   uint64
	Retries        uint64 // failed writes
	Rotations      uint64
	RotationErrors uint64
	Oversize       uint64 // lines longer than MaxFileSize
	TornTails      uint64 // files without an LF at their end, which was added
	Outside        uint64 // times the active file was renamed, removed, truncated, or changed by others
	Recovered      uint64 // times the directory was created or opened again, or got its mode again
	Rescued        uint64 // lines written again because their file was removed meanwhile
	Removed        uint64 // backups removed because of their number or age
	Purged         uint64 // backups removed because the disk was full
	RemoveErrors   uint64
	Compressed     uint64 // backups
	CompressErrors uint64
	SyncErrors     uint64
	Full           bool // Health is that the disk or quota is full
	// Future is the number of backups whose name has a time in the future. Their modification time
	// decides when they are removed.
	Future int
	// Health is nil if all lines reach their file. Otherwise it describes the fault. The agent is not
	// ready while it is set.
	Health error
}

type counters struct {
	size, future atomic.Int64
	bytes, linesDropped, bytesDropped, retries, rotations, rotationErrors, oversize, tornTails, outside, recovered,
	rescued, removed, purged, removeErrors, compressed, compressErrors, syncErrors atomic.Uint64
}

// Kinds of faults. Each is cleared when its operation succeeds.
const (
	faultWrite = iota
	faultRotate
	faultSync
	faultOutside
	faultDirectory
	faultKinds
)

type faults [faultKinds]atomic.Pointer[error]

// set stores the fault of a kind; nil clears it.
func (f *faults) set(kind int, err error) {
	if err == nil {
		if f[kind].Load() != nil {
			f[kind].Store(nil)
		}
		return
	}
	fault := err // so that only a fault is allocated
	f[kind].Store(&fault)
}

// Stats returns the counters and the health. It does not block.
func (f *File) Stats() Stats {
	c := &f.count
	s := Stats{
		Bytes: c.bytes.Load(), Size: c.size.Load(), LinesDropped: c.linesDropped.Load(), BytesDropped: c.bytesDropped.Load(),
		Retries: c.retries.Load(), Rotations: c.rotations.Load(), RotationErrors: c.rotationErrors.Load(),
		Oversize: c.oversize.Load(), TornTails: c.tornTails.Load(),
		Outside: c.outside.Load(), Recovered: c.recovered.Load(), Rescued: c.rescued.Load(), Removed: c.removed.Load(),
		Purged: c.purged.Load(), RemoveErrors: c.removeErrors.Load(),
		Compressed: c.compressed.Load(), CompressErrors: c.compressErrors.Load(), SyncErrors: c.syncErrors.Load(),
		Future: int(c.future.Load()),
	}
	var errs []error
	for i := range f.faults {
		if err := f.faults[i].Load(); err != nil {
			errs = append(errs, *err)
		}
	}
	s.Health = errors.Join(errs...)
	s.Full = isFull(s.Health)
	return s
}

// causeText returns the text of the system error in err, without the path.
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

// isFull reports whether an error means that disk space is missing.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, errMinFree)
}

// isGone reports whether an error means that a file does not exist.
func isGone(err error) bool { return errors.Is(err, fs.ErrNotExist) }
