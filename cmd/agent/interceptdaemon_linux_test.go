package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestInterceptionByTheAgent checks that an unmodified program resolves a name of the mesh while an
// agent runs.
func TestInterceptionByTheAgent(t *testing.T) {
	ns := netNamespace(t)
	for _, tool := range []string{"nsenter", "ip", "nft", "getent", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("skipped: %s is not on PATH (Debian: apt-get install util-linux iproute2 nftables libc-bin curl)", tool)
		}
	}
	nsenter, err := exec.LookPath("nsenter")
	if err != nil {
		t.Fatal(err)
	}
	inside := func(args ...string) string {
		t.Helper()
		out, err := exec.Command(nsenter, append([]string{"--net=" + ns}, args...)...).CombinedOutput()
		if err != nil {
			return string(out) + err.Error()
		}
		return string(out)
	}
	if out := inside("sh",
		"-c", "ip link set lo up && ip addr add 10.1.2.3/32 dev lo && ip route add default dev lo src 10.1.2.3"); out != "" {
		t.Fatal(out)
	}
	dir := quickTemp(t)
	agenttest.Do(t, os.Mkdir(filepath.Join(dir, "resources"), 0o755))
	agenttest.Write(t, filepath.Join(dir, "resources", "mesh.yaml"), "{type: Mesh, name: default}\n---\n"+
		"{type: Dataplane, mesh: default, name: api, networking: {address: 10.0.0.1, inbound: [{port: 80, "+
		"tags: {kuma.io/service: api}}]}}\n")
	d := launch(t, dir, func(c *exec.Cmd) {
		c.Args = append([]string{nsenter, "--net=" + ns}, c.Args...)
		c.Path = nsenter
	}, "dns.listen=127.0.0.1:15053", "dns.upstreams=192.0.2.1")
	d.says("the agent is ready")
	at := []string{"--netns", ns, "--socket", d.socket()}
	intercepted := func(want int, args ...string) string {
		t.Helper()
		code, out, errs := runMain(append(append([]string{"intercept"}, args...), at...)...)
		if code != want {
			t.Errorf("intercept %v: exit code %d, want %d: %s%s", args, code, want, out, errs)
		}
		return out
	}
	if out := intercepted(command.ExitOK, "install", "--wait", "1m"); !strings.Contains(out, "active   IPv4,IPv6") {
		t.Errorf("install: %s", out)
	}
	if out := inside("getent", "ahostsv4", "api.mesh"); !strings.HasPrefix(out, "240.") {
		t.Errorf("getent: %s", out)
	}
	if _, out, _ := d.nearside("", "check"); !strings.Contains(out, "ok   interception: 1 redirection is kept alive") ||
		!strings.Contains(out, "1 installed redirection") {
		t.Errorf("check: %s", out)
	}
	if out, err := exec.Command("curl", "-sS", "--unix-socket", d.socket(), "http://agent/metrics").Output(); err != nil ||
		!strings.Contains(string(out), `nearside_dns_interceptions{state="active"} 1`) {
		t.Errorf("metrics: %v", err)
	}
	if code := d.end(syscall.SIGTERM); code != 0 {
		t.Errorf("the agent ended with %d", code)
	}
	for late := time.Now().Add(patience); strings.Contains(inside("nft", "list", "set", "inet", "nearside", "live"),
		"elements"); {
		if time.Now().After(late) { // a holder has the sockets for the next agent
			t.Fatal("the redirection outlives an agent that was stopped")
		}
	}
	intercepted(command.ExitNo, "status")
	intercepted(command.ExitOK, "uninstall")
	if out := inside("nft", "list", "ruleset"); out != "" {
		t.Errorf("left behind: %s", out)
	}
}

