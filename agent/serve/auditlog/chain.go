package auditlog

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/nearside-mesh/nearside/agent/serve/audit"
	"github.com/nearside-mesh/nearside/rotation"
)

// chain is the end of the log. Only New and Run use it, except for record.
type chain struct {
	next    audit.Link  // the last linked event, which may wait to be written
	start   audit.Start // of the next event; empty for a later one
	first   uint64      // lowest number that the limits have not removed
	removed uint64      // backups that the limits had removed when first was read
}

// state is the agent's record of the log, in Options.State.
type state struct {
	Path    string        `json:"path"`
	Profile audit.Profile `json:"profile"`
	audit.Record
}

// Sizes in bytes.
const (
	// statePad is the multiple to which the state is padded, so that it is overwritten in one write.
	statePad = 512
	// tailSize is how much of the end of the log is read at the start. If the last recorded event is
	// not in it, two files are read.
	tailSize = 1 << 20
)

// ReadRecord reads the agent's record of a log. The path is that of the file in paths.state.
func ReadRecord(path string) (*audit.Record, error) {
	s, err := readState(path)
	if err != nil {
		return nil, err
	}
	return &s.Record, nil
}

func readState(path string) (s state, err error) {
	text, err := os.ReadFile(path) // #nosec G304 -- a path of the config or of a flag
	if err != nil {
		return s, err
	}
	if json.Unmarshal(text, &s) != nil || s.Path == "" {
		return state{}, fmt.Errorf("%s is not a record of an audit log; use audit-chain.json of paths.state", path)
	}
	return s, nil
}

// saveState writes the record. A failure is reported once, because the log itself is intact.
func (l *Log) saveState() {
	if l.opts.State == "" {
		return
	}
	rec := l.record.Load()
	if rec == nil {
		return
	}
	text, err := json.Marshal(state{Path: l.opts.Path, Profile: l.Profile(), Record: *rec})
	if err == nil {
		text = append(text, bytes.Repeat([]byte{' '}, statePad-1-len(text)%statePad)...)
		err = overwrite(l.opts.State, append(text, '\n'))
	}
	if err != nil && !l.unsaved {
		l.opts.Log.Warn("cannot record the end of the audit log, so a cut end may not be found after a restart",
			"file", l.opts.State, "error", err)
	}
	l.unsaved = err != nil
}

// overwrite writes a short file in place: it is written after each write of the log.
func overwrite(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600) // #nosec G304 -- below paths.state
	if err != nil {
		return err
	}
	_, err = f.WriteAt(text, 0)
	if err == nil {
		err = f.Truncate(int64(len(text)))
	}
	return errors.Join(err, f.Close())
}

// resume finds the end of the chain in an opened log.
func (l *Log) resume() {
	s, err := readState(l.opts.State)
	if l.opts.State != "" && err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.opts.Log.Warn("cannot read the record of the audit log", "file", l.opts.State, "error", err)
	}
	known := err == nil && s.Path == l.opts.Path && s.Last.Number > 0
	c, why := chain{start: audit.StartUnrecorded}, ""
	if known {
		c.next, c.first = s.Last, s.First
		c.start, why = l.compare(&c.next)
	} else {
		c.start = l.adopt(&c.next)
	}
	if why != "" {
		l.broken.Store(&why)
		l.breaks.Set(1)
		l.opts.Log.Error("the end of the audit log differs from the agent's record of it", "file", l.opts.Path,
			"difference", why, "record", s.Last.Number)
	}
	l.chain = c
	if removed := l.removed(); c.first == 0 || removed > 0 {
		l.readFirst(removed)
	}
	l.remember(c.next)
	l.saveState()
	if was := s.Profile; known && was != l.Profile() {
		l.switched(was, l.Profile())
	}
}

// removed returns how many backups the limits have removed.
func (l *Log) removed() uint64 {
	if f := l.file.Load(); f != nil {
		s := f.Stats()
		return s.Removed + s.Purged
	}
	return 0
}

// remember stores the record of the last written event.
func (l *Log) remember(last audit.Link) {
	l.record.Store(&audit.Record{First: l.chain.first, Last: last})
}

// readFirst finds the lowest number in the log.
func (l *Log) readFirst(removed uint64) {
	l.chain.removed = removed
	first := uint64(0)
	err := rotation.Visit(l.opts.Path, -1, func(_ rotation.Stored, content io.Reader) error {
		if content == nil {
			return nil
		}
		return eachLine(content, func(_ int, line []byte, _ bool) error {
			if link, ok := audit.LinkOf(line); ok {
				first = link.Number
				return errEnough
			}
			return nil
		})
	})
	switch {
	case first > 0:
		l.chain.first = first
	case err == nil || errors.Is(err, fs.ErrNotExist):
		l.chain.first = l.chain.next.Number + 1 // nothing is left
	}
}

