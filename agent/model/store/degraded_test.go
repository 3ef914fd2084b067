package store_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/store"
)

func refused(t *testing.T, err error, words ...string) {
	t.Helper()
	var d *store.DurabilityError
	if !errors.As(err, &d) {
		t.Fatalf("error %v", err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Fatalf("error %q lacks %q", err, w)
		}
	}
}

func TestDiskThatTakesNoWrites(t *testing.T) {
	path := tempPath(t)
	o := options(path)
	log, b := logged()
	o.Log = log
	s := openWith(t, o)
	mustPut(t, s, api, "mine", "1")
	mustPut(t, s, fileA, "theirs", "1")
	mustPut(t, s, envoy, "gone", "1")
	healthy(t, s)
	snap := s.Snapshot()

	full := errors.New("no space left on device")
	attempts := 0
	s.SetFault(func() error { attempts++; return full })
	ch, stop := s.Watch()
	defer stop()

	_, err := put(s, api, "mine", "2")
	refused(t, err, "no space left on device", "free space", path)
	if !errors.Is(err, full) {
		t.Fatal("the cause is not wrapped")
	}
	_, err = del(s, api, "mine")
	refused(t, err)
	want(t, "snapshot", s.Snapshot(), snap)
	want(t, "signals", len(ch), 0)
	want(t, "history", revisions(s, "mine"), "1:1")

	second := mustPut(t, s, fileA, "theirs", "2")
	if second.Revision < 1e12 {
		t.Fatalf("revision %d may be handed out once more after a crash", second.Revision)
	}
	third := mustPut(t, s, fileA, "theirs", "3")
	want(t, "next", third.Revision, second.Revision+1)
	mustDel(t, s, envoy, "gone")
	mustPut(t, s, fileB, "new", "1")
	want(t, "signals", len(ch), 1)
	h := s.Health()
	if h.Persistent || !errors.Is(h.Err, full) || h.Pending != 3 { // "mine" is missing because its write was rejected
		t.Fatalf("health: %+v", h)
	}
	want(t, "history", revisions(s, "theirs"), fmt.Sprintf("2:1 %d:2 %d:3", second.Revision, third.Revision))
	want(t, "times logged", strings.Count(b.String(), "cannot write the state to disk"), 1)
	if err := s.Flush(); !errors.Is(err, full) {
		t.Fatal(err)
	}
	want(t, "attempts", attempts, 7)
	before := contents(s)

	s.SetFault(nil)
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	healthy(t, s)
	want(t, "times logged", strings.Count(b.String(), "written to disk again"), 1)
	want(t, "contents", contents(s), before)
	s = reopen(t, s, path)
	healthy(t, s)
	want(t, "contents", contents(s), before)
	want(t, "history", revisions(s, "theirs"), fmt.Sprintf("2:1 %d:2 %d:3", second.Revision, third.Revision))
	want(t, "history", revisions(s, "mine"), "1:1")
	if h := s.History(key("gone")); len(h) != 2 || !h[1].Deleted {
		t.Fatalf("history: %+v", h)
	}
	if r := mustPut(t, s, api, "mine", "2"); r.Revision <= third.Revision {
		t.Fatalf("revision %d after %d", r.Revision, third.Revision)
	}
}

func TestRecoveryByTheNextWrite(t *testing.T) {
	path := tempPath(t)
	s := open(t, path)
	s.SetFault(func() error { return errors.New("full") })
	for i := range 30 {
		mustPut(t, s, fileA, "a", fmt.Sprint(i))
	}
	want(t, "pending", s.Health().Pending, 1)
	want(t, "history", len(s.History(key("a"))), store.HistoryLimit)
	s.SetFault(nil)
	mustPut(t, s, api, "b", "b")
	healthy(t, s)
	before, history := contents(s), revisions(s, "a")
	s = reopen(t, s, path)
	want(t, "contents", contents(s), before)
	want(t, "history", revisions(s, "a"), history)
}

// TestCommitThatFailsLate fails a commit that may or may not be on disk.
func TestCommitThatFailsLate(t *testing.T) {
	path := tempPath(t)
	s := open(t, path)
	mustPut(t, s, api, "a", "1")
	s.SetLateFault(errors.New("fsync: input/output error"))
	_, err := put(s, api, "a", "2")
	refused(t, err)
	_, err = put(s, api, "b", "1")
	refused(t, err)
	mustPut(t, s, fileA, "c", "1")
	want(t, "history", revisions(s, "a"), "1:1")
	s.SetLateFault(nil)
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	before := contents(s)
	s = reopen(t, s, path)
	want(t, "contents", contents(s), before)
	want(t, "history", revisions(s, "a"), "1:1")
	want(t, "history", revisions(s, "b"), "")
}

// TestRefusedVersionIsRemoved fails the commit of a new resource that reaches the disk.
func TestRefusedVersionIsRemoved(t *testing.T) {
	path := tempPath(t)
	s := open(t, path)
	s.SetLateFault(errors.New("fsync: input/output error"))
	_, err := put(s, api, "new", "1")
	refused(t, err)
	s.SetLateFault(nil)
	mustPut(t, s, api, "a", "1")
	before := contents(s)
	s = reopen(t, s, path)
	want(t, "contents", contents(s), before)
	if v := s.Version(key("new")); v != nil {
		t.Fatalf("the refused version is %s", v.ID())
	}
}

