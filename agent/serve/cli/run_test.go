package cli

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
)

// program is a program without an agent.
var program = command.Program{CheckConfig: func(*config.Config) resource.Faults { return nil }}

// run runs a command line.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer, env []string) int {
	return Main(program, args, stdin, stdout, stderr, env)
}

// output runs a command line against a socket.
func output(t *testing.T, socket string, code int, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	if got := run(append(args, "--socket", socket), strings.NewReader(""), &out, &errs, nil); got != code {
		t.Errorf("%v: exit code %d, want %d: %s", args, got, code, errs.String())
	}
	return out.String(), errs.String()
}