// TestInterceptionByRule checks that a running agent redirects a new network namespace that a rule
// of intercept.watch selects, and reports it.
func TestInterceptionByRule(t *testing.T) {
	ns := netNamespace(t)
	for _, tool := range []string{"nsenter", "ip", "nft", "getent", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("skipped: %s is not on PATH (Debian: apt-get install util-linux iproute2 nftables libc-bin curl)", tool)
		}
	}
	inside := func(args ...string) string {
		out, err := exec.Command("nsenter", append([]string{"--net=" + ns}, args...)...).CombinedOutput()
		if err != nil {
			return string(out) + err.Error()
		}
		return string(out)
	}
	if out := inside("sh",
		"-c", "ip link set lo up && ip addr add 10.1.2.3/32 dev lo && ip route add default dev lo src 10.1.2.3"); out != "" {
		t.Fatal(out)
	}
	dir := quickTemp(t)
	agenttest.Do(t, os.Mkdir(filepath.Join(dir, "resources"), 0o755))
	agenttest.Write(t, filepath.Join(dir, "resources", "mesh.yaml"), "{type: Mesh, name: default}\n---\n"+
		"{type: Dataplane, mesh: default, name: api, networking: {address: 10.0.0.1, inbound: [{port: 80, "+
		"tags: {kuma.io/service: api}}]}}\n")
	pattern := filepath.Join(dir, "pod-*")
	file := filepath.Join(dir, "agent.yaml")
	agenttest.Write(t, file, "intercept: {watch: []}\n")
	d := launch(t, dir, func(c *exec.Cmd) { c.Args = append(c.Args, "--config", file) }, "dns.listen=127.0.0.1:0",
		"dns.upstreams=192.0.2.1")
	d.says("the agent is ready")
	reload := func(rules string) {
		t.Helper()
		agenttest.Write(t, file, "intercept: {watch: ["+rules+"]}\n")
		agenttest.Do(t, d.cmd.Process.Signal(syscall.SIGHUP))
	}
	reload("{name: pods, netns: '" + pattern + "'}")
	d.says("config key changed\" key=intercept.watch from=[] to=")
	if _, out, _ := d.nearside("", "check"); !strings.Contains(out, "rule pods (netns "+pattern+"): 0 namespaces") {
		t.Errorf("check without a namespace: %s", out)
	}
	pod := filepath.Join(dir, "pod-7")
	agenttest.Write(t, pod, "")
	if err := unix.Mount(ns, pod, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("skipped: a namespace cannot be mounted: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(pod, unix.MNT_DETACH) })
	d.says("installed interception by a rule")
	d.says("state=active")
	if out := inside("getent", "ahostsv4", "api.mesh"); !strings.HasPrefix(out, "240.") {
		t.Errorf("getent: %s", out)
	}
	if _, out, _ := d.nearside("", "check"); !strings.Contains(out, "1 redirection is kept alive; rule pods (netns "+
		pattern+"): 1 namespace") {
		t.Errorf("check: %s", out)
	}
	if out, err := exec.Command("curl", "-sS", "--unix-socket", d.socket(), "http://agent/metrics").Output(); err != nil ||
		!strings.Contains(string(out), `nearside_intercept_watched{rule="pods",state="installed"} 1`) {
		t.Errorf("metrics: %v", err)
	}
	at := []string{"--netns", ns, "--socket", d.socket()}
	if code, out, errs := runMain(append([]string{"intercept", "status"}, at...)...); code != command.ExitOK ||
		!strings.Contains(out, "pods") {
		t.Errorf("status: exit code %d: %s%s", code, out, errs)
	}
	if code, _, errs := runMain(append([]string{"intercept", "uninstall"}, at...)...); code != command.ExitOK ||
		!strings.Contains(errs, "the rule pods of intercept.watch selects the namespace") {
		t.Errorf("uninstall: exit code %d: %s", code, errs)
	}
	reload("{name: pods, netns: '" + pattern + "', inbound: 15006}")
	d.says(`redirected="DNS to port 15053, inbound TCP to port 15006 of the whole network namespace"`)
	reload("")
	d.says("removed interception that no rule selects")
	if out := inside("nft", "list", "ruleset"); out != "" {
		t.Errorf("left behind: %s", out)
	}
	if code := d.end(syscall.SIGTERM); code != 0 {
		t.Errorf("the agent ended with %d", code)
	}
}
