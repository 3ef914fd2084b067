package workers_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/nearside-mesh/nearside/agent/base/workers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestEach checks that each number is handled once and that no worker has two calls at a time.
func TestEach(t *testing.T) {
	for _, n := range []int{0, 1, 2, 1000} {
		for _, most := range []int{0, 1, 3, 64} {
			done := make([]atomic.Int64, n)
			busy := make([]atomic.Int64, max(most, 1))
			err := workers.Each(most, n, func(worker, i int) {
				if busy[worker].Add(1) != 1 {
					t.Errorf("worker %d of %d has two at a time", worker, most)
				}
				done[i].Add(1)
				busy[worker].Add(-1)
			})
			if err != nil {
				t.Error(err)
			}
			for i := range done {
				if got := done[i].Load(); got != 1 {
					t.Errorf("%d workers: %d of %d was done %d times", most, i, n, got)
				}
			}
		}
	}
}

// TestEachRunsTogether checks that all workers run concurrently: each call waits for the others.
func TestEachRunsTogether(t *testing.T) {
	const most = 4
	var arrived atomic.Int64
	all := make(chan struct{})
	err := workers.Each(most, most, func(int, int) {
		if arrived.Add(1) == most {
			close(all)
		}
		<-all
	})
	if err != nil {
		t.Error(err)
	}
}

// TestEachSurvives checks that a panic of a worker becomes an error after all workers have ended.
func TestEachSurvives(t *testing.T) {
	var running atomic.Int64
	err := workers.Each(3, 100, func(_, i int) {
		running.Add(1)
		defer running.Add(-1)
		if i == 3 {
			panic("the third")
		}
	})
	if err == nil || !strings.Contains(err.Error(), "panic: the third") || running.Load() != 0 {
		t.Errorf("%v with %d calls under way", err, running.Load())
	}
}
