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

// atOnce is how many lines of a file are read before the next file has its turn, where files are
// followed.
const atOnce = 1000

// ShowOptions say what is read and where it is shown. Paths, Out, Note and Failed are required.
type ShowOptions struct {
	Paths  []string // of the active files
	Follow bool     // wait for more lines, until the context ends
	// More returns the paths that are to be followed now, of which those that are new are added; nil:
	// there will be none. It is asked every [MoreEach], and may wait no longer than that.
	More   func() []string
	Filter Filter
	// Formats are those of the lines of files, by their paths, as far as they are known. Of lines of
	// others the usual ones are tried.
	Formats map[string]*Formats
	JSON    bool // one object for each line: an event as it is, {"file", "entry"} or {"file", "line"} otherwise
	Escape  bool // control characters in lines, for a terminal
	Out     io.Writer
	// Note is told what is no data: which file lines are of, where there are several, and at the end
	// what was not shown and why.
	Note func(text string)
	// Failed is told of a file that cannot be read, or not on.
	Failed func(path string, err error)
}

// file is one of the files that are read.
type file struct {
	path   string
	reader *rotation.Reader // nil: closed
	skip   *skip
}

// output shows lines.
type output struct {
	o      *ShowOptions
	at     string // the file whose lines come
	within bool   // a long line goes on
	err    error  // the first of Out
}

// MoreEach is how often more files are looked for.
const MoreEach = 2 * time.Second

// mostFiles bounds the files that are followed.
const mostFiles = 1024

// Show writes the lines of files, file by file, and then, if they are followed, those that come.
// The error is that of Out; a context that ends is none.
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

// open begins to read a file.
func (out *output) open(files []*file, path string) []*file {
	r, err := rotation.NewReader(rotation.ReaderOptions{Path: path, Since: out.o.Filter.Since, Follow: out.o.Follow})
	if err != nil {
		out.o.Failed(path, err)
		return files
	}
	return append(files, &file{path, r, &skip{filter: &out.o.Filter, formats: out.o.Formats[path]}})
}

// more adds the files that have come. One that cannot be read is told once.
func (out *output) more(files []*file) []*file {
	for _, path := range out.o.More() {
		if len(out.o.Paths) < mostFiles && !slices.Contains(out.o.Paths, path) {
			out.o.Paths = append(out.o.Paths, path)
			files = out.open(files, path)
		}
	}
	return files
}

// follow shows the lines that come, and returns the files that were read.
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

func (x *file) failed() bool { return x.skip.failed }

// read shows some lines, and reports whether there may be more now.
func (x *file) read(ctx context.Context, out *output) bool {
	if x.failed() || ctx.Err() != nil {
		return false
	}
	for range atOnce {
		line, err := x.reader.Next()
		switch {
		case errors.Is(err, io.EOF):
			x.skip.current = true
			return false
		case err != nil:
			x.skip.failed = true
			out.o.Failed(x.path, err)
			return false
		}
		if x.skip.shows(line) {
			out.line(x.path, line)
		}
		if out.err != nil {
			return false
		}
	}
	return true
}

// report says what was not shown, and why.
func (x *file) report(note func(string)) {
	s := x.reader.Stats()
	for _, n := range []struct {
		count int
		what  string
	}{
		{x.skip.noTime, "lines left out, since their time cannot be told"},
		{x.skip.noStatus, "lines left out, since their status cannot be told"},
		{x.skip.noEvent, "lines left out, since they are no events"},
		{s.Missed, "rotated files that were removed before they could be read"},
		{s.Truncated, "times that it was truncated by others meanwhile"},
		{s.Replaced, "times that it was removed or replaced by others meanwhile"},
	} {
		if n.count > 0 {
			note(fmt.Sprintf("%s: %s: %d", x.path, n.what, n.count))
		}
	}
	for _, err := range s.Unread {
		note(fmt.Sprintf("%s: not read to its end: %v", x.path, err))
	}
}

func (out *output) write(b []byte) {
	if out.err == nil {
		_, out.err = out.o.Out.Write(b)
	}
}

// line shows a line, or a part of a long one.
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
		_ = json.Unmarshal(line.Text, &x) // the filter has seen that it is one
		out.write([]byte(x.text()))
	default:
		text := out.safe(line.Text)
		if out.within = line.More; !line.More {
			text = append(text, '\n')
		}
		out.write(text)
	}
}

// safe returns a copy of text, escaped where that is asked for. JSON may have characters of C1 or
// such that turn the direction of text.
func (out *output) safe(text []byte) []byte {
	if !out.o.Escape {
		return bytes.Clone(text)
	}
	return []byte(clip.Printable(string(text)))
}

// jsonLine is a line of an access log as JSON.
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
		return nil // cannot be: all of it is text or valid
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
