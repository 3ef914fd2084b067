// Package csi is the CSI node driver csi.nearside.io. It gives each pod a directory of its own with
// the sockets of the node's agent.
package csi

import (
	"context"
	"fmt"
	"io"
)

// Command runs the driver until ctx ends and returns the exit code.
func Command(_ context.Context, _ []string, _, stderr io.Writer) int {
	fmt.Fprintln(stderr, "this build has no CSI driver")
	return 69
}
