package main

import (
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
)

// TestDNSPrograms checks that unmodified programs of two C libraries resolve names of the mesh over
// UDP and TCP.
func TestDNSPrograms(t *testing.T) {
	p := newDNSNode(t, false)
	p.intercepted(command.ExitOK, "install")
	for _, options := range []string{"", "options use-vc\n"} {
		for name, want := range map[string]string{"api.mesh": p.vip, "real.example": realAddr} {
			if out := p.output(options, "getent", "hosts", name); !strings.HasPrefix(out, want) {
				t.Errorf("getent hosts %s with %q: %s", name, options, out)
			}
			if out := p.output(options, "getent", "ahosts", name); !strings.HasPrefix(out, want) {
				t.Errorf("getent ahosts %s with %q: %s", name, options, out)
			}
		}
	}
	t.Run("curl", func(t *testing.T) {
		if _, err := exec.LookPath("curl"); err != nil {
			t.Skip("skipped: curl is not on PATH")
		}
		p.must("ip", "addr", "add", p.vip+"/32", "dev", "lo")
		var l net.Listener
		p.within(func() (err error) { l, err = net.Listen("tcp", p.vip+":8080"); return err })
		s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter,
			r *http.Request) {
			_, _ = io.WriteString(w, "hello "+r.Host)
		}), ReadHeaderTimeout: patience}
		done := make(chan struct{})
		go func() { defer close(done); _ = s.Serve(l) }()
		defer func() { _ = s.Close(); <-done }()
		if out := p.output("", "curl", "-sS", "--noproxy", "*", "http://api.mesh:8080/"); out != "hello api.mesh:8080" {
			t.Errorf("curl: %s", out)
		}
	})
	t.Run("musl", func(t *testing.T) {
		musl, err := exec.LookPath("musl-gcc")
		if err != nil {
			t.Skip("skipped: musl-gcc is not on PATH (Debian: apt-get install musl-tools)")
		}
		bin := filepath.Join(t.TempDir(), "resolve")
		if out, err := exec.Command(musl, "-static", "-o", bin, "testdata/resolve.c").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for name, want := range map[string]string{"api.mesh": p.vip, "real.example": realAddr} {
			if out := p.output("", bin, name); strings.TrimSpace(out) != want {
				t.Errorf("musl: %s is %s, want %s", name, out, want)
			}
		}
	})
}

// TestDNSServersOfClients: commands name the server that a program in another namespace queried,
// which is not an upstream of the agent.
func TestDNSServersOfClients(t *testing.T) {
	p := newDNSNode(t, true)
	p.intercepted(command.ExitOK, "install")
	if out := p.output("", "getent", "hosts", "real.example"); !strings.HasPrefix(out, realAddr) {
		t.Errorf("getent: %s", out)
	}
	server := realServerAddr + ":53"
	for _, tc := range []struct {
		want string
		args []string
	}{
		{"clients in " + p.ns + " query " + server + ": ", []string{"dns", "table"}},
		{"gets the answer of the server that it queries: " + server + " in " + p.ns,
			[]string{"explain", "dns", "real.example."}},
	} {
		if _, out, errs := p.agent.nearside("", tc.args...); !strings.Contains(out, tc.want) {
			t.Errorf("nearside %v lacks %q: %s%s", tc.args, tc.want, out, errs)
		}
	}
}
