package traffic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/clip"
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
	JSON    bool // one object per line: the event, {"file", "entry"}, or {"file", "line"}
	Escape  bool // escape control characters, for a terminal
	Out     io.Writer
	// Note receives notes for the user: the file of the following lines, if there are several
	// files, and at the end how many lines were skipped and why.
	Note func(text string)
	// Failed is called for a file that cannot be read any further.
	Failed func(path string, err error)
}

// file is an open log file.
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
	err    error  // the first error of Out
}

// MoreEach is the interval between calls of [ShowOptions.More].
const MoreEach = 2 * time.Second

// mostFiles limits the number of followed files.
const mostFiles = 1024

// Show writes the lines of files, one file after another, and then follows them if required. It
// returns the first error of Out; the end of the context is not an error.
func Show(ctx context.Context, o ShowOptions) error {
	out := &output{o: &o}
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
	if o.Follow && (len(files) > 0 || o.More != nil) {
		files = out.follow(ctx, files)
	}
	for _, x := range files {
		x.report(o.Note)
	}
	return out.err
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

// report calls note with the number of skipped lines and files, by reason.
func (x *file) report(note func(string)) {
	s := x.reader.Stats()
	for _, n := range []struct {
		count int
		what  string
	}{
		{x.selector.noTime, "lines skipped because their time is unknown"},
		{x.selector.noStatus, "lines skipped because their status is unknown"},
		{x.selector.noEvent, "lines skipped because they are not audit events"},
		{s.Missed, "rotated files removed before they could be read"},
		{s.Truncated, "truncations by another program while reading"},
		{s.Replaced, "removals or replacements by another program while reading"},
	} {
		if n.count > 0 {
			note(fmt.Sprintf("%s: %s: %d", x.path, n.what, n.count))
		}
	}
	for _, err := range s.Unread {
		note(fmt.Sprintf("%s: not read completely: %v", x.path, err))
	}
}

func (out *output) write(b []byte) {
	if out.err == nil {
		_, out.err = out.o.Out.Write(b)
	}
}

// line writes a line, or a part of a long one.
func (out *output) line(path string, line rotation.Line) {
	o := out.o
	if !o.JSON && len(o.Paths) > 1 && out.at != path {
		if out.within {
			out.write([]byte("\n"))
			out.within = false
		}
		o.Note("==> " + path + " <==")
	}
	out.at = path
	switch {
	case o.JSON && o.Filter.Audit:
		out.write(append(out.safe(line.Text), '\n'))
	case o.JSON:
		out.write(append(out.safe(jsonLine(path, line.Text)), '\n'))
	case o.Filter.Audit:
		var x event
		_ = json.Unmarshal(line.Text, &x) // the filter accepts only valid events
		out.write([]byte(x.text()))
	default:
		text := out.safe(line.Text)
		if out.within = line.More; !line.More {
			text = append(text, '\n')
		}
		out.write(text)
	}
}

// safe returns a copy of text, escaped if required. JSON text may contain C1 control characters and
// characters that change the direction of text.
func (out *output) safe(text []byte) []byte {
	if !out.o.Escape {
		return bytes.Clone(text)
	}
	return []byte(clip.Printable(string(text)))
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
