//go:build !linux

package accesslog

import "os"

// datasync forces what was written to a file to the disk. Another goroutine may close it.
func datasync(f *os.File) error { return f.Sync() }
