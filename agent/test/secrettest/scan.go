package secrettest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// inside matches the files that may contain keys: the state file, the agent's certificates, and
// resources.
var inside = regexp.MustCompile(`(^|/)(nearside\.db[^/]*|identity/.*|resources/.*)$`)

// Agent searches the log and all files of an agent for the keys that it has created. It skips
// files that are meant for keys, which only their owner can read. Tests of whole agents call it at
// the end.
func Agent(tb testing.TB, dir, log string) {
	tb.Helper()
	var leaks Leaks
	var others []string
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil // tests can delete files meanwhile
		}
		if !inside.MatchString(path) {
			others = append(others, path)
			return nil
		}
		if text, err := os.ReadFile(path); err == nil && filepath.Ext(path) == ".pem" {
			leaks.pem(path, text)
		}
		return nil
	})
	if got := leaks.In([]byte(log)); got != "" {
		tb.Errorf("the log shows a key: %s", got)
	}
	for _, path := range others {
		if text, err := os.ReadFile(path); err == nil {
			if got := leaks.In(text); got != "" {
				tb.Errorf("%s shows a key: %s", path, got)
			}
		}
	}
}
