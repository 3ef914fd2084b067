package memory_test

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/host/memory"
)

// scene is a guard of a process with simulated memory use.
type scene struct {
	*memory.Guard
	limit        uint64
	use, garbage uint64 // in percent of the limit; a collection frees the garbage
	mapped       uint64
	now          time.Time
	did          []string
	log          strings.Builder
}

const limit = 200 << 20

func newScene() *scene {
	s := &scene{limit: limit, now: time.Unix(1_000_000, 0)}
	did := func(what string) func() { return func() { s.did = append(s.did, what) } }
	s.Guard = memory.New(memory.Options{
		Read: func() memory.Use {
			return memory.Use{Limit: s.limit, Live: limit / 100 * (s.use + s.garbage), Mapped: limit / 100 * s.mapped}
		},
		Collect: func() { s.did = append(s.did, "collect"); s.garbage = 0 },
		Now:     func() time.Time { return s.now }, Log: slog.New(slog.NewTextHandler(&s.log, nil)),
		Shed: did("shed"), Own: did("ask"), Changed: did("changed"),
	})
	return s
}

// takes returns whether the guard admits one more proxy, and the calls that it made.
func (s *scene) takes() string {
	s.did = nil
	err := s.Admit(func() { s.did = append(s.did, "own") })
	return fmt.Sprint(err == nil, s.did)
}

// looks advances the clock, calls Look, and returns whether memory is sufficient, and the calls.
func (s *scene) looks(after time.Duration) string {
	s.did, s.now = nil, s.now.Add(after)
	s.Look()
	return fmt.Sprint(s.State().Short == nil, s.did)
}

func want(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %s, want %s", what, got, want)
	}
}

// TestShort checks that the guard first evicts caches, and that its state does not flap between the
// two thresholds.
func TestShort(t *testing.T) {
	s := newScene()
	s.use = 69
	want(t, "much is free", s.takes(), "true []")
	want(t, "a look", s.looks(5*time.Second), "true []")
	spare := func(is bool) {
		t.Helper()
		if s.Spare() != is {
			t.Errorf("there is memory to save work: %t", !is)
		}
	}
	spare(true)
	s.use = 75
	spare(false)
	want(t, "caches go", s.looks(5*time.Second), "true [ask shed]")
	want(t, "what is free is collected", s.looks(5*time.Second), "true [collect]")
	want(t, "and not again at once", s.looks(5*time.Second), "true []")
	want(t, "below the upper share proxies are taken", s.takes(), "true []")
	s.now = s.now.Add(time.Minute)
	s.use, s.garbage = 75, 6
	want(t, "it was garbage", s.takes(), "true [own shed collect]")
	s.use = 81
	want(t, "caches have gone just before", s.takes(), "false [changed]")
	want(t, "refused at once", s.takes(), "false []")
	s.use = 75
	want(t, "between the shares", s.takes(), "false []")
	want(t, "nothing is known before a collection", s.looks(5*time.Second), "false []")
	s.use, s.garbage = 40, 35
	want(t, "a collection after a while", s.looks(30*time.Second), "true [collect changed]")
	want(t, "taken again", s.takes(), "true []")

	s.use = 90
	s.now = s.now.Add(time.Hour)
	want(t, "all at once", s.takes(), "false [own shed collect changed]")
	s.use, s.garbage = 60, 25
	s.Freed()
	want(t, "something went", s.looks(time.Second), "true [collect changed]")
	if got := s.State(); got.Sheds != 3 || got.Limit != limit {
		t.Errorf("state %+v", got)
	}
	if n := strings.Count(s.log.String(), "memory is short"); n != 2 {
		t.Errorf("logged %d times: %s", n, &s.log)
	}
}

// TestShortOfPages checks that memory is short if the mapped memory exceeds the limit, even if
// little of it is live.
func TestShortOfPages(t *testing.T) {
	s := newScene()
	s.use, s.mapped = 50, 104
	want(t, "in the limit", s.takes(), "true []")
	s.mapped = 110
	want(t, "above it", s.takes(), "false [own shed collect changed]")
	s.mapped = 100
	want(t, "in it again", s.takes(), "true [changed]")
}

// TestFreed checks that freed memory is returned to the system, also without a limit, and that
// collections have a minimum interval.
func TestFreed(t *testing.T) {
	s := newScene()
	s.limit, s.use = 0, 99
	want(t, "nothing was freed", s.looks(time.Minute), "true []")
	s.Freed()
	want(t, "something was", s.looks(5*time.Second), "true [collect]")
	s.Freed()
	want(t, "soon after", s.looks(5*time.Second), "true []")
	want(t, "later", s.looks(25*time.Second), "true [collect]")
	want(t, "nothing more", s.looks(time.Minute), "true []")
	want(t, "all are taken", s.takes(), "true []")
}

// TestErrorSaysWhatToDo checks that the error contains the memory use, the limit, and the remedy.
func TestErrorSaysWhatToDo(t *testing.T) {
	s := newScene()
	s.use = 85
	err := s.Admit(nil)
	var short *memory.ShortError
	if !errors.As(err, &short) || !short.Since.Equal(s.now) {
		t.Fatalf("error %v", err)
	}
	for _, text := range []string{"170 MiB", "200 MiB", "MemoryMax=", "resources.limits.memory", "GOMEMLIMIT"} {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("the error does not say %q: %s", text, err)
		}
	}
}

// TestReleaseProgram checks that pages of the program leave memory, and that it works afterwards.
func TestReleaseProgram(t *testing.T) {
	before := mapped(t)
	if err := memory.ReleaseProgram(); err != nil {
		t.Fatal(err)
	}
	if after := mapped(t); after >= before {
		t.Errorf("%d KiB of files were mapped before, and %d after", before, after)
	}
}

// mapped returns the pages of files in the memory of the process, in KiB.
func mapped(t *testing.T) (kib int) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip("no /proc:", err)
	}
	_, rest, _ := strings.Cut(string(text), "RssFile:")
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatal(err)
	}
	return kib
}

// TestSmallestLimit checks that a guard logs a limit of the control group below the smallest.
func TestSmallestLimit(t *testing.T) {
	for group, logs := range map[uint64]bool{0: false, memory.Smallest - 1: true, memory.Smallest: false} {
		var log strings.Builder
		memory.New(memory.Options{Read: func() memory.Use { return memory.Use{Group: group} },
			Log: slog.New(slog.NewTextHandler(&log, nil))})
		if strings.Contains(log.String(), "below the smallest that works") != logs {
			t.Errorf("with a limit of %d, the log is %q", group, log.String())
		}
	}
}

// TestRead reads the memory use of the test process.
func TestRead(t *testing.T) {
	before := debug.SetMemoryLimit(math.MaxInt64)
	defer debug.SetMemoryLimit(before)
	held := make([]byte, 64<<20)
	runtime.GC()
	u := memory.Read()
	if u.Limit != 0 || u.Live < 64<<20 || u.Live > u.Mapped {
		t.Errorf("with 64 MiB in use: %+v", u)
	}
	if err := memory.New(memory.Options{}).Admit(nil); err != nil {
		t.Errorf("without a limit: %v", err)
	}
	runtime.KeepAlive(held)
	debug.SetMemoryLimit(1 << 30)
	if u = memory.Read(); u.Limit != 1<<30 {
		t.Errorf("limit %d", u.Limit)
	}
}
