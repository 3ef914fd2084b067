package substitution

import (
	"fmt"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/clip"
)

// Lines extracts the values of operators from the lines of a format. It is safe for concurrent use.
//
// Clients control parts of a line, so a value is accepted only if no other value can move it:
// either all values before it, or all values after it, cannot contain the characters at the edge of
// the adjacent text. A format in which this does not hold for a requested operator is rejected.
type Lines struct {
	segs   []Segment
	left   int // number of segments read from the left; the others are read from the right
	right  int // first segment read from the right
	wanted []int
	hidden []error // by requested index: why no value is reliable
}

// Name returns the operator as written, without the percent signs.
func (s *Segment) Name() string { return strings.Trim(s.Raw, "%") }

// NewLines returns a reader of some operators, by name. The error names an operator without a
// reliable value.
func NewLines(format []Segment, names ...string) (*Lines, error) {
	l, err := NewLinesOfSome(format, names...)
	if err != nil {
		return nil, err
	}
	for _, err := range l.hidden {
		if err != nil {
			return nil, err
		}
	}
	return l, nil
}

// NewLinesOfSome is like [NewLines], but treats an operator without a reliable value as missing.
// Hidden returns the reason.
func NewLinesOfSome(format []Segment, names ...string) (*Lines, error) {
	l := &Lines{segs: format, wanted: make([]int, len(names)), hidden: make([]error, len(names))}
	for i := range format {
		if format[i].Operator == "" && strings.ContainsAny(format[i].Text, "\r\n") {
			return nil, fmt.Errorf("the format has a line break: an entry is to be one line")
		}
	}
	for l.left < len(format) && l.fromLeft(l.left) {
		l.left++
	}
	for l.right = len(format); l.right > l.left && l.fromRight(l.right-1); {
		l.right--
	}
	for i, name := range names {
		l.wanted[i] = -1
		for at := range format {
			switch {
			case l.wanted[i] >= 0 || format[at].Operator == "" || format[at].Name() != name:
			case at < l.left || at >= l.right:
				l.wanted[i], l.hidden[i] = at, nil
			case l.hidden[i] == nil:
				l.hidden[i] = fmt.Errorf("the format is ambiguous: where %%%s%% begins and ends cannot be told, since %s",
					name, l.blame(at))
			}
		}
	}
	return l, nil
}

// Hidden returns why the requested operator with the given index has no reliable value. It returns
// nil if it has one, and if the format lacks the operator.
func (l *Lines) Hidden(i int) error { return l.hidden[i] }

// fromLeft reports whether the text after a segment reliably marks its end.
func (l *Lines) fromLeft(i int) bool {
	s := &l.segs[i]
	if s.Operator == "" || i == len(l.segs)-1 {
		return true
	}
	next := &l.segs[i+1]
	return next.Operator == "" && !s.may(next.Text[0])
}

// fromRight reports whether the text before a segment reliably marks its start.
func (l *Lines) fromRight(i int) bool {
	s := &l.segs[i]
	if s.Operator == "" || i == 0 {
		return true
	}
	before := &l.segs[i-1]
	return before.Operator == "" && !s.may(before.Text[len(before.Text)-1])
}

// blame returns why the segments between left and right are unreliable, for an operator among them.
func (l *Lines) blame(at int) string {
	s, next := &l.segs[l.left], &l.segs[min(l.left+1, len(l.segs)-1)]
	switch {
	case next != s && next.Operator != "":
		return fmt.Sprintf("nothing stands between %s and %s", clip.Value(s.Raw), clip.Value(next.Raw))
	case l.left != at:
		return fmt.Sprintf("the value of %s before it may hold the text that follows it", clip.Value(s.Raw))
	}
	return fmt.Sprintf("its value may hold the text that follows it, %q", clip.Value(next.Text))
}

// Has reports whether the format has the requested operator with the given index.
func (l *Lines) Has(i int) bool { return l.wanted[i] >= 0 }

