package rotation

import (
	"bytes"
	"time"
)

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
	n := uint64(bytes.Count(lines, []byte{'\n'}))
	if f.loss.Lines == 0 {
		f.loss.Since = now
	}
	f.loss.Lines += n
	f.loss.Bytes += uint64(len(lines))
	f.loss.Cause = cause
	f.count.linesDropped.Add(n)
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
