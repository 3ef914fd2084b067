// Package workers spreads work that takes long over processors, so that it is done sooner and
// leaves some to others.
package workers

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Each calls do with every number from 0 to n-1 and returns when all calls have. The caller's
// goroutine is one of the workers, which are numbered from 0; no two calls at once have the same
// worker. With one worker, or one item, no goroutine is started. Between two calls a worker lets
// others run that wait for its processor.
//
// Where do panics on a worker, that is the error, with the first of them and where it was: a
// goroutine that panics would end the process.
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

// All is a worker for each processor of this process: of a command that does nothing else.
func All() int { return runtime.GOMAXPROCS(0) }

// Spare is a worker for each processor but one, and at least one: of a process that has other work,
// which must not wait.
func Spare() int { return max(1, runtime.GOMAXPROCS(0)-1) }
