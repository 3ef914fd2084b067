package agent_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// stormEnv names the directory of the agent that a test binary is.
const stormEnv = "NEARSIDE_TEST_STORM_AGENT"

// stormMain runs an agent in the process that [startStormAgent] starts, and returns whether this is
// one.
func stormMain() bool {
	dir := os.Getenv(stormEnv)
	if dir == "" {
		return false
	}
	cfg, _, faults := config.Load(agenttest.Options(dir, "api.socket.group=", "xds.socket.group="))
	if err := faults.Err(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	deps := agent.Deps{Notify: func(string) {}, GCPercent: 40} // as the program has it, which see
	if _, err := memlimit.Set(memlimit.WithProvider(memlimit.FromCgroup)); err != nil &&
		os.Getenv(stormEnv+"_LIMITED") != "" {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	dieAt(os.Getenv(stormEnv+"_DIE"), &deps)
	if stall, err := time.ParseDuration(os.Getenv(stormEnv + "_STALL")); err == nil {
		deps.Sync = func() error { <-time.After(stall); return nil }
	}
	a, err := agent.New(cfg, deps)
	if err == nil {
		err = a.Run(context.Background())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
	return true
}

// stormAgent is an agent in a process of its own, so that its processor time can be told from that
// of its clients, bounded, and the process be killed.
type stormAgent struct {
	t   testing.TB
	dir string
	cmd *exec.Cmd
	log *agenttest.Logs
}

// newStormAgent prepares one with a mesh of services and proxies that reach all of them.
// STORM_BINARY is another build to take.
func newStormAgent(t testing.TB, services, proxies int) *stormAgent {
	t.Helper()
	a := newEmptyStormAgent(t)
	a.write("mesh.yaml", bigMesh(services, 0))
	var outbound []string
	for i := range services {
		outbound = append(outbound, fmt.Sprintf(`{"port":%d,"tags":{"kuma.io/service":"svc-%d"}}`, 20000+i, i))
	}
	for k := range proxies {
		a.write(fmt.Sprintf("web-%d.yaml", k),
			fmt.Sprintf(`{"type":"Dataplane","mesh":"default","name":"web-%d","networking":{"address":"10.9.%d.%d",`+
				`"inbound":[{"port":8080,"tags":{"kuma.io/service":"web","kuma.io/protocol":"http"}}],"outbound":[%s]}}`+"\n", k,
				k/250, k%250+1, strings.Join(outbound, ",")))
	}
	return a
}

func newEmptyStormAgent(t testing.TB) *stormAgent {
	t.Helper()
	a := &stormAgent{t: t, dir: agenttest.ShortDir(t), log: agenttest.NewLogs()}
	agenttest.Do(t, os.MkdirAll(filepath.Join(a.dir, "resources"), 0o755))
	return a
}

func (a *stormAgent) write(name, text string) {
	a.t.Helper()
	agenttest.Do(a.t, os.WriteFile(filepath.Join(a.dir, "resources", name), []byte(text), 0o644))
}

func (a *stormAgent) socket(name string) string { return filepath.Join(a.dir, "run", name) }

// start starts the process, in a control group where one is given.
func (a *stormAgent) start(group *controlGroup, env ...string) {
	a.t.Helper()
	if binary := os.Getenv("STORM_BINARY"); binary != "" {
		a.cmd = exec.Command(binary, "run")
		for _, set := range []string{"paths.run=" + filepath.Join(a.dir, "run"),
			"paths.state=" + filepath.Join(a.dir, "state"), "paths.logs=" + filepath.Join(a.dir, "logs"),
			"resources.dir=" + filepath.Join(a.dir, "resources"), "dns.listen=", "api.socket.group=", "xds.socket.group="} {
			a.cmd.Args = append(a.cmd.Args, "--set", set)
		}
	} else {
		self, err := os.Executable()
		agenttest.Do(a.t, err)
		a.cmd = exec.Command(self)
		a.cmd.Env = append(os.Environ(), append(env, stormEnv+"="+a.dir)...)
	}
	if group != nil { // from its first instruction on
		a.cmd.Args = append([]string{"sh", "-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(group.dir, "cgroup.procs")},
			a.cmd.Args...)
		a.cmd.Path = "/bin/sh"
	}
	a.cmd.Stdout, a.cmd.Stderr = a.log, a.log
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	agenttest.Do(a.t, a.cmd.Start())
	a.t.Cleanup(a.kill)
}

// kill ends the process at once.
func (a *stormAgent) kill() {
	_ = a.cmd.Process.Kill()
	_ = a.cmd.Wait()
}

// cpu is the processor time that the process has taken.
func (a *stormAgent) cpu() time.Duration {
	a.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", a.cmd.Process.Pid))
	agenttest.Do(a.t, err)
	f := strings.Fields(string(b)[strings.LastIndexByte(string(b), ')')+2:])
	user, err1 := strconv.Atoi(f[11])
	system, err2 := strconv.Atoi(f[12])
	agenttest.Do(a.t, err1, err2)
	return time.Duration(user+system) * 10 * time.Millisecond
}

// ask makes a request of the API until the agent answers.
func (a *stormAgent) ask(method, path, body string) string {
	a.t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context,
		_, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", a.socket("nearside.sock"))
	}}, Timeout: 2 * time.Minute}
	late := time.Now().Add(2 * time.Minute)
	for {
		req, err := http.NewRequest(method, "http://nearside"+path, strings.NewReader(body))
		agenttest.Do(a.t, err)
		resp, err := c.Do(req)
		if err != nil {
			if time.Now().After(late) || method != http.MethodGet {
				a.t.Fatalf("%s %s: %v\n%s", method, path, err, a.log)
			}
			<-time.After(10 * time.Millisecond)
			continue
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		agenttest.Do(a.t, err)
		if resp.StatusCode >= 300 {
			a.t.Fatalf("%s %s: %s %s", method, path, resp.Status, b)
		}
		return string(b)
	}
}

// profile writes what the agent does with its processor time for some seconds to the file that
// STORM_PROFILE names, if any. It does not wait; the benchmark does, when it ends.
func (a *stormAgent) profile(seconds int) {
	file := os.Getenv("STORM_PROFILE")
	if file == "" {
		return
	}
	done := make(chan struct{})
	a.t.Cleanup(func() { <-done })
	go func() {
		defer close(done)
		text := a.ask(http.MethodGet, fmt.Sprintf("/v1/debug/pprof?profile=cpu&seconds=%d", seconds), "")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			a.t.Error(err)
		}
	}()
}

// refused is how many streams the agent has ended, by reason, as its metrics have it.
func (a *stormAgent) refused() (total int, lines string) {
	for line := range strings.Lines(a.ask(http.MethodGet, "/metrics", "")) {
		if strings.HasPrefix(line, "nearside_xds_streams_refused_total") {
			n, _ := strconv.Atoi(strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:]))
			total += n
			lines += line
		}
	}
	return total, lines
}

