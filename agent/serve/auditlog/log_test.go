package auditlog_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/nearside-mesh/nearside/agent/serve/audit"
	"github.com/nearside-mesh/nearside/agent/serve/auditlog"
	"github.com/nearside-mesh/nearside/rotation"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func event() *audit.Event {
	return &audit.Event{Level: audit.LevelMetadata, ID: "1", Stage: audit.StageResponseComplete, Verb: audit.VerbCreate,
		At: time.Now(), Received: time.Now()}
}

// run runs a log until the function that it returns is called.
func run(t *testing.T, o auditlog.Options) (*auditlog.Log, func()) {
	t.Helper()
	l, err := auditlog.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return finish(t, l)
}

// finish runs a new log until the function that it returns is called.
func finish(t *testing.T, l *auditlog.Log) (*auditlog.Log, func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { l.Run(ctx) })
	group.Go(func() { l.Maintain(ctx) })
	return l, sync.OnceFunc(func() {
		cancel()
		group.Wait()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// lines are those of the active file.
func lines(t *testing.T, path string) []string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
}

// TestStoredBeforeAnswer: an event is in the file when Store returns, and all others when the log
// has stopped.
func TestStoredBeforeAnswer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit", "audit.log")
	l, stop := run(t, auditlog.Options{Path: path, Profile: audit.ProfileDefault})
	defer stop()
	if err := l.Store(event()); err != nil {
		t.Fatal(err)
	}
	if n := len(lines(t, path)); n != 1 {
		t.Errorf("%d events", n)
	}
	for range 500 {
		l.Record(event())
	}
	stop()
	if n := len(lines(t, path)); n != 501 {
		t.Errorf("%d events, want 501", n)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
}

// TestDirectoryThatCannotBeUsed: the log starts, refuses changes, bounds what waits, and says how
// many events are missing once it can write.
func TestDirectoryThatCannotBeUsed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // a file in its place
		t.Fatal(err)
	}
	path := filepath.Join(dir, "audit.log")
	l, stop := run(t,
		auditlog.Options{Path: path, Profile: audit.ProfileDefault, Memory: 4 << 10, Patience: time.Millisecond})
	defer stop()
	if err := l.Ready(); err == nil || !strings.Contains(l.Alarm(), "writes over the API are refused") {
		t.Errorf("Ready: %v, Alarm: %q", err, l.Alarm())
	}
	if err := l.Store(event()); !errors.Is(err, auditlog.ErrNotWritten) {
		t.Errorf("Store: %v", err)
	}
	for range 1000 {
		l.Record(event())
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	l.SetProfile(audit.ProfileWriteRequests) // it looks again at once, and the change is an event
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for late := time.After(time.Minute); l.Ready() != nil; {
		select {
		case <-look.C:
		case <-late:
			t.Fatal(l.Ready())
		}
	}
	stop()
	events, missing, reports := 0, 0, 0
	for _, line := range lines(t, path) {
		var e struct {
			Verb        string
			Annotations map[string]string
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if e.Verb != audit.VerbDrop {
			events++
			continue
		}
		n, err := strconv.Atoi(e.Annotations[audit.AnnotationDropped])
		if err != nil || n == 0 {
			t.Errorf("%v: %s", err, line)
		}
		missing, reports = missing+n, reports+1
	}
	if events+missing != 1002 || reports == 0 {
		t.Errorf("%d events and %d missing in %d reports, want 1002", events, missing, reports)
	}
}

// TestExampleOfTheAuditLog checks the documented limits: 200 MB, 1 file, 7 days. The active file is
// sparse: it is 200 MB long but needs little disk space. The agent is stopped for most of the seven
// days, because the clock of a rotated file ticks each second. A restart does not extend the
// retention of a file.
func TestExampleOfTheAuditLog(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	path := filepath.Join(dir, "audit.log")
	if err := os.Mkdir(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	backups := func() int {
		found, _ := filepath.Glob(filepath.Join(dir, "audit-*.log"))
		return len(found)
	}
	limits := rotation.Limits{MaxFileSize: 200, MaxFiles: 1, MaxFileAge: 7}
	synctest.Test(t, func(t *testing.T) {
		for i := range 3 {
			f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o640)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteAt([]byte("\n"), 200<<20-10); err != nil {
				t.Fatal(err)
			}
			f.Close()
			l, stop := run(t, auditlog.Options{Path: path, Limits: limits, Profile: audit.ProfileDefault})
			if err := l.Store(event()); err != nil {
				t.Fatal(err)
			}
			if n := backups(); n != 1 || len(lines(t, path)) != 1 {
				t.Errorf("after rotation %d: %d backups", i, n)
			}
			if i == 2 {
				stop()
				time.Sleep(7*24*time.Hour - 2*time.Hour)
				_, stop = run(t, auditlog.Options{Path: path, Limits: limits, Profile: audit.ProfileDefault})
				time.Sleep(time.Hour)
				if n := backups(); n != 1 {
					t.Errorf("before the seventh day: %d backups", n)
				}
				time.Sleep(2 * time.Hour)
				if n := backups(); n != 0 {
					t.Errorf("after the seventh day: %d backups", n)
				}
			}
			stop()
		}
	})
}

// TestLimitsBelowZero: each is an error that names the field, the value and what to set.
func TestLimitsBelowZero(t *testing.T) {
	for field, limits := range map[string]rotation.Limits{
		"maxFileSize": {MaxFileSize: -1},
		"maxFiles":    {MaxFiles: -1},
		"maxFileAge":  {MaxFileAge: -1},
	} {
		_, err := auditlog.New(auditlog.Options{Path: filepath.Join(t.TempDir(), "a", "a.log"), Limits: limits})
		if err == nil || !strings.Contains(err.Error(), "auditLog."+field+": -1 is negative; set a value >= 0") {
			t.Errorf("%s: %v", field, err)
		}
	}
}
