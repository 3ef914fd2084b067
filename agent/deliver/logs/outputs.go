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

// outputs manages files and collectors. Each is open once for all proxies of the node.
type outputs struct {
	o *Options

	mu   sync.Mutex
	open map[outputKey]*output
	ctx  context.Context // context of the outputs; nil before run and after stop
}

// refusedError means that policies must not use a destination.
type refusedError struct{ error }

type outputKey struct {
	kind   draft.PipeKind
	target string // clean path of a file
}

// output is one file or collector, guarded by outputs.mu.
type output struct {
	Output
	limits rotation.Limits
	cancel context.CancelFunc // nil: not running
	ended  chan struct{}      // closed when Run has returned
}

func newOutputs(o *Options) *outputs { return &outputs{o: o, open: map[outputKey]*output{}} }

func keyOf(p *draft.Pipe) outputKey {
	if p.Kind == draft.PipeFile {
		return outputKey{p.Kind, filepath.Clean(p.Target)}
	}
	return outputKey{p.Kind, p.Target}
}

// of returns the destination of a pipe, and opens it if necessary.
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

// get returns an output, and opens it if necessary. Calls must not overlap.
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
		if err := s.o.Paths.CheckPolicy(key.target); err != nil {
			return nil, refusedError{err}
		}
		next, err = s.o.File(key.target, limits)
	case draft.PipeTCP:
		next, err = s.o.Forward(key.target, s.spoolDir(key))
	default:
		err = fmt.Errorf("destination kind %q is unknown", key.kind)
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

// limit changes the limits of an open file. If that fails, the old limits stay.
func (s *outputs) limit(key outputKey, out *output, limits rotation.Limits) {
	l, ok := out.Output.(interface{ SetLimits(rotation.Limits) error })
	if !ok || out.limits == limits {
		return
	}
	if err := l.SetLimits(limits); err != nil {
		s.o.Log.Warn("cannot change the limits of a log file", "file", key.target, "error", err)
		return
	}
	out.limits = limits
}

// start runs an output. s.mu is held.
func (s *outputs) start(out *output) {
	if s.ctx == nil {
		return
	}
	ctx, cancel := context.WithCancel(s.ctx)
	out.cancel, out.ended = cancel, make(chan struct{})
	go func() {
		defer close(out.ended)
		if err := out.Run(ctx); err != nil && ctx.Err() == nil {
			s.o.Log.Error("access log destination stopped", "error", err)
		}
	}()
}

// run runs the outputs until stop is called, including those whose spools an earlier agent has
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

// end stops an output that is no longer listed.
func (s *outputs) end(key outputKey, out *output, unused bool) {
	if unused {
		out.Discard()
	}
	if out.cancel != nil {
		out.cancel()
		<-out.ended
	}
	if err := out.Close(); err != nil {
		s.o.Log.Error("cannot close an access log destination", "kind", key.kind, "target", key.target,
			"error", err)
	}
}

// spoolDir returns the spool directory of a collector. Its name contains the address.
func (s *outputs) spoolDir(key outputKey) string {
	if s.o.Spool == "" {
		return ""
	}
	return filepath.Join(s.o.Spool, string(key.kind)+"-"+escape(key.target))
}

// openSpools opens the files and collectors with lines from an earlier agent.
func (s *outputs) openSpools() {
	if s.o.Spool == "" {
		return
	}
	s.openFiles()
	entries, err := os.ReadDir(s.o.Spool)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.o.Log.Error("cannot read the spooled lines of collectors", "dir", s.o.Spool, "error", err)
	}
	for _, e := range entries {
		kind, escaped, ok := strings.Cut(e.Name(), "-")
		target, is := unescapeName(escaped)
		key := outputKey{draft.PipeKind(kind), target}
		if !ok || !is || !e.IsDir() || key.kind != draft.PipeTCP {
			continue
		}
		if _, err := s.get(key, rotation.Limits{}); err != nil {
			s.o.Log.Warn("cannot send the spooled lines of a collector", "dir", e.Name(), "error", err)
		}
	}
}

// openFiles opens the files whose lines an earlier agent has spooled.
func (s *outputs) openFiles() {
	if s.o.Waiting == nil {
		return
	}
	paths, err := s.o.Waiting()
	if err != nil {
		s.o.Log.Error("cannot read the spooled lines of log files", "dir", s.o.Spool, "error", err)
	}
	for _, path := range paths {
		unset := rotation.Limits{MaxFileSize: rotation.Unset, MaxFiles: rotation.Unset, MaxFileAge: rotation.Unset}
		if _, err := s.get(outputKey{draft.PipeFile, path}, unset); err != nil {
			s.o.Log.Warn("cannot write the spooled lines of a log file", "file", path, "error", err)
		}
	}
}

// escape returns a directory name without hyphens.
func escape(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "-", "%2D") }

func unescapeName(name string) (string, bool) {
	s, err := url.QueryUnescape(name)
	return s, err == nil && escape(s) == name
}

// release closes unused outputs without pending lines. Only the goroutine that opens outputs calls
// it.
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

// streams returns the state of all outputs.
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

// stripped removes a prefix from every line. Values with equal fields are equal.
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
	consumed := 0
	for line := range bytes.Lines(batch) {
		if done == 0 {
			break
		}
		consumed += len(line)
		done--
	}
	return consumed, err
}

// usedBy returns the outputs that pipes need.
func usedBy(lists ...[]draft.Pipe) map[outputKey]bool {
	used := map[outputKey]bool{}
	for _, p := range slices.Concat(lists...) {
		used[keyOf(&p)] = true
	}
	return used
}