// errEnough ends a visit.
var errEnough = errors.New("the search has ended")

// compare compares the end of the log with the recorded event, and moves the link to the last event
// that follows it. why describes a difference.
func (l *Log) compare(link *audit.Link) (start audit.Start, why string) {
	for _, far := range [...]bool{false, true} {
		v, found := audit.NewVerifier(nil, *link), false
		l.tail(far, func(s rotation.Stored, n int, line []byte) {
			switch {
			case found:
				v.Line(s.Path, n, line)
			case audit.HashOf(line) == link.Hash:
				found = true
			}
		})
		if !found {
			continue
		}
		r := v.Report(l.opts.Path, nil)
		end := r.Last
		switch {
		case r.Intact:
			*link = end
			return audit.StartResumed, ""
		case len(r.Findings) == 1 && r.Findings[0].Kind == audit.FoundIncomplete:
			*link = end
			return audit.StartUnreadable, ""
		}
		*link = end
		return audit.StartChanged, fmt.Sprintf("%s:%d: %s", r.Findings[0].File, r.Findings[0].Line, r.Findings[0].Detail)
	}
	return audit.StartChanged, fmt.Sprintf("the last recorded event, number %d, is not at the end of the log", link.Number)
}

// adopt finds the last event of a log without a record.
func (l *Log) adopt(link *audit.Link) audit.Start {
	start := audit.StartNew
	var last audit.Hash
	l.tail(false, func(_ rotation.Stored, _ int, line []byte) {
		if next, ok := audit.LinkOf(line); ok {
			*link, start = next, audit.StartUnrecorded
			return
		}
		last = audit.HashOf(line)
		if link.Number > 0 {
			start = audit.StartUnreadable
		} else {
			start = audit.StartPlain
		}
	})
	if start == audit.StartPlain {
		link.Hash = last
	}
	return start
}

// tail calls each for the lines at the end of the log: of the last bytes of the active file and its
// predecessor, or, if far is set, of all of both.
func (l *Log) tail(far bool, each func(s rotation.Stored, n int, line []byte)) {
	err := rotation.Visit(l.opts.Path, 1, func(s rotation.Stored, content io.Reader) error {
		if s.Err != nil {
			return s.Err
		}
		cut := false
		if f, ok := content.(io.Seeker); ok && !far && s.Size > tailSize {
			if _, err := f.Seek(-tailSize, io.SeekEnd); err != nil {
				return err
			}
			cut = true
		}
		return eachLine(content, func(n int, line []byte, _ bool) error {
			if !cut || n > 1 {
				each(s, n, line)
			}
			return nil
		})
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.opts.Log.Error("cannot read the end of the audit log", "error", err)
	}
}

// eachLine calls each for the lines of a file, without LF. open is set for a line without LF. Lines
// longer than the maximum of an event are cut. errEnough ends the loop without an error.
func eachLine(content io.Reader, each func(n int, line []byte, open bool) error) error {
	const most = 2 * audit.MaxLine
	in := bufio.NewReaderSize(content, 64<<10)
	var long []byte
	for n := 1; ; {
		piece, err := in.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) && !errors.Is(err, io.EOF) {
			return err
		}
		line := piece
		if len(long) > 0 || err != nil {
			long = append(long, piece[:min(len(piece), most-min(len(long), most))]...)
			line = long
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err == nil || len(line) > 0 {
			if each := each(n, bytes.TrimSuffix(line, []byte{'\n'}), err != nil); each != nil {
				if errors.Is(each, errEnough) {
					return nil
				}
				return each
			}
		}
		if err != nil {
			return nil
		}
		n, long = n+1, long[:0]
	}
}

// link gives the lines after the first n bytes their places in the chain.
func (l *Log) link(lines []byte, n int) []byte {
	if n == len(lines) {
		return lines
	}
	out := make([]byte, n, len(lines)+(len(lines)-n)/2)
	copy(out, lines)
	for line := range bytes.Lines(lines[n:]) {
		out = l.chain.next.Append(out, line, l.chain.start)
		l.chain.start = ""
	}
	l.linking.Store(l.chain.next.Number)
	return out
}

// stored records the last event of written lines.
func (l *Log) stored(lines []byte) {
	if len(lines) == 0 {
		return
	}
	if removed := l.removed(); removed != l.chain.removed {
		l.readFirst(removed)
	}
	last := lines[bytes.LastIndexByte(lines[:len(lines)-1], '\n')+1:]
	if link, ok := audit.LinkOf(last); ok {
		l.remember(link)
		l.saveState()
	}
}

// Chain returns the agent's record of the log, or nil before the log is open. It is safe for
// concurrent use.
func (l *Log) Chain() *audit.Record {
	rec := l.record.Load()
	if rec == nil {
		return nil
	}
	out := *rec
	if n := l.linking.Load(); n > out.Last.Number {
		out.Pending = n
	}
	return &out
}
