// Package lockfile lets one process at a time use a directory. Other users cannot hold the lock,
// and the kernel releases it when the process ends.
package lockfile

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// File is a locked file with the process ID. It remains when the lock is released.
type File struct{ f *os.File }

// HeldError reports that another agent holds a lock.
type HeldError struct {
	Path string
	PID  int // 0 if unknown
}

func (e *HeldError) Error() string {
	who := "another agent"
	if e.PID != 0 {
		who = fmt.Sprintf("another agent (pid %d)", e.PID)
	}
	return fmt.Sprintf("%s already uses these paths and has locked %s: stop it, or use other paths (paths.run, "+
		"paths.state)", who, e.Path)
}

// Trusted reports whether a user may hold the lock of this process: root, or its own user.
func Trusted(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }

// awaitEvery is the interval of attempts of [Await]. Nothing is served meanwhile, so it is short.
const awaitEvery = 20 * time.Millisecond

// Await returns when no other process holds the lock, or when ctx ends, with its error. It ignores
// other faults, which [Lock] reports. Another process may get the lock before the caller does.
func Await(ctx context.Context, path string, log *slog.Logger) error {
	tick := time.NewTicker(awaitEvery)
	defer tick.Stop()
	for waiting := false; ; waiting = true {
		f, err := Lock(path, log)
		if f != nil {
			return f.f.Close()
		}
		held := new(HeldError)
		if !errors.As(err, &held) {
			return nil
		}
		if !waiting {
			log.Info("waiting until the agent that runs has ended", "pid", held.PID, "file", path)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// Lock acquires the lock, or names its holder with a [HeldError]. Only root and the agent's user
// can open the file, so no other user can lock it. Lock replaces a file that another user owns, or
// still holds from a time when it was accessible.
func Lock(path string, log *slog.Logger) (*File, error) {
	const attempts = 20 // each may be lost to another agent that replaces the file concurrently
	for range attempts {
		f, err := openLock(path)
		if err != nil {
			return nil, err
		}
		foreign, err := acquire(f, path)
		switch {
		case err != nil:
			f.Close()
			return nil, err
		case foreign != "":
			log.Warn("replacing a lock file: "+foreign, "file", path)
			err = replaceLock(f, path)
			f.Close()
			if err != nil {
				return nil, err
			}
		case !isAt(f, path):
			f.Close()
		default:
			// The process ID is for people. The lock works without it, for example on a full disk.
			_ = f.Truncate(0)
			_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
			return &File{f}, nil
		}
	}
	return nil, fmt.Errorf("lock %s: the file keeps changing; remove it when no agent uses it", path)
}

// lockMode denies other users access, because a user who can only read a file can still lock it.
const lockMode = 0o600

func openLock(path string) (*os.File, error) {
	// Opening a pipe or a device may block or have side effects.
	if st, err := os.Lstat(path); err == nil && !st.Mode().IsRegular() {
		return nil, fmt.Errorf("lock: %s is not a regular file (%s); remove it", path, st.Mode().Type())
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, lockMode)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	return f, nil
}

// acquire locks an open file. If the file must be replaced, foreign is the reason.
func acquire(f *os.File, path string) (foreign string, err error) {
	st, err := stat(f)
	if err != nil {
		return "", fmt.Errorf("lock %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return "", fmt.Errorf("lock: %s is not a regular file; remove it", path)
	}
	if !Trusted(st.Uid) {
		return fmt.Sprintf("uid %d owns it", st.Uid), nil
	}
	if st.Nlink > 1 {
		return "it has another hard link", nil
	}
	if st.Mode&0o7777 != lockMode {
		if err := f.Chmod(lockMode); err != nil {
			return "", fmt.Errorf("lock: other users can open and lock %s: %w; run chmod 0600 %s", path, err, path)
		}
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return "", err
	}
	pid := lockHolder(st)
	if who := untrustedHolder(pid, st); who != "" {
		return who, nil
	}
	if pid == 0 {
		pid = readPID(f)
	}
	return "", &HeldError{path, pid}
}

// replaceLock replaces a lock file that another user holds, or leaves that to another agent.
// Concurrent agents take turns: the new file has a fixed name, and is locked before it is moved.
func replaceLock(old *os.File, path string) error {
	name := path + ".new"
	fresh, err := openLock(name)
	if err != nil {
		return err
	}
	defer fresh.Close()
	switch foreign, err := acquire(fresh, name); {
	case err != nil:
		return err
	case foreign == "" && !isAt(fresh, name):
		return nil // another agent has moved it
	case foreign == "" && isAt(old, path):
		if err := exchange(name, path); err != nil {
			return fmt.Errorf("lock %s: replace it: %w; remove it once no agent uses it", path, err)
		}
		// The holder may have released it, and another agent may have acquired it before the move.
		st, err := stat(old)
		if err == nil && Trusted(st.Uid) && syscall.Flock(int(old.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil &&
			untrustedHolder(lockHolder(st), st) == "" {
			_ = exchange(name, path)
		}
	}
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("lock: %w", err)
	}
	return nil
}

// exchange swaps two files atomically, so that the lock file always exists.
func exchange(a, b string) error {
	return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
}

func stat(f *os.File) (st unix.Stat_t, err error) {
	err = unix.Fstat(int(f.Fd()), &st)
	return st, err
}

// isAt reports whether a path still refers to an open file.
func isAt(f *os.File, path string) bool {
	here, err1 := f.Stat()
	there, err2 := os.Lstat(path)
	return err1 == nil && err2 == nil && os.SameFile(here, there)
}

// lockHolder returns the process that holds the lock of a file (flock(2)), or 0 if /proc/locks does
// not list it, as for another PID namespace.
func lockHolder(st unix.Stat_t) int {
	f, err := os.Open("/proc/locks")
	if err != nil {
		return 0
	}
	defer f.Close()
	file := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	for s := bufio.NewScanner(f); s.Scan(); {
		// 1: FLOCK ADVISORY WRITE 708 00:1a:9234 0 EOF; a waiting process has "->" after the
		// number.
		p := strings.Fields(s.Text())
		if len(p) < 6 || p[1] != "FLOCK" || p[5] != file {
			continue
		}
		if pid, err := strconv.Atoi(p[4]); err == nil && pid > 0 {
			return pid
		}
	}
	return 0
}

// untrustedHolder returns why the process that holds a lock is not an agent: it runs as another
// user, or it has ended and left the lock to a child, which an agent never does. It returns "" if
// that is unknown.
func untrustedHolder(pid int, st unix.Stat_t) string {
	if pid == 0 {
		return ""
	}
	proc := "/proc/" + strconv.Itoa(pid)
	b, err := os.ReadFile(proc + "/status")
	if err != nil {
		return fmt.Sprintf("it is still locked for an ended process (pid %d)", pid)
	}
	for line := range strings.Lines(string(b)) {
		ids, ok := strings.CutPrefix(line, "Uid:")
		if !ok {
			continue
		}
		// The real user counts too: a setuid program may inherit an open file.
		for _, s := range strings.Fields(ids) {
			if uid, err := strconv.ParseUint(s, 10, 32); err == nil && !Trusted(uint32(uid)) {
				return fmt.Sprintf("a process of uid %d (pid %d) holds it", uid, pid)
			}
		}
	}
	// The process ID may have been reused.
	open, err := os.ReadDir(proc + "/fd")
	if err != nil {
		return ""
	}
	for _, e := range open {
		var has unix.Stat_t
		if unix.Stat(proc+"/fd/"+e.Name(), &has) == nil && has.Ino == st.Ino && has.Dev == st.Dev {
			return ""
		}
	}
	return fmt.Sprintf("it is still locked for an ended process (pid %d)", pid)
}

func readPID(f *os.File) int {
	b, err := io.ReadAll(io.LimitReader(f, 32))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 0 {
		return 0
	}
	return pid
}

// Release releases the lock. It does nothing for a nil lock.
func (l *File) Release() {
	if l == nil {
		return
	}
	_ = l.f.Truncate(0)
	_ = l.f.Close() // releases the lock
}
