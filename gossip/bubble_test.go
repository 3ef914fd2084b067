package gossip

import (
	"runtime"
	"testing"
)

// oneProcessor lets a test in virtual time run on one processor. With more, the race detector can
// crash while several goroutines of a bubble run timers: they share its state (golang/go#78156).
func oneProcessor(t *testing.T) {
	before := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}
