package ads_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/nearside-mesh/nearside/agent/model/access"
)

func structOf(t *testing.T, v map[string]any) *structpb.Struct {
	t.Helper()
	s, err := structpb.NewStruct(v)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestNodeIsReduced: only the used fields of a node are decoded, and all of them are dropped after
// the handler has received them.
func TestNodeIsReduced(t *testing.T) {
	var opened, closed *corev3.Node
	h := nodeLog{opened: func(n *corev3.Node) { opened = n }, closed: func(n *corev3.Node) { closed = n }}
	a := startAgent(t, options{Handler: &h,
		Metadata: [][]string{{"dataplane.resource"}, {"annotations", "used"}, {"annotations", "list"}, {"flat", "deep"}}})
	a.Ready()
	n := nodeOf("default.web")
	n.UserAgentName, n.Cluster, n.Locality = "envoy", "c", &corev3.Locality{Zone: "z"}
	n.UserAgentVersionType = &corev3.Node_UserAgentBuildVersion{
		UserAgentBuildVersion: &corev3.BuildVersion{Metadata: structOf(t, map[string]any{"ssl": "x"})},
	}
	n.Extensions, n.ClientFeatures = []*corev3.Extension{{Name: "e", Category: "c", TypeUrls: []string{"t"}}},
		[]string{"f"}
	n.DynamicParameters = nil
	n.Metadata = structOf(t, map[string]any{
		"dataplane.resource": "type: Dataplane", "other": []any{nil, 1, "x"}, "flat": "text",
		"annotations": map[string]any{"used": "u", "list": []any{"a"}, "unused": strings.Repeat("x", 1000)},
	})
	c := deltaOn(t, a.dial(), n)
	c.subscribe(lds)
	a.wait(func() bool { return len(a.Connected()) == 1 })
	want := nodeOf("default.web")
	want.UserAgentName = "envoy"
	want.Extensions = []*corev3.Extension{{Category: "c", TypeUrls: []string{"t"}}}
	want.UserAgentVersionType = &corev3.Node_UserAgentBuildVersion{UserAgentBuildVersion: &corev3.BuildVersion{}}
	want.Metadata = structOf(t, map[string]any{"dataplane.resource": "type: Dataplane", "flat": nil,
		"annotations": map[string]any{"used": "u", "list": nil}})
	if diff := cmp.Diff(want, opened, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	if err := c.str.CloseSend(); err != nil {
		t.Fatal(err)
	}
	a.wait(func() bool { return len(a.Connected()) == 0 })
	a.stop()
	if closed != nil {
		t.Errorf("at the end there is %v", closed)
	}
}

type nodeLog struct{ opened, closed func(*corev3.Node) }

func (l *nodeLog) Opened(s access.Stream) error { l.opened(s.Node); return nil }
func (l *nodeLog) Closed(s access.Stream)       { l.closed(s.Node) }

// TestRequestBounds: the first and later requests of a stream are refused if they are too large,
// with their size, the limit, and the remedy. The names of a large mesh are not too large.
func TestRequestBounds(t *testing.T) {
	reg := prometheus.NewRegistry()
	a := servingWith(t, config("LDS:l=1"), options{Registry: reg})
	metadata := func(bytes int) *corev3.Node {
		n := nodeOf("default.web")
		n.Metadata = structOf(t, map[string]any{"x": strings.Repeat("x", bytes)})
		return n
	}
	extensions := nodeOf("default.web")
	for range 1000 {
		extensions.Extensions = append(extensions.Extensions, &corev3.Extension{Name: strings.Repeat("e", 1100)})
	}
	names := func(n, size int) (out []string) {
		for i := range n {
			out = append(out, fmt.Sprintf("%0*d", size, i))
		}
		return out
	}
	refused := 0
	for _, c := range []struct {
		name string
		node *corev3.Node
		req  *discoveryv3.DeltaDiscoveryRequest
		code codes.Code
		want []string
	}{
		{"metadata", metadata(256 << 10), &discoveryv3.DeltaDiscoveryRequest{}, codes.InvalidArgument,
			[]string{"metadata of the node has 2621", "262144", "node.metadata in the bootstrap"}},
		{"extensions", extensions, &discoveryv3.DeltaDiscoveryRequest{}, codes.InvalidArgument,
			[]string{"beside the names", "1048576", "bootstrap"}},
		{"message", nil,
			&discoveryv3.DeltaDiscoveryRequest{ErrorDetail: &rpcstatus.Status{Message: strings.Repeat("x", 1<<20)}},
			codes.InvalidArgument, []string{"beside the names"}},
		{"names", nil, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: eds, ResourceNamesSubscribe: make([]string, 200_001)},
			codes.ResourceExhausted, []string{"200001 names", "200000"}},
		{"all", nil, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: eds, ResourceNamesSubscribe: names(20_000, 220)},
			codes.ResourceExhausted, []string{"larger than max"}},
		{"prefixes", nil, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: eds,
			ResourceNamesSubscribe: strings.Fields(strings.Join(names(65, 3), "/* ") + "/*")}, codes.ResourceExhausted,
			[]string{"65 names", "/*", "64"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.req.TypeUrl == "" {
				c.req.TypeUrl = lds
			}
			if c.node == nil {
				c.node = nodeOf("default.web")
			}
			first := deltaOn(t, a.dial(), c.node)
			first.send(c.req)
			first.end(c.code, c.want...)
			later := a.delta("default.web")
			later.subscribe(lds)
			later.wantAck("LDS l=1")
			later.node = c.node
			later.send(c.req)
			later.end(c.code, c.want...)
		})
		if c.name != "prefixes" { // the handler decides about it
			refused += 2
		}
	}
	if got := sample(t, reg, "nearside_xds_streams_refused_total", "bad-request"); got != float64(refused) {
		t.Errorf("%v are counted as refused, want %d", got, refused)
	}

	near := deltaOn(t, a.dial(), metadata(256<<10-64))
	near.subscribe(lds)
	near.wantAck("LDS l=1")
	large := names(20_000, 60)
	has := map[string]string{}
	for _, name := range large {
		has[name] = "0123456789abcdef"
	}
	near.resume(eds, has, large...)
	if resp := near.recv(); len(resp.GetRemovedResources()) != len(large) {
		t.Errorf("of 20,000 names %d are answered", len(resp.GetRemovedResources()))
	}
	s := a.sotw(metadata(256 << 10))
	s.ask(lds)
	wantEnd(t, func() error { _, err := s.str.Recv(); return err }, codes.InvalidArgument, "262144")
}

