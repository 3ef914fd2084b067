package traffic_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/traffic"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func zipped(text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte(text))
	_ = z.Close()
	return b.String()
}

// run shows the files and returns the output and the notes.
func run(t *testing.T, o traffic.ShowOptions) (shown, said string) {
	t.Helper()
	var out, notes strings.Builder
	o.Out = &out
	o.Note = func(text string) { notes.WriteString(text + "\n") }
	o.Failed = func(path string, err error) {
		if errors.Is(err, fs.ErrNotExist) {
			err = fs.ErrNotExist
		}
		notes.WriteString(path + ": " + err.Error() + "\n")
	}
	if err := traffic.Show(context.Background(), o); err != nil {
		t.Error(err)
	}
	return out.String(), notes.String()
}

const events = `{"kind":"Event","auditID":"1","verb":"create","user":{"username":"root"},"objectRef":{"resource":"meshtimeouts","namespace":"default","name":"slow"},"responseStatus":{"code":201},"requestURI":"/meshes/default/meshtimeouts/slow","stageTimestamp":"2026-11-23T10:00:00.000000Z"}
{"kind":"Event","auditID":"2","verb":"get","user":{"username":"a b\u001b[31m"},"requestURI":"/v1/status","responseStatus":{"code":403,"message":"may not\nforge"},"stageTimestamp":"2026-11-23T10:00:01.000000Z"}
{"kind":"Event","auditID":"3","verb":"drop","user":{"username":"system:nearside"},"stageTimestamp":"2026-11-23T10:00:02.000000Z","annotations":{"nearside.io/dropped":"17","nearside.io/dropped-since":"x","nearside.io/dropped-until":"y"}}
nothing
`

// TestShow shows files with their backups as text, as JSON, and for a terminal.
func TestShow(t *testing.T) {
	dir := t.TempDir()
	a, b, log := dir+"/a.log", dir+"/b.log", dir+"/audit.log"
	write(t, dir+"/a-2026-01-02T03-04-05.000.log.gz", zipped("1\n2\n"))
	write(t, dir+"/a-2026-01-03T03-04-05.000.log", "3\n")
	write(t, a, "{\"status\":200}\n\x1b[31m\xff\n")
	write(t, b, "{\"a\":\"\u009b\u202e\"}\n")
	write(t, log, events)
	write(t, dir+"/now.log", strings.Split(events, "\n")[0][:100]) // as a reader may see an event that is being written
	for _, c := range []struct {
		name        string
		o           traffic.ShowOptions
		shown, said string
	}{
		{"one", traffic.ShowOptions{Paths: []string{a}}, "1\n2\n3\n{\"status\":200}\n\x1b[31m\xff\n", ""},
		{"a terminal", traffic.ShowOptions{Paths: []string{a}, Escape: true}, "1\n2\n3\n{\"status\":200}\n\\x1b[31m\\xff\n",
			""},
		{"JSON on a terminal", traffic.ShowOptions{Paths: []string{b}, JSON: true, Escape: true},
			"{\"file\":\"B\",\"entry\":{\"a\":\"\\u009b\\u202e\"}}\n", ""},
		{"several", traffic.ShowOptions{Paths: []string{b, a}},
			"{\"a\":\"\u009b\u202e\"}\n1\n2\n3\n{\"status\":200}\n\x1b[31m\xff\n", "==> B <==\n==> A <==\n"},
		{"JSON", traffic.ShowOptions{Paths: []string{b, a}, JSON: true, Filter: traffic.Filter{Since: time.Date(2026, 1, 3, 0,
			0, 0, 0, time.UTC), Codes: []traffic.Codes{{First: 200, Last: 200}}}}, "",
			"B: lines skipped because their time is unknown: 1\nA: lines skipped because their time is unknown: 3\n"},
		{"JSON, all", traffic.ShowOptions{Paths: []string{a}, JSON: true}, `{"file":"A","line":"1"}
{"file":"A","line":"2"}
{"file":"A","line":"3"}
{"file":"A","entry":{"status":200}}
{"file":"A","line":"\u001b[31m\ufffd"}
`, ""},
		{"status",
			traffic.ShowOptions{Paths: []string{a}, Filter: traffic.Filter{Codes: []traffic.Codes{{First: 200, Last: 299}}}},
			"{\"status\":200}\n", "A: lines skipped because their status is unknown: 4\n"},
		{"one is missing", traffic.ShowOptions{Paths: []string{dir + "/none.log", b}}, "{\"a\":\"\u009b\u202e\"}\n",
			"DIR/none.log: file does not exist\n==> B <==\n"},
		{"audit", traffic.ShowOptions{Paths: []string{log}, Filter: traffic.Filter{Audit: true}},
			`2026-11-23T10:00:00.000000Z root create meshtimeouts/default/slow 201
2026-11-23T10:00:01.000000Z a\x20b\x1b[31m get /v1/status 403 may not\nforge
2026-11-23T10:00:02.000000Z system:nearside drop - - events missing here: 17, from x to y
`, "LOG: lines skipped because they are not audit events: 1\n"},
		{"audit, an event that is being written",
			traffic.ShowOptions{Paths: []string{dir + "/now.log"}, Filter: traffic.Filter{Audit: true}}, "", ""},
		{"audit of a mesh", traffic.ShowOptions{Paths: []string{log}, Filter: traffic.Filter{Audit: true, Mesh: "default"}},
			"2026-11-23T10:00:00.000000Z root create meshtimeouts/default/slow 201\n",
			"LOG: lines skipped because they are not audit events: 1\n"},
		{"audit by status and time, JSON",
			traffic.ShowOptions{Paths: []string{log}, JSON: true, Filter: traffic.Filter{Audit: true,
				Since: time.Date(2026, 11, 23, 10, 0, 1, 0, time.UTC), Codes: []traffic.Codes{{First: 400, Last: 599}}}},
			strings.Split(events, "\n")[1] + "\n", "LOG: lines skipped because they are not audit events: 1\n"},
	} {
		shown, said := run(t, c.o)
		names := strings.NewReplacer(a, "A", b, "B", log, "LOG", dir, "DIR")
		if shown, said = names.Replace(shown), names.Replace(said); shown != c.shown || said != c.said {
			t.Errorf("%s:\n%q\nwant\n%q\nnotes\n%q\nwant\n%q", c.name, shown, c.shown, said, c.said)
		}
	}
}

