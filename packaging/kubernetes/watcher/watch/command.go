// Package watch writes resources of Kubernetes objects into directories of the node's agent:
// Dataplanes of the node's pods, MeshServices of Services, the ConfigMap of resources, and Kuma's
// custom resources. An outage of the API server changes nothing.
package watch

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// Exit codes, as in sysexits.h.
const (
	exitUsage       = 64
	exitUnavailable = 69
	exitConfig      = 78
)

const (
	defaultDir    = "/var/lib/nearside-kubernetes"
	defaultSocket = "watch.sock" // below the directory
)

// Command runs the watcher until ctx ends and returns the exit code.
func Command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("nearside-kubernetes watch", flag.ContinueOnError)
	flags.SetOutput(stderr)
	namespace := cmp.Or(os.Getenv("POD_NAMESPACE"), "nearside")
	node := flags.String("node", os.Getenv("NODE_NAME"), "name of this node; default: NODE_NAME of the environment")
	scope := flags.String("scope", "node", "node: pods of this node; cluster: pods of all nodes, if the agents form no pool")
	dir := flags.String("dir", defaultDir, "parent of the directories pods, services, resources, and policies")
	config := flags.String("resources", namespace+"/nearside-resources",
		"NAMESPACE/NAME of the ConfigMap whose resources are written; empty: none")
	policies := flags.Bool("policies", true, "read Kuma's custom resources, if the cluster has them")
	system := flags.String("system-namespaces", namespace,
		"namespaces, separated by commas, whose custom resources apply to the whole mesh")
	socket := flags.String("health-socket", "", "Unix socket of the health check; default: "+defaultSocket+" below --dir")
	kubeconfig := flags.String("kubeconfig", "", "kubeconfig file, to run outside of a pod")
	verbose := flags.Bool("debug", false, "log each file that is written")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return exitUsage
	}
	log := logger(stdout, *verbose)
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50) // the first lists are the peak of memory, and little happens afterwards
	}
	o := Options{Node: *node, Config: *config, Dir: *dir, Log: log,
		Socket: cmp.Or(*socket, filepath.Join(*dir, defaultSocket))}
	if *policies {
		o.System = strings.FieldsFunc(*system, func(r rune) bool { return r == ',' || r == ' ' })
	}
	if name := os.Getenv("POD_NAME"); name != "" {
		o.Self = namespace + "/" + name
	}
	if fault := check(&o, flags.Args(), *scope, *policies); fault != "" {
		fmt.Fprintln(stderr, fault)
		return exitUsage
	}
	if *scope == "cluster" {
		log.Warn("scope cluster: this watcher reads the pods of all nodes; the load of the API server grows with nodes times " +
			"pods. With a pool of agents, use the scope node")
	}
	var err error
	if o.Kubernetes, err = kubernetes(*kubeconfig); err != nil {
		fmt.Fprintf(stderr, "cannot find the Kubernetes API: %v; run the watcher in a pod with a ServiceAccount, or give "+
			"--kubeconfig\n", err)
		return exitConfig
	}
	if err := Run(ctx, o); err != nil {
		fmt.Fprintln(stderr, err)
		return exitConfig
	}
	return 0
}

// check returns a fault of the command line, or "".
func check(o *Options, args []string, scope string, policies bool) string {
	switch {
	case len(args) > 0:
		return fmt.Sprintf("unexpected argument %q; all settings are flags", args[0])
	case scope == "cluster":
		o.Node = ""
	case scope != "node":
		return fmt.Sprintf("--scope: %q is not allowed; use node or cluster", scope)
	case o.Node == "":
		return "--node is required: the name of this node (spec.nodeName of the watcher's pod), or set NODE_NAME"
	}
	if policies && len(o.System) == 0 {
		return "--system-namespaces is empty; name a namespace, or turn custom resources off with --policies=false"
	}
	if ns, name, ok := strings.Cut(o.Config, "/"); o.Config != "" && (!ok || ns == "" || name == "") {
		return fmt.Sprintf("--resources: %q is not NAMESPACE/NAME of a ConfigMap", o.Config)
	}
	return ""
}

func kubernetes(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		return rest.InClusterConfig()
	}
	return clientcmd.BuildConfigFromFlags("", kubeconfig)
}

func logger(w io.Writer, verbose bool) *slog.Logger {
	level := slog.LevelInfo
	if verbose {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
	klog.SetSlogLogger(log)
	return log
}

// Healthcheck asks a running watcher for its state and returns the exit code.
func Healthcheck(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("nearside-kubernetes healthcheck", flag.ContinueOnError)
	flags.SetOutput(stderr)
	socket := flags.String("socket", filepath.Join(defaultDir, defaultSocket), "Unix socket of the watcher")
	ready := flags.Bool("ready", false, "fail until the files match a complete list of pods and Services")
	timeout := flags.Duration("timeout", 2*time.Second, "how long to wait for the answer")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return exitUsage
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", *socket)
	}}}
	path := "healthz"
	if *ready {
		path = "readyz"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://watch/"+path, nil)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return exitUsage
	}
	answer, err := client.Do(request)
	if err != nil {
		fmt.Fprintf(stderr, "the watcher does not answer: %v\n", err)
		return exitUnavailable
	}
	defer answer.Body.Close()
	if _, err := io.Copy(stdout, io.LimitReader(answer.Body, 1<<20)); err != nil || answer.StatusCode != http.StatusOK {
		fmt.Fprintf(stderr, "the watcher is not ready or has stopped: %s\n", answer.Status)
		return 1
	}
	return 0
}
