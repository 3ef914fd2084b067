package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/host/intercept"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
)

// netNamespace creates a network namespace and returns its path. The namespace ends with its
// thread.
func netNamespace(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: network namespaces and nftables need root")
	}
	began, end, done := make(chan error, 1), make(chan struct{}), make(chan struct{})
	var path string
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		path = fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
		began <- err
		<-end
	}()
	err := <-began
	t.Cleanup(func() { close(end); <-done })
	if err != nil {
		t.Skipf("skipped: a network namespace cannot be made: %v", err)
	}
	return path
}

func TestInterceptCommands(t *testing.T) {
	ns, dir := netNamespace(t), t.TempDir()
	at := []string{"--netns", ns, "--run-dir", dir}
	run := func(want int, args ...string) (out, errs string) {
		t.Helper()
		code, out, errs := runMain(append([]string{"intercept"}, args...)...)
		if code != want {
			t.Errorf("intercept %s: exit code %d, want %d: %s", strings.Join(args, " "), code, want, errs)
		}
		return out, errs
	}
	if out, _ := run(command.ExitNo, append([]string{"status"}, at...)...); !strings.Contains(out, "none") {
		t.Errorf("status of nothing: %s", out)
	}
	// nft must accept the output of --dry-run, and it must equal the installed rules.
	flags := []string{"--user", "1234", "--outbound", "--envoy-user", "5678", "--exclude-outbound-port", "22,9901",
		"--exclude-outbound-cidr", "10.0.0.0/8,fd00::1"}
	text, _ := run(command.ExitOK, append([]string{"install", "--dry-run"}, flags...)...)
	if !strings.HasPrefix(text, "table inet nearside\n") || !strings.Contains(text, "elements = { 1234 }") ||
		!strings.Contains(text, "redirect to :15001") || !strings.Contains(text, "fd00::1/128") {
		t.Errorf("--dry-run prints\n%s", text)
	}
	doc, _ := run(command.ExitOK, append([]string{"install", "--dry-run", "-o", "json"}, flags...)...)
	var plan struct {
		Spec *intercept.Spec
		NFT  string
	}
	if err := json.Unmarshal([]byte(doc), &plan); err != nil || plan.NFT != text || plan.Spec.Users[0] != 1234 {
		t.Errorf("--dry-run -o json: %v, %s", err, doc)
	}
	if _, err := exec.LookPath("nft"); err == nil {
		check := exec.Command("nft", "-c", "-f", "-")
		check.Stdin = strings.NewReader(text)
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("nft does not take what is printed: %v: %s", err, out)
		}
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
		t.Errorf("--dry-run left %v, %v", list, err)
	}
	if _, errs := run(command.ExitTimeout, append(append([]string{"install", "--wait", "1ms"}, flags...),
		at...)...); !strings.Contains(errs, "no agent renews the redirection") {
		t.Errorf("installed without an agent: %s", errs)
	}
	out, errs := run(command.ExitNo, append([]string{"status", "-o", "json"}, at...)...)
	var report struct{ Items []*intercept.Report }
	if err := json.Unmarshal([]byte(out), &report); err != nil || len(report.Items) != 1 ||
		report.Items[0].State != intercept.StateWaiting || report.Items[0].Spec.Outbound != 15001 {
		t.Errorf("status: %v, %s%s", err, out, errs)
	}
	if out, _ := run(command.ExitOK,
		append([]string{"install", "--dns=false", "--inbound"}, at...)...); !strings.Contains(out, intercept.StateTCPOnly) {
		t.Errorf("installed without DNS: %s", out)
	}
	run(command.ExitOK, append([]string{"status"}, at...)...)
	if out, _ := run(command.ExitOK, append([]string{"uninstall"}, at...)...); !strings.HasPrefix(out,
		"uninstalled from") {
		t.Errorf("uninstall: %s", out)
	}
	if out, _ := run(command.ExitOK, append([]string{"uninstall"}, at...)...); !strings.HasPrefix(out,
		"nothing was installed") {
		t.Errorf("uninstall again: %s", out)
	}
}

func TestInterceptFaults(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"install --dns=false", command.ExitUsage, "nothing is redirected"},
		{"install --dns-port 53", command.ExitUsage, "--dns-port: 53"},
		{"install --dns-port 0", command.ExitUsage, "--dns-port is 0"},
		{"install --user nobody-of-that-name", command.ExitUsage, `there is no user "nobody-of-that-name"`},
		{"install --outbound", command.ExitUsage, "--envoy-user is required"},
		{"install --inbound --user 7", command.ExitUsage, "whole network namespace"},
		{"install --exclude-inbound-port 70000", command.ExitUsage, "70000 is not a port"},
		{"install --exclude-outbound-cidr 10.0.0.0/33", command.ExitUsage, "is not a network"},
		{"install --netns run/netns/a", command.ExitUsage, "is a relative path"},
		{"install --netns /etc/hostname", command.ExitFailed, "is no network namespace"},
		{"install --pid 4194305", command.ExitFailed, "there is no network namespace at /proc/4194305"},
		{"install --pid -1", command.ExitUsage, "--pid is -1"},
		{"install --pid 1 --netns /run/netns/a", command.ExitUsage, "give one of them"},
		{"install --dns=false --inbound --run-dir " + filepath.Join(t.TempDir(), "none"), command.ExitUsage,
			"including remote shells"},
	} {
		code, _, errs := runMain(append([]string{"intercept"}, strings.Fields(c.args)...)...)
		if code != c.code || !strings.Contains(errs, c.want) {
			t.Errorf("intercept %s: exit code %d, want %d: %s", c.args, code, c.code, errs)
		}
	}
}
