package envoybin

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"
)

// liveEnvoy is a running Envoy that loads one resource after the other over delta ADS. It has the
// static cluster "xds".
type liveEnvoy struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	stream   chan discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer
	requests chan *discoveryv3.DeltaDiscoveryRequest
	exited   chan struct{}
	stop     func()

	current discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer
	wanted  map[string]bool // types, and names with their type, that Envoy has requested
	nonce   int
	output  bytes.Buffer // read it only after exited is closed
}

// errExited reports that Envoy crashed.
var errExited = errors.New("the Envoy exited")

const liveBootstrap = `{"node": {"id": "x", "cluster": "x"}, "dynamic_resources": {"ads_config": {
"api_type": "DELTA_GRPC", "transport_api_version": "V3", "grpc_services": [{"envoy_grpc": {"cluster_name": "xds"}}]},
"cds_config": {"ads": {}, "resource_api_version": "V3"}, "lds_config": {"ads": {}, "resource_api_version": "V3"}},
"static_resources": {"clusters": [{"name": "xds", "type": "STATIC", "connect_timeout": "1s",
"typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
"@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
"explicit_http_config": {"http2_protocol_options": {}}}},
"load_assignment": {"cluster_name": "xds", "endpoints": [{"lb_endpoints": [{"endpoint": {
"address": {"pipe": {"path": %q}}}}]}]}}]}}`

// startLive starts an Envoy that the end of the test stops.
func startLive(t *testing.T, path string) *liveEnvoy {
	t.Helper()
	dir, err := os.MkdirTemp("", "nearside-rules-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket, file := filepath.Join(dir, "xds"), filepath.Join(dir, "envoy.json")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, fmt.Appendf(nil, liveBootstrap, socket), 0o600); err != nil {
		t.Fatal(err)
	}
	e := &liveEnvoy{stream: make(chan discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer, 1),
		requests: make(chan *discoveryv3.DeltaDiscoveryRequest), exited: make(chan struct{}), wanted: map[string]bool{}}
	server := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, e)
	go func() { _ = server.Serve(listener) }()
	cmd := exec.CommandContext(t.Context(), path, "-c", file, "--concurrency", "1", "--disable-hot-restart",
		"--log-level", "warning")
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &e.output, &e.output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = cmd.Wait()
		close(e.exited)
	}()
	e.stop = func() {
		_ = cmd.Process.Kill()
		<-e.exited
		server.Stop()
	}
	t.Cleanup(e.stop)
	select {
	case e.current = <-e.stream:
	case <-e.exited:
		t.Fatalf("Envoy does not start: %s", &e.output)
	}
	return e
}

// DeltaAggregatedResources receives Envoy's requests.
func (e *liveEnvoy) DeltaAggregatedResources(
	stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	e.stream <- stream
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		select {
		case e.requests <- r:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// next returns Envoy's next request.
func (e *liveEnvoy) next() (*discoveryv3.DeltaDiscoveryRequest, error) {
	select {
	case r := <-e.requests:
		e.wanted[r.GetTypeUrl()] = true
		for _, name := range r.GetResourceNamesSubscribe() {
			e.wanted[r.GetTypeUrl()+" "+name] = true
		}
		return r, nil
	case <-e.exited:
		return nil, errExited
	case <-time.After(time.Minute):
		return nil, errors.New("no request of Envoy within a minute")
	}
}

// wait waits until Envoy has requested a type or, if name is not "", a resource.
func (e *liveEnvoy) wait(url, name string) error {
	key := url
	if name != "" {
		key += " " + name
	}
	for !e.wanted[key] {
		if _, err := e.next(); err != nil {
			return fmt.Errorf("waiting for a request of %s: %w", key, err)
		}
	}
	return nil
}

// send sends a response with a resource, maybe several times, and returns its nonce.
func (e *liveEnvoy) send(name string, m *anypb.Any, times int) (nonce string, err error) {
	e.nonce++
	nonce = strconv.Itoa(e.nonce)
	one := []*discoveryv3.Resource{{Name: name, Version: nonce, Resource: m}}
	return nonce, e.current.Send(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: m.GetTypeUrl(), Nonce: nonce,
		Resources: slices.Repeat(one, times)})
}

// answer returns Envoy's message about the response with the nonce, or "" if Envoy accepts it.
func (e *liveEnvoy) answer(nonce string) (string, error) {
	for {
		r, err := e.next()
		if err != nil {
			return "", fmt.Errorf("waiting for an answer: %w", err)
		}
		if r.GetResponseNonce() == nonce {
			return r.GetErrorDetail().GetMessage(), nil
		}
	}
}
