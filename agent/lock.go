package agent

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// lockFile is a file that one process at a time holds, with its process id in it. The kernel frees it when the process
// ends, however it ends; the file itself stays.
type lockFile struct{ f *os.File }

// lockedError says that another agent holds a lock.
type lockedError struct {
	path string
	pid  int // 0 when it is not known
}

func (e *lockedError) Error() string {
	who := "another agent"
	if e.pid != 0 {
		who = fmt.Sprintf("another agent (pid %d)", e.pid)
	}
	return fmt.Sprintf("%s uses these paths already and holds %s: stop it, or give this one other paths (paths.run, paths.state)", who, e.path)
}

// lock takes the lock or says who has it.
func lock(path string) (*lockFile, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, &lockedError{path, readPID(f)}
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	// The id is for people; the lock holds without it, on a full disk too.
	_ = f.Truncate(0)
	_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return &lockFile{f}, nil
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

// release frees the lock. A nil lock is released already.
func (l *lockFile) release() {
	if l == nil {
		return
	}
	_ = l.f.Truncate(0)
	_ = l.f.Close() // frees the lock
}
