//go:build !linux

package hold

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"
)

// ErrHeldElsewhere is for a run directory that has a holder already.
var ErrHeldElsewhere = errors.New("another holder serves this directory")

var errNotHere = errors.New("files are held over restarts of the agent on Linux alone")

// Systemd is the descriptor store of systemd, which is for Linux alone.
type Systemd struct{}

// FromEnvironment returns nothing.
func FromEnvironment(...string) (*Systemd, []*os.File) { return nil, nil }

// Options are those of [Open].
type Options struct {
	Dir     string
	Command []string
	Systemd *Systemd
	Log     *slog.Logger
}

// Keeper keeps nothing: files are held on Linux alone.
type Keeper struct{}

// Open returns a keeper that keeps nothing.
func Open(Options) *Keeper { return &Keeper{} }

// Keep fails.
func (*Keeper) Keep(string, *os.File) error { return errNotHere }

// Take returns nothing.
func (*Keeper) Take(string) (*os.File, bool) { return nil, false }

// Release does nothing.
func (*Keeper) Release(string) error { return nil }

// ReleaseRemoved does nothing.
func (*Keeper) ReleaseRemoved() error { return nil }

// Names returns none.
func (*Keeper) Names(string) []string { return nil }

// Holds returns false.
func (*Keeper) Holds(string) bool { return false }

// ReleaseUnused does nothing.
func (*Keeper) ReleaseUnused(string) error { return nil }

// By returns "".
func (*Keeper) By(string) string { return "" }

// Run waits until the context ends.
func (*Keeper) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Serve fails.
func Serve(context.Context, string, time.Duration) error { return errNotHere }