// TestControlCharactersStayOut: no text from a client reaches the status or the log with terminal
// control characters.
func TestControlCharactersStayOut(t *testing.T) {
	const evil = "\x1b]0;pwned\x07\x1b[2J\n\u202e"
	var log bytes.Buffer
	a := servingWith(t, config("LDS:l=1"), options{Log: slog.New(slog.NewTextHandler(&log,
		&slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, at slog.Attr) slog.Attr {
			if strings.ContainsAny(at.Value.String(), "\x1b\x07\u202e") {
				t.Errorf("the log is given %s %q", at.Key, at.Value)
			}
			return at
		}}))})
	n := nodeOf("default.web")
	n.UserAgentName, n.UserAgentVersionType = "envoy"+evil, &corev3.Node_UserAgentVersion{UserAgentVersion: "1.37" + evil}
	c := deltaOn(t, a.dial(), n)
	c.subscribe(lds)
	c.nack(c.want("LDS l=1"), "l: "+evil)
	c.subscribe(rds, "r"+evil)
	c.want("RDS -r" + evil)
	c.subscribe("some"+evil, "x")
	c.subscribe(rds, "x")
	c.want("RDS -x")
	const shown = `\x1b]0;pwned\a\x1b[2J\n\u202e`
	p := a.status("default.web")
	said := fmt.Sprintf("%+v %+v %+v", p, *typeStatus(t, p, lds).NACK, a.progress("default.web"))
	if strings.ContainsAny(said, "\x1b\x07\u202e\n") {
		t.Errorf("the status is %q", said)
	}
	for _, want := range []string{"envoy" + shown, "1.37" + shown, "l: " + shown, "r" + shown} {
		if !strings.Contains(said, want) {
			t.Errorf("the status lacks %s: %s", want, said)
		}
	}
	c.node = nodeOf("default." + evil)
	c.subscribe(lds)
	var err error
	for err == nil {
		_, err = c.str.Recv()
	}
	if !strings.Contains(err.Error(), `changed from "default.web"`) || strings.ContainsAny(err.Error(), "\x1b\n") {
		t.Errorf("ended with %q", err)
	}
}

// TestDetailsAreDropped: only the code and the message of a rejection are decoded.
func TestDetailsAreDropped(t *testing.T) {
	a := serving(t, config("LDS:l=1"))
	c := a.delta("default.web")
	c.subscribe(lds)
	resp := c.want("LDS l=1")
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: lds, ResponseNonce: resp.GetNonce(), ErrorDetail: &rpcstatus.Status{
		Code: 3, Message: "l: no", Details: []*anypb.Any{{TypeUrl: "x", Value: make([]byte, 1<<19)}}}})
	a.wait(func() bool { return len(a.progress("default.web").Rejected) == 1 })
	if r := a.progress("default.web").Rejected[0]; r.Reason != "l: no" {
		t.Errorf("rejected: %+v", r)
	}
}
