package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/nearside-mesh/nearside/agent/client"
	"github.com/nearside-mesh/nearside/agent/offline"
)

// Exit codes; those from 64 on are sysexits(3).
const (
	exitOK          = 0
	exitFailed      = 1
	exitNo          = 2 // negative result: not selected, denied, not ready, problems found
	exitTimeout     = 3 // a wait timed out
	exitUsage       = 64
	exitInvalid     = 65 // an input document
	exitUnreachable = 69
	exitPermission  = 77
)

// usageError is a command line that makes no sense.
type usageError struct {
	err     error
	command string // whose help to look at
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &usageError{err: fmt.Errorf(format, args...)}
}

// silentError ends a command whose output has said everything.
type silentError struct{ code int }

func (e *silentError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// codedError is an error with a code of its own.
type codedError struct {
	err  error
	code int
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

// exitCode is the one place where errors become exit codes.
func exitCode(err error) int {
	var (
		usage       *usageError
		silent      *silentError
		coded       *codedError
		faults      offline.Faults
		unreachable *client.UnreachableError
		permission  *client.PermissionError
		problem     *client.Problem
	)
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &silent):
		return silent.code
	case errors.As(err, &coded):
		return coded.code
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &faults):
		return exitInvalid
	case errors.As(err, &unreachable):
		return exitUnreachable
	case errors.As(err, &permission):
		return exitPermission
	case errors.As(err, &problem) && (problem.Type == client.ProblemDocument || problem.Type == client.ProblemWouldBreak):
		return exitInvalid
	}
	return exitFailed
}

// report tells the user what went wrong and what to do next.
func report(w io.Writer, err error) {
	var (
		usage  *usageError
		silent *silentError
		faults offline.Faults
		hinted interface{ Hint() string }
	)
	switch {
	case errors.As(err, &silent):
	case errors.As(err, &faults):
		for _, f := range faults {
			fmt.Fprintln(w, f)
		}
	default:
		fmt.Fprintf(w, "error: %v\n", err)
	}
	if errors.As(err, &usage) && usage.command != "" {
		fmt.Fprintf(w, "hint: see %s --help\n", usage.command)
	}
	if errors.As(err, &hinted) {
		fmt.Fprintf(w, "hint: %s\n", hinted.Hint())
	}
}
