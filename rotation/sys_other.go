//go:build unix && !linux

package rotation

import (
	"math"

	"golang.org/x/sys/unix"
)

func renameNoReplace(dir int, from, to string) error { return renameIfFree(dir, from, to) }

func datasync(fd int) error { return unix.Fsync(fd) }

// freeBytes says that there is room: the guard is for Linux alone.
func freeBytes(int) (int64, error) { return math.MaxInt64, nil }
