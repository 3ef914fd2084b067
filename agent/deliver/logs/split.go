package logs

import (
	"context"
	"errors"
	"maps"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/nearside-mesh/nearside/accesslog/fifo"
)

// Split keeps the FIFOs of pods in a directory of their own, which other users cannot reach: all
// Envoys of pods may have the same user. Configs have the paths of the other FIFOs, because a pod
// has its FIFOs there.
type Split struct {
	Pipes        // FIFOs of other Envoys
	Pods   Pipes // those with a Link
	PodDir string
}

// Set implements [Pipes].
func (s *Split) Set(owner string, want []fifo.Pipe) []error {
	var lists [2][]fifo.Pipe
	at := make([]int, len(want)) // index in the list of the pipe
	list := func(w *fifo.Pipe) int {
		if w.Link != "" {
			return 1
		}
		return 0
	}
	for i, w := range want {
		l := list(&w)
		if w.Link != "" {
			w.Path = filepath.Join(s.PodDir, filepath.Base(w.Path))
		}
		at[i] = len(lists[l])
		lists[l] = append(lists[l], w)
	}
	errs := [2][]error{s.Pipes.Set(owner, lists[0]), s.Pods.Set(owner, lists[1])}
	out := make([]error, len(want))
	for i := range want {
		out[i] = errs[list(&want[i])][at[i]]
	}
	return out
}

// NewWriter implements [Pipes].
func (s *Split) NewWriter(owner string) { s.Pipes.NewWriter(owner); s.Pods.NewWriter(owner) }

// Gone implements [Pipes].
func (s *Split) Gone(owner string) { s.Pipes.Gone(owner); s.Pods.Gone(owner) }

// Flush implements [Pipes].
func (s *Split) Flush(ctx context.Context, owner string) error {
	return errors.Join(s.Pipes.Flush(ctx, owner), s.Pods.Flush(ctx, owner))
}

// Run implements [Pipes].
func (s *Split) Run(ctx context.Context) error {
	var g errgroup.Group
	g.Go(func() error { return s.Pipes.Run(ctx) })
	g.Go(func() error { return s.Pods.Run(ctx) })
	return g.Wait()
}

// Stats implements [Pipes].
func (s *Split) Stats() map[string]fifo.Status {
	out := s.Pipes.Stats()
	maps.Copy(out, s.Pods.Stats())
	return out
}
