package bootstrap_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/health_check/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"

	"github.com/nearside-mesh/nearside/agent/compute/bootstrap"
	"github.com/nearside-mesh/nearside/agent/test/envoytest"
)

// TestListeners checks the form of the listeners, their limits, and the addresses.
func TestListeners(t *testing.T) {
	o := bootstrap.Options{Mesh: "m", Name: "n", XDSSocket: "/x", MaxConnections: 10,
		Readiness: bootstrap.Readiness{Address: "$(POD_IP)", Port: 9902},
		Probes: bootstrap.Probes{Address: "0.0.0.0", Port: 9000, Routes: []bootstrap.ProbeRoute{
			{Path: "/8080/a \"b", Workload: 8080, WorkloadPath: "/a \"b"},
			{Path: "/8080/c", Workload: 8080, WorkloadPath: "/c"},
		}}}
	out, err := bootstrap.Render(o)
	if err != nil {
		t.Fatal(err)
	}
	b := readBootstrap(t, out)
	limits := b.GetLayeredRuntime().GetLayers()[0].GetStaticLayer().GetFields()
	hcms := map[string]*hcmv3.HttpConnectionManager{}
	for _, l := range b.GetStaticResources().GetListeners() {
		hcms[l.GetName()] = httpManager(t, l)
		if limits["envoy.resource_limits.listener."+l.GetName()+".connection_limit"].GetNumberValue() != 100 ||
			!l.GetIgnoreGlobalConnLimit() || !l.GetBypassOverloadManager() {
			t.Errorf("limits of %s: %v\n%v", l.GetName(), limits, l)
		}
	}
	if len(hcms) != 2 || hcms[bootstrap.ReadinessListener] == nil {
		t.Fatalf("%v", hcms)
	}
	routes := hcms[bootstrap.ProbesListener].GetRouteConfig().GetVirtualHosts()[0].GetRoutes()
	if len(routes) != 2 || routes[0].GetMatch().GetPath() != "/8080/a \"b" ||
		routes[0].GetRoute().GetPrefixRewrite() != "/a \"b" || routes[0].GetMatch().GetHeaders()[0].GetName() != ":method" {
		t.Errorf("%v", routes)
	}
	if n := len(b.GetStaticResources().GetClusters()); n != 2 {
		t.Errorf("%d clusters, want the agent and one port of the workload", n)
	}
}

func httpManager(t *testing.T, l *listenerv3.Listener) *hcmv3.HttpConnectionManager {
	t.Helper()
	hcm := &hcmv3.HttpConnectionManager{}
	if err := l.GetFilterChains()[0].GetFilters()[0].GetTypedConfig().UnmarshalTo(hcm); err != nil {
		t.Fatal(err)
	}
	return hcm
}

