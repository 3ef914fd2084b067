package agent_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// pickyProxy accepts all resources except those that contain a given word, which it rejects with
// Envoy's error format.
type pickyProxy struct {
	t     *testing.T
	id    string
	delta bool
	word  string
	nonce map[string]string // state of the world
	had   map[string]string
	vers  map[string]map[string]string // delta: versions of accepted resources, by type

	d discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	s discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient
}

func startPicky(t *testing.T, socket, id, word string, delta bool) *pickyProxy {
	t.Helper()
	p := &pickyProxy{t: t, id: id, delta: delta, word: word, nonce: map[string]string{}, had: map[string]string{},
		vers: map[string]map[string]string{}}
	p.Connect(socket)
	for _, url := range []string{draft.TypeCluster, draft.TypeListener} {
		p.answer(url, "", "")
	}
	return p
}

// Connect opens a stream.
func (p *pickyProxy) Connect(socket string) {
	p.t.Helper()
	t := p.t
	ads := discoveryv3.NewAggregatedDiscoveryServiceClient(agenttest.Dial(t, socket))
	var err error
	if p.delta {
		p.d, err = ads.DeltaAggregatedResources(t.Context())
	} else {
		p.s, err = ads.StreamAggregatedResources(t.Context())
	}
	agenttest.Do(t, err)
}

// resume opens a stream to another agent and sends the versions that the proxy has.
func (p *pickyProxy) resume(socket string) {
	p.t.Helper()
	p.Connect(socket)
	for _, url := range []string{draft.TypeCluster, draft.TypeListener} {
		agenttest.Do(p.t, p.d.Send(&discoveryv3.DeltaDiscoveryRequest{Node: &core.Node{Id: p.id, UserAgentName: "envoy"},
			TypeUrl: url, InitialResourceVersions: p.vers[url]}))
	}
}

// answer subscribes, acknowledges, or, if reason is set, rejects.
func (p *pickyProxy) answer(url, nonce, reason string) {
	p.t.Helper()
	node := &core.Node{Id: p.id, UserAgentName: "envoy"}
	var fault *rpcstatus.Status
	if reason != "" {
		fault = &rpcstatus.Status{Code: int32(codes.Internal), Message: reason}
	}
	if p.delta {
		agenttest.Do(p.t,
			p.d.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: url, ResponseNonce: nonce, ErrorDetail: fault}))
		return
	}
	agenttest.Do(p.t, p.s.Send(&discoveryv3.DiscoveryRequest{Node: node, TypeUrl: url, VersionInfo: p.nonce[url],
		ResponseNonce: nonce, ErrorDetail: fault}))
}

// next receives one response and returns its changes, for example "Listener a b! -c". The mark "!"
// means that the proxy rejected the resource.
func (p *pickyProxy) next() string {
	p.t.Helper()
	type item struct {
		name    string
		version string
		body    []byte
	}
	var url, nonce, version string
	var items []item
	var removed []string
	if p.delta {
		resp, err := p.d.Recv()
		agenttest.Do(p.t, err)
		url, nonce = resp.TypeUrl, resp.Nonce
		for _, r := range resp.Resources {
			items = append(items, item{r.Name, r.Version, r.Resource.Value})
		}
		removed = resp.RemovedResources
	} else {
		resp, err := p.s.Recv()
		agenttest.Do(p.t, err)
		url, nonce, version = resp.TypeUrl, resp.Nonce, resp.VersionInfo
		for _, r := range resp.Resources {
			items = append(items, item{nameOf(p.t, r), "", r.Value})
		}
	}
	words, reason := []string{short(url)}, ""
	for _, it := range items {
		key := url + it.name
		if p.had[key] == string(it.body) {
			continue // state of the world
		}
		if bytes.Contains(it.body, []byte(p.word)) {
			reason += fmt.Sprintf("Error adding/updating %s(s) %s: it holds the word\n", strings.ToLower(short(url)), it.name)
			words = append(words, it.name+"!")
			continue
		}
		p.had[key] = string(it.body)
		if p.vers[url] == nil {
			p.vers[url] = map[string]string{}
		}
		p.vers[url][it.name] = it.version
		words = append(words, it.name)
	}
	for _, name := range removed {
		delete(p.vers[url], name)
		words = append(words, "-"+name)
	}
	if reason == "" {
		p.nonce[url] = version
	}
	p.answer(url, nonce, reason)
	return strings.Join(words, " ")
}

func (p *pickyProxy) Want(line string) {
	p.t.Helper()
	if got := p.next(); got != line {
		p.t.Fatalf("%s got  %s\nwant %s", p.id, got, line)
	}
}

// listenerPatch returns a policy that writes a word into the listener of svc-1.
func listenerPatch(name, word string) string {
	return fmt.Sprintf("{type: MeshProxyPatch, mesh: default, name: %s, spec: {targetRef: {kind: MeshService, "+
		"name: web}, default: {appendModifications: ["+
		"{cluster: {operation: Patch, match: {name: nothing}, value: 'altStatName: x'}}, "+
		"{listener: {operation: Patch, match: {name: 'outbound:127.0.0.1:20000'}, value: 'statPrefix: %s'}}]}}}\n", name,
		word)
}

// accessLog returns a policy for the listener of svc-2.
func accessLog(path string) string {
	return fmt.Sprintf("{type: MeshAccessLog, mesh: default, name: logs, spec: {targetRef: {kind: MeshService, "+
		"name: web}, to: [{targetRef: {kind: MeshService, name: svc-2}, default: {backends: [{type: File, "+
		"file: {path: %s}}]}}]}}\n", path)
}

// waitFor waits until a resource is in force or it is known why not.
func waitFor(t *testing.T, r *agenttest.Running, typ, name string) (out *api.Applied) {
	t.Helper()
	agenttest.Eventually(t, typ+" "+name+" is not pending", func() bool {
		var err error
		out, err = r.Api().Wait(t.Context(), api.Wait{Type: typ, Mesh: "default", Name: name, Timeout: agenttest.LongestWait})
		agenttest.Do(t, err)
		return out.State != api.StatePending
	})
	return out
}

// metric returns the value of a gauge or counter, or 0 if it does not exist.
func metric(t *testing.T, a *agent.Agent, name string, labels ...string) float64 {
	t.Helper()
	families, err := a.Metrics().Gather()
	agenttest.Do(t, err)
	for _, f := range families {
		for _, m := range f.Metric {
			var have []string
			for _, l := range m.Label {
				have = append(have, l.GetValue())
			}
			if f.GetName() == name && slices.Equal(have, labels) {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return 0
}
