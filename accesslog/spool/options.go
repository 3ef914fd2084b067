package spool

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nearside-mesh/nearside/rotation"
)

// Policy selects which lines are dropped when a spool reaches its size limit or its disk is full.
type Policy string

// Policies of spools.
const (
	// drop the oldest segment; the default
	DropOldest Policy = "dropOldest"
	DropNewest Policy = "dropNewest" // drop new lines
	Block      Policy = "block"      // writers wait; not for readers of FIFOs
)

// Options configures a spool.
type Options struct {
	// Dir is a directory used only by the spool, with mode 0700. It is created if its parent exists.
	// If Dir is "", lines are stored only in memory, and OnFull applies to that.
	Dir string
	// Roots are directories that are created if they are missing, with all parents of Dir below them.
	Roots []string
	// MaxBytes limits the size of the files; 0: 1 GiB. Up to two damaged segments are kept in
	// addition.
	MaxBytes int64
	// MaxAge limits how long lines wait; 0: no limit. Lines expire by segment, up to an eighth later.
	MaxAge time.Duration
	OnFull Policy // default: DropOldest
	// MaxMemory limits the bytes in memory before lines go to disk; 0: 4 MiB.
	MaxMemory int
	// Marker returns a line that reports dropped lines. It goes to the collector in their place. Nil:
	// none.
	Marker func(rotation.Loss) []byte
	// Where names the collector in markers.
	Where string
	// Memory is a limit shared with other spools; nil: none.
	Memory *Memory
}

// Limits of Options.
const (
	minSpoolBytes  = 1 << 20
	maxSpoolBytes  = 1 << 50
	minSpoolMemory = 64 << 10
	maxSpoolMemory = 1 << 30

	defaultSpoolBytes  = 1 << 30
	defaultSpoolMemory = 4 << 20
	segmentBytes       = 8 << 20
)

// Validate returns an error for each option out of range. prefix precedes field names, for example
// "spool.".
func (o Options) Validate(prefix string) error {
	var errs []error
	if o.MaxBytes != 0 && (o.MaxBytes < minSpoolBytes || o.MaxBytes > maxSpoolBytes) {
		errs = append(errs, fmt.Errorf("%smaxBytes: %d is not between %d and %d; set a value between these, or 0 for %d",
			prefix, o.MaxBytes, minSpoolBytes, maxSpoolBytes, defaultSpoolBytes))
	}
	if o.MaxAge < 0 {
		errs = append(errs, fmt.Errorf("%smaxAge: %v is negative; set a value >= 0", prefix, o.MaxAge))
	}
	if o.MaxMemory != 0 && (o.MaxMemory < minSpoolMemory || o.MaxMemory > maxSpoolMemory) {
		errs = append(errs, fmt.Errorf("%smaxMemory: %d is not between %d and %d; set a value between these, or 0 for %d",
			prefix, o.MaxMemory, minSpoolMemory, maxSpoolMemory, defaultSpoolMemory))
	}
	switch o.OnFull {
	case "", DropOldest, DropNewest, Block:
	default:
		errs = append(errs,
			fmt.Errorf("%sonFull: %q is not one of dropOldest, dropNewest and block; set one of these", prefix, o.OnFull))
	}
	return errors.Join(errs...)
}

func (o Options) normalized() Options {
	if o.MaxBytes == 0 {
		o.MaxBytes = defaultSpoolBytes
	}
	if o.MaxMemory == 0 {
		o.MaxMemory = defaultSpoolMemory
	}
	if o.OnFull == "" {
		o.OnFull = DropOldest
	}
	return o
}

// segmentSize returns the size at which a segment is closed. A small spool has small segments, so
// that dropping one does not empty it.
func (o Options) segmentSize() int64 { return min(segmentBytes, o.MaxBytes/8) }

// Memory limits the total memory of several spools. Each spool may use ownMemory in addition, so
// that no spool is blocked by others.
type Memory struct {
	limit int64
	used  atomic.Int64
}

// ownMemory is the memory of a spool that is not counted, in bytes.
const ownMemory = 256 << 10

// NewMemory returns a Memory with a limit in bytes.
func NewMemory(bytes int64) *Memory { return &Memory{limit: bytes} }

// resize changes an allocation. It returns false if the limit is reached; a decrease always
// succeeds.
func (m *Memory) resize(from, to int) bool {
	if m == nil {
		return true
	}
	change := int64(max(to, ownMemory) - max(from, ownMemory))
	if m.used.Add(change) > m.limit && change > 0 {
		m.used.Add(-change)
		return false
	}
	return true
}
