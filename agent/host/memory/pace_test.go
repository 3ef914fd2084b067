package memory_test

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/host/memory"
)

func TestPercent(t *testing.T) {
	for live, want := range map[uint64]int{0: 100, 1 << 20: 100, 32 << 20: 100, 64 << 20: 50, 80 << 20: 40, 1 << 40: 40} {
		if got := memory.Percent(live, 40); got != want {
			t.Errorf("%d bytes: %d %%, want %d", live, got, want)
		}
	}
}

// TestPace looks whether collections come as the heap asks for.
func TestPace(t *testing.T) {
	before := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	present := func() int {
		p := debug.SetGCPercent(100)
		debug.SetGCPercent(p)
		return p
	}
	memory.Pace(41)
	large := make([]byte, 200<<20)
	await(t, 41, present)
	runtime.KeepAlive(large)
	large = nil
	await(t, 100, present)
}

func await(t *testing.T, want int, present func() int) {
	t.Helper()
	late := time.Now().Add(2 * time.Minute)
	for present() != want {
		if time.Now().After(late) {
			t.Fatalf("%d %%, want %d", present(), want)
		}
		runtime.GC()
		runtime.Gosched()
	}
}
