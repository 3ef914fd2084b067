package inject_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"

	"github.com/nearside-mesh/nearside/agent/answer/inject"
	"github.com/nearside-mesh/nearside/agent/test/envoytest"
)

// sidecar is the container of a plan, as the kubelet reads it.
type sidecar struct {
	Command, Args []string
	StartupProbe  struct {
		HTTPGet struct {
			Path string
			Port int
		}
	}
	SecurityContext struct{ RunAsUser, RunAsGroup uint32 }
}

// expand replaces variables as the kubelet does in arguments.
func expand(arg string, env map[string]string) string {
	var b strings.Builder
	for {
		i := strings.IndexByte(arg, '$')
		if i < 0 || i+1 == len(arg) {
			return b.String() + arg
		}
		b.WriteString(arg[:i])
		arg = arg[i:]
		if arg[1] == '$' {
			b.WriteByte('$')
			arg = arg[2:]
			continue
		}
		if end := strings.IndexByte(arg, ')'); arg[1] == '(' && end > 0 {
			if value, ok := env[arg[2:end]]; ok {
				b.WriteString(value)
				arg = arg[end+1:]
				continue
			}
		}
		b.WriteByte('$')
		arg = arg[1:]
	}
}

// agentOf is an xDS server that reports the node of a client, and answers once it is open.
type agentOf struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	nodes chan string
	open  chan struct{}
}

func (a *agentOf) DeltaAggregatedResources(
	s discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	for {
		req, err := s.Recv()
		if err != nil {
			return err
		}
		if n := req.GetNode(); n.GetId() != "" {
			select {
			case a.nodes <- n.GetId() + " " + n.GetCluster():
			default:
			}
		}
		select {
		case <-a.open:
		case <-s.Context().Done():
			return s.Context().Err()
		}
		if req.GetResponseNonce() == "" {
			if err := s.Send(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: req.GetTypeUrl(), Nonce: "1"}); err != nil {
				return err
			}
		}
	}
}

// TestEnvoyStartsAsSidecar runs a real Envoy with the injected command, arguments, and user. It
// must present its node id, be ready only after its first config, and end on SIGTERM.
func TestEnvoyStartsAsSidecar(t *testing.T) {
	envoy := envoytest.Find(t)
	_, pod := template(t, `{"metadata": {"labels": {"app": "we$(POD_IP)b"}, "annotations": {
		"kuma.io/virtual-probes": "true"}}, "spec": {"containers": [{"name": "app",
		"livenessProbe": {"httpGet": {"path": "/live", "port": 8080}}}]}}`)
	edits, _, err := inject.Plan(pod, inject.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var c sidecar
	for _, e := range edits {
		if e.Op == inject.Prepend {
			text, err := json.Marshal(e.Value)
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(text, &c); err != nil {
				t.Fatal(err)
			}
		}
	}
	dir, err := os.MkdirTemp("", "side") // short, because the path of a socket is limited
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	a := &agentOf{nodes: make(chan string, 1), open: make(chan struct{})}
	l, err := net.Listen("unix", filepath.Join(dir, "xds.sock"))
	if err == nil {
		err = os.Chmod(filepath.Join(dir, "xds.sock"), 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, a)
	go func() { _ = server.Serve(l) }()
	defer server.Stop()
	// 127.0.0.77 is the address of the pod: the ports need not be free elsewhere.
	env := map[string]string{"POD_NAME": "web-1", "POD_NAMESPACE": "shop", "POD_IP": "127.0.0.77"}
	var args []string
	for _, arg := range c.Args {
		arg = strings.NewReplacer("/run/nearside/", dir+"/", "/envoy/", dir+"/").Replace(arg)
		args = append(args, expand(arg, env))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, envoy, args...)
	cmd.Stderr = os.Stderr
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: c.SecurityContext.RunAsUser,
			Gid: c.SecurityContext.RunAsGroup}}
		path := filepath.Join(dir, "envoy") // a user without rights may not reach the original
		if err := os.Link(envoy, path); err == nil {
			cmd.Path = path
		} else if data, err := os.ReadFile(envoy); err != nil || os.WriteFile(path, data, 0o755) != nil {
			t.Fatal(err)
		} else {
			cmd.Path = path
		}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() { cancel(); <-ended }()
	select {
	case got := <-a.nodes:
		if got != "default.web-1.shop we$(POD_IP)b.shop" {
			t.Errorf("node %q", got)
		}
	case <-ctx.Done():
		t.Fatal("the Envoy has not connected")
	}
	probe := fmt.Sprintf("http://%s:%d%s", env["POD_IP"], c.StartupProbe.HTTPGet.Port, c.StartupProbe.HTTPGet.Path)
	client := &http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	status := func() int {
		resp, err := client.Get(probe)
		if err != nil {
			return 0
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	if n := status(); n != 0 {
		t.Errorf("status %d before the first config", n)
	}
	close(a.open)
	tick := time.NewTicker(20 * time.Millisecond) // Envoy has no event for being live
	defer tick.Stop()
	for status() != http.StatusOK {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("not ready after the first config")
		}
	}
	envoytest.Terminate(ctx, t, cmd.Process, ended)
}
