package logsapi

import "bytes"

// maxTail limits the retained lines of a file, in bytes.
const maxTail = 32 << 20

// tail retains the last lines of a file.
type tail struct {
	lines   [][]byte // the oldest one is at next; nil: dropped because of maxTail
	most    int      // lines; at least 1
	next    int
	size    int // bytes of lines
	dropped bool
}

// retain retains lines, and drops the oldest ones beyond the limits.
func (t *tail) retain(p []byte) {
	for line := range bytes.Lines(p) {
		line = bytes.Clone(line)
		t.size += len(line)
		if len(t.lines) < t.most {
			t.lines = append(t.lines, line)
		} else {
			t.drop(t.next)
			t.lines[t.next] = line
			t.next = (t.next + 1) % t.most
		}
		for n := 0; t.size > maxTail && n < len(t.lines)-1; n++ {
			t.drop((t.next + n) % len(t.lines))
		}
	}
}

func (t *tail) drop(i int) {
	t.dropped = t.dropped || t.lines[i] != nil
	t.size -= len(t.lines[i])
	t.lines[i] = nil
}

// tails writes the last lines of each file that show writes. The files share the limit: each one
// gets an equal part of what the earlier ones have left. It returns errLimit if lines were dropped.
func (l *lines) tails(paths []string, show func(paths []string) error) (err error) {
	for i, path := range paths {
		t := &tail{most: l.left / (len(paths) - i)}
		if t.most == 0 {
			t.most = 1
		}
		l.tail = t
		failed := show([]string{path})
		l.tail = nil
		for n := range t.lines {
			if _, limit := l.Write(t.lines[(t.next+n)%len(t.lines)]); limit != nil {
				return limit
			}
		}
		switch {
		case failed != nil:
			return failed
		case t.dropped:
			err = errLimit
		}
	}
	return err
}
