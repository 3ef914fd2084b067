// Package workers spreads long-running work over processors without starving other goroutines.
package workers

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Each calls do with every number from 0 to n-1 and returns when all calls have returned. The
// workers are numbered from 0, and concurrent calls have different worker numbers. The calling
// goroutine is worker 0; with one worker or one item, Each starts no goroutine. Between calls, a
// worker yields its processor.
//
// If do panics, Each returns an error with the first panic and its stack, because a panic in
// another goroutine would end the process.
func Each(workers, n int, do func(worker, i int)) error {
	var next atomic.Int64
	var failed atomic.Pointer[error]
	work := func(worker int) {
		defer func() {
			if p := recover(); p != nil {
				err := fmt.Errorf("panic: %v\n%s", p, debug.Stack())
				failed.CompareAndSwap(nil, &err)
			}
		}()
		for failed.Load() == nil {
			i := int(next.Add(1)) - 1
			if i >= n {
				return
			}
			do(worker, i)
			runtime.Gosched()
		}
	}
	var wg sync.WaitGroup
	for worker := 1; worker < min(workers, n); worker++ {
		wg.Go(func() { work(worker) })
	}
	work(0)
	wg.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// All returns the number of processors, for commands that do nothing else.
func All() int { return runtime.GOMAXPROCS(0) }

// Spare returns the number of processors minus one, and at least one, for processes with other work
// that must not wait.
func Spare() int { return max(1, runtime.GOMAXPROCS(0)-1) }
