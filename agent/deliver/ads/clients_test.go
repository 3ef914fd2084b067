package ads_test

import (
	"io"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// deltaClient is a raw delta client.
type deltaClient struct {
	t    testing.TB
	str  discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	node *corev3.Node
}

func deltaOn(t testing.TB, conn *grpc.ClientConn, n *corev3.Node) *deltaClient {
	t.Helper()
	str, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	return &deltaClient{t: t, str: str, node: n}
}

func (a *agent) delta(id string) *deltaClient {
	a.t.Helper()
	return deltaOn(a.t, a.dial(), nodeOf(id))
}

// send sends a request; the first carries the node.
func (c *deltaClient) send(req *discoveryv3.DeltaDiscoveryRequest) {
	c.t.Helper()
	req.Node, c.node = c.node, nil
	if err := c.str.Send(req); err != nil && err != io.EOF { // after EOF, the next recv returns the status
		c.t.Fatalf("send: %v", err)
	}
}

func (c *deltaClient) subscribe(typeURL string, names ...string) {
	c.t.Helper()
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL, ResourceNamesSubscribe: names})
}

func (c *deltaClient) resume(typeURL string, has map[string]string, names ...string) {
	c.t.Helper()
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL, ResourceNamesSubscribe: names,
		InitialResourceVersions: has})
}

func (c *deltaClient) recv() *discoveryv3.DeltaDiscoveryResponse {
	c.t.Helper()
	resp, err := c.str.Recv()
	if err != nil {
		c.t.Fatalf("recv: %v", err)
	}
	return resp
}

func (c *deltaClient) ack(resp *discoveryv3.DeltaDiscoveryResponse) {
	c.t.Helper()
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resp.GetTypeUrl(), ResponseNonce: resp.GetNonce()})
}

func (c *deltaClient) nack(resp *discoveryv3.DeltaDiscoveryResponse, reason string) {
	c.t.Helper()
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resp.GetTypeUrl(), ResponseNonce: resp.GetNonce(),
		ErrorDetail: &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: reason}})
}

// want receives the next response, compares it with a line such as "LDS a=1 b=2 -c", and returns
// it.
func (c *deltaClient) want(line string) *discoveryv3.DeltaDiscoveryResponse {
	c.t.Helper()
	resp := c.recv()
	if got := deltaLine(resp); got != line {
		c.t.Fatalf("got  %s\nwant %s", got, line)
	}
	return resp
}

// wantAck is want followed by an acknowledgement.
func (c *deltaClient) wantAck(line string) {
	c.t.Helper()
	c.ack(c.want(line))
}

func deltaLine(resp *discoveryv3.DeltaDiscoveryResponse) string {
	words := []string{shortType(resp.GetTypeUrl())}
	for _, r := range resp.GetResources() {
		words = append(words, r.GetName()+"="+bodyOf(resp.GetTypeUrl(), r.GetResource().GetValue()))
	}
	for _, name := range resp.GetRemovedResources() {
		words = append(words, "-"+name)
	}
	return strings.Join(words, " ")
}

// sotwClient is a raw state-of-the-world client.
type sotwClient struct {
	t    testing.TB
	str  discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	node *corev3.Node
	// version and nonce hold the last accepted version and the last nonce by type.
	version, nonce map[string]string
}

func (a *agent) sotw(n *corev3.Node) *sotwClient {
	a.t.Helper()
	str, err := discoveryv3.NewAggregatedDiscoveryServiceClient(a.dial()).StreamAggregatedResources(deadline(a.t))
	if err != nil {
		a.t.Fatal(err)
	}
	return &sotwClient{t: a.t, str: str, node: n, version: map[string]string{}, nonce: map[string]string{}}
}

// ask sends a request with the names that the client now wants.
func (c *sotwClient) ask(typeURL string, names ...string) {
	c.t.Helper()
	c.send(&discoveryv3.DiscoveryRequest{TypeUrl: typeURL, ResourceNames: names, VersionInfo: c.version[typeURL],
		ResponseNonce: c.nonce[typeURL]})
}

func (c *sotwClient) send(req *discoveryv3.DiscoveryRequest) {
	c.t.Helper()
	req.Node, c.node = c.node, nil
	if err := c.str.Send(req); err != nil && err != io.EOF { // after EOF, the next Recv returns the status
		c.t.Fatalf("send: %v", err)
	}
}

func (c *sotwClient) want(line string) *discoveryv3.DiscoveryResponse {
	c.t.Helper()
	resp, err := c.str.Recv()
	if err != nil {
		c.t.Fatalf("recv: %v", err)
	}
	words := []string{shortType(resp.GetTypeUrl())}
	for _, r := range resp.GetResources() {
		words = append(words, bodyOf(resp.GetTypeUrl(), r.GetValue()))
	}
	if got := strings.Join(words, " "); got != line {
		c.t.Fatalf("got  %s\nwant %s", got, line)
	}
	c.nonce[resp.GetTypeUrl()] = resp.GetNonce()
	return resp
}

// wantAck is want followed by an acknowledgement with the same names.
func (c *sotwClient) wantAck(line string, names ...string) {
	c.t.Helper()
	resp := c.want(line)
	c.version[resp.GetTypeUrl()] = resp.GetVersionInfo()
	c.ask(resp.GetTypeUrl(), names...)
}

func (c *sotwClient) nack(resp *discoveryv3.DiscoveryResponse, reason string, names ...string) {
	c.t.Helper()
	c.send(&discoveryv3.DiscoveryRequest{TypeUrl: resp.GetTypeUrl(), ResourceNames: names,
		VersionInfo:   c.version[resp.GetTypeUrl()],
		ResponseNonce: resp.GetNonce(), ErrorDetail: &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: reason}})
}

// wantEnd receives until the stream ends and compares the status.
func wantEnd(t testing.TB, recv func() error, code codes.Code, words ...string) {
	t.Helper()
	var err error
	for err == nil {
		err = recv()
	}
	if status.Code(err) != code {
		t.Fatalf("ended with %v, want %v", err, code)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q lacks %q", err, w)
		}
	}
}

func (c *deltaClient) end(code codes.Code, words ...string) {
	c.t.Helper()
	wantEnd(c.t, func() error { _, err := c.str.Recv(); return err }, code, words...)
}
