package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/host/statedir"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestLostState checks that commands create no state in place of what is not mounted or is lost.
func TestLostState(t *testing.T) {
	key := strings.Repeat("A", 43) + "="
	lines := [][]string{{"token", "create", "--name", "web"}, {"token", "rotate"}, {"token", "revoke", "some-id"},
		{"keyring", "add"}}
	unmounted := func(t *testing.T, state string) {
		logs := filepath.Join(filepath.Dir(state), "logs")
		agenttest.Do(t, os.MkdirAll(logs, 0o700))
		agenttest.Write(t, filepath.Join(logs, ".nearside-state"), `{"state":"`+state+`","mount":"`+state+`"}`)
	}
	for _, c := range []struct {
		name   string
		lose   func(t *testing.T, state string)
		want   string // in the error; "": the commands work
		spares string // a command that works
	}{
		{name: "not mounted", lose: unmounted, want: "run mount "},
		{name: "not mounted, with an empty directory", lose: func(t *testing.T, state string) {
			unmounted(t, state)
			agenttest.Do(t, os.Mkdir(state, 0o700))
		}, want: "run mount "},
		{name: "a file", lose: func(t *testing.T, state string) { agenttest.Write(t, state, "") },
			want: "is not a directory"},
		{name: "without the revoked tokens", lose: func(t *testing.T, state string) {
			agenttest.Do(t, os.Mkdir(state, 0o700))
			agenttest.Write(t, filepath.Join(state, statedir.Inventory), `{"version":1,"files":["tokens/revoked"]}`)
		}, want: "tokens/revoked is missing", spares: "keyring"},
		{name: "without the node key", lose: func(t *testing.T, state string) {
			agenttest.Do(t, os.Mkdir(state, 0o700))
			agenttest.Write(t, filepath.Join(state, statedir.Inventory), `{"version":1,"files":["node-key"]}`)
		}},
		{name: "new", lose: func(t *testing.T, state string) { agenttest.Do(t, os.Mkdir(state, 0o700)) }},
	} {
		dir := t.TempDir()
		state := filepath.Join(dir, "state")
		c.lose(t, state)
		for _, line := range lines {
			var out, errs bytes.Buffer
			code := run(append(line, "--set", "paths.state="+state, "--set", "paths.logs="+filepath.Join(dir, "logs"),
				"--set", "paths.run="+filepath.Join(dir, "run"),
				"--set", "gossip.keyringFile="+filepath.Join(state, "keyring")), strings.NewReader(key), &out, &errs, nil)
			if c.want == "" || line[0] == c.spares {
				if code != command.ExitOK {
					t.Errorf("%s: %v: exit code %d: %s", c.name, line, code, errs.String())
				}
				continue
			}
			if code == command.ExitOK || out.Len() > 0 || !strings.Contains(errs.String(), c.want) {
				t.Errorf("%s: %v: exit code %d: %s%s", c.name, line, code, out.String(), errs.String())
			}
			if _, err := os.Stat(filepath.Join(state, line[0]+"s")); err == nil {
				t.Errorf("%s: %v has created state", c.name, line)
			}
		}
	}
}
