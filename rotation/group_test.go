package rotation_test

import (
	"io/fs"
	"syscall"
)

// groupOf returns the number of a file's group.
func groupOf(st fs.FileInfo) int { return int(st.Sys().(*syscall.Stat_t).Gid) }
