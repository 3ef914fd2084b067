package agent_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// BenchmarkMemory reports the resident memory of an idle agent in a separate process. Its proxies
// reach 1,000 services with two endpoints each and subscribe to all resources like Envoys. In "own"
// cases each proxy belongs to a different service, whose tags are in its config. In the others all
// proxies belong to one service. In "addresses" cases each proxy has its own outbound addresses.
// The agent is built as for packages. BENCH_BINARY selects another build.
func BenchmarkMemory(b *testing.B) {
	const maxBytes = 8 << 20
	binary := os.Getenv("BENCH_BINARY")
	if binary == "" {
		binary = filepath.Join(b.TempDir(), "nearside")
		if out, err := exec.Command("go", "build", "-trimpath", "-tags", "grpcnotrace", "-ldflags", "-s -w",
			"-o", binary, "../cmd/agent").CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
	}
	for _, c := range []struct {
		name                 string
		proxies, policies    int
		own, mtls, addresses bool
	}{
		{name: "20", proxies: 20},
		{name: "20-addresses", proxies: 20, addresses: true},
		{name: "50", proxies: 50},
		{name: "50-policies", proxies: 50, policies: 20},
		{name: "300", proxies: 300},
		{name: "300-policies", proxies: 300, policies: 20},
		{name: "300-own", proxies: 300, own: true},
		{name: "300-all", proxies: 300, policies: 20, own: true, mtls: true},
	} {
		b.Run(c.name, func(b *testing.B) {
			a := startProcess(b, binary)
			text := memoryMesh(c.proxies, c.own, c.mtls, c.addresses) + benchPolicies(c.policies)
			for i, document := 0, ""; text != ""; i++ {
				document, text = text, ""
				if len(document) > maxBytes { // the agent refuses larger files
					end := maxBytes + strings.Index(document[maxBytes:], "\n---\n") + 1
					document, text = document[:end], document[end:]
				}
				agenttest.Write(b, filepath.Join(a.dir, "resources", fmt.Sprintf("%d.yaml", i)), document)
			}
			began := time.Now()
			subscribeAll(b, filepath.Join(a.dir, "run", "xds.sock"), c.proxies, benchServices)
			served, spent := time.Since(began), a.cpu(b)
			for b.Loop() {
				a.idle(b)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(served.Seconds(), "served-s")
			b.ReportMetric(spent.Seconds(), "cpu-s")
			idle := a.cpu(b)
			<-time.After(20 * time.Second)
			b.ReportMetric((a.cpu(b)-idle).Seconds()/20*100, "idle-core-%")
			b.ReportMetric(a.status(b, "VmRSS")/1024, "resident-MiB")
			b.ReportMetric(a.status(b, "VmHWM")/1024, "peak-MiB")
			if dir := os.Getenv("BENCH_PROFILES"); dir != "" {
				out, err := exec.Command(binary,
					"debug", "pprof", "heap", "--socket", filepath.Join(a.dir, "run", "nearside.sock")).Output()
				if err != nil {
					b.Error(err)
				}
				agenttest.Write(b, filepath.Join(dir, c.name+".heap"), string(out))
			}
		})
	}
}

// memoryMesh returns the benchmark's mesh with local proxies that reach all services.
func memoryMesh(proxies int, own, mtls, addresses bool) string {
	var b strings.Builder
	text := bigMesh(benchServices, 0)
	if mtls {
		text = strings.Replace(text, "name: default\n",
			"name: default\nmtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}\n", 1)
	}
	b.WriteString(text)
	for k := range proxies {
		service, address := "web", "127.0.0.1"
		if addresses {
			address = ownAddress(k)
		}
		var outbound []string
		for i := range benchServices {
			outbound = append(outbound, fmt.Sprintf(`{"address":%q,"port":%d,"tags":{"kuma.io/service":"svc-%d"}}`,
				address, 20000+i, i))
		}
		if own {
			service = fmt.Sprintf("web-%d", k)
		}
		fmt.Fprintf(&b, `---`+"\n"+
			`{"type":"Dataplane","mesh":"default","name":"web-%d","networking":{"address":"10.9.%d.%d",`+
			`"inbound":[{"port":8080,"tags":{"kuma.io/service":%q,"kuma.io/protocol":"http"}}],"outbound":[%s]}}`+"\n", k,
			k/250, k%250+1, service, strings.Join(outbound, ","))
	}
	return b.String()
}

// benchPolicies returns n policies, a quarter each of four kinds.
func benchPolicies(n int) string {
	var b strings.Builder
	for i := range n / 4 {
		at := fmt.Sprintf(`{"kind":"MeshService","name":"svc-%d"}`, i*100)
		if i == 0 {
			at = `{"kind":"Mesh"}`
		}
		fmt.Fprintf(&b, "---\n"+`{"type":"MeshTimeout","mesh":"default","name":"t-%d","spec":{"targetRef":{"kind":"Mesh"},"to":[{"targetRef":%s,"default":{"idleTimeout":"%ds"}}]}}`+"\n", i, at, 100+i)
		fmt.Fprintf(&b, "---\n"+`{"type":"MeshCircuitBreaker","mesh":"default","name":"c-%d","spec":{"targetRef":{"kind":"Mesh"},"to":[{"targetRef":%s,"default":{"connectionLimits":{"maxConnections":%d}}}]}}`+"\n", i, at, 100+i)
		fmt.Fprintf(&b, "---\n"+`{"type":"MeshRetry","mesh":"default","name":"r-%d","spec":{"targetRef":{"kind":"Mesh"},"to":[{"targetRef":%s,"default":{"http":{"numRetries":%d}}}]}}`+"\n", i, at, 1+i)
		fmt.Fprintf(&b, "---\n"+`{"type":"MeshAccessLog","mesh":"default","name":"l-%d","spec":{"targetRef":{"kind":"Mesh"},"to":[{"targetRef":%s,"default":{"backends":[{"type":"File","file":{"path":"/tmp/log-%d"}}]}}]}}`+"\n", i, at, i)
	}
	return b.String()
}

// process is an agent in a separate process.
type process struct {
	dir string
	cmd *exec.Cmd
	log *agenttest.Logs
}

func startProcess(b testing.TB, binary string, env ...string) *process {
	b.Helper()
	p := &process{dir: agenttest.ShortDir(b), log: agenttest.NewLogs()}
	if err := os.MkdirAll(filepath.Join(p.dir, "resources"), 0o755); err != nil {
		b.Fatal(err)
	}
	p.cmd = exec.Command(binary, "run", "--set", "paths.run="+filepath.Join(p.dir, "run"),
		"--set", "paths.state="+filepath.Join(p.dir, "state"),
		"--set", "paths.logs="+filepath.Join(p.dir, "logs"), "--set", "resources.dir="+filepath.Join(p.dir, "resources"),
		"--set", "dns.listen=",
		"--set", "api.socket.group=", "--set", "xds.socket.group=", "--set", "api.socket.mode=0600")
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Dir = p.dir
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = p.cmd.Process.Signal(os.Interrupt)
		_ = p.cmd.Wait()
		if b.Failed() {
			b.Log(p.log.String())
		}
	})
	return p
}

