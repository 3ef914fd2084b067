package problemtest

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// query asks the resolver of the agent for some names outside of the mesh.
func (w *world) query() { w.queries(20) }

// queries asks the resolver of the agent for n names outside of the mesh.
func (w *world) queries(n int) {
	c, err := net.Dial("udp", w.Addrs().DNS[0])
	agenttest.Do(w.t, err)
	defer c.Close()
	for i := range n {
		q := []byte{0, byte(i), 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 2, 'a' + byte(i%26), 'a' + byte(i/26%26), 2,
			'a' + byte(i/26/26%26), 'x', 4, 'r', 'e', 'a', 'l', 0, 0, 1, 0, 1}
		_, err := c.Write(q)
		agenttest.Do(w.t, err)
	}
}

// apply applies documents over the API, which may refuse them.
func (w *world) apply(documents string) {
	_, _ = w.Api().Apply(w.t.Context(), []byte(documents), false)
}

// tmpfs mounts a small file system at a directory of the agent.
func (w *world) tmpfs(name, options string) string {
	dir := filepath.Join(w.dir, name)
	if os.Getuid() != 0 {
		w.t.Skip("only root can mount")
	}
	agenttest.Do(w.t, os.MkdirAll(dir, 0o750))
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		w.t.Skipf("no tmpfs can be mounted here: %v", err)
	}
	w.t.Cleanup(func() { agenttest.Do(w.t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	return dir
}

// stream opens a stream of a proxy that rejects listeners with a reason, or acknowledges all if it
// is "".
func (w *world) stream(id, reason string) { w.streamUntil(w.t.Context(), id, reason) }

// streamUntil is stream with the context of the stream.
func (w *world) streamUntil(ctx context.Context, id, reason string) {
	ads := discoveryv3.NewAggregatedDiscoveryServiceClient(agenttest.Dial(w.t, w.Addrs().XDS))
	s, err := ads.DeltaAggregatedResources(ctx)
	agenttest.Do(w.t, err)
	node := &core.Node{Id: id, UserAgentName: "envoy"}
	for _, url := range []string{draft.TypeCluster, draft.TypeListener} {
		if err := s.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: url}); err != io.EOF {
			agenttest.Do(w.t, err) // EOF: the agent has refused the stream
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			resp, err := s.Recv()
			if err != nil {
				return
			}
			answer := &discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: resp.TypeUrl, ResponseNonce: resp.Nonce}
			if reason != "" && resp.TypeUrl == draft.TypeListener {
				answer.ErrorDetail = &rpcstatus.Status{Code: int32(codes.Internal), Message: reason}
			}
			if s.Send(answer) != nil {
				return
			}
		}
	}()
	w.t.Cleanup(func() { _ = w.Stop(); <-done })
}

// pooled starts another agent of a pool.
func pooled(t *testing.T, name, join string) *agenttest.Running {
	return pooledAt(t, agenttest.Home(t), name, join)
}

// pooledAt is pooled with a directory.
func pooledAt(t *testing.T, dir, name, join string) *agenttest.Running {
	return agenttest.Up(t, dir, agent.Deps{}, "node.name="+name, "gossip.bind=127.0.0.1:0", "gossip.insecure=true",
		"gossip.join="+join)
}
