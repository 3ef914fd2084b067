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

// chunk is how much is compressed between two looks at the clock, in bytes.
const chunk = 256 << 10

// errStopped is for a compression that gives way to the end of Run.
var errStopped = errors.New("stopped")

// compress compresses one backup, the oldest that is to be, and looks at the clock meanwhile.
func (k *keeper) compress(ctx context.Context, clock <-chan time.Time) {
	f := k.f
	if !f.opts.Compress {
		return
	}
	f.mu.Lock()
	i := slices.IndexFunc(f.backups, func(b backup) bool { return b.plain && !b.failed })
	var b backup
	if i >= 0 {
		b = f.backups[i]
	}
	f.mu.Unlock()
	if i < 0 {
		return
	}
	pause := func() error {
		select {
		case <-ctx.Done():
			return errStopped
		case <-f.done:
			return errStopped
		case <-clock:
			k.tick()
		default:
		}
		return nil
	}
	if err := f.compressOne(b, pause); errors.Is(err, errStopped) {
		return
	} else if err != nil && !isGone(err) {
		f.count.compressErrors.Add(1)
		f.change(b.stamp, func(b *backup) { b.failed = true })
	} else if err != nil {
		f.change(b.stamp, func(b *backup) { b.plain = false }) // removed by others
	}
	f.poke()
}

// change edits a backup of the index, and reports whether it is still there.
func (f *File) change(stamp int64, edit func(*backup)) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
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

// compressOne puts a compressed file in the place of a plain backup. Both are there for a moment,
// and after a crash perhaps for longer: the plain one goes only when what the other holds is the
// same.
func (f *File) compressOne(b backup, pause func() error) error {
	names := f.dir.names
	plain, st, err := f.dir.open(names.backup(b.stamp), unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer plain.Close()
	if b.gz {
		same, err := f.holdsSame(plain, names.compressed(b.stamp), pause)
		if err != nil {
			return err
		}
		if same {
			return f.dropPlain(b.stamp)
		}
		if err := f.dir.remove(names.compressed(b.stamp)); err != nil && !isGone(err) {
			return err
		}
		f.change(b.stamp, func(b *backup) { b.gz = false })
		if _, err := plain.Seek(0, io.SeekStart); err != nil {
			return err
		}
	}
	temp := names.temp(b.stamp)
	if err := f.dir.remove(temp); err != nil && !isGone(err) {
		return err
	}
	out, _, err := f.dir.open(temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
	if err != nil {
		return err
	}
	err = pack(out, plain, markOf(st), pause)
	if err == nil && f.opts.Sync != SyncNever {
		err = syncFile(out)
	}
	err = errors.Join(err, out.Close())
	renamed := false
	if err == nil {
		f.change(b.stamp, func(b *backup) {
			if err = f.dir.rename(temp, names.compressed(b.stamp)); err == nil {
				b.gz, renamed = true, true
			}
		})
	}
	if !renamed { // it failed, or the backup was removed meanwhile
		f.dir.remove(temp)
		return err
	}
	if f.opts.Sync != SyncNever {
		if err := syncFile(f.dir.f); err != nil {
			return err
		}
	}
	f.count.compressed.Add(1)
	return f.dropPlain(b.stamp)
}

// dropPlain removes the plain file of a backup that is compressed.
func (f *File) dropPlain(stamp int64) error {
	var err error
	f.change(stamp, func(b *backup) {
		if err = f.dir.remove(f.dir.names.backup(stamp)); err == nil || isGone(err) {
			b.plain, err = false, nil
		}
	})
	return err
}

// pack compresses a file. The mark goes into the header.
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

// holdsSame reports whether a compressed file holds what a plain one does. Nothing is read beyond
// the plain one's end.
func (f *File) holdsSame(plain *os.File, name string, pause func() error) (bool, error) {
	file, _, err := f.dir.open(name, unix.O_RDONLY)
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
			m, bad := zip.Read(b[:1]) // the checksum is read with the end
			return m == 0 && errors.Is(bad, io.EOF), nil
		}
		if err := pause(); err != nil {
			return false, err
		}
	}
}
