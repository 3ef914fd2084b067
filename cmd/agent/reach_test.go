package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/rogpeppe/go-internal/txtar"
	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/structpb"
)

// clusters implements the script command "clusters FILE". It subscribes to the clusters of a
// bootstrap's proxy and prints their names. The stream stays open until the script ends.
func clusters(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: clusters FILE")
	}
	var bootstrap struct {
		Node struct {
			ID       string         `yaml:"id"`
			Metadata map[string]any `yaml:"metadata"`
		} `yaml:"node"`
	}
	if err := yaml.Unmarshal([]byte(ts.ReadFile(args[0])), &bootstrap); err != nil {
		ts.Fatalf("%v", err)
	}
	node := &core.Node{Id: bootstrap.Node.ID}
	if bootstrap.Node.Metadata != nil {
		var err error
		if node.Metadata, err = structpb.NewStruct(bootstrap.Node.Metadata); err != nil {
			ts.Fatalf("%v", err)
		}
	}
	names, end, err := clustersOf(ts.MkAbs("d/run/xds.sock"), node)
	if err != nil {
		ts.Fatalf("%v", err)
	}
	ts.Defer(end)
	fmt.Fprintln(ts.Stdout(), strings.Join(names, "\n"))
}

func clustersOf(socket string, node *core.Node) (names []string, end func(), err error) {
	ctx, cancel := context.WithCancel(context.Background())
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		cancel()
		return nil, nil, err
	}
	end = func() { cancel(); conn.Close() }
	late := time.AfterFunc(patience, cancel)
	defer late.Stop()
	s, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err == nil {
		err = s.Send(&discovery.DeltaDiscoveryRequest{Node: node, TypeUrl: clusterType,
			ResourceNamesSubscribe: []string{"*"}})
	}
	var r *discovery.DeltaDiscoveryResponse
	if err == nil {
		r, err = s.Recv()
	}
	if err == nil {
		err = s.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: clusterType, ResponseNonce: r.Nonce})
	}
	if err != nil {
		end()
		return nil, nil, err
	}
	for _, x := range r.Resources {
		names = append(names, x.Name)
	}
	slices.Sort(names)
	return names, end, nil
}

// TestReachabilityDocument compares docs/reachability.md with the script that runs its example.
func TestReachabilityDocument(t *testing.T) {
	doc, err := os.ReadFile("../../docs/reachability.md")
	if err != nil {
		t.Fatal(err)
	}
	ar, err := txtar.ParseFile("testdata/reach.txtar")
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for _, f := range ar.Files {
		switch f.Name {
		case "annotations.yaml", "clusters.want", "policies.want":
			shown++
			if !strings.Contains(string(doc), "\n"+string(f.Data)+"```") {
				t.Errorf("docs/reachability.md does not show %s as the script has it:\n%s", f.Name, f.Data)
			}
		}
	}
	if shown != 3 {
		t.Errorf("the script shows %d of 3 files", shown)
	}
}
