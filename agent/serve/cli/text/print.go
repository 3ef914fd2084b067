// Package text writes output for people: tables, colors, progress, and the documents of the API. It
// escapes terminal control characters.
package text

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/clip"
)

// Layout is multi-line text that a command has formatted itself. [Printf] does not escape it.
type Layout string

// Printf writes text for people. It escapes control characters, including newlines, in the
// arguments: names and messages come from peers, files, and Envoys, and must neither forge lines
// nor move the cursor. It keeps newlines of the format and of a [Layout].
func Printf(w io.Writer, format string, args ...any) {
	safe := make([]any, len(args))
	for i, arg := range args {
		safe[i] = printable(arg)
	}
	_, _ = fmt.Fprintf(w, format, safe...) // Main reports errors of standard output
}

// Println is [Printf] for values separated by spaces, followed by a newline.
func Println(w io.Writer, args ...any) {
	Printf(w, strings.TrimSuffix(strings.Repeat("%v ", len(args)), " ")+"\n", args...)
}

// printable returns an argument in the form that Printf formats.
func printable(arg any) any {
	switch v := arg.(type) {
	case bool, int, int64, uint32, uint64, float64, time.Duration:
		return v
	case Layout:
		return string(v)
	}
	return clip.Printable(fmt.Sprint(arg))
}

// Writer escapes control characters other than newlines and tabs. It is the last safeguard for
// output to people. Documents bypass it, see [Verbatim].
type Writer struct {
	W     io.Writer
	Color bool // color words that state a condition
}

func (t Writer) Write(p []byte) (int, error) {
	text := escaped(p)
	if t.Color {
		text = colored(text)
	}
	if _, err := t.W.Write(text); err != nil {
		return 0, err
	}
	return len(p), nil
}

// stateColors maps words to colors. The words are colored at the start of a line, or if they fill a
// table cell. Color is never the only information.
var stateColors = map[string]string{
	"ok": green, "synced": green, "applied": green, "alive": green, "allowed": green, "live": green,
	"WARN": yellow, "warning": yellow, "pending": yellow, "unknown": yellow, "shadow": yellow, "inert": yellow,
	"NOT READY": red, "FAIL": red, "error": red, "rejected": red, "denied": red, "closed": red, "dead": red,
	"unreachable": red, "stale": red,
}

const (
	green, yellow, red = "\x1b[32m", "\x1b[33m", "\x1b[31m"
	plain              = "\x1b[0m"
)

// states matches the words of stateColors: at the start of a line or after two spaces, and before
// the end of the line, two spaces, a colon, or another word and a colon.
var states = regexp.MustCompile(`(?m)(^ *|   *)(ok|synced|applied|alive|allowed|live|WARN|warning|pending|stale|unknown|shadow|inert|NOT READY|FAIL|error|rejected|denied|closed|dead|unreachable)(:| *$|   *| [a-z-]+:)`)

// colored colors the words.
func colored(text []byte) []byte {
	return states.ReplaceAllFunc(text, func(m []byte) []byte {
		parts := states.FindSubmatch(m)
		return slices.Concat(parts[1], []byte(stateColors[string(parts[2])]), parts[2], []byte(plain), parts[3])
	})
}

func escaped(p []byte) []byte {
	var out []byte
	for rest := p; len(rest) > 0; {
		end := bytes.IndexAny(rest, "\n\t")
		if end < 0 {
			end = len(rest)
		}
		out = append(out, clip.Printable(string(rest[:end]))...)
		if end < len(rest) {
			out = append(out, rest[end])
			end++
		}
		rest = rest[end:]
	}
	return out
}

// Verbatim returns the writer for documents that programs read, without escaping. JSON escapes
// control characters itself.
func Verbatim(w io.Writer) io.Writer {
	if t, ok := w.(Writer); ok {
		return t.W
	}
	return w
}

// CheckedWriter records the first write error, so that commands need not check every line.
type CheckedWriter struct {
	W   io.Writer
	Err error // first error
}

func (c *CheckedWriter) Write(p []byte) (int, error) {
	n, err := c.W.Write(p)
	if err != nil && c.Err == nil {
		c.Err = err
	}
	return n, err
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// progressEvery is the interval of progress lines on a terminal. Shorter operations print none.
const progressEvery = 200 * time.Millisecond

// Progress shows progress and the remaining time on one line of a terminal. update(0, 0) means that
// the agent serves other requests first. done removes the line.
func Progress(w io.Writer, what string, now func() time.Time) (update func(n, all int), done func()) {
	last, shown := now(), false
	var begun time.Time // time and count of the first progress
	first := 0
	update = func(n, all int) {
		at := now()
		if begun.IsZero() && n > 0 {
			begun, first = at, n
		}
		if at.Sub(last) < progressEvery {
			return
		}
		line := fmt.Sprintf("%s: %d of %d", what, n, all)
		if all == 0 {
			line = what + ": the agent serves others first"
		}
		if spent := at.Sub(begun); n > first && n < all && spent >= time.Second {
			left := time.Duration(float64(spent) / float64(n-first) * float64(all-n))
			line += fmt.Sprintf(", about %s left", max(left.Round(time.Second), time.Second))
		}
		fmt.Fprintf(w, "\r\033[K%s", line)
		last, shown = at, true
	}
	return update, func() {
		if shown {
			fmt.Fprint(w, "\r\033[K")
		}
	}
}
