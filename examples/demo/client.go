package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/xds"
)

const meshDocument = `type: Mesh
name: default
`

// webDocument is the client's Dataplane. The client has no Envoy: its outbound port only names the
// service.
const webDocument = `---
type: Dataplane
mesh: default
name: web
networking:
  address: 127.0.0.1
  inbound:
  - port: 10080
    tags: {kuma.io/service: web, kuma.io/protocol: http}
  outbound:
  - port: 20001
    tags: {kuma.io/service: greeter}
`

// run runs a nearside command against the agent and prints the command with its output.
func (a *agent) run(ctx context.Context, args ...string) error {
	return a.input(ctx, "", args...)
}

func (a *agent) apply(ctx context.Context, documents string) error {
	return a.input(ctx, documents, "apply", "-f", "-")
}

func (a *agent) input(ctx context.Context, stdin string, args ...string) error {
	fmt.Println("    $ nearside", strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, a.binary, append([]string{"--socket", a.socket}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	for line := range bytes.Lines(out) {
		fmt.Printf("    %s", line)
	}
	if err != nil {
		return fmt.Errorf("nearside %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// server is an instance of the service.
type server struct {
	*grpc.Server
	address string
}

func startServer() (*server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &server{grpc.NewServer(), l.Addr().String()}
	grpc_health_v1.RegisterHealthServer(s, health.NewServer())
	go func() { _ = s.Serve(l) }()
	return s, nil
}

func (s *server) dataplane(name string) string {
	host, port, _ := net.SplitHostPort(s.address)
	return fmt.Sprintf(`---
type: Dataplane
mesh: default
name: %s
networking:
  address: %s
  inbound:
  - port: %s
    tags: {kuma.io/service: greeter, kuma.io/protocol: grpc}
`, name, host, port)
}

// client calls the service by its name only.
type client struct{ *grpc.ClientConn }

func dial(socket string) (*client, error) {
	bootstrap, err := json.Marshal(map[string]any{
		"xds_servers": []any{map[string]any{
			"server_uri":      "unix://" + socket,
			"channel_creds":   []any{map[string]any{"type": "insecure"}},
			"server_features": []string{"xds_v3"},
		}},
		"node": map[string]any{"id": "default.web"},
	})
	if err != nil {
		return nil, err
	}
	resolver, err := xds.NewXDSResolverWithConfigForTesting(bootstrap)
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient("xds:///greeter", grpc.WithResolvers(resolver),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	return &client{conn}, nil
}

// round is the number of calls that show which instances respond.
const round = 8

// expect makes rounds of calls until exactly the instances at these addresses respond in one round.
func (c *client) expect(ctx context.Context, addresses ...string) error {
	began := time.Now()
	slices.Sort(addresses)
	for {
		got := map[string]int{}
		for range round {
			var p peer.Peer
			_, err := grpc_health_v1.NewHealthClient(c).Check(ctx, &grpc_health_v1.HealthCheckRequest{}, grpc.Peer(&p),
				grpc.WaitForReady(true))
			if ctx.Err() != nil {
				return fmt.Errorf("waiting for answers from %v: %w; the last round was answered by %v", addresses, ctx.Err(), got)
			}
			if err == nil {
				got[p.Addr.String()]++
			}
		}
		if slices.Equal(slices.Sorted(maps.Keys(got)), addresses) {
			for _, a := range addresses {
				fmt.Printf("    %d of %d calls answered by %s\n", got[a], round, a)
			}
			fmt.Printf("    (%d ms after the change)\n", time.Since(began).Milliseconds())
			return nil
		}
	}
}
