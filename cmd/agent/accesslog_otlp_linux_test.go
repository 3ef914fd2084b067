package main

import (
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	otlplogs "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// otelCollector counts the received log records by body.
type otelCollector struct {
	mu  sync.Mutex
	got map[string]int
}

func (c *otelCollector) serve(t *testing.T, address string) (stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	agenttest.Do(t, err)
	s := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		var m otlplogs.LogsData // has the same wire format as the request
		if err := stream.RecvMsg(&m); err != nil {
			return err
		}
		c.mu.Lock()
		for _, r := range m.ResourceLogs {
			for _, scope := range r.ScopeLogs {
				for _, x := range scope.LogRecords {
					c.got[x.GetBody().GetStringValue()]++
				}
			}
		}
		c.mu.Unlock()
		return stream.SendMsg(&emptypb.Empty{})
	}))
	go s.Serve(l)
	return s.Stop
}

func (c *otelCollector) bodies() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.got)
}

// above returns how many bodies have a number above n.
func (c *otelCollector) above(n int64) (count int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for body := range c.got {
		if is, err := strconv.ParseInt(strings.TrimLeft(body, "ab"), 10, 64); err == nil && is > n {
			count++
		}
	}
	return count
}

// TestAccessLogRecords checks that an Envoy's log records pass through the agent's socket, where
// the authority selects the route, and that they are retained while the collector is down and
// across a restart of the agent.
func TestAccessLogRecords(t *testing.T) {
	c := &otelCollector{got: map[string]int{}}
	w := newLogging(t)
	w.uid = 65533
	at := agenttest.FreeAddress(t)
	w.log("{type: OpenTelemetry, openTelemetry: {endpoint: '" + at + "', body: '%REQ(X-SEQ)%'}}")
	w.start()
	w.startEnvoy()
	w.inSync(logsTo("/run/otlp.sock"))
	w.noProblems()
	stop := c.serve(t, at)
	w.requests("a", 100)
	w.await("100 records", func() bool { return c.bodies() == 100 })
	stop()

	w.requests("b", 100) // while the collector is down
	w.await("they wait in the agent", func() bool {
		return w.gauge("access_logs.open_telemetry_access_log.logs_written") >= 200
	})
	w.kill(syscall.SIGTERM)
	w.start()
	stop = c.serve(t, at)
	defer stop()
	w.await("200 records", func() bool { return c.bodies() == 200 })
}
