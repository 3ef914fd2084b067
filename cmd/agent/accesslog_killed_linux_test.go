package main

import (
	"syscall"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestAccessLogAccountOverKills kills the agent under load. The account of each agent adds up at
// any moment, and that of the last one has exactly the lines that the killed ones have not stored.
func TestAccessLogAccountOverKills(t *testing.T) {
	w := loggingToFile(t)
	w.hold()
	account := func() (fifo api.LogStream) {
		t.Helper()
		got, err := w.api().AccessLogs(t.Context())
		agenttest.Do(t, err)
		for _, s := range got.Items {
			sum := s.Written + s.Spooled + s.InFlight
			for _, n := range s.Dropped {
				sum += n
			}
			if s.In != sum {
				t.Errorf("%d lines are read, and %d accounted for: %+v", s.In, sum, s)
			}
			if s.Kind == api.LogFIFO {
				fifo = s
			}
		}
		return fifo
	}
	stop := w.load("a", 1000)
	stored := 0
	for range 3 {
		for range 5 {
			w.more(50)
			account()
		}
		w.kill(syscall.SIGKILL)
		numbers, _ := whole(w.lines("web.log"), "a") // a kill may leave part of a line
		stored = len(numbers)
		w.more(100)
		w.start()
	}
	w.more(100)
	account()
	sent := stop()
	w.exactlyOnce("web.log", "a", 1, sent)
	want := uint64(sent) - uint64(stored) // #nosec G115 -- numbers of lines
	var last api.LogStream
	w.await("the written lines are counted", func() bool { // which is after they are in the file
		last = account()
		return last.InFlight == 0
	})
	if last.In != want || last.Written != want || len(last.Dropped) > 0 {
		t.Errorf("the last agent accounts for %+v, want %d lines", last, want)
	}
}
