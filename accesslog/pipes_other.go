//go:build !linux

package accesslog

import (
	"context"
	"errors"
)

// Pipes are the FIFOs of one directory. They are for Linux alone.
type Pipes struct{}

var errNoPipes = errors.New("FIFOs for access logs need Linux")

// OpenPipes fails: the FIFOs are for Linux alone.
func OpenPipes(PipesOptions) (*Pipes, error) { return nil, errNoPipes }

// Set fails for each.
func (*Pipes) Set(_ string, want []Pipe) []error {
	out := make([]error, len(want))
	for i := range out {
		out[i] = errNoPipes
	}
	return out
}

// NewWriter does nothing.
func (*Pipes) NewWriter(string) {}

// Gone does nothing.
func (*Pipes) Gone(string) {}

// Flush fails.
func (*Pipes) Flush(context.Context, string) error { return errNoPipes }

// Run fails.
func (*Pipes) Run(context.Context) error { return errNoPipes }

// Stats returns nothing.
func (*Pipes) Stats() map[string]PipeStats { return nil }
