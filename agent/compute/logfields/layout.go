package logfields

import (
	"bytes"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/substitution"
)

// seg is a text or an operator of a format.
type seg struct {
	op     bool
	text   []byte
	set    *[256]bool // characters of a value; nil: any
	client bool       // clients choose the value
}

// span is a range of a line.
type span struct{ from, to int }

// run is a sequence of segments between two values with any characters. It begins and ends with
// text.
type run struct{ first, last, pivot int }

// layout is a compiled text format, or the format of one field of a JSON line.
type layout struct {
	segs        []seg
	left, right int // segments before left are read from the left, those from right on from the right
	runs        []run
	runOf       []int  // by segment: index of its run, or -1
	suffix      []byte // each line ends with it
	text        []byte // each line contains it; nil: no check
	wanted      []target
}

// target is the place of a requested field in a layout.
type target struct {
	at     int // segment; negative: the format lacks the field
	hidden bool
}

// newLayout compiles the segments of a format for the requested fields.
func newLayout(format []substitution.Segment, fields []Field) *layout {
	l := &layout{}
	var names []string // by segment
	for i := range format {
		s := &format[i]
		if s.Operator == "" {
			if n := len(l.segs); n > 0 && !l.segs[n-1].op {
				l.segs[n-1].text = append(l.segs[n-1].text, s.Text...)
				continue
			}
			l.segs, names = append(l.segs, seg{text: []byte(s.Text)}), append(names, "")
			continue
		}
		l.segs = append(l.segs, seg{op: true, set: charset(s), client: fromClient(s)})
		names = append(names, strings.ToUpper(s.Name()))
	}
	for l.left < len(l.segs) && l.bounded(l.left, l.left == len(l.segs)-1, true) {
		l.left++
	}
	for l.right = len(l.segs); l.right > l.left && l.bounded(l.right-1, l.right == 1, false); {
		l.right--
	}
	l.findRuns()
	for i := range l.segs {
		if s := &l.segs[i]; !s.op && len(s.text) > max(3, len(l.text)) {
			l.text = s.text
		}
	}
	if n := len(l.segs); n > 0 && !l.segs[n-1].op {
		l.suffix = l.segs[n-1].text
		if len(l.suffix) > 1 {
			l.text = nil
		}
	}
	for i := range fields {
		t := target{at: -1}
		for _, operator := range fields[i].operators {
			for at, name := range names {
				if name != operator || t.at >= 0 && !t.hidden {
					continue
				}
				t = target{at, l.hides(at)}
			}
			if t.at >= 0 {
				break
			}
		}
		l.wanted = append(l.wanted, t)
	}
	return l
}

// charset returns the characters that a value may contain, or nil for any.
func charset(s *substitution.Segment) *[256]bool {
	var set [256]bool
	all := true
	for c := range 256 {
		set[c] = s.May(byte(c))
		if s.Operator == "PROTOCOL" { // HTTP/1.1 or -
			set[c] = strings.IndexByte("HTP/.0123-", byte(c)) >= 0
		}
		all = all && set[c]
	}
	if all {
		return nil
	}
	return &set
}

// fromClient reports whether clients choose the value of an operator with any characters.
func fromClient(s *substitution.Segment) bool {
	switch s.Operator {
	case "REQ", "REQ_WITHOUT_QUERY", "PATH", "QUERY_PARAM", "QUERY_PARAMS", "REQUEST_HEADER", "REQUESTED_SERVER_NAME",
		"TRACE_ID", "STREAM_ID":
		return true
	}
	return false
}

// bounded reports whether the text beside a segment marks the end of its value on one side. end is
// true if the segment is the last one in that direction.
func (l *layout) bounded(i int, end, forward bool) bool {
	s := &l.segs[i]
	switch {
	case !s.op || end:
		return true
	case s.set == nil:
		return false
	case forward:
		next := &l.segs[i+1]
		return !next.op && !s.set[next.text[0]]
	}
	before := &l.segs[i-1]
	return !before.op && !s.set[before.text[len(before.text)-1]]
}

// findRuns finds the runs between left and right.
func (l *layout) findRuns() {
	l.runOf = make([]int, len(l.segs))
	for i := range l.runOf {
		l.runOf[i] = -1
	}
	inside := func(i int) bool {
		return i > l.left && i < l.right-1 && l.segs[i].op && l.bounded(i, false, true) && l.bounded(i, false, false)
	}
	for i := l.left; i < l.right; i++ {
		if l.segs[i].op || !inside(i+1) {
			continue
		}
		r := run{first: i, last: i, pivot: i}
		for inside(r.last + 1) {
			if r.last += 2; len(l.segs[r.last].text) > len(l.segs[r.pivot].text) {
				r.pivot = r.last
			}
		}
		for j := r.first; j <= r.last; j++ {
			l.runOf[j] = len(l.runs)
		}
		l.runs = append(l.runs, r)
		i = r.last
	}
}

// gap returns the segments around i that are outside of all runs: those after from and before to.
func (l *layout) gap(i int) (from, to int) {
	for from = i; from >= l.left && l.runOf[from] < 0; from-- {
	}
	for to = i; to < l.right && l.runOf[to] < 0; to++ {
	}
	return from, to
}

// fixed reports whether the position of a segment is known without reading the values around it.
func (l *layout) fixed(i int) bool { return i < l.left || i >= l.right || l.runOf[i] >= 0 }

