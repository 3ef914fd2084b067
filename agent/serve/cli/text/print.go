// Package text writes text for people: tables, colors, progress, and the documents of the API. It
// escapes what a terminal acts upon.
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

// Layout is text of several lines that a command has made itself. What [printf] gets otherwise is a
// value of one line.
type Layout string

// Printf writes text for people. It escapes control characters of the values, line ends among them:
// names and messages come from peers, files and Envoys, and must neither forge lines nor move the
// cursor. Line ends of the format, and of a [layout], stay.
func Printf(w io.Writer, format string, args ...any) {
	safe := make([]any, len(args))
	for i, arg := range args {
		safe[i] = value(arg)
	}
	_, _ = fmt.Fprintf(w, format, safe...) // Main sees the error of standard output
}

// Println is [printf] for values with spaces between and a line end behind them.
func Println(w io.Writer, args ...any) {
	Printf(w, strings.TrimSuffix(strings.Repeat("%v ", len(args)), " ")+"\n", args...)
}

// value is what printf formats in the place of an argument.
func value(arg any) any {
	switch v := arg.(type) {
	case bool, int, int64, uint32, uint64, float64, time.Duration:
		return v
	case Layout:
		return string(v)
	}
	return clip.Printable(fmt.Sprint(arg))
}

// Writer escapes what a terminal acts upon, but for line ends and tabs: the last guard of
// everything that is written for people. Documents go past it, see [verbatim].
type Writer struct {
	W     io.Writer
	Color bool // words for how things are have colours
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

// stateColors are those of words at the beginning of a line, and of words that fill the cell of a
// table. Colours say nothing that the words do not.
var stateColors = map[string]string{
	"ok": green, "synced": green, "applied": green, "alive": green, "allowed": green, "live": green,
	"WARN": yellow, "warning": yellow, "pending": yellow, "unknown": yellow, "shadow": yellow, "inert": yellow,
	"NOT READY": red, "FAIL": red, "error": red, "rejected": red, "denied": red, "closed": red, "dead": red,
	"unreachable": red,
}

const (
	green, yellow, red = "\x1b[32m", "\x1b[33m", "\x1b[31m"
	plain              = "\x1b[0m"
)

// states finds the words of [colors]: behind the beginning of a line or two spaces, and before its
// end, two spaces, or what follows a word that begins a line.
var states = regexp.MustCompile(`(?m)(^ *|   *)(ok|synced|applied|alive|allowed|live|WARN|warning|pending|unknown|shadow|inert|NOT READY|FAIL|error|rejected|denied|closed|dead|unreachable)(:| *$|   *| [a-z-]+:)`)

// colored gives words their colours.
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

// Verbatim returns where a command writes a document that programs read, byte by byte as it is:
// JSON escapes control characters itself.
func Verbatim(w io.Writer) io.Writer {
	if t, ok := w.(Writer); ok {
		return t.W
	}
	return w
}

// CheckedWriter remembers that the data did not all go out, so that no command has to ask at every
// line.
type CheckedWriter struct {
	W   io.Writer
	Err error // the first
}

func (c *CheckedWriter) Write(p []byte) (int, error) {
	n, err := c.W.Write(p)
	if err != nil && c.Err == nil {
		c.Err = err
	}
	return n, err
}

// IsTerminal says whether somebody looks at what is written.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// progressEvery is the interval of progress lines on a terminal; what takes less shows none.
const progressEvery = 200 * time.Millisecond

// Progress shows in one line of a terminal how far something is and how long the rest takes; done
// removes the line. It is told of 0 of 0 while others are served first.
func Progress(w io.Writer, what string, now func() time.Time) (told func(n, all int), done func()) {
	last, shown := now(), false
	var begun time.Time // when it was told of some for the first time, of so many
	first := 0
	told = func(n, all int) {
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
	return told, func() {
		if shown {
			fmt.Fprint(w, "\r\033[K")
		}
	}
}
