package spool

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"time"
)

// A segment of a spool is a file of records, one after the other. A record is a header and the
// lines as they came:
//
//	length of the lines   4 bytes, little-endian as all numbers here
//	CRC-32C               4 bytes, of all that follows it and of the length
//	number of the first   8 bytes; lines are numbered from 1 on
//	number of the last    8 bytes
//	time                  8 bytes, nanoseconds since 1970
//
// Numbers never fall within a spool; what was dropped leaves a gap.
const (
	recordHeader = 32
	// maxPayload bounds the lines of a record, so that a damaged length asks for no memory.
	maxPayload = 8 << 20
	// MaxNumber bounds the numbers of lines, so that sums of what is read never overflow.
	MaxNumber = math.MaxInt64 / 2
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Record is a batch of lines with room for its header.
type Record struct {
	buf   []byte // the header, then the lines
	First uint64
	Lines uint64
	At    time.Time // when its first line came
}

func (r *Record) Last() uint64    { return r.First + r.Lines - 1 }
func (r *Record) Payload() []byte { return r.buf[recordHeader:] }

// newRecord makes a record with room for size bytes of lines.
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

// checksum is that of a record whose header is there but for the checksum.
func checksum(b []byte) uint32 {
	return crc32.Update(crc32.Update(0, castagnoli, b[:4]), castagnoli, b[8:])
}

var errDamaged = errors.New("the record is damaged")

// header is what stands before the lines of a record.
type header struct {
	length      int
	first, last uint64
	at          time.Time
}

// parseHeader reads a header, and refuses what no record has. Whether the rest is whole is known
// from open alone.
func parseHeader(b []byte) (header, error) {
	if len(b) < recordHeader {
		return header{}, errDamaged
	}
	length := binary.LittleEndian.Uint32(b)
	h := header{
		length: int(length), first: binary.LittleEndian.Uint64(b[8:]), last: binary.LittleEndian.Uint64(b[16:]),
		at: time.Unix(0, int64(binary.LittleEndian.Uint64(b[24:]))), // #nosec G115 -- any value is a time
	}
	// Each line has a byte at least, so that counts are bounded by what is on the disk.
	if length == 0 || length > maxPayload || h.first == 0 || h.last < h.first || h.last > MaxNumber ||
		h.last-h.first >= uint64(length) {
		return header{}, errDamaged
	}
	return h, nil
}

// open checks a whole record.
func (h header) open(b []byte) (*Record, error) {
	if len(b) != recordHeader+h.length || binary.LittleEndian.Uint32(b[4:]) != checksum(b) {
		return nil, errDamaged
	}
	return &Record{buf: b, First: h.first, Lines: h.last - h.first + 1, At: h.at}, nil
}

// The cursor is a file with the number of the last line that is done with: a mark, the number, and
// a CRC-32C of both.
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
