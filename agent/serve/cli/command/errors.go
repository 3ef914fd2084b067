package command

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/host/intercept"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
	"github.com/nearside-mesh/nearside/agent/serve/client"
)

// hintedError is an error with a hint.
type hintedError struct {
	error
	hint string
}

func (e *hintedError) Hint() string  { return e.hint }
func (e *hintedError) Unwrap() error { return e.error }

// Hinted adds a hint on how to fix an error.
func Hinted(err error, hint string) error { return &hintedError{err, hint} }

// Exit codes. Those from 64 on are from sysexits(3).
const (
	ExitOK          = 0
	ExitFailed      = 1
	ExitNo          = 2 // negative result: not selected, denied, not ready, problems found
	ExitTimeout     = 3 // a wait timed out, or the agent did not answer in time
	ExitUsage       = 64
	ExitInvalid     = 65 // invalid input document
	ExitUnreachable = 69
	ExitPermission  = 77
)

// ExitError ends a command with an exit code.
type ExitError struct {
	Err     error // nil: print nothing
	Code    int
	Command string // command for the hint about --help, or empty
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e *ExitError) Unwrap() error { return e.Err }

// Exit returns an error that ends a command with an exit code.
func Exit(code int, err error) error { return &ExitError{Err: err, Code: code} }

// Silent returns an error that sets the exit code and prints nothing.
func Silent(code int) error { return &ExitError{Code: code} }

// Usagef returns a usage error.
func Usagef(format string, args ...any) error {
	return Exit(ExitUsage, fmt.Errorf(format, args...))
}

// ExitCode maps an error to its exit code.
func ExitCode(err error) int {
	var (
		exit        *ExitError
		faults      resource.Faults
		unreachable *client.UnreachableError
		unanswered  *client.UnansweredError
		permission  *client.PermissionError
		problem     *api.Error
		needs       *intercept.NeedsError
	)
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &exit):
		return exit.Code
	case errors.As(err, &faults):
		return ExitInvalid
	case errors.As(err, &unreachable):
		return ExitUnreachable
	case errors.As(err, &unanswered):
		return ExitTimeout
	case errors.As(err, &permission), errors.As(err, &needs), errors.Is(err, fs.ErrPermission):
		return ExitPermission
	case errors.As(err, &problem) && (problem.Type == api.ProblemDocument || problem.Type == api.ProblemWouldBreak ||
		problem.Type == api.ProblemTooLarge):
		return ExitInvalid
	}
	return ExitFailed
}

// Report prints an error and its hints.
func Report(w io.Writer, err error) {
	var (
		exit   *ExitError
		faults resource.Faults
		conf   *configError
		hinted interface{ Hint() string }
	)
	switch {
	case errors.As(err, &exit) && exit.Err == nil:
	case errors.As(err, &conf):
		for _, f := range conf.faults {
			text.Printf(w, "error: %s\n", f)
		}
	case errors.As(err, &faults):
		for _, f := range faults {
			text.Println(w, f)
		}
	default:
		text.Printf(w, "error: %s\n", errorText(err))
	}
	if exit != nil && exit.Command != "" {
		text.Printf(w, "hint: see %s --help\n", exit.Command)
	}
	if errors.As(err, &hinted) {
		text.Printf(w, "hint: %s\n", hinted.Hint())
	}
}

// errorText returns the message of an error. It indents further lines, so that none of them looks
// like a line of the command itself.
func errorText(err error) text.Layout {
	lines := text.Each(strings.Split(strings.TrimSuffix(err.Error(), "\n"), "\n"), clip.Printable)
	for i := range lines {
		if i > 0 && !strings.HasPrefix(lines[i], "  ") {
			lines[i] = "  " + lines[i]
		}
	}
	return text.Layout(strings.Join(lines, "\n"))
}
