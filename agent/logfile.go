package agent

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/rotation"
)

// LogFile is the file of the agent's log (log.file). It counts lines that it cannot write; they are
// also on stderr. It is safe for concurrent use.
type LogFile struct {
	opts    rotation.Options
	file    atomic.Pointer[rotation.Plain]
	failed  atomic.Pointer[error] // of the last attempt to open it
	dropped atomic.Uint64
}

// OpenLogFile opens the log file of a config, and returns nil if there is none. If opening fails,
// [LogFile.Health] returns the reason, and the agent retries every minute.
func OpenLogFile(cfg *config.Config) *LogFile {
	if cfg.Log.File == "" {
		return nil
	}
	l := &LogFile{opts: rotation.Options{Path: cfg.Log.File, Limits: cfg.Log.Limits,
		Roots: []string{cfg.Paths.Logs}}}
	if err := makeDir(cfg.Paths.Logs, logsMode, -1); err != nil {
		l.failed.Store(&err)
		return l
	}
	l.open()
	return l
}

func (l *LogFile) open() {
	f, err := rotation.OpenPlain(l.opts)
	if err != nil {
		l.failed.Store(&err)
		return
	}
	l.failed.Store(nil)
	l.file.Store(f)
}

// Write writes a line of the log. It never fails, because the line is also on stderr.
func (l *LogFile) Write(line []byte) (int, error) {
	f := l.file.Load()
	if f == nil {
		l.dropped.Add(1)
	} else if _, err := f.Write(line); err != nil {
		l.dropped.Add(1)
	}
	return len(line), nil
}

// run rotates the file until ctx ends. It does nothing for a nil file.
func (l *LogFile) run(ctx context.Context) {
	for l != nil && l.file.Load() == nil {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Minute):
			l.open()
		}
	}
	if l != nil {
		l.file.Load().Run(ctx)
	}
}

// Health returns why the file accepts no lines, or nil if it does.
func (l *LogFile) Health() error {
	if err := l.failed.Load(); err != nil {
		return *err
	}
	if f := l.file.Load(); f != nil {
		return f.Health()
	}
	return nil
}

// FutureBackups returns the number of backups whose name has a time in the future.
func (l *LogFile) FutureBackups() int {
	if f := l.file.Load(); f != nil {
		return f.Future()
	}
	return 0
}

// Dropped returns how many lines could not be written.
func (l *LogFile) Dropped() uint64 { return l.dropped.Load() }

// Close closes the file. Later lines are dropped.
func (l *LogFile) Close() error {
	if f := l.file.Swap(nil); f != nil {
		return f.Close()
	}
	return nil
}
