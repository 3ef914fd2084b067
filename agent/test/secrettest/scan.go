package secrettest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// inside are the files that are there for keys: the state file, and what the agent keeps of
// certificates.
var inside = regexp.MustCompile(`(^|/)(nearside\.db[^/]*|identity/.*|resources/.*)$`)

// Agent looks for the keys that an agent below a directory has made, in its log and in every file
// but those that are there for keys, which only their owner may read. The tests of whole agents end
// with it.
func Agent(tb testing.TB, dir, log string) {
	tb.Helper()
	var leaks Leaks
	var others []string
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil // tests take away what they like
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
