package rotation

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// chunk is the number of bytes compressed between two checks of the clock.
const chunk = 256 << 10

// errStopped means that Run ended during a compression.
var errStopped = errors.New("stopped")

// compress compresses the oldest plain backup, and runs periodic tasks in the meantime.
func (k *maintenance) compress(ctx context.Context, clock <-chan time.Time) {
	f := k.f
	if !f.opts.Compress {
		return
	}
	f.mu.Lock()
	i := slices.IndexFunc(f.backups, func(b backup) bool { return b.plain && !b.failed })
	var b backup
	dir := f.dir
	if i >= 0 {
		b = f.backups[i]
		dir.Retain()
	}
	f.mu.Unlock()
	if i < 0 {
		return
	}
	defer dir.Dir.Close()
	pause := func() error {
		select {
		case <-ctx.Done():
			return errStopped
		case <-f.done:
			return errStopped
		case <-clock:
			if k.tick(); !f.isIn(dir) {
				return errStopped
			}
		default:
		}
		return nil
	}
	if err := f.compressOne(dir, b, pause); errors.Is(err, errStopped) {
		return
	} else if err != nil && !isGone(err) {
		f.count.compressErrors.Add(1)
		f.change(dir, b.stamp, func(b *backup) { b.failed = true })
	} else if err != nil {
		f.change(dir, b.stamp, func(b *backup) { b.plain = false }) // removed by another process
	}
	f.poke()
}

// isIn reports whether the file is still in a directory.
func (f *File) isIn(dir *directory) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dir == dir
}

// change edits a backup in the index of a directory, and reports whether it still exists.
func (f *File) change(dir *directory, stamp int64, edit func(*backup)) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dir != dir {
		return false
	}
	i, ok := slices.BinarySearchFunc(f.backups, backup{stamp: stamp}, byStamp)
	if !ok {
		return false
	}
	edit(&f.backups[i])
	if !f.backups[i].plain && !f.backups[i].gz {
		f.backups = slices.Delete(f.backups, i, i+1)
	}
	return true
}

// compressOne replaces a plain backup with a compressed file. Both exist briefly, or longer after a
// crash: the plain file is removed only if the compressed one has the same content.
func (f *File) compressOne(dir *directory, b backup, pause func() error) error {
	names := dir.names
	plain, st, err := dir.open(names.backup(b.stamp), unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer plain.Close()
	if b.gz {
		same, err := sameContent(dir, plain, names.compressed(b.stamp), pause)
		if err != nil {
			return err
		}
		if same {
			return f.dropPlain(dir, b.stamp)
		}
		if err := dir.remove(names.compressed(b.stamp)); err != nil && !isGone(err) {
			return err
		}
		f.change(dir, b.stamp, func(b *backup) { b.gz = false })
		if _, err := plain.Seek(0, io.SeekStart); err != nil {
			return err
		}
	}
	temp := names.temp(b.stamp)
	if err := dir.remove(temp); err != nil && !isGone(err) {
		return err
	}
	out, _, err := dir.open(temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
	if err != nil {
		return err
	}
	err = pack(out, plain, markOf(st), pause)
	if err == nil && f.opts.Sync != SyncNever {
		err = SyncFile(out)
	}
	err = errors.Join(err, out.Close())
	renamed := false
	if err == nil {
		f.change(dir, b.stamp, func(b *backup) {
			if err = dir.rename(temp, names.compressed(b.stamp)); err == nil {
				b.gz, renamed = true, true
			}
		})
	}
	if !renamed { // failed, or the backup was removed in the meantime
		dir.remove(temp)
		return err
	}
	if f.opts.Sync != SyncNever {
		if err := SyncFile(dir.File()); err != nil {
			return err
		}
	}
	f.count.compressed.Add(1)
	return f.dropPlain(dir, b.stamp)
}

// dropPlain removes the plain file of a compressed backup.
func (f *File) dropPlain(dir *directory, stamp int64) error {
	var err error
	f.change(dir, stamp, func(b *backup) {
		if err = dir.remove(dir.names.backup(stamp)); err == nil || isGone(err) {
			b.plain, err = false, nil
		}
	})
	return err
}

// pack compresses a file, with the mark in its header.
func pack(out io.Writer, in io.Reader, mark []byte, pause func() error) error {
	zip := gzip.NewWriter(out)
	zip.Extra = mark
	buf := make([]byte, chunk)
	for {
		n, err := in.Read(buf)
		if _, err := zip.Write(buf[:n]); err != nil {
			return err
		}
		if errors.Is(err, io.EOF) {
			return zip.Close()
		}
		if err == nil {
			err = pause()
		}
		if err != nil {
			return err
		}
	}
}

// sameContent reports whether a compressed file has the content of a plain one. It reads at most as
// much as the plain file has.
func sameContent(dir *directory, plain *os.File, name string, pause func() error) (bool, error) {
	file, _, err := dir.open(name, unix.O_RDONLY)
	if isGone(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	zip, err := gzip.NewReader(file)
	if err != nil {
		return false, nil
	}
	a, b := make([]byte, chunk), make([]byte, chunk)
	for {
		n, err := io.ReadFull(plain, a)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return false, err
		}
		if _, bad := io.ReadFull(zip, b[:n]); bad != nil || !bytes.Equal(a[:n], b[:n]) {
			return false, nil
		}
		if n < len(a) {
			m, bad := zip.Read(b[:1]) // reading the end verifies the checksum
			return m == 0 && errors.Is(bad, io.EOF), nil
		}
		if err := pause(); err != nil {
			return false, err
		}
	}
}
