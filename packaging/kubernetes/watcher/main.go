// Nearside-kubernetes connects nearside with Kubernetes on one node. "watch" writes resources of the
// node's pods and of all Services into directories of the agent. "csi" is the CSI driver that gives
// each pod a separate directory with the agent's sockets. It is a separate module, so that the
// agent's module does not depend on client-go.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/nearside-mesh/nearside/packaging/kubernetes/watcher/csi"
	"github.com/nearside-mesh/nearside/packaging/kubernetes/watcher/watch"
)

// version is set by the linker.
var version = "dev"

// command is a subcommand. Its function returns the exit code.
type command struct {
	name, does string
	run        func(ctx context.Context, args []string, stdout, stderr io.Writer) int
}

func commands() []command {
	return []command{
		{"watch", "write the resources of pods and Services into directories of the agent", watch.Command},
		{"healthcheck", "ask the watcher of this node for its state", watch.Healthcheck},
		{"csi", "serve the CSI driver csi.nearside.io on this node", serveCSI},
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		switch args[0] {
		case "version", "--version":
			fmt.Fprintln(stdout, version)
			return 0
		case "help", "--help", "-h":
			usage(stdout)
			return 0
		}
		for _, c := range commands() {
			if c.name == args[0] {
				return c.run(ctx, args[1:], stdout, stderr)
			}
		}
		fmt.Fprintf(stderr, "unknown command %q\n\n", args[0])
	}
	usage(stderr)
	return 64
}

func serveCSI(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return csi.Command(ctx, version, args, stdout, stderr)
}

func usage(w io.Writer) {
	fmt.Fprintln(w, "Usage: nearside-kubernetes COMMAND [FLAGS]")
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-12s %s\n", c.name, c.does)
	}
	fmt.Fprintln(w, "  version      print the version")
	fmt.Fprintln(w, "COMMAND --help lists the flags of a command.")
}
