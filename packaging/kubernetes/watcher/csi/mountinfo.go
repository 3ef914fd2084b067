package csi

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

// mount is a line of /proc/self/mountinfo.
type mount struct {
	root   string // directory of the file system that is mounted
	point  string
	shared bool // mounts below it appear in other mount namespaces
}

// parseMounts reads the text of /proc/self/mountinfo.
func parseMounts(text string) ([]mount, error) {
	var mounts []mount
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 7 {
			return nil, fmt.Errorf("mountinfo: the line %q has %d fields, at least 7 are expected", clip(line), len(fields))
		}
		m := mount{root: unescape(fields[3]), point: unescape(fields[4])}
		for _, f := range fields[6:] {
			if f == "-" {
				break
			}
			m.shared = m.shared || strings.HasPrefix(f, "shared:")
		}
		mounts = append(mounts, m)
	}
	if len(mounts) == 0 {
		return nil, errors.New("mountinfo has no mounts")
	}
	return mounts, nil
}

// unescape replaces \ooo, with which the kernel writes white space and backslashes.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) && octal(s[i+1]) && octal(s[i+2]) && octal(s[i+3]) {
			out.WriteByte((s[i+1]-'0')<<6 | (s[i+2]-'0')<<3 | (s[i+3] - '0'))
			i += 3
			continue
		}
		out.WriteByte(s[i])
	}
	return out.String()
}

func octal(c byte) bool { return c >= '0' && c <= '7' }

// published returns the targets at which directories of pods are mounted. The directory of a pod
// has the pod's uid as its name, also after it was deleted.
func published(kubeletDir string, mounts []mount) map[target]bool {
	found := map[target]bool{}
	for _, m := range mounts {
		t, err := parseTarget(kubeletDir, m.point)
		if err == nil && path.Base(strings.TrimSuffix(m.root, "//deleted")) == t.uid {
			found[t] = true
		}
	}
	return found
}

// sharing reports whether mounts below a directory appear in other mount namespaces.
func sharing(dir string, mounts []mount) bool {
	var above mount
	for _, m := range mounts {
		if m.point != "/" && dir != m.point && !strings.HasPrefix(dir, m.point+"/") {
			continue
		}
		if len(m.point) >= len(above.point) { // the last of mounts at one point is on top
			above = m
		}
	}
	return above.shared
}
