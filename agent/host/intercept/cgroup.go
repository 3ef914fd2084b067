package intercept

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// maxDepth is the maximum depth of a selected cgroup below the root.
const maxDepth = 32

// Cgroup is a cgroup of version 2. The kernel compares the ID. A cgroup that is recreated under
// the same path has another ID.
type Cgroup struct {
	Path string // below the root, without a leading slash
	ID   uint64 // 0 if it does not exist
}

func levelOf(path string) int { return strings.Count(path, "/") + 1 }

// cgroupRoot returns the mount point of the cgroup2 file system.
func cgroupRoot() (string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", fmt.Errorf("find the cgroup2 file system: %w", err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		before, after, _ := strings.Cut(lines.Text(), " - ")
		if at := strings.Fields(before); len(at) > 4 && strings.HasPrefix(after, "cgroup2 ") {
			return at[4], nil
		}
	}
	return "", errors.New("--cgroup: no cgroup2 file system is mounted, and only cgroups of version 2 can be chosen; " +
		"use --user, or mount it: mount -t cgroup2 none /sys/fs/cgroup")
}

// CgroupPath returns the path of a cgroup below the root. The argument may be relative to the
// root or a path in the file system.
func CgroupPath(path string) (string, error) {
	root, err := cgroupRoot()
	if err != nil {
		return "", err
	}
	if rel, err := filepath.Rel(root, filepath.Clean(path)); err == nil && filepath.IsAbs(path) &&
		!strings.HasPrefix(rel, "..") {
		return rel, nil
	}
	return strings.TrimPrefix(filepath.Clean(path), "/"), nil
}

// findCgroups returns the current cgroups at some paths.
func findCgroups(paths []string) ([]Cgroup, error) {
	if len(paths) == 0 {
		return nil, nil
	}
	root, err := cgroupRoot()
	if err != nil {
		return nil, err
	}
	out := make([]Cgroup, len(paths))
	for i, p := range paths {
		out[i].Path = p
		st, err := os.Stat(filepath.Join(root, p))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read cgroup %s: %w", p, err)
		}
		out[i].ID = st.Sys().(*syscall.Stat_t).Ino
	}
	return out, nil
}
