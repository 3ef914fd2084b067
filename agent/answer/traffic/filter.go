package traffic

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/rotation"
)

// Filter selects the lines to show. The zero value selects all.
type Filter struct {
	Audit  bool // the files are audit logs; lines that are not events are skipped
	Since  time.Time
	Codes  []Codes  // nil: all
	Fields []string // fields of JSON lines that may hold the code; empty: the usual ones
	Mesh   string   // of audit log events; "" for all
}

// Codes is an inclusive range of status codes.
type Codes struct{ First, Last int }

// selector selects lines of one file and counts lines that it cannot classify.
type selector struct {
	filter  *Filter
	formats *Formats
	current bool // the reader reached the end of the file; later lines are new
	within  bool // in the middle of a long line
	shown   bool // the long line is shown
	failed  bool // the file can no longer be read

	noTime, noStatus, noEvent int // lines without this information
}

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
	var fields map[string]json.RawMessage
	if f.Since.IsZero() && f.Codes == nil {
		return true
	}
	if t := bytes.TrimSpace(line.Text); len(t) > 0 && t[0] == '{' && !line.More {
		if json.Unmarshal(t, &fields) != nil {
			fields = nil
		}
	}
	own, hasOwn, began, hasBegan := 0, false, time.Time{}, false
	if !line.More {
		own, hasOwn, began, hasBegan = s.formats.read(line.Text)
	}
	if !f.Since.IsZero() && !s.current {
		at, ok := began, hasBegan
		if !ok {
			at, ok = timeOf(line.Text, fields)
		}
		if !ok {
			s.noTime++
			return false
		}
		if at.Before(f.Since) {
			return false
		}
	}
	if f.Codes == nil {
		return true
	}
	code, ok := 0, false
	switch {
	case hasOwn && (fields == nil || len(f.Fields) == 0):
		code, ok = own, true
	case fields != nil:
		code, ok = fieldCode(fields, f.Fields)
	case !line.More:
		code, ok = defaultCode(line.Text)
	}
	if !ok {
		s.noStatus++
		return false
	}
	return f.takes(code)
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

// JSON fields that may hold the status code or the time, in order of preference.
var (
	statusFields = []string{"response_code", "responseCode", "status_code", "status", "code"}
	timeFields   = []string{"start_time", "time", "timestamp", "@timestamp", "ts"}
)

// fieldCode returns the status code of a JSON line. It returns false if two fields differ.
func fieldCode(fields map[string]json.RawMessage, names []string) (int, bool) {
	if len(names) == 0 {
		names = statusFields
	}
	code, found := 0, false
	for _, name := range names {
		raw, ok := fields[name]
		if !ok {
			continue
		}
		text := string(raw)
		var s string
		if json.Unmarshal(raw, &s) == nil && text != "null" {
			text = s
		}
		n, ok := codeOf(text)
		if !ok || found && n != code {
			return 0, false
		}
		code, found = n, true
	}
	return code, found
}

// codeOf parses a status code. Envoy writes 0 if there was no response.
func codeOf(text string) (int, bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil && len(text) <= 3 && text[0] != '+' && n >= 0
}

// Regular expressions for the default HTTP format of kinds/accesslog: the text before the request
// and the text around the code. Clients choose the path and some quoted values, so defaultPart may
// match more than once.
var (
	defaultHead = regexp.MustCompile(`^\[[0-9T:.Z-]+\] [^ "]+ "`)
	defaultPart = regexp.MustCompile(
		`(?:HTTP/[0-9.]+|-)" ([0-9]{1,3}) [A-Za-z,-]+ [0-9]+ [0-9]+ (?:[0-9]+|-) (?:[0-9]+|-) "`)
	defaultTail = regexp.MustCompile(`" "[^"]*" "[^"]*" "[^" ]+" "[^" ]+"$`)
)

// defaultCode returns the status code of a line in the default HTTP format. It returns false if a
// client may have forged the code.
func defaultCode(line []byte) (int, bool) {
	if !defaultHead.Match(line) || !defaultTail.Match(line) {
		return 0, false
	}
	at := defaultPart.FindSubmatchIndex(line)
	if at == nil || defaultPart.Match(line[at[0]+1:]) {
		return 0, false
	}
	return codeOf(string(line[at[2]:at[3]]))
}

// timeOf returns the time of an access log line.
func timeOf(line []byte, fields map[string]json.RawMessage) (time.Time, bool) {
	if fields == nil {
		if len(line) == 0 || line[0] != '[' {
			return time.Time{}, false
		}
		text, _, ok := strings.Cut(string(line[1:min(len(line), 40)]), "]")
		at, err := time.Parse(time.RFC3339Nano, text)
		return at, ok && err == nil
	}
	for _, name := range timeFields {
		raw, ok := fields[name]
		if !ok {
			continue
		}
		var text string
		if json.Unmarshal(raw, &text) != nil {
			return time.Time{}, false
		}
		at, err := time.Parse(time.RFC3339Nano, text)
		return at, err == nil
	}
	return time.Time{}, false
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
