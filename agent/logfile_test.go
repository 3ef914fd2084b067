package agent_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

func logFileConfig(t *testing.T, file string) *config.Config {
	t.Helper()
	var c config.Config
	c.Paths.Logs = filepath.Join(t.TempDir(), "deep", "logs")
	if c.Log.File = file; file != "" {
		c.Log.File = filepath.Join(c.Paths.Logs, file)
	}
	return &c
}

// TestLogFile checks that lines are in the file and on stderr, and that no file exists without the
// key.
func TestLogFile(t *testing.T) {
	if f := agent.OpenLogFile(logFileConfig(t, "")); f != nil {
		t.Fatal("a file without log.file")
	}
	cfg := logFileConfig(t, "agent.log")
	f := agent.OpenLogFile(cfg)
	var stderr strings.Builder
	log := slog.New(slog.NewMultiHandler(slog.NewTextHandler(&stderr, nil), slog.NewTextHandler(f, nil)))
	log.Info("hello", "key", "value")
	agenttest.Do(t, f.Health(), f.Close())
	text, err := os.ReadFile(cfg.Log.File)
	if err != nil || !strings.HasSuffix(string(text), "msg=hello key=value\n") || string(text) != stderr.String() {
		t.Errorf("%q, stderr %q, %v", text, stderr.String(), err)
	}
	st, err := os.Stat(cfg.Log.File)
	if err != nil || st.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", st, err)
	}
}

// TestLogFileThatCannotBeWritten checks that a directory or a link at the path loses no line on
// stderr, and that failures are counted.
func TestLogFileThatCannotBeWritten(t *testing.T) {
	for name, block := range map[string]func(path string) error{
		"is a directory": func(path string) error { return os.MkdirAll(path, 0o755) },
		"symbolic link": func(path string) error {
			agenttest.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
			return os.Symlink("/dev/null", path)
		},
	} {
		cfg := logFileConfig(t, "agent.log")
		agenttest.Do(t, block(cfg.Log.File))
		f := agent.OpenLogFile(cfg)
		if err := f.Health(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		var stderr strings.Builder
		slog.New(slog.NewMultiHandler(slog.NewTextHandler(f, nil), slog.NewTextHandler(&stderr, nil))).Info("hello")
		if !strings.Contains(stderr.String(), "hello") || f.Dropped() != 1 {
			t.Errorf("%s: stderr %q, %d dropped", name, stderr.String(), f.Dropped())
		}
		agenttest.Do(t, f.Close())
	}
}
