// Command agent is nearside: the node agent and its command line in one binary. Packages agent and
// agent/serve/cli implement both.
package main

import (
	"io"
	"os"
	"runtime/debug"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/serve/cli"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
)

// version is the release. The Makefile and packaging/build read it from this line, and tests
// compare it with CHANGELOG.md and the Helm chart. To override it, build with -X
// main.version=VERSION.
var version = "0.1.0"

// commandGC is GOGC for commands, which are short-lived. "run" uses gcPercent.
const commandGC = 300

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(commandGC)
	}
	os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ()))
}

// Main runs one command line and returns its exit code.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer, env []string) int {
	p := command.Program{Version: version, CheckConfig: agent.CheckConfig, RunAgent: runAgent, RunFiles: runFiles}
	return cli.Main(p, args, stdin, stdout, stderr, env)
}
