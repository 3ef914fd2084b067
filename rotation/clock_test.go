package rotation_test

import (
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nearside-mesh/nearside/rotation"
)

// TestClockMovesAhead moves the clock a year ahead. No backup is removed for its age for a day, so
// that a wrong clock removes nothing. If the clock is still ahead by then, backups are removed.
func TestClockMovesAhead(t *testing.T) {
	const day, year = 24 * time.Hour, 365 * 24 * time.Hour
	for _, back := range []bool{true, false} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			ahead := time.Duration(0)
			var mu sync.Mutex
			set := func(by time.Duration) { mu.Lock(); defer mu.Unlock(); ahead = by }
			f, err := rotation.Open(rotation.Options{Path: filepath.Join(dir, "a.log"), Limits: rotation.Limits{MaxFileAge: 7},
				Now: func() time.Time { mu.Lock(); defer mu.Unlock(); return time.Now().Add(ahead) }})
			if err != nil {
				t.Fatal(err)
			}
			rotate := func() {
				t.Helper()
				if _, err := f.Write(t.Context(), []byte("line\n")); err != nil {
					t.Error(err)
				}
				if err := f.Rotate(); err != nil {
					t.Error(err)
				}
			}
			want := func(n int) {
				t.Helper()
				if found, _ := filepath.Glob(filepath.Join(dir, "a-*.log")); len(found) != n {
					t.Errorf("%v: %d backups, want %d", back, len(found), n)
				}
			}
			rotate()
			time.Sleep(3 * day)
			rotate()
			set(year)
			rotate() // removes old backups
			want(3)
			time.Sleep(day - time.Hour)
			rotate()
			want(4)
			if back {
				set(0)
				time.Sleep(day)
				rotate()
				want(5)
			} else {
				time.Sleep(2 * time.Hour)
				rotate()
				want(3) // the ones that were made while the clock was ahead
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
