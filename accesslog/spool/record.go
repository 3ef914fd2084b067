package spool

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"time"
)

// A segment of a spool is a sequence of records. A record is a header and lines:
//
//	length of the lines   4 bytes, little-endian like all numbers here
//	CRC-32C               4 bytes, of the length and everything after the checksum
//	number of first line  8 bytes; lines are numbered from 1
//	number of last line   8 bytes
//	time                  8 bytes, nanoseconds since 1970
//
// Numbers are ascending within a spool. Dropped lines leave a gap.
const (
	recordHeader = 32
	// maxPayload limits the size of a record, so that a damaged length cannot cause a large
	// allocation.
	maxPayload = 8 << 20
	// MaxNumber limits line numbers, so that sums cannot overflow.
	MaxNumber = math.MaxInt64 / 2
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Record is a batch of lines, with space for its header.
type Record struct {
	buf   []byte // the header, then the lines
	First uint64
	Lines uint64
	At    time.Time // arrival of the first line
}

// Last returns the number of the last line.
func (r *Record) Last() uint64 { return r.First + r.Lines - 1 }

// Payload returns the lines.
func (r *Record) Payload() []byte { return r.buf[recordHeader:] }

// newRecord returns a record with capacity for size bytes of lines.
func newRecord(size int, at time.Time) *Record {
	return &Record{buf: make([]byte, recordHeader, recordHeader+size), At: at}
}

// seal writes the header.
func (r *Record) seal() {
	b := r.buf
	binary.LittleEndian.PutUint32(b[0:], uint32(len(b)-recordHeader)) // #nosec G115 -- at most maxPayload
	binary.LittleEndian.PutUint64(b[8:], r.First)
	binary.LittleEndian.PutUint64(b[16:], r.Last())
	binary.LittleEndian.PutUint64(b[24:], uint64(r.At.UnixNano())) // #nosec G115 -- read back the same way
	binary.LittleEndian.PutUint32(b[4:], checksum(b))
}

// checksum returns the checksum of a record. It skips the checksum field.
func checksum(b []byte) uint32 {
	return crc32.Update(crc32.Update(0, castagnoli, b[:4]), castagnoli, b[8:])
}

var errDamaged = errors.New("the record is damaged")

// header is the decoded header of a record.
type header struct {
	length      int
	first, last uint64
	at          time.Time
}

// parseHeader decodes and validates a header. Only open verifies the checksum.
func parseHeader(b []byte) (header, error) {
	if len(b) < recordHeader {
		return header{}, errDamaged
	}
	length := binary.LittleEndian.Uint32(b)
	h := header{
		length: int(length), first: binary.LittleEndian.Uint64(b[8:]), last: binary.LittleEndian.Uint64(b[16:]),
		at: time.Unix(0, int64(binary.LittleEndian.Uint64(b[24:]))), // #nosec G115 -- any value is a time
	}
	// A line has at least one byte, so the size limits the number of lines.
	if length == 0 || length > maxPayload || h.first == 0 || h.last < h.first || h.last > MaxNumber ||
		h.last-h.first >= uint64(length) {
		return header{}, errDamaged
	}
	return h, nil
}

// open verifies a complete record.
func (h header) open(b []byte) (*Record, error) {
	if len(b) != recordHeader+h.length || binary.LittleEndian.Uint32(b[4:]) != checksum(b) {
		return nil, errDamaged
	}
	return &Record{buf: b, First: h.first, Lines: h.last - h.first + 1, At: h.at}, nil
}

// The cursor is a file with the number of the last finished line: a magic string, the number, and a
// CRC-32C of both.
const (
	cursorMark = "nspool1\n"
	cursorSize = len(cursorMark) + 8 + 4
)

func appendCursor(b []byte, done uint64) []byte {
	b = append(b, cursorMark...)
	b = binary.LittleEndian.AppendUint64(b, done)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func parseCursor(b []byte) (done uint64, err error) {
	const n = cursorSize - 4
	if len(b) != cursorSize || string(b[:len(cursorMark)]) != cursorMark ||
		binary.LittleEndian.Uint32(b[n:]) != crc32.Checksum(b[:n], castagnoli) {
		return 0, errors.New("the cursor is damaged")
	}
	if done = binary.LittleEndian.Uint64(b[len(cursorMark):]); done > MaxNumber {
		return 0, errors.New("the cursor is damaged")
	}
	return done, nil
}
