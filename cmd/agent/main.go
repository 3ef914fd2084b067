// Command agent is nearside: the node-local agent and its command line in one binary.
//
// It reads flags, prints results and sets the exit code; what it does is in agent and agent/client. Data goes to
// standard output, everything else to standard error. The documents of -o json are those of the HTTP API: fields are
// added to them, never renamed or removed.
package main

import "os"

func main() {
	os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ()))
}