func TestPanicOfTheDisk(t *testing.T) {
	path := tempPath(t)
	s := open(t, path)
	mustPut(t, s, api, "a", "1")
	s.SetFault(func() error { return store.Guard(func() { panic("page 7: unexpected type") }) })
	_, err := put(s, api, "b", "1")
	refused(t, err, "page 7")
	want(t, "history without a file", revisions(s, "a"), "")
	s.SetFault(nil)
	mustPut(t, s, api, "b", "1")
	if h := s.Health(); !h.Persistent || h.Err != nil {
		t.Fatalf("health: %+v", h)
	}
	want(t, "history", revisions(s, "a"), "1:1")
}

// TestFileDamagedWhileOpen damages the file of an open store. The store then writes its whole
// content to a new file.
func TestFileDamagedWhileOpen(t *testing.T) {
	path := tempPath(t)
	s := open(t, path)
	mustPut(t, s, api, "a", "1")
	mustPut(t, s, fileA, "b", "1")
	before := contents(s)
	s.SetFault(func() error { return store.Guard(func() { panic("gone") }) })
	_, err := put(s, api, "c", "1")
	refused(t, err)
	s.SetFault(nil)
	if err := os.WriteFile(path, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	if h := s.Health(); !h.Persistent || h.SetAside == "" {
		t.Fatalf("health: %+v", h)
	}
	s = reopen(t, s, path)
	want(t, "contents", contents(s), before)
	want(t, "history", revisions(s, "a"), "1:1")
}

func TestDirectoryThatIsMissing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "later", "state.db")
	s := open(t, path)
	if h := s.Health(); h.Persistent || !errors.Is(h.Err, os.ErrNotExist) {
		t.Fatalf("health: %+v", h)
	}
	_, err := put(s, api, "a", "1")
	refused(t, err)
	mustPut(t, s, fileA, "b", "1")
	before := contents(s)
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	healthy(t, s)
	s = reopen(t, s, path)
	want(t, "contents", contents(s), before)
}

// TestStateThatAppearsLater starts a store without the file of an earlier run, which appears later.
func TestStateThatAppearsLater(t *testing.T) {
	old, err := os.ReadFile(filled(t, 1))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "later", "state.db")
	s := open(t, path)
	mustPut(t, s, fileA, "b", "1")
	if err := errors.Join(os.Mkdir(filepath.Dir(path), 0o700), os.WriteFile(path, old, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(); err == nil || !strings.Contains(err.Error(), "restart the agent") {
		t.Fatal(err)
	}
	if err := s.Close(); err == nil {
		t.Fatal("Close says nothing about what is lost")
	}
	s = open(t, path)
	healthy(t, s)
	want(t, "history", revisions(s, "a"), "5:first 6:second")
}

// mount mounts a small tmpfs on a directory.
func mount(t *testing.T, data string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, data); err != nil {
		t.Skipf("a tmpfs cannot be mounted (root is needed): %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}

func TestFullDisk(t *testing.T) {
	dir := mount(t, "size=256k")
	path := filepath.Join(dir, "state.db")
	s := open(t, path)
	var acked int
	var err error
	for acked = 0; acked < 1000; acked++ {
		if _, err = put(s, api, fmt.Sprintf("n%04d", acked), strings.Repeat("text ", 1000)); err != nil {
			break
		}
	}
	refused(t, err, "no space left on device")
	if acked == 0 {
		t.Fatal("nothing was ever written")
	}
	want(t, "acknowledged", s.Snapshot().Len(), acked)
	mustPut(t, s, fileA, "file", strings.Repeat("text ", 100_000))
	if h := s.Health(); h.Persistent || !errors.Is(h.Err, syscall.ENOSPC) || h.Pending == 0 {
		t.Fatalf("health: %+v", h)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=4m"); err != nil {
		t.Fatal(err)
	}
	mustPut(t, s, api, "api", "1")
	healthy(t, s)
	before := contents(s)
	s = reopen(t, s, path)
	healthy(t, s)
	want(t, "contents", contents(s), before)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestFullDiskAtTheStart(t *testing.T) {
	dir := mount(t, "size=64k")
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "state.db")
	s := open(t, path)
	if h := s.Health(); h.Persistent || !errors.Is(h.Err, syscall.ENOSPC) || h.SetAside != "" {
		t.Fatalf("health: %+v", h)
	}
	mustPut(t, s, fileA, "a", "1")
	_, err := put(s, api, "b", "1")
	refused(t, err)
	if err := errors.Join(os.Remove(ballast), s.Flush()); err != nil {
		t.Fatal(err)
	}
	healthy(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestReadOnlyDisk(t *testing.T) {
	dir := mount(t, "size=1m")
	path := filepath.Join(dir, "state.db")
	s := open(t, path)
	mustPut(t, s, api, "a", "1")
	mustPut(t, s, fileA, "b", "1")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	remount := func(flags uintptr) {
		t.Helper()
		if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT|flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	remount(syscall.MS_RDONLY)
	s = open(t, path)
	if h := s.Health(); h.Persistent || !errors.Is(h.Err, syscall.EROFS) || h.Pending != 0 {
		t.Fatalf("health: %+v", h)
	}
	want(t, "contents", contents(s), "a=1@1 api\nb=1@2 file:/etc/a.yaml")
	_, err := put(s, api, "a", "2")
	refused(t, err, "read-only")
	second := mustPut(t, s, fileA, "b", "2").Revision
	remount(0)
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	healthy(t, s)
	want(t, "history", revisions(s, "b"), fmt.Sprintf("2:1 %d:2", second))
	before := contents(s)
	s = reopen(t, s, path)
	want(t, "contents", contents(s), before)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
