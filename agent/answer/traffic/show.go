package traffic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/logfields"
	"github.com/nearside-mesh/nearside/rotation"
)

// linesPerTurn is how many lines of a file are read before the next file, when files are followed.
const linesPerTurn = 1000

// ShowOptions says what to read and where to write it. Paths, Out, Note, and Failed are required.
type ShowOptions struct {
	Paths  []string // paths of the active files
	Follow bool     // wait for more lines until the context ends
	// More returns the paths of files to follow; new ones are added. Nil means that no files are
	// added. It is called every [MoreEach] and must not block longer than that.
	More   func() []string
	Filter Filter
	// Formats has the known formats of lines by the path of their file. Lines of other files are
	// parsed with the usual formats.
	Formats map[string]*Formats
	// Workers is the number of parts of a file that are read at the same time; 0: one for each
	// processor.
	Workers int
	JSON    bool // one object per line: the event, {"file", "entry"}, or {"file", "line"}
	Escape  bool // escape control characters, for a terminal
	Out     io.Writer
	// Note receives notes for the user: the file of the following lines, if there are several
	// files, and at the end how many lines were skipped and why.
	Note func(text string)
	// Failed is called for a file that cannot be read any further.
	Failed func(path string, err error)
}

// file is an open log file that is followed.
type file struct {
	path     string
	reader   *rotation.Reader // nil: closed
	selector *selector
}

// output writes lines to Out.
type output struct {
	o      *ShowOptions
	at     string // path of the file whose lines are written
	within bool   // in the middle of a long line
	buf    []byte
	err    error // the first error of Out
}

// MoreEach is the interval between calls of [ShowOptions.More].
const MoreEach = 2 * time.Second

// mostFiles limits the number of followed files.
const mostFiles = 1024

// Show writes the lines of files, one file after another, and then follows them if required. It
// returns the first error of Out; the end of the context is not an error.
func Show(ctx context.Context, o ShowOptions) error {
	out := &output{o: &o}
	if !o.Follow {
		for _, path := range o.Paths {
			out.all(ctx, path)
		}
		return out.err
	}
	var files []*file
	defer func() {
		for _, x := range files {
			x.reader.Close()
		}
	}()
	for _, path := range o.Paths {
		files = out.open(files, path)
	}
	for _, x := range files {
		for x.read(ctx, out) {
		}
	}
	if len(files) > 0 || o.More != nil {
		files = out.follow(ctx, files)
	}
	for _, x := range files {
		s := x.reader.Stats()
		report(o.Note, x.path, x.selector.skipped, &s)
	}
	return out.err
}

// all writes the lines of a file that the filter selects. Several parts of the file are read at the
// same time, and written in their order.
func (out *output) all(ctx context.Context, path string) {
	o := out.o
	var fields *logfields.Formats
	if !o.Filter.Audit {
		fields = o.Formats[path].compile(&o.Filter)
	}
	var selectors []*selector
	var mu sync.Mutex
	s := &scanner{path: path, since: o.Filter.Since, workers: o.Workers,
		begin: func(int) func([]byte, rotation.Line) []byte {
			x := &selector{filter: &o.Filter}
			if fields != nil {
				x.reader = fields.NewReader()
			}
			mu.Lock()
			selectors = append(selectors, x)
			mu.Unlock()
			return func(b []byte, line rotation.Line) []byte {
				if x.shows(line) {
					b = o.appendLine(b, path, line)
				}
				return b
			}
		},
		write: func(b []byte) error {
			out.header(path)
			out.write(b)
			return out.err
		},
	}
	if out.err != nil {
		return
	}
	err := s.scan(ctx)
	if err != nil {
		o.Failed(path, err)
	}
	if err == nil || s.stats.Lines > 0 {
		var skip skipped
		for _, x := range selectors {
			skip.add(&x.skipped)
		}
		report(o.Note, path, skip, &s.stats)
	}
}

// open opens a file and appends it to files.
func (out *output) open(files []*file, path string) []*file {
	r, err := rotation.NewReader(rotation.ReaderOptions{Path: path, Since: out.o.Filter.Since, Follow: out.o.Follow})
	if err != nil {
		out.o.Failed(path, err)
		return files
	}
	return append(files, &file{path, r, &selector{filter: &out.o.Filter, formats: out.o.Formats[path]}})
}

// more opens the files that were added. Failed is called once for a file that cannot be read.
func (out *output) more(files []*file) []*file {
	for _, path := range out.o.More() {
		if len(out.o.Paths) < mostFiles && !slices.Contains(out.o.Paths, path) {
			out.o.Paths = append(out.o.Paths, path)
			files = out.open(files, path)
		}
	}
	return files
}

