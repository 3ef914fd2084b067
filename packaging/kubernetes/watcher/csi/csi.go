// Package csi is the CSI node driver csi.nearside.io. It gives each pod a directory of its own, in
// which the node's agent serves the xDS socket, FIFOs, and the OTLP socket of this pod. The
// identity of the pod is what the kubelet says, never what the pod chooses.
//
// The driver holds no state in memory: mounts and files say what is published. Each step can be
// repeated, so a driver or a node that ends at any point leaves nothing that the next call of the
// kubelet, or the next start, does not complete or remove. Files are reached through descriptors
// of directories, and no symbolic link below them is followed.
package csi

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
)

// DriverName is the name of the driver in CSIDriver objects and volumes of pods.
const DriverName = "csi.nearside.io"

// Exit codes, as of sysexits.h.
const (
	exitUsage       = 64
	exitUnavailable = 69
	exitFailure     = 1
)

// Options configure a [Driver].
type Options struct {
	Node       string // name of the node
	KubeletDir string // the kubelet's root directory, at the path that the kubelet uses
	RunDir     string // paths.run of the agent; the driver makes the directory "pods" in it
	Owner      int    // user and group that own the directories of pods: those of the agent
	Version    string
	Log        *slog.Logger
}

// Validate returns all faults of the options.
func (o *Options) Validate() error {
	var faults []error
	if o.Node == "" || len(o.Node) > maxName {
		faults = append(faults, fmt.Errorf("--node-name: %q must have 1 to %d characters: set it to "+
			"spec.nodeName of the pod", clip(o.Node), maxName))
	}
	for _, dir := range []struct{ flag, path string }{{"--kubelet-dir", o.KubeletDir}, {"--run-dir", o.RunDir}} {
		if !filepath.IsAbs(dir.path) || filepath.Clean(dir.path) != dir.path || dir.path == "/" {
			faults = append(faults, fmt.Errorf("%s: %q must be an absolute path without . and .. elements, "+
				"and without a final slash", dir.flag, clip(dir.path)))
		}
	}
	if o.Owner < 0 || o.Owner > 1<<31-1 {
		faults = append(faults, fmt.Errorf("--owner: %d must be between 0 and %d: use the uid of the agent",
			o.Owner, 1<<31-1))
	}
	return errors.Join(faults...)
}

// Command runs the driver until ctx ends, or checks a running one, and returns the exit code.
func Command(ctx context.Context, version string, args []string, stdout, stderr io.Writer) int {
	o := Options{Version: version}
	flags := flag.NewFlagSet("csi", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.Node, "node-name", os.Getenv("NODE_NAME"), "name of the node")
	flags.StringVar(&o.KubeletDir, "kubelet-dir", "/var/lib/kubelet", "root directory of the kubelet")
	flags.StringVar(&o.RunDir, "run-dir", "/run/nearside", "paths.run of the agent")
	flags.IntVar(&o.Owner, "owner", 65532, "user and group of the agent, which own the directories of pods")
	check := flags.String("check", "", "check the running driver and exit: alive (it answers), or ready (the\n"+
		"kubelet has registered it)")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return exitUsage
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(stderr, "csi takes no arguments, but has %q\n", clip(flags.Arg(0)))
		return exitUsage
	}
	if *check != "" {
		return checkCommand(ctx, &o, *check, stdout, stderr)
	}
	o.Log = slog.New(slog.NewTextHandler(stderr, nil))
	driver, err := New(o)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return exitUsage
	}
	if err := driver.Run(ctx); err != nil {
		o.Log.Error("the driver ends", "reason", err)
		return exitUnavailable
	}
	return 0
}

func checkCommand(ctx context.Context, o *Options, what string, stdout, stderr io.Writer) int {
	if what != "alive" && what != "ready" {
		fmt.Fprintf(stderr, "--check: %q must be alive or ready\n", clip(what))
		return exitUsage
	}
	registered, err := Check(ctx, o.KubeletDir)
	switch {
	case err != nil:
		fmt.Fprintln(stderr, err)
		return exitFailure
	case what == "ready" && !registered:
		fmt.Fprintln(stderr, "the kubelet has not registered the driver")
		return exitFailure
	}
	fmt.Fprintln(stdout, what)
	return 0
}
