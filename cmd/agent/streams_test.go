package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

const clusterType = "type.googleapis.com/envoy.config.cluster.v3.Cluster"

type deltaStream = discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient

// openStream subscribes to all clusters of a node.
func openStream(t *testing.T, socket, id string) deltaStream {
	t.Helper()
	s, err := dialStream(t.Context(), t, socket, id)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func dialStream(ctx context.Context, t *testing.T, socket, id string) (deltaStream, error) {
	return dialNode(ctx, t, socket, &core.Node{Id: id})
}

func dialNode(ctx context.Context, t *testing.T, socket string, node *core.Node) (deltaStream, error) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { conn.Close() })
	s, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return nil, err
	}
	return s, s.Send(&discovery.DeltaDiscoveryRequest{Node: node, TypeUrl: clusterType,
		ResourceNamesSubscribe: []string{"*"}})
}

// TestThousandStreams checks that a thousand concurrent streams are served within the memory limit,
// and that the next change reaches all of them.
func TestThousandStreams(t *testing.T) {
	const streams = 1000
	raiseFiles(t, 4*streams)
	dir := quickTemp(t)
	var b strings.Builder
	b.WriteString("type: Mesh\nname: default\n")
	for i := range streams {
		fmt.Fprintf(&b, "---\n{type: Dataplane, mesh: default, name: web-%d, networking: {address: 192.0.2.1, inbound: "+
			"[{port: 80, tags: {kuma.io/service: web}}], outbound: [{port: 9000, tags: {kuma.io/service: backend}}]}}\n", i)
	}
	write(t, dir+"/resources/all.yaml", b.String())
	d := start(t, dir)

	var connected, changed sync.WaitGroup
	failed := make(chan error, 2*streams)
	for i := range streams {
		connected.Add(1)
		changed.Go(func() {
			s, err := dialStream(t.Context(), t, d.xds(), fmt.Sprintf("default.web-%d", i))
			var r *discovery.DeltaDiscoveryResponse
			if err == nil {
				r, err = s.Recv()
			}
			connected.Done()
			if err == nil {
				if err = s.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: clusterType, ResponseNonce: r.Nonce}); err == nil {
					r, err = s.Recv()
				}
			}
			switch {
			case err != nil:
				failed <- fmt.Errorf("stream %d: %w", i, err)
			case len(r.Resources) != 1 || r.Resources[0].Name != "localhost:81":
				failed <- fmt.Errorf("stream %d: the change has %v", i, r.Resources)
			}
		})
	}
	connected.Wait()
	if kb := residentKB(t, d.cmd.Process.Pid); kb > 600<<10 { // the race detector needs most of it
		t.Errorf("%d streams of small configs take %d KiB of memory", streams, kb)
	}
	if code, out, _ := d.nearside("", "inspect", "dataplanes"); code != command.ExitOK ||
		strings.Contains(out, "disconnected") {
		t.Errorf("exit code %d; some are not served", code)
	}
	// In one step: the agent must not read a part of it, without some of the proxies.
	write(t, dir+"/all.yaml", strings.ReplaceAll(b.String(), "port: 80,", "port: 81,"))
	agenttest.Do(t, os.Rename(dir+"/all.yaml", dir+"/resources/all.yaml"))
	changed.Wait()
	close(failed)
	for err := range failed {
		t.Fatal(err)
	}
	if code := d.end(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// raiseFiles raises the open file limit of this process to n.
func raiseFiles(t *testing.T, n uint64) {
	t.Helper()
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		t.Fatal(err)
	}
	if l.Cur >= n {
		return
	}
	if l.Max < n {
		t.Skipf("at most %d files may be open here", l.Max)
	}
	l.Cur = n
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		t.Skipf("the limit of open files cannot be raised: %v", err)
	}
}

func residentKB(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skip(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				t.Fatal(err)
			}
			return kb
		}
	}
	t.Skip("the system does not tell the memory of a process")
	return 0
}

// forgeEnv is an environment variable that makes the test binary request the config of a node on a
// socket and print the result; see [TestForgedNode].
const forgeEnv = "NEARSIDE_TEST_FORGE"

// TestForgedNode checks that another user does not get the config of a node while the proxy of its
// user has a stream.
func TestForgedNode(t *testing.T) {
	if socket := os.Getenv(forgeEnv); socket != "" {
		s, err := dialStream(t.Context(), t, socket, "default.web")
		if err == nil {
			_, err = s.Recv()
		}
		fmt.Printf("code=%s message=%s\n", status.Code(err), status.Convert(err).Message())
		return
	}
	dir := quickTemp(t)
	as := asUser(t, dir, 4243)
	write(t, dir+"/run/x", "")
	write(t, dir+"/resources/web.yaml", webDoc)
	d := start(t, dir, "xds.socket.mode=0666")
	stream := openStream(t, d.xds(), "default.web")
	r, err := stream.Recv()
	if err != nil || len(r.Resources) == 0 {
		t.Fatalf("the proxy itself: %v %v", r, err)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestForgedNode$")
	cmd.Env = append(os.Environ(), forgeEnv+"="+d.xds(), "TMPDIR=/tmp")
	as(cmd)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	agenttest.Contains(t, string(out), "code="+codes.PermissionDenied.String(), "default.web")
	// The connected proxy is not affected.
	write(t, dir+"/resources/web.yaml", strings.ReplaceAll(webDoc, "8080", "8081"))
	if err := stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: clusterType, ResponseNonce: r.Nonce}); err != nil {
		t.Fatal(err)
	}
	if r, err = stream.Recv(); err != nil || r.Resources[0].Name != "localhost:8081" {
		t.Errorf("the proxy itself, after that: %v %v", r, err)
	}
}

// TestUnreadableFile checks that an agent without root privileges reports the file that it cannot
// read and who must grant access.
func TestUnreadableFile(t *testing.T) {
	t.Parallel()
	dir := quickTemp(t)
	as := asUser(t, dir, 4244)
	write(t, dir+"/resources/web.yaml", webDoc)
	write(t, dir+"/resources/secret.yaml", meshDoc("secret", 1))
	if err := os.Chmod(dir+"/resources/secret.yaml", 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"", "/run", "/state", "/logs"} {
		if err := os.MkdirAll(dir+p, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dir+p, 4244, 4244); err != nil {
			t.Fatal(err)
		}
	}
	d := launch(t, dir, as)
	d.says("the agent is ready")
	_, out, _ := d.nearside("", "status")
	agenttest.Contains(t, out, "FAIL file-fault: ", "secret.yaml: cannot be read: ",
		"permission denied", "allow the agent's user to read it")
	if code, _, errs := d.nearside("", "get", "dp", "web"); code != command.ExitOK {
		t.Error(errs)
	}
	if err := os.Chmod(dir+"/resources/secret.yaml", 0o644); err != nil {
		t.Fatal(err)
	}
	d.says("resource file is valid again")
}
