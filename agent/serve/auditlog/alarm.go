package auditlog

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/host/logpaths"
	"github.com/nearside-mesh/nearside/agent/serve/audit"
)

// Ready returns nil if the event of a change would be stored, else the reason.
func (l *Log) Ready() error {
	if l.Profile() == audit.ProfileNone {
		return nil
	}
	if err := l.stuck(); err != nil {
		l.refused.Inc()
		return err
	}
	return nil
}

// stuck returns why the file accepts no events.
func (l *Log) stuck() error {
	f := l.file.Load()
	if f == nil {
		if err := l.failed.Load(); err != nil {
			return fmt.Errorf("the audit log cannot be opened: %w", *err)
		}
		return errors.New("the audit log is not open yet")
	}
	l.mu.Lock()
	since, waits := l.since, l.flying+len(l.lines)
	l.mu.Unlock()
	if !since.IsZero() {
		elapsed := time.Since(since)
		if err := f.Stats().Health; err != nil && elapsed >= failedAfter {
			return fmt.Errorf("the audit log: %w", err)
		}
		if elapsed >= stalledAfter {
			return fmt.Errorf("the audit log: a write has been pending for %s; check the disk of %s",
				elapsed.Round(time.Second), l.opts.Path)
		}
	}
	if waits > l.opts.Memory {
		return fmt.Errorf("the audit log: %d bytes of events wait to be written; repeat it in a moment", waits)
	}
	if free, err := freeSpace(filepath.Dir(l.opts.Path)); err == nil && free < leastSpace {
		return fmt.Errorf("the audit log: %s has %d KiB left, less than %d; free space", filepath.Dir(l.opts.Path), free>>10,
			leastSpace>>10)
	}
	return nil
}

// freeSpace returns the bytes that the process may still write to a file system.
func freeSpace(dir string) (uint64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, err
	}
	blocks := s.Bavail
	if unix.Geteuid() == 0 {
		blocks = s.Bfree
	}
	return blocks * uint64(s.Bsize), nil // #nosec G115 -- sizes are not negative
}

// Alarm returns the problem of the audit log and its remedy, or "".
func (l *Log) Alarm() string {
	if l.Profile() == audit.ProfileNone {
		return "auditLog.profile is None: requests to the API leave no trace; set Default"
	}
	if err := l.stuck(); err != nil {
		return err.Error() + "; until then writes over the API are refused"
	}
	if err := l.file.Load().Stats().Health; err != nil {
		return "the audit log: " + err.Error()
	}
	if st := l.file.Load().Stats(); st.Recovered > 0 {
		return fmt.Sprintf("another process has removed or replaced the directory of the audit log, or changed its mode: "+
			"%d times since the start; find out who did, and see docs/audit.md", st.Recovered)
	} else if n := st.Outside; n > 0 {
		return fmt.Sprintf("another process has renamed, removed, truncated, or written the audit log: %d times since the "+
			"start; find out who did, and see docs/audit.md", n)
	}
	if why := l.broken.Load(); why != nil {
		return "the end of the audit log differs from the agent's record of it: " + *why +
			"; run nearside logs audit --verify, and find out who changed the log"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total > 0 && time.Since(l.lastAt) < alarmTime {
		return fmt.Sprintf("the audit log lost events: %d since the start, the last one at %s; see the agent's log",
			l.total, l.last.UTC().Format(time.RFC3339))
	}
	return logpaths.Future(l.opts.Path, l.FutureBackups())
}

// Full reports whether the file system of the log is full, so that [Log.Alarm] is about it.
func (l *Log) Full() bool {
	f := l.file.Load()
	if f == nil || l.Profile() == audit.ProfileNone {
		return false
	}
	free, err := freeSpace(filepath.Dir(l.opts.Path))
	return f.Stats().Full || err == nil && free < leastSpace
}

// FutureBackups returns the number of backups whose name has a time in the future.
func (l *Log) FutureBackups() int {
	if f := l.file.Load(); f != nil {
		return f.Stats().Future
	}
	return 0
}
