package agent_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"
)

// served lists the types that a proxy subscribes to, in the order that Envoy uses when it
// reconnects. Routes are inline in listeners.
var served = []string{draft.TypeCluster, draft.TypeEndpoint, draft.TypeListener}

// short returns the last part of a type URL.
func short(url string) string { return url[strings.LastIndexByte(url, '.')+1:] }

// proxyClient is a proxy that accepts all resources and retains them across streams.
type proxyClient struct {
	t       *testing.T
	node    *core.Node
	has     map[string]map[string]string // type, name: version, or the resource's bytes with state of the world
	version map[string]string            // by type, for state of the world
	nonce   map[string]string
	end     context.CancelFunc
	seen    func(url string, r *discoveryv3.Resource) // optional; only for delta

	delta discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	sotw  discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient
}

func newProxyClient(t *testing.T, n *core.Node) *proxyClient {
	p := &proxyClient{t: t, node: n, has: map[string]map[string]string{}, version: map[string]string{}}
	for _, url := range served {
		p.has[url] = map[string]string{}
	}
	return p
}

// names returns the resource names that the proxy subscribes to: the endpoints of its clusters,
// which have the same names as the clusters here.
func (p *proxyClient) names(url string) []string {
	if url != draft.TypeEndpoint {
		return nil
	}
	var out []string
	for name := range p.has[draft.TypeCluster] {
		if !strings.HasPrefix(name, "localhost:") && !strings.HasPrefix(name, "nearside:") {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// Connect opens a stream and subscribes to everything immediately, with the versions that the proxy
// has.
func (p *proxyClient) Connect(conn *grpc.ClientConn, delta bool) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), agenttest.Patience)
	p.t.Cleanup(cancel)
	p.end, p.nonce, p.delta, p.sotw = cancel, map[string]string{}, nil, nil
	var err error
	ads := discoveryv3.NewAggregatedDiscoveryServiceClient(conn)
	if delta {
		p.delta, err = ads.DeltaAggregatedResources(ctx)
	} else {
		p.sotw, err = ads.StreamAggregatedResources(ctx)
	}
	agenttest.Do(p.t, err)
	for _, url := range served {
		names := p.names(url)
		if url == draft.TypeEndpoint && len(names) == 0 {
			continue
		}
		if delta {
			agenttest.Do(p.t, p.delta.Send(&discoveryv3.DeltaDiscoveryRequest{Node: p.node, TypeUrl: url,
				ResourceNamesSubscribe: names, InitialResourceVersions: maps.Clone(p.has[url])}))
		} else {
			agenttest.Do(p.t, p.sotw.Send(&discoveryv3.DiscoveryRequest{Node: p.node, TypeUrl: url, ResourceNames: names,
				VersionInfo: p.version[url]}))
		}
	}
}

// recv receives one response, acknowledges it, subscribes to the endpoints of new clusters, and
// returns the changes as "Cluster a b -c".
func (p *proxyClient) recv() (string, error) {
	if p.delta != nil {
		return p.recvDelta()
	}
	return p.recvSotw()
}

func (p *proxyClient) recvDelta() (string, error) {
	resp, err := p.delta.Recv()
	if err != nil {
		return "", err
	}
	words, before := []string{short(resp.TypeUrl)}, p.names(draft.TypeEndpoint)
	for _, r := range resp.Resources {
		words = append(words, r.Name)
		p.has[resp.TypeUrl][r.Name] = r.Version
		if p.seen != nil {
			p.seen(resp.TypeUrl, r)
		}
	}
	for _, name := range resp.RemovedResources {
		words = append(words, "-"+name)
		delete(p.has[resp.TypeUrl], name)
	}
	if err := p.delta.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resp.TypeUrl, ResponseNonce: resp.Nonce}); err !=
		nil {
		return "", err
	}
	added := slices.DeleteFunc(p.names(draft.TypeEndpoint), func(name string) bool {
		return slices.Contains(before, name)
	})
	if len(added) > 0 {
		if err := p.delta.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: draft.TypeEndpoint,
			ResourceNamesSubscribe: added}); err != nil {
			return "", err
		}
	}
	return strings.Join(words, " "), nil
}

func (p *proxyClient) recvSotw() (string, error) {
	resp, err := p.sotw.Recv()
	if err != nil {
		return "", err
	}
	words, before := []string{short(resp.TypeUrl)}, p.names(draft.TypeEndpoint)
	if resp.TypeUrl != draft.TypeEndpoint {
		clear(p.has[resp.TypeUrl])
	}
	for _, r := range resp.Resources {
		name := nameOf(p.t, r)
		words = append(words, name)
		p.has[resp.TypeUrl][name] = string(r.Value)
	}
	p.version[resp.TypeUrl], p.nonce[resp.TypeUrl] = resp.VersionInfo, resp.Nonce
	ask := []string{resp.TypeUrl}
	if !slices.Equal(before, p.names(draft.TypeEndpoint)) {
		ask = append(ask, draft.TypeEndpoint)
	}
	for _, url := range ask {
		if err := p.sotw.Send(&discoveryv3.DiscoveryRequest{TypeUrl: url, ResourceNames: p.names(url),
			VersionInfo: p.version[url], ResponseNonce: p.nonce[url]}); err != nil {
			return "", err
		}
	}
	return strings.Join(words, " "), nil
}

// nameOf returns the name of a resource.
func nameOf(t *testing.T, r *anypb.Any) string {
	t.Helper()
	m, err := r.UnmarshalNew()
	if err != nil {
		t.Fatal(err)
	}
	switch m := m.(type) {
	case interface{ GetName() string }:
		return m.GetName()
	case interface{ GetClusterName() string }:
		return m.GetClusterName()
	}
	t.Fatalf("%s has no name", r.TypeUrl)
	return ""
}

// until receives responses until cond holds and returns their changes.
func (p *proxyClient) until(what string, cond func() bool) (got []string) {
	p.t.Helper()
	for !cond() {
		line, err := p.recv()
		if err != nil {
			p.t.Fatalf("%s, waiting for %s: %v; after %q", p.node.Id, what, err, got)
		}
		got = append(got, line)
	}
	return got
}

// next receives one response.
func (p *proxyClient) next() string {
	p.t.Helper()
	line, err := p.recv()
	if err != nil {
		p.t.Fatalf("%s: %v", p.node.Id, err)
	}
	return line
}