// safe is a buffer for concurrent use.
type safe struct {
	mu      sync.Mutex
	b       bytes.Buffer
	written chan struct{}
}

func (s *safe) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() {
		select {
		case s.written <- struct{}{}:
		default:
		}
	}()
	return s.b.Write(p)
}

func (s *safe) await(t *testing.T, want string) {
	t.Helper()
	late := time.After(time.Minute)
	for {
		s.mu.Lock()
		got := s.b.String()
		s.mu.Unlock()
		if got == want {
			return
		}
		select {
		case <-s.written:
		case <-late:
			t.Fatalf("got %q, want %q", got, want)
		}
	}
}

// TestFollow follows two files until the context ends. One does not exist at first, and one is
// rotated meanwhile.
func TestFollow(t *testing.T) {
	dir := t.TempDir()
	a, b := dir+"/a.log", dir+"/b.log"
	write(t, a, "old\n")
	ctx, cancel := context.WithCancel(context.Background())
	out := &safe{written: make(chan struct{}, 1)}
	ended := make(chan error, 1)
	go func() {
		ended <- traffic.Show(ctx, traffic.ShowOptions{Paths: []string{a, b}, Follow: true, Out: out, Note: func(string) {},
			Failed: func(path string, err error) { t.Errorf("%s: %v", path, err) }})
	}()
	out.await(t, "old\n")
	write(t, b, "first\n")
	out.await(t, "old\nfirst\n")
	write(t, a, "before\n")
	if err := os.Rename(a, filepath.Join(dir, "a-2026-01-02T03-04-05.000.log")); err != nil {
		t.Fatal(err)
	}
	write(t, a, "after\n")
	out.await(t, "old\nfirst\nbefore\nafter\n")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestFollowMore starts with no files and follows files that are added later, each once.
func TestFollowMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		var mu sync.Mutex
		var paths []string
		var out, said strings.Builder
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() {
			ended <- traffic.Show(ctx, traffic.ShowOptions{Follow: true, Out: &out,
				Note:   func(s string) { said.WriteString(s + "\n") },
				Failed: func(path string, err error) { said.WriteString(path + " failed\n") },
				More:   func() []string { mu.Lock(); defer mu.Unlock(); return paths }})
		}()
		step := func(want string) {
			t.Helper()
			time.Sleep(traffic.MoreEach + time.Second)
			synctest.Wait()
			if out.String() != want {
				t.Errorf("shown: %q, want %q", out.String(), want)
			}
		}
		step("")
		set := func(p ...string) { mu.Lock(); defer mu.Unlock(); paths = p }
		write(t, dir+"/a.log", "1\n")
		set(dir + "/a.log")
		step("1\n")
		write(t, dir+"/a.log", "2\n")
		write(t, dir+"/b.log", "3\n")
		write(t, dir+"/file", "")
		set(dir+"/b.log", dir+"/a.log", dir+"/file/c.log")
		step("1\n2\n3\n")
		set() // more output appears for as long as something is written
		write(t, dir+"/a.log", "4\n")
		step("1\n2\n3\n4\n")
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if got, want := strings.ReplaceAll(said.String(), dir, "DIR"),
			"DIR/file/c.log failed\n==> DIR/b.log <==\n==> DIR/a.log <==\n"; got != want {
			t.Errorf("notes: %q, want %q", got, want)
		}
	})
}

// broken is a writer that always fails.
type broken struct{ writes int }

func (b *broken) Write([]byte) (int, error) { b.writes++; return 0, errors.New("closed") }

// TestShowEndsWithItsOutput checks that Show stops at the first write error, also when it follows
// files.
func TestShowEndsWithItsOutput(t *testing.T) {
	path := t.TempDir() + "/a.log"
	write(t, path, strings.Repeat("x\n", 5000))
	out := &broken{}
	err := traffic.Show(context.Background(), traffic.ShowOptions{Paths: []string{path}, Follow: true, Out: out,
		Note: func(string) {}, Failed: func(string, error) {}})
	if err == nil || out.writes != 1 {
		t.Errorf("%v after %d writes", err, out.writes)
	}
}
