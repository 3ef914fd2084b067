package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/clip"
)

// layout is text of several lines that a command has made itself. What [printf] gets otherwise is a value of one line.
type layout string

// printf writes text for people. It escapes control characters of the values, line ends among them: names and messages
// come from peers, files and Envoys, and must neither forge lines nor move the cursor. Line ends of the format, and of a
// [layout], stay.
func printf(w io.Writer, format string, args ...any) {
	safe := make([]any, len(args))
	for i, arg := range args {
		safe[i] = value(arg)
	}
	_, _ = fmt.Fprintf(w, format, safe...) // Main sees the error of standard output
}

// printLine is [printf] for values with spaces between and a line end behind them.
func printLine(w io.Writer, args ...any) {
	printf(w, strings.TrimSuffix(strings.Repeat("%v ", len(args)), " ")+"\n", args...)
}

// value is what printf formats in the place of an argument.
func value(arg any) any {
	switch v := arg.(type) {
	case bool, int, int64, uint32, uint64, float64, time.Duration:
		return v
	case layout:
		return string(v)
	}
	return clip.Printable(fmt.Sprint(arg))
}

// textWriter escapes what a terminal acts upon, but for line ends and tabs: the last guard of everything that is
// written for people. Documents go past it, see [verbatim].
type textWriter struct{ w io.Writer }

func (t textWriter) Write(p []byte) (int, error) {
	if _, err := t.w.Write(escaped(p)); err != nil {
		return 0, err
	}
	return len(p), nil
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

// verbatim returns where a command writes a document that programs read, byte by byte as it is: JSON escapes control
// characters itself.
func verbatim(w io.Writer) io.Writer {
	if t, ok := w.(textWriter); ok {
		return t.w
	}
	return w
}
