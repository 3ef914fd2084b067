package spool

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/rotation"
)

// cursor is the file with the position of the first line to move. Each change is one write, so that
// a kill leaves either the old or the new content.
type cursor struct {
	f       *os.File
	segment uint64
	at      int64
	last    rotation.Extent
	writing bool
	found   []rotation.Extent // of an earlier process
}

const (
	queueMark  = "nqueue1\n"
	queueNote  = len(queueMark) + 8*(2+2*5)
	queueBytes = queueNote + 4
)

func openCursor(d *spoolDir) (*cursor, error) {
	f, err := d.open(lineCursorName, unix.O_RDWR|unix.O_CREAT)
	if err != nil {
		return nil, err
	}
	return &cursor{f: f}, nil
}

// set records the position. Nothing is being written.
func (c *cursor) set(segment uint64, at int64) {
	c.segment, c.at, c.writing = segment, at, false
	c.write(rotation.Extent{}, rotation.Extent{})
}

// moving records the extent of the next write of lines from a position.
func (c *cursor) moving(segment uint64, at int64, p rotation.Extent) {
	before := c.last
	if !c.writing || before.Before+before.Length != p.Before {
		before = rotation.Extent{}
	}
	c.segment, c.at, c.writing, c.last = segment, at, true, p
	c.write(p, before)
}

// write ignores errors: without the position, a kill may duplicate lines, which is no reason to
// stop.
func (c *cursor) write(extents ...rotation.Extent) {
	b := append(make([]byte, 0, queueBytes), queueMark...)
	values := []uint64{c.segment, uint64(c.at)} // #nosec G115 -- not negative
	for _, p := range extents {
		// #nosec G115 -- none is negative
		values = append(values, p.Dev, p.Ino, uint64(p.Offset), uint64(p.Length), uint64(p.Before))
	}
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	_, _ = c.f.WriteAt(b, 0)
}

// read returns the position that an earlier process has recorded, and keeps the extents in found.
func (c *cursor) read() (segment uint64, at int64, err error) {
	b := make([]byte, queueBytes+1)
	n, err := c.f.ReadAt(b, 0)
	if n == 0 && errors.Is(err, io.EOF) {
		return 0, 0, nil
	}
	if n != queueBytes || string(b[:len(queueMark)]) != queueMark ||
		binary.LittleEndian.Uint32(b[queueNote:]) != crc32.Checksum(b[:queueNote], castagnoli) {
		return 0, 0, errors.New("the position is damaged")
	}
	v := func(i int) uint64 { return binary.LittleEndian.Uint64(b[len(queueMark)+8*i:]) }
	if v(0) > MaxNumber || v(1) > maxSpoolBytes {
		return 0, 0, errors.New("the position is damaged")
	}
	c.segment, c.at = v(0), int64(v(1)) // #nosec G115 -- bounded above
	for i := 2; i < 12; i += 5 {
		if v(i) == 0 && v(i+1) == 0 || v(i+2) > 1<<62 || v(i+3) > maxPayload || v(i+4) > maxPayload {
			continue
		}
		// #nosec G115 -- bounded above
		c.found = append(c.found, rotation.Extent{Dev: v(i), Ino: v(i + 1), Offset: int64(v(i + 2)),
			Length: int(v(i + 3)), Before: int(v(i + 4))})
	}
	return c.segment, c.at, nil
}
