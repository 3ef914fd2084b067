// Package watch writes resources of Kubernetes objects into directories of the node's agent:
// Dataplanes of the node's pods, MeshServices of Services, the ConfigMap of resources, and Kuma's
// custom resources. An outage of the API server changes nothing.
package watch

import (
	"context"
	"flag"
	"fmt"
	"io"

	"k8s.io/client-go/rest"
)

// Command runs the watcher until ctx ends and returns the exit code.
func Command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("watch", flag.ContinueOnError)
	flags.SetOutput(stderr)
	if err := flags.Parse(args); err != nil {
		return 64
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 78
	}
	fmt.Fprintln(stdout, config.Host)
	<-ctx.Done()
	return 0
}
