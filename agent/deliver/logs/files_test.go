package logs_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/deliver/logs"
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/host/logpaths"
	"github.com/nearside-mesh/nearside/rotation"
)

// noPaths returns the registry of a config without files.
func noPaths() *logpaths.Registry { return logpaths.New(new(config.Config)) }

// TestFilesAreShared checks that a path is opened once for all users, also with another spelling,
// and closed with the last one.
func TestFilesAreShared(t *testing.T) {
	files := logs.NewFiles(noPaths(), slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- files.Run(ctx) }()
	dir := t.TempDir()
	if err := os.Symlink(dir, dir+"-link"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(dir + "-link") })
	path := filepath.Join(dir, "logs", "a.log")
	open := func(path string, limits rotation.Limits) *logs.SharedFile {
		t.Helper()
		f, err := files.Open(logpaths.AgentLog, rotation.Options{Path: path, Limits: limits})
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	a := open(path, rotation.Limits{MaxFiles: 1})
	b := open(dir+"/logs/../logs/a.log", rotation.Limits{MaxFiles: 1})
	c := open(dir+"-link/logs/a.log", rotation.Limits{MaxFiles: 1})
	if a != b || a != c || a.Path() != path {
		t.Errorf("three files are open: %v", files.Paths())
	}
	other := rotation.Options{Path: path, Limits: rotation.Limits{MaxFiles: 2}}
	if _, err := files.Open(logpaths.AgentLog, other); err == nil ||
		!strings.Contains(err.Error(), "open with other limits") {
		t.Errorf("other limits: %v", err)
	}
	other.Limits.MaxFiles = 1
	if _, err := files.Open(logpaths.QueryLog, other); err == nil || !strings.Contains(err.Error(), "belongs to") {
		t.Errorf("another owner: %v", err)
	}
	for _, f := range []*logs.SharedFile{a, b} {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if n, err := c.Write(ctx, []byte("line\n")); n != 5 || err != nil {
			t.Errorf("the file is closed while it is in use: %v", err)
		}
	}
	if s := files.Stats()[path]; s.Bytes != 10 || s.Size != 10 {
		t.Errorf("stats %+v", s)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, err := c.Write(ctx, []byte("line\n")); !errors.Is(err, rotation.ErrClosed) {
		t.Errorf("a write after the end: %v", err)
	}
	if s := files.Total(); s.Bytes != 10 || s.Size != 0 || len(files.Paths()) != 0 {
		t.Errorf("after the end: %+v, %v", s, files.Paths())
	}
	d := open(path, rotation.Limits{MaxFiles: 2})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// TestFutureFiles checks that a backup with a time in the future is described and counted.
func TestFutureFiles(t *testing.T) {
	files := logs.NewFiles(noPaths(), slog.New(slog.DiscardHandler))
	path := filepath.Join(t.TempDir(), "a.log")
	if err := os.WriteFile(strings.TrimSuffix(path, ".log")+"-2999-01-01T00-00-00.000.log", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := files.Open(logpaths.AgentLog, rotation.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	got := files.Future()
	if len(got) != 1 || !strings.HasPrefix(got[0], "1 backup of "+path+" has") || files.Total().Future != 1 {
		t.Errorf("%q, %+v", got, files.Total())
	}
	if err := f.Close(); err != nil || files.Total().Future != 0 {
		t.Error(err, files.Total())
	}
}

// TestFilesDirectory checks that a symbolic link of another user as directory is refused, and that
// no file stays open.
func TestFilesDirectory(t *testing.T) {
	files := logs.NewFiles(noPaths(), slog.New(slog.DiscardHandler))
	dir := t.TempDir()
	if err := errors.Join(os.Symlink(t.TempDir(), filepath.Join(dir, "logs")),
		os.Lchown(filepath.Join(dir, "logs"), 12345, -1)); err != nil {
		t.Skipf("only root can give a link away: %v", err)
	}
	if _, err := files.Open(logpaths.AgentLog, rotation.Options{Path: filepath.Join(dir, "logs", "a.log")}); err == nil ||
		!strings.Contains(err.Error(), "is a symbolic link") {
		t.Errorf("error %v", err)
	}
	if len(files.Paths()) != 0 {
		t.Errorf("open: %v", files.Paths())
	}
}
