//go:build !linux

package accesslog

import (
	"context"
	"errors"
	"time"
)

// ErrHeldElsewhere is for a run directory that has a holder already.
var ErrHeldElsewhere = errors.New("another holder serves this directory")

// ServeHold fails: the FIFOs are for Linux alone.
func ServeHold(context.Context, string, time.Duration) error { return errNoPipes }
