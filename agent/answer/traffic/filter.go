package traffic

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/logfields"
	"github.com/nearside-mesh/nearside/rotation"
)

// Filter selects the lines to show. The zero value selects all.
type Filter struct {
	Audit  bool // the files are audit logs; lines that are not events are skipped
	Since  time.Time
	Codes  []Codes                // nil: all
	Fields []string               // fields of JSON lines that may hold the code; empty: the usual ones
	Mesh   string                 // of audit log events; "" for all
	Where  []*logfields.Condition // of access logs; all must match
}

// Codes is an inclusive range of status codes.
type Codes struct{ First, Last int }

// selector selects lines of one file and counts lines that it cannot classify. It is for one
// goroutine.
type selector struct {
	filter  *Filter
	formats *Formats
	reader  *logfields.Reader
	current bool // the reader reached the end of the file; later lines are new
	within  bool // in the middle of a long line
	shown   bool // the long line is shown
	failed  bool // the file can no longer be read

	skipped
}

// skipped counts lines without the information that a filter needs.
type skipped struct{ noTime, noStatus, noField, noEvent int }

// maxEvent limits the length of audit log lines in bytes. Events are shorter.
const maxEvent = 1 << 20

// shows reports whether a line is shown. The first part of a long line decides for all parts.
func (s *selector) shows(line rotation.Line) bool {
	if s.within {
		s.within = line.More
		return s.shown
	}
	s.within = line.More
	s.shown = s.decide(line)
	return s.shown
}

func (s *selector) decide(line rotation.Line) bool {
	f := s.filter
	if f.Audit {
		return s.event(line)
	}
	if f.Since.IsZero() && f.Codes == nil && len(f.Where) == 0 {
		return true
	}
	for _, c := range f.Where {
		if !line.More && !c.May(line.Text) {
			return false
		}
	}
	values := s.read(line)
	if !f.Since.IsZero() && !s.current {
		at, ok := parseTime(&values[askTime])
		if !ok {
			at, ok = startTime(line.Text)
		}
		if !ok {
			s.noTime++
			return false
		}
		if at.Before(f.Since) {
			return false
		}
	}
	if f.Codes != nil {
		code, ok := parseCode(&values[askCode])
		if !ok {
			s.noStatus++
			return false
		}
		if !f.takes(code) {
			return false
		}
	}
	for i, c := range f.Where {
		v := &values[askWhere+i]
		matches, ok := c.Matches(v.Text)
		if v.State != logfields.Known || !ok {
			s.noField++
			return false
		}
		if !matches {
			return false
		}
	}
	return true
}

// read returns the values of the fields in a line.
func (s *selector) read(line rotation.Line) []logfields.Value {
	if s.reader == nil {
		s.reader = s.formats.compile(s.filter).NewReader()
	}
	if line.More {
		return s.reader.Read(nil) // the rest of the line is unknown
	}
	return s.reader.Read(line.Text)
}

// values returns the values of the fields after those of the filter. If the filter has not read the
// line, values reads it.
func (s *selector) values(line rotation.Line) []logfields.Value {
	f := s.filter
	if f.Since.IsZero() && f.Codes == nil && len(f.Where) == 0 {
		s.read(line)
	}
	return s.reader.Values()[askWhere+len(f.Where):]
}

// event decides on a line of the audit log.
func (s *selector) event(line rotation.Line) bool {
	f := s.filter
	var x event
	if line.Open && bytes.HasPrefix(line.Text, []byte("{")) && !json.Valid(line.Text) {
		return false // the event is still being written
	}
	if line.More || len(line.Text) > maxEvent || json.Unmarshal(line.Text, &x) != nil || x.Kind != "Event" {
		s.noEvent++
		return false
	}
	if !f.Since.IsZero() {
		at, err := time.Parse(time.RFC3339Nano, x.Time)
		if err != nil {
			s.noTime++
			return false
		}
		if at.Before(f.Since) {
			return false
		}
	}
	if f.Mesh != "" && x.Object.Namespace != f.Mesh {
		return false
	}
	return f.Codes == nil || f.takes(x.Status.Code)
}

func (f *Filter) takes(code int) bool {
	for _, r := range f.Codes {
		if code >= r.First && code <= r.Last {
			return true
		}
	}
	return false
}

// codeOf parses a status code. Envoy writes 0 if there was no response.
func codeOf(text string) (int, bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil && len(text) <= 3 && text[0] != '+' && n >= 0
}

// startTime returns the time at the start of a text line in an unknown format: "[TIME]".
func startTime(line []byte) (time.Time, bool) {
	if len(line) == 0 || line[0] != '[' {
		return time.Time{}, false
	}
	text, _, ok := bytes.Cut(line[1:min(len(line), 40)], []byte("]"))
	at, err := time.Parse(time.RFC3339Nano, string(text))
	return at, ok && err == nil
}

// ParseSince parses a time, or a duration before now. The duration may use d for days.
func ParseSince(text string, now time.Time) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return at, nil
	}
	const maxDays = 36500
	rest, total := text, time.Duration(0)
	if days, after, ok := strings.Cut(text, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 64); err == nil && n <= maxDays {
			total, rest = time.Duration(n)*24*time.Hour, cmp.Or(after, "0s")
		}
	}
	d, err := time.ParseDuration(rest)
	if err != nil || d < 0 || d > maxDays*24*time.Hour || total+d <= 0 {
		return time.Time{}, fmt.Errorf("%q is not a duration above 0, such as 10m, 2h, or 7d, of at most %d days, "+
			"or a time such as 2026-01-31T12:00:00Z", text, maxDays)
	}
	return now.Add(-total - d), nil
}

// ParseCodes parses a comma-separated list of codes, classes, and ranges.
func ParseCodes(text string) ([]Codes, error) {
	var out []Codes
	for piece := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(piece, "-")
		r, ok := Codes{}, false
		switch {
		case isRange:
			var ok1, ok2 bool
			r.First, ok1 = codeOf(from)
			r.Last, ok2 = codeOf(to)
			ok = ok1 && ok2 && r.First <= r.Last
		case len(piece) == 3 && piece[0] >= '1' && piece[0] <= '9' && strings.EqualFold(piece[1:], "xx"):
			r.First = int(piece[0]-'0') * 100
			r.Last, ok = r.First+99, true
		default:
			r.First, ok = codeOf(piece)
			r.Last = r.First
		}
		if !ok {
			return nil, fmt.Errorf("%q is not a code such as 503, a class such as 5xx, "+
				"or a range such as 200-299", piece)
		}
		out = append(out, r)
	}
	return out, nil
}