// stormCodec decodes of responses what a [stormClient] looks at, since hundreds of clients share
// the machine with the agent.
type stormCodec struct{}

func (stormCodec) Name() string { return "proto" }

func (stormCodec) Marshal(v any) ([]byte, error) { return proto.Marshal(v.(proto.Message)) }

func (stormCodec) Unmarshal(b []byte, v any) error {
	r := v.(*stormResponse)
	*r = stormResponse{}
	if keepsResponses.Load() {
		r.raw = bytes.Clone(b)
	}
	return fields(b, func(n protowire.Number, value []byte) error {
		switch n {
		case 2: // a resource
			return fields(value, func(n protowire.Number, value []byte) error {
				if n == 3 {
					r.names = append(r.names, string(value))
				}
				return nil
			})
		case 4:
			r.typeURL = string(value)
		case 5:
			r.nonce = string(value)
		}
		return nil
	})
}

// fields calls f for the fields of a message that have bytes.
func fields(b []byte, f func(protowire.Number, []byte) error) error {
	for len(b) > 0 {
		n, typ, size := protowire.ConsumeTag(b)
		if size < 0 {
			return protowire.ParseError(size)
		}
		b = b[size:]
		if typ != protowire.BytesType {
			if size = protowire.ConsumeFieldValue(n, typ, b); size < 0 {
				return protowire.ParseError(size)
			}
			b = b[size:]
			continue
		}
		value, size := protowire.ConsumeBytes(b)
		if size < 0 {
			return protowire.ParseError(size)
		}
		if err := f(n, value); err != nil {
			return err
		}
		b = b[size:]
	}
	return nil
}

type stormResponse struct {
	typeURL, nonce string
	names          []string
	raw            []byte // where keepsResponses is set
}

