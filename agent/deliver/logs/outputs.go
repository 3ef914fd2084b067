package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/rotation"
)

// outputs are the files and collectors that lines go to, each open once for all proxies of the
// node.
type outputs struct {
	o *Options

	mu   sync.Mutex
	open map[outputKey]*output
	ctx  context.Context // of the outputs; nil before run and after stop
}

type outputKey struct {
	kind   draft.PipeKind
	target string // for a file its clean path
}

// output is one of them. The mu of the outputs guards it.
type output struct {
	Output
	limits rotation.Limits
	cancel context.CancelFunc // nil: it does not run
	ended  chan struct{}      // closed when Run has ended
}

func newOutputs(o *Options) *outputs { return &outputs{o: o, open: map[outputKey]*output{}} }

func keyOf(p *draft.Pipe) outputKey {
	if p.Kind == draft.PipeFile {
		return outputKey{p.Kind, filepath.Clean(p.Target)}
	}
	return outputKey{p.Kind, p.Target}
}

// of returns where the lines of a pipe go, and opens it when it is the first to ask for that.
func (s *outputs) of(p *draft.Pipe) (accesslog.Destination, error) {
	out, err := s.get(keyOf(p), p.Rotation)
	if err != nil {
		return nil, err
	}
	if p.Prefix != "" {
		return stripped{out, p.Prefix}, nil
	}
	return out, nil
}

// get opens an output, or returns the one that is open. It is called by one goroutine at a time.
func (s *outputs) get(key outputKey, limits rotation.Limits) (Output, error) {
	if key.kind != draft.PipeFile {
		limits = rotation.Limits{}
	}
	s.mu.Lock()
	have := s.open[key]
	s.mu.Unlock()
	if have != nil {
		s.limit(key, have, limits)
		return have.Output, nil
	}
	var next Output
	var err error
	switch key.kind {
	case draft.PipeFile:
		if err := s.o.allowed(key.target); err != nil {
			return nil, err
		}
		next, err = s.o.File(key.target, limits)
	case draft.PipeTCP:
		next, err = s.o.Forward(key.target, s.spoolDir(key))
	default:
		err = fmt.Errorf("there is no way to %q", key.kind)
	}
	if err != nil {
		return nil, err
	}
	out := &output{Output: next, limits: limits}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[key] = out
	s.start(out)
	return next, nil
}

// limit gives a file that is open other limits. Lines go on to it with the old ones where that
// fails.
func (s *outputs) limit(key outputKey, out *output, limits rotation.Limits) {
	l, ok := out.Output.(interface{ SetLimits(rotation.Limits) error })
	if !ok || out.limits == limits {
		return
	}
	if err := l.SetLimits(limits); err != nil {
		s.o.Log.Warn("a log file keeps its limits", "file", key.target, "error", err)
		return
	}
	out.limits = limits
}

// start runs an output. The mu is held.
func (s *outputs) start(out *output) {
	if s.ctx == nil {
		return
	}
	ctx, cancel := context.WithCancel(s.ctx)
	out.cancel, out.ended = cancel, make(chan struct{})
	go func() {
		defer close(out.ended)
		if err := out.Run(ctx); err != nil && ctx.Err() == nil {
			s.o.Log.Error("a destination of access logs has ended", "error", err)
		}
	}()
}

// run lets the outputs work until stop is called, first those whose spools an earlier agent has
// left.
func (s *outputs) run(ctx context.Context) (stop func()) {
	s.openSpools()
	ctx, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	s.ctx = ctx
	for _, out := range s.open {
		s.start(out)
	}
	s.mu.Unlock()
	return func() {
		s.mu.Lock()
		s.ctx = nil
		all := s.open
		s.open = map[outputKey]*output{}
		s.mu.Unlock()
		cancel()
		for key, out := range all {
			s.end(key, out, false)
		}
	}
}

// end ends an output that is not in the list any more.
func (s *outputs) end(key outputKey, out *output, unused bool) {
	if unused {
		out.Discard()
	}
	if out.cancel != nil {
		out.cancel()
		<-out.ended
	}
	if err := out.Close(); err != nil {
		s.o.Log.Error("a destination of access logs was not closed well", "kind", key.kind, "target", key.target,
			"error", err)
	}
}

// spoolDir is the directory of the spool of a collector, which tells its address.
func (s *outputs) spoolDir(key outputKey) string {
	if s.o.Spool == "" {
		return ""
	}
	return filepath.Join(s.o.Spool, string(key.kind)+"-"+escape(key.target))
}

// openSpools opens the collectors for which an earlier agent has left lines.
func (s *outputs) openSpools() {
	if s.o.Spool == "" {
		return
	}
	entries, err := os.ReadDir(s.o.Spool)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.o.Log.Error("what waits for collectors cannot be read", "dir", s.o.Spool, "error", err)
	}
	for _, e := range entries {
		kind, escaped, ok := strings.Cut(e.Name(), "-")
		target, is := unescapeName(escaped)
		key := outputKey{draft.PipeKind(kind), target}
		if !ok || !is || !e.IsDir() || key.kind != draft.PipeTCP {
			continue
		}
		if _, err := s.get(key, rotation.Limits{}); err != nil {
			s.o.Log.Warn("what waits for a collector is left", "dir", e.Name(), "error", err)
		}
	}
}

// escape makes a name of a directory that has no hyphen.
func escape(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "-", "%2D") }

func unescapeName(name string) (string, bool) {
	s, err := url.QueryUnescape(name)
	return s, err == nil && escape(s) == name
}

// release closes what nobody uses any more and holds nothing. It is called by the goroutine that
// opens outputs.
func (s *outputs) release(used map[outputKey]bool) {
	unused := map[outputKey]*output{}
	s.mu.Lock()
	for key, out := range s.open {
		if st := out.Stats(); !used[key] && st.InFlight == 0 && st.Spooled == 0 {
			delete(s.open, key)
			unused[key] = out
		}
	}
	s.mu.Unlock()
	for key, out := range unused {
		s.end(key, out, true)
	}
}

// streams lists the outputs.
func (s *outputs) streams() (list []Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, out := range s.open {
		kind := map[draft.PipeKind]Kind{draft.PipeFile: KindFile, draft.PipeTCP: KindForwarder}[key.kind]
		list = append(list,
			Stream{Name: key.target, Kind: kind, Destination: string(key.kind) + " " + key.target, Stats: out.Stats()})
	}
	return list
}

// stripped takes a prefix off every line. Two with the same fields are equal.
type stripped struct {
	to     accesslog.Destination
	prefix string
}

// Write implements [accesslog.Destination].
func (s stripped) Write(ctx context.Context, batch []byte) (int, error) {
	short := make([]byte, 0, len(batch))
	for line := range bytes.Lines(batch) {
		short = append(short, bytes.TrimPrefix(line, []byte(s.prefix))...)
	}
	n, err := s.to.Write(ctx, short)
	done := bytes.Count(short[:n], []byte{'\n'})
	if n == len(short) {
		return len(batch), err
	}
	taken := 0
	for line := range bytes.Lines(batch) {
		if done == 0 {
			break
		}
		taken += len(line)
		done--
	}
	return taken, err
}

// usedBy returns what a list of pipes needs.
func usedBy(lists ...[]draft.Pipe) map[outputKey]bool {
	used := map[outputKey]bool{}
	for _, p := range slices.Concat(lists...) {
		used[keyOf(&p)] = true
	}
	return used
}
