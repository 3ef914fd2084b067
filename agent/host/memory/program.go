package memory

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// ReleaseProgram unmaps the pages of the program that are in memory and cannot be changed: its code
// and constants. The kernel maps those that are still needed again when they are used, without
// reading the disk as long as they are in its cache. A start uses most pages of the program, and an
// idle agent a few of them.
func ReleaseProgram() error {
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return err
	}
	defer maps.Close()
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	s := bufio.NewScanner(maps)
	for s.Scan() {
		from, to, ok := readOnly(s.Text(), program)
		if !ok {
			continue
		}
		if err := release(from, to); err != nil {
			return err
		}
	}
	return s.Err()
}

// readOnly returns the range of a line of /proc/PID/maps that maps a program without write access.
func readOnly(line, program string) (from, to uintptr, ok bool) {
	f := strings.Fields(line)
	if len(f) < 6 || !strings.HasSuffix(line, " "+program) || !strings.HasPrefix(f[1], "r-") || f[1][3] != 'p' {
		return 0, 0, false
	}
	n, err := fmt.Sscanf(f[0], "%x-%x", &from, &to)
	return from, to, err == nil && n == 2 && from < to
}

// release unmaps the pages of a read-only mapping of a file.
func release(from, to uintptr) error {
	_, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED)
	if errno != 0 {
		return fmt.Errorf("unmapping pages of the program: %w", errno)
	}
	return nil
}