// keepsResponses has responses be kept as they are, for tests that look at what stands in them.
var keepsResponses atomic.Bool

// crowdOfClients are delta clients that subscribe to everything as Envoy does, acknowledge
// everything, and come back when their stream ends.
type crowdOfClients struct {
	t        testing.TB
	socket   string
	want     int // listeners and load assignments of each
	served   atomic.Int64
	full     chan int64   // by those that have all: the epoch in which the agent has first answered them
	epoch    atomic.Int64 // how often the agent was started anew
	refusals atomic.Int64
	why      atomic.Pointer[string]
	got      func(k int, typeURL string, names []string)  // after a client was full
	raw      func(k int, typeURL string, response []byte) // the same; nil: nobody
	wg       sync.WaitGroup
	ctx      context.Context
	cancel   func() // all leave
}

func newCrowdOfClients(t testing.TB, a *stormAgent, services, most int) *crowdOfClients {
	ctx, cancel := context.WithCancel(context.Background())
	c := &crowdOfClients{t: t, cancel: cancel, socket: a.socket("xds.sock"), want: 2*services + 1,
		full: make(chan int64, 100*most), ctx: ctx, got: func(int, string, []string) {}}
	t.Cleanup(func() { cancel(); c.wg.Wait() })
	return c
}

// connect lets clients come, all at once.
func (c *crowdOfClients) connect(from, to int) {
	for k := from; k < to; k++ {
		c.wg.Go(func() {
			for n := 0; c.ctx.Err() == nil; n++ {
				err := c.run(k)
				if c.ctx.Err() != nil {
					return
				}
				if code := status.Code(err).String(); code != "Unavailable" { // the agent is there, and has refused
					c.refusals.Add(1)
					text := err.Error()
					c.why.Store(&text)
					<-time.After(time.Second) // Envoy waits up to 30
				}
				<-time.After(20 * time.Millisecond)
			}
		})
	}
}

// run is one stream.
func (c *crowdOfClients) run(k int) error {
	conn, err := grpc.NewClient("unix://"+c.socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20), grpc.ForceCodec(stormCodec{})))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	str, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true},
		discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResources_FullMethodName)
	if err != nil {
		return err
	}
	node := &corev3.Node{Id: fmt.Sprintf("default.web-%d", k), UserAgentName: "envoy"}
	send := func(req *discoveryv3.DeltaDiscoveryRequest) error {
		if err := str.SendMsg(req); err != nil {
			return str.RecvMsg(&stormResponse{}) // why
		}
		return nil
	}
	for _, t := range []string{draft.TypeCluster, draft.TypeListener} {
		if err := send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: t,
			ResourceNamesSubscribe: []string{"*"}}); err != nil {
			return err
		}
	}
	subscribed, count, full, epoch := map[string]bool{}, 0, false, int64(-1)
	for {
		r := &stormResponse{}
		if err := str.RecvMsg(r); err != nil {
			return err
		}
		if epoch < 0 {
			epoch = c.epoch.Load()
		}
		if err := send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.typeURL, ResponseNonce: r.nonce}); err != nil {
			return err
		}
		switch {
		case full:
			c.got(k, r.typeURL, r.names)
			if c.raw != nil {
				c.raw(k, r.typeURL, r.raw)
			}
		case r.typeURL == draft.TypeCluster:
			var names []string
			for _, name := range r.names {
				if strings.HasPrefix(name, "svc-") && !subscribed[name] {
					subscribed[name] = true
					names = append(names, name)
				}
			}
			if err := send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: draft.TypeEndpoint,
				ResourceNamesSubscribe: names}); err != nil {
				return err
			}
		default:
			if count += len(r.names); count >= c.want {
				full = true
				c.served.Add(1)
				c.full <- epoch
			}
		}
	}
}

// await waits until so many clients have all.
func (c *crowdOfClients) await(n int, patience time.Duration) {
	c.t.Helper()
	late := time.After(patience)
	for n > 0 {
		select {
		case epoch := <-c.full:
			if epoch == c.epoch.Load() {
				n--
			}
		case <-late:
			c.t.Fatalf("after %s only %d clients have everything; %d were refused, the last since %s",
				patience, c.served.Load(), c.refusals.Load(), c.reason())
		}
	}
}

func (c *crowdOfClients) reason() string {
	if why := c.why.Load(); why != nil {
		return *why
	}
	return "-"
}
