package logs_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/deliver/logs"
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/rotation"
)

// TestRotatedLimits: other limits take effect while lines come, none of which is lost or repeated,
// and limits that the file cannot have leave it as it was.
func TestRotatedLimits(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	path := filepath.Join(dir, "a.log")
	var cfg config.Config
	cfg.AccessLog.Files = config.Rotation{MaxFileSize: 7, MaxFiles: 8, MaxFileAge: 9}
	var opened []rotation.Limits
	var refuse error
	f, err := logs.NewRotated(path, draft.Rotation{MaxFileSize: draft.Unset, MaxFiles: 0, MaxFileAge: draft.Unset},
		func(l draft.Rotation) (logs.RotatedFile, error) {
			o := logs.RotationOptions(&cfg, path, l)
			if opened = append(opened, o.Limits); refuse != nil && l.MaxFiles != 4 {
				return nil, refuse
			}
			return rotation.Open(o)
		})
	if err != nil {
		t.Fatal(err)
	}
	limits := f.(interface{ SetLimits(draft.Rotation) error })
	written := make(chan int)
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		n := 0
		for ; ctx.Err() == nil; n++ {
			if _, err := f.Write(context.Background(), []byte("line\n")); err != nil {
				t.Error(err)
				break
			}
		}
		written <- n
	}()
	for i := range 20 {
		if err := limits.SetLimits(draft.Rotation{MaxFileSize: 0, MaxFiles: i, MaxFileAge: 0}); err != nil {
			t.Error(err)
		}
	}
	if err := limits.SetLimits(draft.Rotation{MaxFiles: 4}); err != nil {
		t.Error(err)
	}
	refuse = errors.New("somebody else has it with other limits")
	if err := limits.SetLimits(draft.Rotation{MaxFiles: 5}); !errors.Is(err, refuse) ||
		!strings.Contains(f.Stats().Health, refuse.Error()) {
		t.Errorf("%v; %q", err, f.Stats().Health)
	}
	stop()
	n := <-written
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
	if opened[0] != (rotation.Limits{MaxFileSize: 7, MaxFiles: 0, MaxFileAge: 9}) || opened[1] != (rotation.Limits{}) {
		t.Errorf("limits: %+v", opened[:2])
	}
	var _ accesslog.Destination = f
}
