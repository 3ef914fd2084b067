// Command agent is nearside: the node-local agent and its command line in one binary.
//
// It passes flags and environment on; what it does is in agent and agent/serve/cli.
package main

import (
	"io"
	"os"
	"runtime/debug"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/serve/cli"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
)

// version is set by the linker in releases: -X main.version=v1.2.3.
var version string

// commandGC is how much garbage a command may have, in percent of what is in use. It ends soon;
// "run" keeps to gcPercent.
const commandGC = 300

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(commandGC)
	}
	os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ()))
}

// Main runs one command line and returns its exit code. Tests call it as main does.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer, env []string) int {
	p := command.Program{Version: version, CheckConfig: agent.CheckConfig, RunAgent: runAgent}
	return cli.Main(p, args, stdin, stdout, stderr, env)
}
