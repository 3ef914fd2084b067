package bootstrap_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/nearside-mesh/nearside/agent/compute/bootstrap"
	"github.com/nearside-mesh/nearside/agent/test/envoytest"
)

// ads is an xDS server that reports the metadata and certificate of the first stream.
type ads struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	streams chan stream
}

type stream struct {
	authorization []string
	nodeID        string
	certified     bool // the client presented a valid certificate
}

func (a *ads) DeltaAggregatedResources(s discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	req, err := s.Recv()
	if err != nil {
		return err
	}
	md, _ := metadata.FromIncomingContext(s.Context())
	got := stream{authorization: md.Get("authorization"), nodeID: req.GetNode().GetId()}
	if p, ok := peer.FromContext(s.Context()); ok {
		info, _ := p.AuthInfo.(credentials.TLSInfo)
		got.certified = len(info.State.VerifiedChains) > 0
	}
	select {
	case a.streams <- got:
	default: // Envoy reconnects
	}
	return status.Error(codes.Unavailable, "seen")
}

// TestEnvoyShowsToken checks that a real Envoy with a rendered bootstrap reaches the agent over the
// socket and over TCP with mTLS, and that it sends its token.
func TestEnvoyShowsToken(t *testing.T) {
	envoy := envoytest.Find(t)
	const token = "aB-_9.b.c"
	cert, key := selfSigned(t)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	authorities := x509.NewCertPool()
	pem, err := os.ReadFile(cert)
	if err != nil || !authorities.AppendCertsFromPEM(pem) {
		t.Fatal("no authority: ", err)
	}
	dir, err := os.MkdirTemp("", "boot") // short, because the path of a socket is limited
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "xds.sock")
	for name, c := range map[string]struct {
		network, address string
		creds            credentials.TransportCredentials
		certified        bool
	}{
		"socket": {"unix", socket, nil, false},
		"TCP with mTLS": {"tcp", "127.0.0.1:0", credentials.NewTLS(&tls.Config{
			Certificates: []tls.Certificate{pair}, ClientCAs: authorities, ClientAuth: tls.RequireAndVerifyClientCert,
			MinVersion: tls.VersionTLS12,
		}), true},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen(c.network, c.address)
			if err != nil {
				t.Fatal(err)
			}
			var options []grpc.ServerOption
			if c.creds != nil {
				options = append(options, grpc.Creds(c.creds))
			}
			server, seen := grpc.NewServer(options...), &ads{streams: make(chan stream, 1)}
			discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, seen)
			go func() { _ = server.Serve(l) }()
			defer server.Stop()

			o := bootstrap.Options{Mesh: "m", Name: "n", Token: token}
			if c.network == "unix" {
				o.XDSSocket = socket
			} else {
				_, port, _ := net.SplitHostPort(l.Addr().String())
				tcp("localhost:"+port, cert, cert, key)(&o)
			}
			out, err := bootstrap.Render(o)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "envoy.yaml")
			if err := os.WriteFile(file, out, 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			cmd := exec.CommandContext(ctx, envoy, "-c", file, "--disable-hot-restart", "--concurrency", "1", "-l", "error")
			cmd.Stderr = os.Stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { cancel(); _ = cmd.Wait() }()
			select {
			case got := <-seen.streams:
				if len(got.authorization) != 1 || got.authorization[0] != "Bearer "+token || got.nodeID != "m.n" ||
					got.certified != c.certified {
					t.Errorf("the stream came with %+v", got)
				}
			case <-ctx.Done():
				t.Error("Envoy did not reach the server")
			}
		})
	}
}
