package rotation

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"io/fs"
	"math"
	"path/filepath"
)

// partSize is the size of the parts of a plain file in bytes.
const partSize = 16 << 20

// Parts is a file with its backups at one time, divided into parts of whole lines. Parts can be
// read at the same time; in their order, they have each line once. Lines that a [File] writes later
// may be missing. The memory for each part that is read is bounded by the maximum length of a line.
type Parts struct {
	o     ReaderOptions
	names naming
	list  []section
	open  []*source // plain files
}

// section is a compressed backup, or a range of a plain file.
type section struct {
	from   *source // nil: the compressed backup
	backup backup
	begin  int64
	end    int64 // lines that begin before it belong to the part
}

// OpenParts returns the parts of the file at o.Path, oldest first. o.Follow is ignored. The errors
// are those of [NewReader].
func OpenParts(o ReaderOptions) (*Parts, error) {
	o.Follow = false
	first, err := NewReader(o) // validates the options
	if err != nil {
		return nil, err
	}
	o = first.o
	_ = first.Close()
	p := &Parts{o: o, names: namesOf(filepath.Base(o.Path))}
	d, err := openToRead(o.Path)
	if err != nil {
		return nil, err
	}
	defer d.close()
	// The active file is opened first. If it becomes a backup before the directory is listed, the
	// listing has it, and a new active file has only later lines.
	active, err := d.openRead(p.names.base)
	if err != nil && !isGone(err) {
		return nil, err
	}
	backups, err := d.scanTwice()
	if err != nil {
		p.Close()
		return nil, err
	}
	stamp := int64(-1)
	if active != nil {
		p.open = append(p.open, active)
		st, err := d.stat(p.names.base)
		for i := len(backups) - 1; i >= 0 && stamp < 0 && (err != nil || !active.is(st)); i-- {
			stamp = d.find(active, backups[i:])
		}
	}
	for _, b := range backups {
		if b.stamp == stamp {
			break // it is the open file
		}
		if !o.Since.IsZero() && b.stamp < o.Since.UnixMilli() {
			continue
		}
		x := section{backup: b}
		if b.plain {
			x.from, err = d.openBackup(b)
			switch {
			case err == nil && x.from.zip == nil:
				p.open = append(p.open, x.from)
				p.ranges(x)
				continue
			case err == nil:
				x.from.f.Close() // compressed in the meantime
			}
			x.from = nil
		}
		p.list = append(p.list, x)
	}
	if active != nil {
		p.ranges(section{from: active})
	}
	return p, nil
}

// ranges appends the parts of a plain file.
func (p *Parts) ranges(x section) {
	size := int64(0)
	if info, err := x.from.f.Stat(); err == nil {
		size = info.Size()
	}
	each := int64(cmp.Or(p.o.partBytes, partSize))
	for x.end = each; x.end < size; x.begin, x.end = x.end, x.end+each {
		p.list = append(p.list, x)
	}
	x.end = math.MaxInt64
	p.list = append(p.list, x)
}

// Len returns the number of parts.
func (p *Parts) Len() int { return len(p.list) }

// Active reports whether a part belongs to the file at the path, not to a backup.
func (p *Parts) Active(i int) bool { return p.list[i].from != nil && p.list[i].from.stamp < 0 }

// Size returns the number of bytes in plain files.
func (p *Parts) Size() (n int64) {
	for _, s := range p.open {
		if info, err := s.f.Stat(); err == nil {
			n += info.Size()
		}
	}
	return n
}

// Close closes the files. No part may be read at that time.
func (p *Parts) Close() {
	for _, s := range p.open {
		s.f.Close()
	}
}

// Read calls take for each line of a part, until take returns an error, which Read returns. The
// line is valid until take returns. The error is fs.ErrNotExist if the backup was removed. Read may
// be called at the same time for other parts.
func (p *Parts) Read(i int, take func(Line) error) error {
	x := &p.list[i]
	r := &partReader{max: p.o.MaxLine, take: take}
	if x.from == nil {
		s, err := p.openBackup(x.backup)
		if err != nil {
			return err
		}
		defer s.f.Close()
		if s.zip == nil {
			r.end = math.MaxInt64
			return r.run(io.NewSectionReader(s.f, 0, math.MaxInt64))
		}
		r.end = math.MaxInt64
		return r.run(readSource{s})
	}
	r.end = x.end
	if x.begin > 0 { // the line that begins at or before the last byte of the part before belongs to that part
		r.pos, r.skip = x.begin-1, true
	}
	return r.run(io.NewSectionReader(x.from.f, r.pos, math.MaxInt64-r.pos))
}

// openBackup opens a backup for Read.
func (p *Parts) openBackup(b backup) (*source, error) {
	d, err := openToRead(p.o.Path)
	if err != nil {
		return nil, err
	}
	defer d.close()
	s, err := d.openBackup(b)
	if isGone(err) {
		err = &fs.PathError{Op: "open", Path: d.join(p.names.backup(b.stamp)), Err: fs.ErrNotExist}
	}
	return s, err
}

// readSource reads a source as a stream.
type readSource struct{ s *source }

func (r readSource) Read(p []byte) (int, error) { return r.s.read(p) }

// partReader reads the lines of a part.
type partReader struct {
	take   func(Line) error
	max    int
	pos    int64 // of the first byte that is not in a returned line
	end    int64
	skip   bool // up to the end of the current line
	within bool // the last Line has More
}

// blockSize is the size of a read in bytes.
const blockSize = 256 << 10

func (r *partReader) run(in io.Reader) error {
	buf := make([]byte, blockSize)
	have := 0
	for {
		if have == len(buf) { // a line is longer than the buffer
			buf = append(buf, make([]byte, min(len(buf), r.max+blockSize))...)
		}
		n, err := in.Read(buf[have:])
		done, used, failed := r.lines(buf[:have+n], have)
		if failed != nil || done {
			return failed
		}
		have = copy(buf, buf[used:have+n])
		switch {
		case errors.Is(err, io.EOF):
			if have > 0 && !r.skip || r.within {
				return r.take(Line{Text: buf[:have], Open: true})
			}
			return nil
		case err != nil:
			return err
		}
	}
}

// lines takes the complete lines in b, whose first seen bytes have no LF, and returns the number of
// used bytes. done is true at the end of the part.
func (r *partReader) lines(b []byte, seen int) (done bool, used int, err error) {
	for {
		if r.pos >= r.end && !r.within {
			return true, used, nil
		}
		if r.skip {
			n := bytes.IndexByte(b, '\n') + 1
			if n == 0 {
				r.pos += int64(len(b))
				return false, len(b), nil
			}
			used, r.pos, seen, r.skip = n, r.pos+int64(n), 0, false
			continue
		}
		line := Line{}
		n, end := bytes.IndexByte(b[used+seen:], '\n')+seen, 1
		switch {
		case n >= seen && n <= r.max:
		case len(b)-used > r.max:
			n, end, line.More = r.max, 0, true
		default:
			return false, used, nil
		}
		line.Text, r.within = b[used:used+n], line.More
		used, r.pos, seen = used+n+end, r.pos+int64(n+end), 0
		if err := r.take(line); err != nil {
			return false, used, err
		}
	}
}
