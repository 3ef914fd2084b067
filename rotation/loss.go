package rotation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// Loss describes lines that were dropped between two stored ones.
type Loss struct {
	Lines, Bytes uint64
	Since, Until time.Time
	Cause        error
	Where        string // file or collector of the lines
	JSON         bool   // the lines are JSON objects
}

// Add adds dropped lines. Until is the time of the last ones.
func (l *Loss) Add(lines []byte, where string, cause error, now time.Time) {
	if len(lines) == 0 {
		return
	}
	if l.Lines == 0 {
		l.Since, l.JSON = now, lines[0] == '{'
	}
	l.Lines += uint64(bytes.Count(lines, []byte{'\n'}))
	l.Bytes += uint64(len(lines))
	l.Until, l.Cause, l.Where = now, cause, where
}

// MarkerLine returns a line that reports dropped lines: a comment with "#", or a JSON object
// between JSON lines.
func MarkerLine(l Loss) []byte {
	since, until := l.Since.UTC().Format(time.RFC3339Nano), l.Until.UTC().Format(time.RFC3339Nano)
	if !l.JSON {
		return fmt.Appendf(nil, "# %d lines (%d bytes) were dropped from %s to %s: %s: %s\n", l.Lines, l.Bytes,
			since, until, l.Where, causeText(l.Cause))
	}
	line, _ := json.Marshal(struct {
		Dropped uint64 `json:"droppedLines"`
		Bytes   uint64 `json:"droppedBytes"`
		Since   string `json:"since"`
		Until   string `json:"until"`
		Where   string `json:"where"`
		Cause   string `json:"cause"`
	}{l.Lines, l.Bytes, since, until, l.Where, causeText(l.Cause)}) // strings and numbers never fail
	return append(line, '\n')
}

// noteLoss writes the marker of dropped lines as soon as possible, without waiting for the next
// line.
func (f *File) noteLoss() {
	if f.loss.Lines == 0 || time.Now().Before(f.lossUntil) {
		return
	}
	if err := f.mark(f.opts.Now()); err != nil {
		f.lossUntil = time.Now().Add(maxWait)
		return
	}
	f.faults.set(faultWrite, nil)
}

// drop counts dropped lines.
func (f *File) drop(lines []byte, now time.Time, cause error) {
	f.loss.Add(lines, f.opts.Path, cause, now)
	f.count.linesDropped.Add(uint64(bytes.Count(lines, []byte{'\n'})))
	f.count.bytesDropped.Add(uint64(len(lines)))
}

// mark writes the marker of dropped lines, if there are any.
func (f *File) mark(now time.Time) error {
	if f.loss.Lines == 0 {
		return nil
	}
	f.loss.Until = now
	line := f.opts.Marker(f.loss)
	if n := len(line); n > 0 && line[n-1] != '\n' {
		line = append(line, '\n')
	}
	if _, err := f.append(line); err != nil {
		return err
	}
	f.loss, f.lossWait = Loss{}, 0
	return nil
}
