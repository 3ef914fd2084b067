// Command agent is nearside: the node-local agent and its command line in one binary.
//
// It reads flags, prints results and sets the exit code; what it does is in agent and
// agent/serve/client. Data goes to standard output, everything else to standard error. The
// documents of -o json are those of the HTTP API: fields are added to them, never renamed or
// removed.
package main

import (
	"os"
	"runtime/debug"
)

// commandGC is how much garbage a command may have, in percent of what is in use. It ends soon;
// "run" keeps to gcPercent.
const commandGC = 300

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(commandGC)
	}
	os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ()))
}