// hides reports whether no value of a segment is reliable.
func (l *layout) hides(i int) bool {
	if l.fixed(i) {
		return false
	}
	from, to := l.gap(i)
	for j := from + 1; j < to; j++ {
		if l.segs[j].op && j+1 < to && l.segs[j+1].op {
			return true // nothing separates two values
		}
		if l.segs[j].client && !l.segs[i].client {
			return true
		}
	}
	return false
}

// scratch is the state of reading one line.
type scratch struct {
	at     []span // by segment
	unsure []bool // by run
}

// read finds the segments of a line. It returns false for a line that the format cannot have
// produced.
func (l *layout) read(line []byte, x *scratch) bool {
	if !bytes.HasSuffix(line, l.suffix) || l.text != nil && !bytes.Contains(line, l.text) {
		return false
	}
	if cap(x.at) < len(l.segs) {
		x.at = make([]span, len(l.segs))
	}
	if cap(x.unsure) < len(l.runs) {
		x.unsure = make([]bool, len(l.runs))
	}
	x.at, x.unsure = x.at[:len(l.segs)], x.unsure[:len(l.runs)]
	from, to := 0, len(line)
	for i := range l.left {
		n, ok := from, true
		if s := &l.segs[i]; s.op && i == len(l.segs)-1 {
			n, ok = to, s.set == nil || l.forward(i, line, from, to) == to
		} else if n = l.forward(i, line, from, to); n < 0 {
			return false
		}
		if !ok {
			return false
		}
		x.at[i] = span{from, n}
		from = n
	}
	for i := len(l.segs) - 1; i >= l.right; i-- {
		n, ok := to, true
		if s := &l.segs[i]; s.op && i == 0 {
			n, ok = from, s.set == nil || l.backward(i, line, from, to) == from
		} else if n = l.backward(i, line, from, to); n < 0 {
			return false
		}
		if !ok {
			return false
		}
		x.at[i] = span{n, to}
		to = n
	}
	if l.left == l.right && from != to {
		return false
	}
	for i := range l.runs {
		if !l.find(i, line, from, to, x) {
			return false
		}
	}
	return true
}

// forward returns the end of a segment that begins at from, or a negative number.
func (l *layout) forward(i int, line []byte, from, to int) int {
	s := &l.segs[i]
	if !s.op {
		if to-from < len(s.text) || !bytes.Equal(line[from:from+len(s.text)], s.text) {
			return -1
		}
		return from + len(s.text)
	}
	for set := s.set; from < to && set[line[from]]; from++ {
	}
	return from
}

// backward returns the beginning of a segment that ends at to, or a negative number.
func (l *layout) backward(i int, line []byte, from, to int) int {
	s := &l.segs[i]
	if !s.op {
		if to-from < len(s.text) || !bytes.Equal(line[to-len(s.text):to], s.text) {
			return -1
		}
		return to - len(s.text)
	}
	for set := s.set; to > from && set[line[to-1]]; to-- {
	}
	return to
}

// find searches a run in a part of a line. It returns false if there is none, and marks a run that
// occurs twice.
func (l *layout) find(i int, line []byte, from, to int, x *scratch) bool {
	r, found := l.runs[i], false
	x.unsure[i] = false
	pivot := l.segs[r.pivot].text
	for at := from; ; at++ {
		n := bytes.Index(line[at:to], pivot)
		if n < 0 {
			return found
		}
		at += n
		if !l.around(r, line, from, to, at, x, found) {
			continue
		}
		if found {
			x.unsure[i] = true
			return true
		}
		found = true
	}
}

// around matches a run whose pivot begins at a position. Unless check is true, it stores the
// positions.
func (l *layout) around(r run, line []byte, from, to, at int, x *scratch, check bool) bool {
	end := at + len(l.segs[r.pivot].text)
	if !check {
		x.at[r.pivot] = span{at, end}
	}
	for i := r.pivot + 1; i <= r.last; i++ {
		n := l.forward(i, line, end, to)
		if n < 0 {
			return false
		}
		if !check {
			x.at[i] = span{end, n}
		}
		end = n
	}
	for i := r.pivot - 1; i >= r.first; i-- {
		n := l.backward(i, line, from, at)
		if n < 0 {
			return false
		}
		if !check {
			x.at[i] = span{n, at}
		}
		at = n
	}
	return true
}

// value returns the value of a requested field in a line that was read.
func (l *layout) value(field int, line []byte, x *scratch) ([]byte, State) {
	t := l.wanted[field]
	switch {
	case t.at < 0:
		return nil, Absent
	case t.hidden:
		return nil, Hidden
	case l.runOf[t.at] >= 0 && x.unsure[l.runOf[t.at]]:
		return nil, Unsure
	case l.fixed(t.at):
		return line[x.at[t.at].from:x.at[t.at].to], Known
	}
	before, after := l.gap(t.at)
	from, to := 0, len(line)
	if before >= 0 {
		from = x.at[before].to
	}
	if after < len(l.segs) {
		to = x.at[after].from
	}
	for _, i := range [...]int{before, after} {
		if i >= 0 && i < len(l.segs) && l.runOf[i] >= 0 && x.unsure[l.runOf[i]] {
			return nil, Unsure
		}
	}
	if from > to {
		return nil, Unsure
	}
	for i := before + 1; i < after; i++ {
		end := to
		switch s := &l.segs[i]; {
		case !s.op:
			if end = from + len(s.text); end > to || !bytes.Equal(line[from:end], s.text) {
				return nil, Unsure
			}
		case i+1 < after:
			n := bytes.Index(line[from:to], l.segs[i+1].text)
			if n < 0 {
				return nil, Unsure
			}
			end = from + n
		}
		if i == t.at {
			return line[from:end], Known
		}
		from = end
	}
	return nil, Unsure
}
