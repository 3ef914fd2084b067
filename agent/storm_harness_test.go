package agent_test

import (
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
	"syscall"
	"testing"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// stormEnv is the environment variable with the directory of an agent. If it is set, the test
// binary runs as that agent.
const stormEnv = "NEARSIDE_TEST_STORM_AGENT"

// stormMain runs an agent if [startStormAgent] started this process. It reports whether that is the
// case.
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
	deps := agent.Deps{Notify: func(string) {}, GCPercent: 40} // same value as in the nearside program
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

// stormAgent is an agent in a separate process, so that tests can measure its CPU time, limit its
// resources, and kill it.
type stormAgent struct {
	t   testing.TB
	dir string
	cmd *exec.Cmd
	log *agenttest.Logs
}

// newStormAgent prepares an agent with a mesh of services and proxies that reach all of them at the
// same addresses. STORM_BINARY selects another build.
func newStormAgent(t testing.TB, services, proxies int) *stormAgent {
	t.Helper()
	return newStormAgentWith(t, services, proxies, func(int) string { return "127.0.0.1" })
}

// newStormAgentWith is like newStormAgent, with the address of the outbounds of each proxy.
func newStormAgentWith(t testing.TB, services, proxies int, address func(proxy int) string) *stormAgent {
	t.Helper()
	a := newEmptyStormAgent(t)
	a.write("mesh.yaml", bigMesh(services, 0))
	for k := range proxies {
		var outbound []string
		for i := range services {
			outbound = append(outbound, fmt.Sprintf(`{"address":%q,"port":%d,"tags":{"kuma.io/service":"svc-%d"}}`,
				address(k), 20000+i, i))
		}
		a.write(fmt.Sprintf("web-%d.yaml", k),
			fmt.Sprintf(`{"type":"Dataplane","mesh":"default","name":"web-%d","networking":{"address":"10.9.%d.%d",`+
				`"inbound":[{"port":8080,"tags":{"kuma.io/service":"web","kuma.io/protocol":"http"}}],"outbound":[%s]}}`+"\n", k,
				k/250, k%250+1, strings.Join(outbound, ",")))
	}
	return a
}

// ownAddress returns an address for the outbounds of one proxy.
func ownAddress(proxy int) string { return fmt.Sprintf("127.%d.%d.1", 1+proxy/250, proxy%250) }

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

// start starts the process, in a control group if one is given.
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
	if group != nil { // before its first instruction
		a.cmd.Args = append([]string{"sh", "-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(group.dir, "cgroup.procs")},
			a.cmd.Args...)
		a.cmd.Path = "/bin/sh"
	}
	a.cmd.Stdout, a.cmd.Stderr = a.log, a.log
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	agenttest.Do(a.t, a.cmd.Start())
	a.t.Cleanup(a.kill)
}

// kill kills the process immediately.
func (a *stormAgent) kill() {
	_ = a.cmd.Process.Kill()
	_ = a.cmd.Wait()
}

// cpu returns the CPU time of the process.
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

// allocated returns the number of bytes that the process has allocated since its start.
func (a *stormAgent) allocated() float64 {
	a.t.Helper()
	for line := range strings.Lines(a.ask(http.MethodGet, "/metrics", "")) {
		if text, ok := strings.CutPrefix(line, "go_memstats_alloc_bytes_total "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			agenttest.Do(a.t, err)
			return n
		}
	}
	return 0
}

// ask repeats an API request until the agent responds.
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

// profile writes a CPU profile of the agent over some seconds to the file named by STORM_PROFILE,
// if it is set. It does not wait. The benchmark waits for the file when it ends.
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

// refused returns the number of streams that the agent has refused, and the metrics by reason.
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
