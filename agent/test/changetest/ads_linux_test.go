package changetest_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"
)

// configs are resources by type and name.
type configs map[string]map[string]*anypb.Any

// adsServer serves configs by node ID over ADS (state of the world), like a control plane.
type adsServer struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer

	mu      sync.Mutex
	nodes   map[string]configs
	changed chan struct{} // closed when nodes changes
}

// newADS starts a server, and returns its port.
func newADS(t testing.TB) (a *adsServer, port int) {
	t.Helper()
	a = &adsServer{nodes: map[string]configs{}, changed: make(chan struct{})}
	l, port := listen(t, "127.0.0.1")
	s := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(s, a)
	go s.Serve(l) //nolint:errcheck // returns when the test stops the server
	t.Cleanup(s.Stop)
	return a, port
}

// set replaces the configs of all nodes.
func (a *adsServer) set(nodes map[string]configs) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.nodes = nodes
	close(a.changed)
	a.changed = make(chan struct{})
}

func (a *adsServer) get(node string) (configs, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.nodes[node], a.changed
}

// StreamAggregatedResources implements the service.
func (a *adsServer) StreamAggregatedResources(
	s discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	requests := make(chan *discovery.DiscoveryRequest)
	go func() {
		defer close(requests)
		for {
			r, err := s.Recv()
			if err != nil {
				return
			}
			select {
			case requests <- r:
			case <-s.Context().Done():
				return
			}
		}
	}()
	node := ""
	var order []string // types, in the order of the subscriptions
	names, sent := map[string][]string{}, map[string]*discovery.DiscoveryResponse{}
	for {
		have, changed := a.get(node)
		for _, kind := range order {
			next := response(have, kind, names[kind])
			if last := sent[kind]; last != nil && last.VersionInfo == next.VersionInfo {
				continue
			}
			sent[kind] = next
			if err := s.Send(next); err != nil {
				return err
			}
		}
		select {
		case r, ok := <-requests:
			if !ok {
				return nil
			}
			if r.Node != nil {
				node = r.Node.Id
			}
			if !slices.Contains(order, r.TypeUrl) {
				order = append(order, r.TypeUrl)
			}
			names[r.TypeUrl] = r.ResourceNames
		case <-changed:
		}
	}
}

// response returns the resources of a type with these names, or all of them. The version is their
// hash.
func response(have configs, kind string, names []string) *discovery.DiscoveryResponse {
	out, hash := &discovery.DiscoveryResponse{TypeUrl: kind}, sha256.New()
	for _, name := range slices.Sorted(maps.Keys(have[kind])) {
		if len(names) == 0 || slices.Contains(names, name) {
			out.Resources = append(out.Resources, have[kind][name])
			fmt.Fprintf(hash, "%s %x\n", name, have[kind][name].Value)
		}
	}
	out.VersionInfo = hex.EncodeToString(hash.Sum(nil))
	out.Nonce = out.VersionInfo
	return out
}
