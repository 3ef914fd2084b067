package fifo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/accesslog"
)

// leftover is a regular file that was found in place of a FIFO. Its lines are delivered until no
// process writes to it; then the file is removed. A cursor file next to it stores the progress for
// the next process.
type leftover struct {
	dir    int // own descriptor
	name   string
	f      *os.File
	at     int64 // offset up to which data was delivered
	cursor *os.File
	l      accesslog.Lines
	// quiet is the first time at which there was no new data. It is used if a lease cannot tell
	// whether a process writes the file.
	quiet time.Time
	now   func() time.Time
	// reopened reports whether a process writes to the FIFO.
	reopened func() bool
}

// leftoverQuiet is longer than the flush interval of Envoy, 10 s.
const leftoverQuiet = 30 * time.Second

const cursorSuffix = ".at"

func openLeftover(dir int, name string, to accesslog.Destination, count *accesslog.Counters, maxLine int,
	reopened func() bool) (*leftover, error) {
	fd, err := openNoFollow(dir, name)
	if err != nil {
		return nil, err
	}
	own, err := unix.FcntlInt(uintptr(dir), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	r := &leftover{dir: own, name: name, f: os.NewFile(uintptr(fd), name), now: time.Now, reopened: reopened}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		r.f.Close()
		unix.Close(own)
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	cfd, err := unix.Openat(dir, name+cursorSuffix,
		unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
	if err != nil {
		r.f.Close()
		unix.Close(own)
		return nil, fmt.Errorf("open %s: %w", name+cursorSuffix, err)
	}
	r.cursor = os.NewFile(uintptr(cfd), name+cursorSuffix)
	var b [pipeCursorSize]byte
	if n, _ := r.cursor.ReadAt(b[:], 0); n > 0 {
		if at, err := strconv.ParseInt(strings.TrimSpace(string(b[:n])), 10, 64); err == nil && at >= 0 && at <= st.Size {
			r.at = at
		}
	}
	r.l = accesslog.Lines{To: to, Count: count, Max: maxLine}
	return r, nil
}

const pipeCursorSize = 20

// drain delivers new data, and reports whether the file is finished and removed.
func (r *leftover) drain(ctx context.Context, limit int) (moved int, gone bool, err error) {
	for moved < limit {
		n, err := r.step(ctx, false)
		moved += n
		if err != nil {
			return moved, false, err
		}
		if n == 0 {
			break
		}
	}
	if moved > 0 {
		r.quiet = time.Time{}
		return moved, false, nil
	}
	if !r.abandoned() {
		return 0, false, nil
	}
	// No process writes the file, so its content is final.
	for {
		n, err := r.step(ctx, true)
		moved += n
		if err != nil {
			return moved, false, err
		}
		if n == 0 {
			break
		}
	}
	if err := r.l.Finish(ctx); err != nil {
		return moved, false, err
	}
	err = errors.Join(r.unlink(r.name), r.unlink(r.name+cursorSuffix))
	r.close()
	return moved, true, err
}

func (r *leftover) step(ctx context.Context, all bool) (int, error) {
	taken := 0
	_, err := r.l.Fill(func(buf []byte) (int, error) {
		n, err := unix.Pread(int(r.f.Fd()), buf, r.at)
		if err != nil {
			return 0, fmt.Errorf("read %s: %w", r.name, err)
		}
		if i := bytes.LastIndexByte(buf[:max(n, 0)], '\n'); i >= 0 {
			n = i + 1
		} else if n < len(buf) && !all {
			n = 0
		}
		taken = n
		return n, nil
	})
	if err != nil || taken == 0 {
		return 0, err
	}
	if err := r.l.Flush(ctx); err != nil {
		return 0, err
	}
	r.at += int64(taken)
	_, err = r.cursor.WriteAt(fmt.Appendf(nil, "%*d", pipeCursorSize, r.at), 0)
	return taken, err
}

// abandoned reports whether no process has the file open for writing.
func (r *leftover) abandoned() bool {
	fd := r.f.Fd()
	// fails with EAGAIN while a process has the file open for writing
	_, err := unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_RDLCK)
	if err == nil {
		_, _ = unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_UNLCK)
		return true
	}
	if errors.Is(err, unix.EAGAIN) {
		return false
	}
	if now := r.now(); r.quiet.IsZero() {
		r.quiet = now
		return false
	} else {
		return now.Sub(r.quiet) >= leftoverQuiet && r.reopened()
	}
}

func (r *leftover) close() {
	r.l.Release()
	r.f.Close()
	r.cursor.Close()
	unix.Close(r.dir)
}

// unlink removes a file, which may have been removed with its directory.
func (r *leftover) unlink(name string) error {
	if err := unix.Unlinkat(r.dir, name, 0); !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}
