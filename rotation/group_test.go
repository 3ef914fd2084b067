package rotation_test

import (
	"io/fs"
	"syscall"
)

// groupOf returns the group ID of a file.
func groupOf(st fs.FileInfo) int { return int(st.Sys().(*syscall.Stat_t).Gid) }
