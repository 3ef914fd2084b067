// Command bigmesh writes a mesh with many services into a directory, and connects clients as the
// Envoys of its first dataplanes until it is interrupted.
//
//	go run ./agent/test/uitest/bigmesh -dir DIR -services 1000 -proxies 300 -socket RUN/xds.sock
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"

	"github.com/nearside-mesh/nearside/agent/test/uitest/mesh"
)

func main() {
	var o mesh.Options
	dir := flag.String("dir", "", "existing directory for the resource files; empty writes none")
	socket := flag.String("socket", "", "xDS socket of the agent; empty connects no proxies")
	flag.IntVar(&o.Services, "services", 1000, "number of services")
	flag.IntVar(&o.Proxies, "proxies", 300, "number of connected proxies")
	flag.BoolVar(&o.MTLS, "mtls", true, "enforce permissions by mTLS")
	flag.Parse()
	if o.Services < 1 || o.Proxies < 0 || o.Proxies > o.Services {
		fmt.Fprintln(os.Stderr, "-services must be at least 1, and -proxies between 0 and -services")
		os.Exit(2)
	}
	if *dir != "" {
		if err := mesh.Write(*dir, o); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if *socket == "" {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var served, failed atomic.Int64
	mesh.Connect(ctx, *socket, o, func(err error) {
		if err != nil {
			failed.Add(1)
			fmt.Fprintln(os.Stderr, err)
		} else if served.Add(1)+failed.Load() == int64(o.Proxies) {
			fmt.Printf("%d proxies are connected; Ctrl-C ends them\n", served.Load())
		}
	})
}
