package rotation

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/rotation/dirs"
)

// source is an open file of a [Reader].
type source struct {
	f        *os.File
	dev, ino uint64
	off      int64        // next offset of a plain file
	zip      *gzip.Reader // nil for a plain file
	stamp    int64        // timestamp of a backup; negative if unknown
	complete bool         // no process writes to it anymore
	failed   bool         // the rest cannot be read
}

func (s *source) is(st unix.Stat_t) bool { return uint64(st.Dev) == s.dev && st.Ino == s.ino }

// atEnd reports whether a plain file has no more data.
func (s *source) atEnd() bool {
	var st unix.Stat_t
	return s.zip == nil && unix.Fstat(int(s.f.Fd()), &st) == nil && st.Size <= s.off
}

func (s *source) read(p []byte) (int, error) {
	if s.zip != nil {
		n, err := s.zip.Read(p)
		if err != nil && !errors.Is(err, io.EOF) {
			err = fmt.Errorf("%s is damaged: %w; the lines before the damage were returned", s.f.Name(), err)
		}
		return n, err
	}
	n, err := s.f.ReadAt(p, s.off)
	s.off += int64(n)
	return n, err
}

// listing is the open directory of a file, and its backups.
type listing struct {
	*directory
	backups []backup
}

// openToRead opens the directory of a file without a lock.
func openToRead(path string) (*listing, error) {
	dir, err := dirs.View(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	return &listing{directory: &directory{Dir: dir, names: namesOf(filepath.Base(path))}}, nil
}

// list opens the directory and lists the backups.
func (r *Reader) list() (*listing, error) {
	d, err := openToRead(r.o.Path)
	if err != nil {
		return nil, err
	}
	if d.backups, err = d.scanTwice(); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// scanTwice returns the backups, oldest first. One scan can miss a backup that is being renamed or
// compressed. A second scan has it, because each happens only once per backup.
func (d *listing) scanTwice() ([]backup, error) {
	first, _, err := d.scan()
	if err != nil {
		return nil, err
	}
	out, _, err := d.scan()
	if err != nil {
		return nil, err
	}
	for _, b := range first {
		if i, ok := slices.BinarySearchFunc(out, b, byStamp); !ok {
			out = slices.Insert(out, i, b)
		}
	}
	return out, nil
}

// openRead opens a regular file for reading, without changing its mode or group.
func (d *listing) openRead(name string) (*source, error) {
	fd, err := unix.Openat(d.fd(), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%s is a symbolic link; set the path of the file itself", d.join(name))
	}
	if err != nil {
		return nil, d.failed("open", name, err)
	}
	s := &source{f: os.NewFile(uintptr(fd), d.join(name)), stamp: -1}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		s.f.Close()
		return nil, d.failed("stat", name, err)
	}
	if uint32(st.Mode)&unix.S_IFMT != unix.S_IFREG {
		s.f.Close()
		return nil, fmt.Errorf("%s is not a regular file", d.join(name))
	}
	s.dev, s.ino = uint64(st.Dev), st.Ino
	return s, nil
}

// openBackup opens a backup. It may have been compressed since the listing.
func (d *listing) openBackup(b backup) (*source, error) {
	s, err := d.openRead(d.names.backup(b.stamp))
	if err == nil {
		s.stamp = b.stamp
		return s, nil
	}
	if !isGone(err) {
		return nil, err
	}
	if s, err = d.openRead(d.names.compressed(b.stamp)); err != nil {
		return nil, err
	}
	s.stamp, s.complete = b.stamp, true
	if s.zip, err = gzip.NewReader(s.f); err != nil {
		s.f.Close()
		return nil, fmt.Errorf("%s is damaged: %w", s.f.Name(), err)
	}
	return s, nil
}

// find returns the timestamp of the backup that an open file has become, or a negative number. It
// can only be the oldest one of newer.
func (d *listing) find(s *source, newer []backup) int64 {
	if len(newer) == 0 {
		return -1
	}
	b := newer[0]
	if st, err := d.stat(d.names.backup(b.stamp)); err == nil {
		if s.is(st) {
			return b.stamp
		}
		return -1
	}
	if d.isCopy(s, d.names.compressed(b.stamp)) {
		return b.stamp
	}
	return -1
}

// isCopy reports whether a compressed file was made from an open file: by its mark, size, and first
// block, or by its whole content if another program has compressed it. The mark is not sufficient
// for a file that was opened after the backup was made, because it may have a reused inode.
func (d *listing) isCopy(s *source, name string) bool {
	file, err := d.openRead(name)
	if err != nil {
		return false
	}
	defer file.f.Close()
	zip, err := gzip.NewReader(file.f)
	if err != nil {
		return false
	}
	a, b := make([]byte, readSize), make([]byte, readSize)
	of, ok := marked(zip.Extra)
	if ok && (!bytes.Equal(of, fileID(s.dev, s.ino)) || !sameSize(s.f, file.f)) {
		return false
	}
	for at := int64(0); !ok || at == 0; {
		n, err := io.ReadFull(zip, a)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return false
		}
		m, _ := s.f.ReadAt(b, at)
		if !bytes.Equal(a[:n], b[:m]) {
			return false
		}
		if n < len(a) {
			return true
		}
		at += int64(n)
	}
	return true
}

// sameSize reports whether a file has the size of a compressed file before compression, which is
// its last field, modulo 2^32.
func sameSize(plain, compressed *os.File) bool {
	a, err := plain.Stat()
	if err != nil {
		return false
	}
	b, err := compressed.Stat()
	if err != nil || b.Size() < 4 {
		return false
	}
	var size [4]byte
	if _, err := compressed.ReadAt(size[:], b.Size()-4); err != nil {
		return false
	}
	return binary.LittleEndian.Uint32(size[:]) == uint32(a.Size()) // #nosec G115 -- modulo 2^32
}

// A compressed backup identifies the file that it was made from, so that a reader of that file
// recognizes it. The mark is a subfield of the gzip header's extra field (RFC 1952, section
// 2.3.1.1) with the device and inode. An inode is not reused while a process has it open.
const markID = "NS"

func fileID(dev, ino uint64) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, dev), ino)
}

func markOf(st unix.Stat_t) []byte {
	id := fileID(uint64(st.Dev), st.Ino)
	return append(binary.LittleEndian.AppendUint16([]byte(markID), uint16(len(id))), id...)
}

// marked returns the mark in an extra field.
func marked(extra []byte) ([]byte, bool) {
	for len(extra) >= 4 {
		n := int(binary.LittleEndian.Uint16(extra[2:]))
		if len(extra) < 4+n {
			break
		}
		if string(extra[:2]) == markID {
			return extra[4 : 4+n], true
		}
		extra = extra[4+n:]
	}
	return nil, false
}