func TestListenerFaults(t *testing.T) {
	route := bootstrap.ProbeRoute{Path: "/1/a", Workload: 1, WorkloadPath: "/a"}
	probes := func(edit func(*bootstrap.ProbeRoute)) bootstrap.Options {
		r := route
		edit(&r)
		return bootstrap.Options{Probes: bootstrap.Probes{Address: "::", Port: 1, Routes: []bootstrap.ProbeRoute{r}}}
	}
	for name, c := range map[string]struct {
		o    bootstrap.Options
		want string
	}{
		"no port":    {bootstrap.Options{Readiness: bootstrap.Readiness{Address: "::"}}, "readiness port"},
		"no address": {bootstrap.Options{Readiness: bootstrap.Readiness{Port: 1}}, `readiness address ""`},
		"host":       {bootstrap.Options{Readiness: bootstrap.Readiness{Address: "localhost", Port: 1}}, `"localhost"`},
		"zone": {bootstrap.Options{Readiness: bootstrap.Readiness{Address: "fe80::1%eth0", Port: 1}},
			"without a zone"},
		"bad variable": {bootstrap.Options{Readiness: bootstrap.Readiness{Address: "$(A)$(B)", Port: 1}},
			`"$(A)$(B)"`},
		"routes alone": {bootstrap.Options{Probes: bootstrap.Probes{Routes: []bootstrap.ProbeRoute{route}}}, "probes port"},
		"query":        {probes(func(r *bootstrap.ProbeRoute) { r.WorkloadPath = "/a?b" }), `"/a?b"`},
		"relative":     {probes(func(r *bootstrap.ProbeRoute) { r.Path = "a" }), `"a"`},
		"no workload":  {probes(func(r *bootstrap.ProbeRoute) { r.Workload = 0 }), "port of the workload"},
		"twice": {bootstrap.Options{Probes: bootstrap.Probes{Address: "::", Port: 1,
			Routes: []bootstrap.ProbeRoute{route, route}}}, "listed twice"},
	} {
		t.Run(name, func(t *testing.T) {
			c.o.Mesh, c.o.Name, c.o.XDSSocket = "m", "n", "/x"
			if _, err := bootstrap.Render(c.o); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

// gate is an xDS server that answers each type with no resources once it is open.
type gate struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	asked chan struct{} // has an item once an Envoy has asked for config
	open  chan struct{} // closed to send the config
}

func (g *gate) DeltaAggregatedResources(s discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	seen := map[string]bool{}
	for {
		req, err := s.Recv()
		if err != nil {
			return err
		}
		select {
		case g.asked <- struct{}{}:
		default:
		}
		select {
		case <-g.open:
		case <-s.Context().Done():
			return s.Context().Err()
		}
		if url := req.GetTypeUrl(); !seen[url] {
			seen[url] = true
			if err := s.Send(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: url, Nonce: "1"}); err != nil {
				return err
			}
		}
	}
}

// TestEnvoyReady checks that a real Envoy is not ready before its first config, is ready after it,
// forwards only the probes of the workload that are listed, and ends on SIGTERM.
func TestEnvoyReady(t *testing.T) {
	envoy := envoytest.Find(t)
	dir, err := os.MkdirTemp("", "boot") // short, because the path of a socket is limited
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	g := &gate{asked: make(chan struct{}, 1), open: make(chan struct{})}
	l, err := net.Listen("unix", filepath.Join(dir, "xds.sock"))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, g)
	go func() { _ = server.Serve(l) }()
	defer server.Stop()
	var got sync.Map
	workload := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got.Store(r.Method+" "+r.URL.String(), r.Header.Get("X-Probe"))
		w.WriteHeader(http.StatusNoContent)
	}))
	defer workload.Close()
	ready, probes := freePort(t), freePort(t)
	workloadPort := uint16(workload.Listener.Addr().(*net.TCPAddr).Port)
	out, err := bootstrap.Render(bootstrap.Options{Mesh: "m", Name: "n", XDSSocket: filepath.Join(dir, "xds.sock"),
		MaxConnections: 1, // the listeners of the bootstrap do not need it
		AdminSocket:    filepath.Join(dir, "a"), Readiness: bootstrap.Readiness{Address: "127.0.0.1", Port: ready},
		Probes: bootstrap.Probes{Address: "127.0.0.1", Port: probes, Routes: []bootstrap.ProbeRoute{
			{Path: "/1/live", Workload: workloadPort, WorkloadPath: "/live"}}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, envoy, "--config-yaml", string(out), "--disable-hot-restart",
		"--concurrency", "1", "-l", "error")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() { cancel(); <-ended }()
	select {
	case <-g.asked:
	case <-ctx.Done():
		t.Fatal("the Envoy has not asked for config")
	}
	readyURL := fmt.Sprintf("http://127.0.0.1:%d/ready", ready)
	if status, _ := get(ctx, http.MethodGet, readyURL); status != 0 {
		t.Fatalf("status %d before the first config", status)
	}
	close(g.open)
	tick := time.NewTicker(20 * time.Millisecond) // Envoy has no event for being live
	defer tick.Stop()
	for status := 0; status != http.StatusOK; status, _ = get(ctx, http.MethodGet, readyURL) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("status %d after the first config", status)
		}
	}
	root := fmt.Sprintf("http://127.0.0.1:%d", probes)
	for _, c := range []struct {
		method, url string
		want        int
	}{
		{http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/", ready), http.StatusNotFound},
		{http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/stats", ready), http.StatusNotFound},
		{http.MethodGet, root + "/1/live?verbose", http.StatusNoContent},
		{http.MethodPost, root + "/1/live", http.StatusNotFound},
		{http.MethodGet, root + "/1/live/more", http.StatusNotFound},
		{http.MethodGet, root + "/live", http.StatusNotFound},
	} {
		if status, err := get(ctx, c.method, c.url); status != c.want {
			t.Errorf("%s %s: status %d (%v), want %d", c.method, c.url, status, err, c.want)
		}
	}
	if header, ok := got.Load("GET /live?verbose"); !ok || header != "x" {
		t.Errorf("the workload did not get the probe with its header: %v", header)
	}
	envoytest.Terminate(ctx, t, cmd.Process, ended)
}

// get returns the status of a request over a new connection, or 0.
func get(ctx context.Context, method, url string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("X-Probe", "x")
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// freePort returns a port of 127.0.0.1 that was free.
func freePort(t *testing.T) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return uint16(l.Addr().(*net.TCPAddr).Port)
}