// Read returns the values of the requested operators; "" for one that the format lacks. It returns
// false for a line that the format cannot have produced.
func (l *Lines) Read(line string) ([]string, bool) {
	values := make([]string, len(l.segs))
	for i := range l.left {
		s := &l.segs[i]
		n := len(s.Text)
		switch {
		case s.Operator == "":
			if !strings.HasPrefix(line, s.Text) {
				return nil, false
			}
		case i == len(l.segs)-1:
			n = len(line)
		default:
			for n = 0; n < len(line) && s.may(line[n]); {
				n++
			}
		}
		values[i], line = line[:n], line[n:]
	}
	for i := len(l.segs) - 1; i >= l.right; i-- {
		s := &l.segs[i]
		n := len(line) - len(s.Text)
		if s.Operator == "" {
			if !strings.HasSuffix(line, s.Text) {
				return nil, false
			}
		} else {
			for n = len(line); n > 0 && s.may(line[n-1]); {
				n--
			}
		}
		values[i], line = line[n:], line[:n]
	}
	if l.left == l.right && line != "" {
		return nil, false
	}
	for i := range values {
		if l.segs[i].Operator == "" {
			continue
		}
		for j := range len(values[i]) { // the end of the line was matched as text
			if !l.segs[i].may(values[i][j]) {
				return nil, false
			}
		}
	}
	out := make([]string, len(l.wanted))
	for i, at := range l.wanted {
		if at >= 0 {
			out[i] = values[at]
		}
	}
	return out, true
}

// Character sets of operator values, including "-" for no value. Other operators may contain any
// character.
const (
	digits   = "0123456789-"
	instants = digits + "TZ:."
	flags    = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz,-"
	sockets  = "0123456789abcdefABCDEF:.[]-"
	hosts    = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ._:-"
)

// may reports whether a value of the operator may contain a character.
func (s *Segment) may(c byte) bool {
	in := ""
	if s.Placeholder { // the name of a service, a mesh, or a zone, or an address
		in = hosts
	}
	switch s.Operator {
	case "START_TIME", "EMIT_TIME":
		if s.Arg == "" {
			in = instants
		}
	case "RESPONSE_FLAGS", "RESPONSE_FLAGS_LONG":
		in = flags
	case "RESPONSE_CODE_DETAILS", "CONNECTION_TERMINATION_DETAILS":
		if s.Arg == "" { // Envoy writes _ for white space
			return c > ' ' && c != 0x7f
		}
	case "DOWNSTREAM_LOCAL_ADDRESS", "DOWNSTREAM_REMOTE_ADDRESS", "DOWNSTREAM_DIRECT_LOCAL_ADDRESS",
		"DOWNSTREAM_DIRECT_REMOTE_ADDRESS",
		"UPSTREAM_HOST", "UPSTREAM_LOCAL_ADDRESS", "UPSTREAM_REMOTE_ADDRESS", "DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT",
		"DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT",
		"DOWNSTREAM_DIRECT_LOCAL_ADDRESS_WITHOUT_PORT", "DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT":
		in = sockets
	case "REQUESTED_SERVER_NAME", "DYNAMIC_METADATA":
		if s.Operator == "DYNAMIC_METADATA" && !strings.HasPrefix(s.Arg, "envoy.filters.listener.") {
			return true
		}
		in = hosts
	case "UPSTREAM_CLUSTER", "UPSTREAM_CLUSTER_RAW": // a name in the config
		return c > ' ' && c != '"' && c != 0x7f
	case "DURATION", "BYTES_RECEIVED", "BYTES_SENT", "BYTES_RETRANSMITTED", "PACKETS_RETRANSMITTED", "RESPONSE_CODE",
		"CONNECTION_ID", "DOWNSTREAM_LOCAL_PORT",
		"DOWNSTREAM_REMOTE_PORT":
		in = digits
	}
	return in == "" || strings.IndexByte(in, c) >= 0
}