// status reads a size from /proc/PID/status in KiB.
func (p *process) status(b testing.TB, field string) float64 {
	b.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		b.Skip("no /proc:", err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if rest, ok := strings.CutPrefix(s.Text(), field+":"); ok {
			kb, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				b.Fatal(err)
			}
			return float64(kb)
		}
	}
	b.Fatal("/proc/PID/status has no " + field)
	return 0
}

// cpu returns the process's CPU time.
func (p *process) cpu(b testing.TB) time.Duration {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		b.Skip("no /proc:", err)
	}
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// idle waits until the process has been nearly idle for 12 s, in which it returns memory to the
// system.
func (p *process) idle(b testing.TB) {
	b.Helper()
	tick := time.NewTicker(6 * time.Second)
	defer tick.Stop()
	last := p.cpu(b)
	for quiet := 0; quiet < 3; {
		<-tick.C
		now := p.cpu(b)
		if quiet++; now-last > 100*time.Millisecond {
			quiet = 0
		}
		last = now
	}
}

// subscribeAll connects proxies that subscribe to all resources like Envoys, and waits until each
// has everything.
func subscribeAll(b testing.TB, socket string, proxies, services int) {
	b.Helper()
	var reading sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	b.Cleanup(func() { cancel(); reading.Wait() })
	full := make(chan error, 2*proxies)
	for k := range proxies {
		reading.Go(func() {
			c := fullClient{fmt.Sprintf("default.web-%d", k), services}
			if err := c.run(ctx, socket, func() { full <- nil }); err != nil {
				full <- err
			}
		})
	}
	for range proxies {
		if err := <-full; err != nil {
			b.Fatal(err)
		}
	}
}

// fullClient subscribes to all resources like Envoy: to clusters and their endpoints, then to
// listeners and their routes.
type fullClient struct {
	id       string
	services int // that the mesh has
}

// run reads until the context ends. It calls full once when the client has everything. If the agent
// ends a stream, run opens a new one.
func (c fullClient) run(ctx context.Context, socket string, full func()) error {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20), grpc.WaitForReady(true)))
	if err != nil {
		return err
	}
	defer conn.Close()
	full = sync.OnceFunc(full)
	for ctx.Err() == nil {
		err = c.session(ctx, conn, full)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
	return err
}

func (c fullClient) session(ctx context.Context, conn *grpc.ClientConn, full func()) error {
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return err
	}
	if err := s.Send(&discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: c.id, UserAgentName: "envoy"},
		TypeUrl: draft.TypeCluster}); err != nil {
		return err
	}
	// Resource types that clusters and listeners refer to, and the referenced resources that were
	// received.
	leads := map[string]string{draft.TypeCluster: draft.TypeEndpoint, draft.TypeListener: draft.TypeRoute}
	has := map[string]map[string]bool{draft.TypeEndpoint: {}, draft.TypeRoute: {}}
	for {
		r, err := s.Recv()
		if err != nil {
			return err
		}
		if err := s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce}); err != nil {
			return err
		}
		var names []string
		for _, x := range r.Resources {
			switch to := has[leads[r.TypeUrl]]; {
			case to == nil:
				has[r.TypeUrl][x.Name] = true
			case r.TypeUrl == draft.TypeCluster && !strings.HasPrefix(x.Name, "svc-"):
			default:
				if _, second := to[x.Name]; !second {
					to[x.Name] = false
					names = append(names, x.Name)
				}
			}
		}
		if r.TypeUrl == draft.TypeCluster && len(has[draft.TypeRoute]) == 0 {
			if err := s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: draft.TypeListener}); err != nil {
				return err
			}
		}
		if len(names) > 0 {
			if err := s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: leads[r.TypeUrl],
				ResourceNamesSubscribe: names}); err != nil {
				return err
			}
		}
		there := func(of map[string]bool) (n int) {
			for _, is := range of {
				if is {
					n++
				}
			}
			return n
		}
		if there(has[draft.TypeEndpoint]) == c.services && there(has[draft.TypeRoute]) >= c.services {
			full()
		}
	}
}
