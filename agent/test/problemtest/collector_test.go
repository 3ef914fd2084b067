package problemtest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// collector is a TCP collector that counts lines. It can stop reading, read slowly, expect TLS,
// reset its connections, and be away.
type collector struct {
	t       *testing.T
	address string
	to      string // a server to which it forwards connections; empty: none
	lines   atomic.Uint64
	slow    atomic.Bool
	tls     atomic.Bool
	all     sync.WaitGroup

	mu      sync.Mutex
	l       net.Listener // nil: away
	conns   map[net.Conn]bool
	reading *sync.Cond // on mu
	reads   bool
}

func newCollector(t *testing.T, to string) *collector {
	c := &collector{t: t, to: to, address: "127.0.0.1:0", conns: map[net.Conn]bool{}, reads: true}
	c.reading = sync.NewCond(&c.mu)
	c.open()
	t.Cleanup(func() { c.read(true); c.reset(); c.close(); c.all.Wait() })
	return c
}

func (c *collector) open() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.l != nil {
		return
	}
	l, err := net.Listen("tcp", c.address)
	agenttest.Do(c.t, err)
	c.l, c.address = l, l.Addr().String()
	c.all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			c.mu.Lock()
			c.conns[conn] = true
			c.mu.Unlock()
			c.all.Go(func() { c.serve(conn) })
		}
	})
}

func (c *collector) serve(conn net.Conn) {
	defer func() {
		conn.Close()
		c.mu.Lock()
		delete(c.conns, conn)
		c.mu.Unlock()
	}()
	if c.tls.Load() { // the alert of a server that got no handshake
		_, _ = conn.Write([]byte{21, 3, 3, 0, 2, 2, 40})
		return
	}
	var next io.WriteCloser
	if c.to != "" {
		server, err := net.Dial("tcp", c.to)
		if err != nil {
			return
		}
		next = server
		defer server.Close()
		c.all.Go(func() { _, _ = io.Copy(conn, server) })
	}
	b := make([]byte, 64<<10)
	for {
		size := len(b)
		if c.slow.Load() {
			size = 1 << 10
			<-time.After(time.Millisecond)
		}
		c.mu.Lock()
		for !c.reads {
			c.reading.Wait()
		}
		c.mu.Unlock()
		n, err := conn.Read(b[:size])
		c.lines.Add(uint64(bytes.Count(b[:n], []byte{'\n'})))
		if next != nil && n > 0 {
			if _, err := next.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (c *collector) read(reads bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads = reads
	c.reading.Broadcast()
}

// reset resets the connections.
func (c *collector) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.conns {
		_ = conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
	}
}

// close makes the collector unavailable for new connections.
func (c *collector) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.l != nil {
		c.l.Close()
		c.l = nil
	}
}

const logsService = "opentelemetry.proto.collector.logs.v1.LogsService"

// records serves an OpenTelemetry collector that counts records, and returns its address.
func records(t *testing.T) (address string, count *atomic.Uint64) {
	count = &atomic.Uint64{}
	export := func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		var request logspb.LogsData
		if err := decode(&request); err != nil {
			return nil, err
		}
		for _, r := range request.GetResourceLogs() {
			for _, s := range r.GetScopeLogs() {
				count.Add(uint64(len(s.GetLogRecords())))
			}
		}
		return &emptypb.Empty{}, nil
	}
	server := grpc.NewServer()
	server.RegisterService(&grpc.ServiceDesc{ServiceName: logsService, HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Export", Handler: export}}}, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	agenttest.Do(t, err)
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.Serve(l) }()
	t.Cleanup(func() { server.Stop(); <-ended })
	return l.Addr().String(), count
}

// exporter returns a function that sends records as the Envoy of a proxy.
func (w *world) exporter(authority string) func(n int) error {
	conn, err := grpc.NewClient("unix:"+filepath.Join(w.dir, "run/otlp.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority(authority))
	agenttest.Do(w.t, err)
	w.t.Cleanup(func() { conn.Close() })
	return func(n int) error {
		scope := &logspb.ScopeLogs{}
		for i := range n {
			scope.LogRecords = append(scope.LogRecords, &logspb.LogRecord{Body: &commonpb.AnyValue{
				Value: &commonpb.AnyValue_StringValue{StringValue: fmt.Sprint(i, strings.Repeat("x", 90))}}})
		}
		return conn.Invoke(w.t.Context(), "/"+logsService+"/Export",
			&logspb.LogsData{ResourceLogs: []*logspb.ResourceLogs{{ScopeLogs: []*logspb.ScopeLogs{scope}}}}, &emptypb.Empty{})
	}
}