// follow writes new lines until the context ends, and returns all opened files.
func (out *output) follow(ctx context.Context, files []*file) []*file {
	t := time.NewTicker(rotation.PollEach)
	defer t.Stop()
	for asked := time.Now(); ctx.Err() == nil && out.err == nil; {
		if out.o.More != nil && time.Since(asked) >= MoreEach {
			files = out.more(files)
			asked = time.Now()
		}
		more, left := false, out.o.More != nil
		for _, x := range files {
			more = x.read(ctx, out) || more
			left = left || !x.failed()
		}
		switch {
		case !left:
			return files
		case more:
			continue
		}
		select {
		case <-ctx.Done():
		case <-t.C:
		}
	}
	return files
}

func (x *file) failed() bool { return x.selector.failed }

// read writes up to linesPerTurn lines and reports whether there may be more already.
func (x *file) read(ctx context.Context, out *output) bool {
	if x.failed() || ctx.Err() != nil {
		return false
	}
	for range linesPerTurn {
		line, err := x.reader.Next()
		switch {
		case errors.Is(err, io.EOF):
			x.selector.current = true
			return false
		case err != nil:
			x.selector.failed = true
			out.o.Failed(x.path, err)
			return false
		}
		if x.selector.shows(line) {
			out.line(x.path, line)
		}
		if out.err != nil {
			return false
		}
	}
	return true
}

func (s *skipped) add(more *skipped) {
	s.noTime += more.noTime
	s.noStatus += more.noStatus
	s.noField += more.noField
	s.noEvent += more.noEvent
}

// report calls note with the number of skipped lines and files, by reason.
func report(note func(string), path string, skip skipped, s *rotation.ReaderStats) {
	for _, n := range []struct {
		count int
		what  string
	}{
		{skip.noTime, "lines skipped because their time is unknown"},
		{skip.noStatus, "lines skipped because their status is unknown"},
		{skip.noField, "lines skipped because they have no value for a condition"},
		{skip.noEvent, "lines skipped because they are not audit events"},
		{s.Missed, "rotated files removed before they could be read"},
		{s.Truncated, "truncations by another program while reading"},
		{s.Replaced, "removals or replacements by another program while reading"},
	} {
		if n.count > 0 {
			note(fmt.Sprintf("%s: %s: %d", path, n.what, n.count))
		}
	}
	for _, err := range s.Unread {
		note(fmt.Sprintf("%s: not read completely: %v", path, err))
	}
}

func (out *output) write(b []byte) {
	if out.err == nil {
		_, out.err = out.o.Out.Write(b)
	}
}

// header notes the file of the following lines, if there are several files.
func (out *output) header(path string) {
	if !out.o.JSON && len(out.o.Paths) > 1 && out.at != path {
		if out.within {
			out.write([]byte("\n"))
			out.within = false
		}
		out.o.Note("==> " + path + " <==")
	}
	out.at = path
}

// line writes a line, or a part of a long one.
func (out *output) line(path string, line rotation.Line) {
	out.header(path)
	out.buf = out.o.appendLine(out.buf[:0], path, line)
	out.within = line.More && !out.o.JSON && !out.o.Filter.Audit
	out.write(out.buf)
}

// appendLine appends a line, or a part of a long one, in the format of the output.
func (o *ShowOptions) appendLine(b []byte, path string, line rotation.Line) []byte {
	switch {
	case o.JSON && o.Filter.Audit:
		return append(o.safe(b, line.Text), '\n')
	case o.JSON:
		return append(o.safe(b, jsonLine(path, line.Text)), '\n')
	case o.Filter.Audit:
		var x event
		_ = json.Unmarshal(line.Text, &x) // the filter accepts only valid events
		return append(b, x.text()...)
	}
	if b = o.safe(b, line.Text); !line.More {
		b = append(b, '\n')
	}
	return b
}

// safe appends text, escaped if required. JSON text may contain C1 control characters and
// characters that change the direction of text.
func (o *ShowOptions) safe(b, text []byte) []byte {
	if !o.Escape {
		return append(b, text...)
	}
	return append(b, clip.Printable(string(text))...)
}

// jsonLine encodes an access log line as a JSON object.
func jsonLine(path string, text []byte) []byte {
	doc := struct {
		File  string          `json:"file"`
		Entry json.RawMessage `json:"entry,omitempty"`
		Line  *string         `json:"line,omitempty"`
	}{File: path}
	if t := bytes.TrimSpace(text); len(t) > 0 && t[0] == '{' && json.Valid(t) {
		doc.Entry = t
	} else {
		s := string(text)
		doc.Line = &s
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(doc) != nil {
		return nil // unreachable: every field is a string or valid JSON
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
