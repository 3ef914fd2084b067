package spool

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// Policy says what happens to lines when a spool has reached its limit of bytes, or its disk
// is full.
type Policy string

// Policies of spools.
const (
	// the oldest lines make room for new ones, a whole segment at a time; the default
	DropOldest Policy = "dropOldest"
	DropNewest Policy = "dropNewest" // new lines are dropped
	Block      Policy = "block"      // writers wait: not for what reads a FIFO
)

// Options are those of the lines that wait for a collector.
type Options struct {
	// Dir is a directory of the spool's own, mode 0700. It is made when only it is missing. With ""
	// lines wait in memory alone, and what does not fit is dropped by OnFull.
	Dir string
	// MaxBytes bounds the files, 0 is 1 GiB. Up to two damaged segments are kept beside.
	MaxBytes int64
	// MaxAge is how long lines wait at most, 0 for as long as it takes. They go by segments, up to an
	// eighth later.
	MaxAge time.Duration
	OnFull Policy // "" is SpoolDropOldest
	// MaxMemory bounds the bytes that wait in memory before they go to the disk, 0 is 4 MiB.
	MaxMemory int
	// Memory is shared with other spools; nil is not shared.
	Memory *Memory
}

// Bounds of SpoolOptions.
const (
	minSpoolBytes  = 1 << 20
	maxSpoolBytes  = 1 << 50
	minSpoolMemory = 64 << 10
	maxSpoolMemory = 1 << 30

	defaultSpoolBytes  = 1 << 30
	defaultSpoolMemory = 4 << 20
	segmentBytes       = 8 << 20
)

// Validate reports each option that is out of its bounds. The field's name follows prefix, like
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

// segmentSize is the size from which on a segment is not appended to. A small spool has small
// segments, so that dropping one does not empty it.
func (o Options) segmentSize() int64 { return min(segmentBytes, o.MaxBytes/8) }

// Memory bounds what several spools hold in memory together. Each may have ownMemory beside, so
// that none of them stands still because of the others.
type Memory struct {
	most int64
	used atomic.Int64
}

// ownMemory is what a spool may hold without asking, in bytes.
const ownMemory = 256 << 10

// NewMemory bounds memory to some bytes.
func NewMemory(bytes int64) *Memory { return &Memory{most: bytes} }

// resize asks for more, or gives back, and reports whether it has. What is given back is always
// taken.
func (m *Memory) resize(from, to int) bool {
	if m == nil {
		return true
	}
	change := int64(max(to, ownMemory) - max(from, ownMemory))
	if m.used.Add(change) > m.most && change > 0 {
		m.used.Add(-change)
		return false
	}
	return true
}
