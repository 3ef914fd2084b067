package logs_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/agent/deliver/logs"
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/host/logpaths"
	"github.com/nearside-mesh/nearside/rotation"
)

// TestRotatedLimits checks that changed limits take effect while lines arrive, that no line is lost
// or repeated, and that invalid limits change nothing.
func TestRotatedLimits(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	path := filepath.Join(dir, "a.log")
	var cfg config.Config
	cfg.AccessLog.Files = rotation.Limits{MaxFileSize: 7, MaxFiles: 8, MaxFileAge: 9}
	own := rotation.Limits{MaxFileSize: rotation.Unset, MaxFiles: 0, MaxFileAge: rotation.Unset}
	files := logs.NewFiles(noPaths(), slog.New(slog.DiscardHandler))
	file, err := files.Open(logpaths.AgentLog, logs.FileOptions(&cfg, path, own.Or(cfg.AccessLog.Files)))
	if err != nil {
		t.Fatal(err)
	}
	refusing := &refusing{SharedFile: file}
	f := logs.NewRotated(refusing, cfg.AccessLog.Files)
	limits := f.(interface{ SetLimits(rotation.Limits) error })
	lineCount := make(chan int)
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		n := 0
		for ; ctx.Err() == nil; n++ {
			if _, err := f.Write(context.Background(), []byte("line\n")); err != nil {
				t.Error(err)
				break
			}
		}
		lineCount <- n
	}()
	for i := range 20 {
		if err := limits.SetLimits(rotation.Limits{MaxFileSize: 0, MaxFiles: i, MaxFileAge: 0}); err != nil {
			t.Error(err)
		}
	}
	if err := limits.SetLimits(rotation.Limits{MaxFiles: 4}); err != nil {
		t.Error(err)
	}
	refuse := errors.New("the file has another user with other limits")
	refusing.err = refuse
	if err := limits.SetLimits(rotation.Limits{MaxFiles: 5}); !errors.Is(err, refuse) ||
		!strings.Contains(f.Stats().Health, refuse.Error()) {
		t.Errorf("%v; %q", err, f.Stats().Health)
	}
	stop()
	n := <-lineCount
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if _, err := f.Write(t.Context(), []byte("late\n")); !errors.Is(err, rotation.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	b, err := os.ReadFile(path)
	if err != nil || string(b) != strings.Repeat("line\n", n) {
		t.Errorf("%d lines were written, the file has %d: %v", n, strings.Count(string(b), "\n"), err)
	}
	if s := f.Stats(); s.Written != uint64(n) || s.In != s.Written || s.InFlight != 0 {
		t.Errorf("%+v, want %d lines", s, n)
	}
	refusing.err = nil
	if err := limits.SetLimits(own); !errors.Is(err, rotation.ErrClosed) {
		t.Errorf("limits of a closed file: %v", err)
	}
	if want := (rotation.Limits{MaxFileSize: 7, MaxFiles: 0, MaxFileAge: 9}); refusing.last != want {
		t.Errorf("limits: %+v, want %+v", refusing.last, want)
	}
	var _ accesslog.Destination = f
}

// refusing is a file that can refuse limits.
type refusing struct {
	*logs.SharedFile
	err  error
	last rotation.Limits
}

func (r *refusing) SetLimits(l rotation.Limits) error {
	if r.err != nil {
		return r.err
	}
	r.last = l
	return r.SharedFile.SetLimits(l)
}
