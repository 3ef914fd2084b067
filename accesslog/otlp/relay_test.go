package otlp_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/accesslog/accesslogtest"
	"github.com/nearside-mesh/nearside/accesslog/otlp"
	"github.com/nearside-mesh/nearside/accesslog/spool"
)

const exportName = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"

// endpoint is an OpenTelemetry collector at a fixed address.
type endpoint struct {
	t      testing.TB
	addr   string
	server *grpc.Server
	mu     sync.Mutex
	got    []string
	calls  int
	answer func(call int, bodies []string) ([]byte, error) // nil accepts all
	more   chan struct{}
}

func newEndpoint(t testing.TB) *endpoint {
	return &endpoint{t: t, addr: accesslogtest.FreeAddress(t), more: make(chan struct{}, 1)}
}

func (e *endpoint) start() {
	l, err := net.Listen("tcp", e.addr)
	if err != nil {
		e.t.Fatal(err)
	}
	e.server = grpc.NewServer()
	e.server.RegisterService(&grpc.ServiceDesc{ServiceName: "opentelemetry.proto.collector.logs.v1.LogsService",
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Export", Handler: func(_ any, _ context.Context, dec func(any) error,
			_ grpc.UnaryServerInterceptor) (any, error) {
			var request logspb.LogsData
			if err := dec(&request); err != nil {
				return nil, err
			}
			return e.export(&request)
		}}}}, nil)
	ended := make(chan struct{})
	server := e.server
	go func() {
		defer close(ended)
		server.Serve(l)
	}()
	e.t.Cleanup(func() {
		server.Stop()
		<-ended
	})
}

func (e *endpoint) export(request *logspb.LogsData) (any, error) {
	var bodies []string
	for _, r := range request.GetResourceLogs() {
		for _, s := range r.GetScopeLogs() {
			for _, l := range s.GetLogRecords() {
				bodies = append(bodies, l.GetBody().GetStringValue())
			}
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls++
	out := &emptypb.Empty{}
	if e.answer != nil {
		raw, err := e.answer(e.calls, bodies)
		if err != nil {
			return nil, err
		}
		out.ProtoReflect().SetUnknown(raw)
	}
	e.got = append(e.got, bodies...)
	return out, nil
}

// logs returns a request with the records in [from, to).
func logs(from, to int) *logspb.LogsData {
	scope := &logspb.ScopeLogs{}
	for i := from; i < to; i++ {
		scope.LogRecords = append(scope.LogRecords, &logspb.LogRecord{
			Body: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: fmt.Sprint("record ", i)}},
		})
	}
	return &logspb.LogsData{ResourceLogs: []*logspb.ResourceLogs{{ScopeLogs: []*logspb.ScopeLogs{scope}}}}
}

func records(from, to int) (out []string) {
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprint("record ", i))
	}
	return out
}

// relay runs a relay on a Unix socket, and returns a function that calls it.
func relay(t testing.TB, routes ...otlp.Route) (o *otlp.Relay, stop func(),
	call func(authority string, request *logspb.LogsData) (*emptypb.Empty, error)) {
	t.Helper()
	return relayWith(t, otlp.Options{}, routes...)
}

func relayWith(t testing.TB, opts otlp.Options, routes ...otlp.Route) (o *otlp.Relay, stop func(),
	call func(authority string, request *logspb.LogsData) (*emptypb.Empty, error)) {
	t.Helper()
	dir, err := os.MkdirTemp("", "otlp") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	o = otlp.NewRelay(opts)
	for _, r := range routes {
		if err := o.SetRoute(r); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- o.Run(ctx, l) }()
	var mu sync.Mutex
	conns := map[string]*grpc.ClientConn{}
	connect := func(authority string) *grpc.ClientConn {
		mu.Lock()
		defer mu.Unlock()
		if conns[authority] == nil {
			conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithAuthority(authority))
			if err != nil {
				t.Error(err)
			}
			conns[authority] = conn
		}
		return conns[authority]
	}
	stop = sync.OnceFunc(func() {
		for _, c := range conns {
			c.Close()
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return o, stop, func(authority string, request *logspb.LogsData) (*emptypb.Empty, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		out := &emptypb.Empty{}
		return out, connect(authority).Invoke(ctx, exportName, request, out)
	}
}

// routeStats returns the counters of one route.
type routeStats struct {
	o         *otlp.Relay
	authority string
}

func (r routeStats) Stats() accesslog.Stats { return r.o.Stats()[r.authority] }

func onlyMe(p otlp.Peer) error {
	if !p.Known || int(p.UID) != os.Geteuid() || int(p.PID) != os.Getpid() {
		return errors.New("not me")
	}
	return nil
}

func sendLogs(t testing.TB, call func(string, *logspb.LogsData) (*emptypb.Empty, error), authority string,
	from, to int) {
	t.Helper()
	for i := from; i < to; i += 10 {
		if out, err := call(authority, logs(i, i+10)); err != nil || len(out.ProtoReflect().GetUnknown()) > 0 {
			t.Fatal(out, err)
		}
	}
}

// TestOTLPInOrder checks that records arrive at the endpoint of their authority in order, including
// those received while it was down.
func TestOTLPInOrder(t *testing.T) {
	e := newEndpoint(t)
	o, _, call := relay(t, otlp.Route{Authority: "web", Endpoint: e.addr, Allow: onlyMe,
		Spool: spool.Options{Dir: filepath.Join(t.TempDir(), "spool")}})
	sendLogs(t, call, "web", 0, 1000)
	s := accesslogtest.Until(t, routeStats{o, "web"}, "all records on disk", func(s accesslog.Stats) bool {
		return s.Spooled == 1000 && s.Health != ""
	})
	if !strings.Contains(s.Health, e.addr) {
		t.Errorf("%+v", s)
	}
	e.start()
	sendLogs(t, call, "web", 1000, 2000)
	if out, err := call("web", logs(0, 0)); err != nil {
		t.Error(out, err)
	}
	s = accesslogtest.Until(t, routeStats{o, "web"}, "exported", func(s accesslog.Stats) bool { return s.Written == 2000 })
	if e.mu.Lock(); !slices.Equal(e.got, records(0, 2000)) {
		t.Errorf("%d records, %+v", len(e.got), s)
	}
	e.mu.Unlock()
	if s.Dropped != nil || s.Health != "" {
		t.Errorf("%+v", s)
	}
}

// TestOTLPRefusals checks that an unauthorized caller and an unknown authority get the same error,
// and that invalid requests are refused.
func TestOTLPRefusals(t *testing.T) {
	e := newEndpoint(t)
	nobody := func(otlp.Peer) error { return errors.New("nobody may") }
	o, _, call := relayWith(t, otlp.Options{Wait: 50 * time.Millisecond},
		otlp.Route{Authority: "web", Endpoint: e.addr, Allow: nobody},
		otlp.Route{Authority: "mine", Endpoint: e.addr, Allow: onlyMe})
	var unknown, refused error
	var both sync.WaitGroup
	both.Go(func() { _, unknown = call("other", logs(0, 1)) }) // each waits for a route
	both.Go(func() { _, refused = call("web", logs(0, 1)) })
	both.Wait()
	if status.Code(unknown) != codes.Unavailable || refused.Error() != unknown.Error() {
		t.Error(unknown, refused)
	}
	broken := &logspb.LogsData{}
	// scope logs longer than the message that contains them
	broken.ProtoReflect().SetUnknown([]byte{0x0a, 0x02, 0x12, 0x7f})
	if _, err := call("mine", broken); status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
	large := logs(0, 1)
	large.ResourceLogs[0].SchemaUrl = strings.Repeat("x", 5<<20)
	if _, err := call("mine", large); status.Code(err) != codes.ResourceExhausted {
		t.Error(err)
	}
	if s := o.Stats(); s["web"].In != 0 || s["mine"].In != 0 {
		t.Errorf("%+v", s)
	}
	for _, r := range []otlp.Route{
		{Endpoint: e.addr, Allow: onlyMe}, {Authority: "a", Endpoint: e.addr},
		{Authority: "a", Endpoint: "nowhere", Allow: onlyMe},
	} {
		if err := o.SetRoute(r); err == nil {
			t.Errorf("%+v is accepted", r)
		}
	}
}

// TestOTLPAnswers checks the handling of responses: records are retried in order, dropped one
// request at a time, or counted as rejected.
func TestOTLPAnswers(t *testing.T) {
	e := newEndpoint(t)
	wait, err := status.New(codes.ResourceExhausted, "slowly").
		WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Millisecond)})
	if err != nil {
		t.Fatal(err)
	}
	e.answer = func(call int, bodies []string) ([]byte, error) {
		switch {
		case call == 1:
			return nil, status.Error(codes.Unavailable, "later")
		case call == 2:
			return nil, wait.Err()
		case slices.Contains(bodies, "record 25"):
			return nil, status.Error(codes.InvalidArgument, "never")
		case slices.Contains(bodies, "record 55"):
			partial := protowire.AppendVarint([]byte{1 << 3}, 3)
			return protowire.AppendBytes([]byte{1<<3 | 2}, partial), nil
		}
		return nil, nil
	}
	o, _, call := relay(t, otlp.Route{Authority: "web", Endpoint: e.addr, Allow: onlyMe,
		Spool: spool.Options{Dir: filepath.Join(t.TempDir(), "spool")}})
	sendLogs(t, call, "web", 0, 100) // 10 per request
	accesslogtest.Until(t, routeStats{o, "web"}, "all records on disk", func(s accesslog.Stats) bool {
		return s.Spooled == 100
	})
	e.start()
	s := accesslogtest.Until(t, routeStats{o, "web"}, "done", func(s accesslog.Stats) bool {
		return s.Spooled+s.InFlight == 0
	})
	if s.Written != 87 || s.Dropped[accesslog.CauseRejected] != 13 || s.Repeated < 200 {
		t.Errorf("%+v", s)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if want := append(records(0, 20), records(30, 100)...); !slices.Equal(e.got, want) {
		t.Errorf("%d records: %q", len(e.got), e.got)
	}
}

// TestOTLPRestart checks that the next relay exports unsent records, and that they are dropped with
// a discarded route.
func TestOTLPRestart(t *testing.T) {
	e := newEndpoint(t)
	route := otlp.Route{Authority: "web", Endpoint: e.addr, Allow: onlyMe,
		Spool: spool.Options{Dir: filepath.Join(t.TempDir(), "spool")}}
	_, stop, call := relay(t, route)
	sendLogs(t, call, "web", 0, 500)
	stop()
	o, _, call := relay(t, route)
	if s := o.Stats()["web"]; s.Spooled != 500 || s.In != 500 {
		t.Fatalf("%+v", s)
	}
	other := route
	other.Authority, other.Spool.Dir = "gone", filepath.Join(t.TempDir(), "spool")
	if err := o.SetRoute(other); err != nil {
		t.Fatal(err)
	}
	sendLogs(t, call, "gone", 0, 10)
	if err := o.RemoveRoute("gone", true); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(other.Spool.Dir); !os.IsNotExist(err) {
		t.Error(err)
	}
	e.start()
	accesslogtest.Until(t, routeStats{o, "web"}, "exported", func(s accesslog.Stats) bool { return s.Written == 500 })
	if err := o.SetRoute(route); err != nil { // replaces a running route
		t.Fatal(err)
	}
	sendLogs(t, call, "web", 500, 600)
	accesslogtest.Until(t, routeStats{o, "web"}, "exported", func(s accesslog.Stats) bool { return s.Written == 100 })
	e.mu.Lock()
	defer e.mu.Unlock()
	if !slices.Equal(e.got, records(0, 600)) {
		t.Errorf("%d records", len(e.got))
	}
}

// FuzzCountRecords compares countRecords with the protobuf decoder.
func FuzzCountRecords(f *testing.F) {
	seed, err := proto.Marshal(logs(0, 3))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add(append(slices.Clone(seed), seed...))
	f.Fuzz(func(t *testing.T, data []byte) {
		otlp.ParseAnswer(data)
		n, counted := otlp.CountRecords(data)
		var m logspb.LogsData
		if proto.Unmarshal(data, &m) != nil {
			return
		}
		var want uint64
		for _, r := range m.GetResourceLogs() {
			for _, s := range r.GetScopeLogs() {
				want += uint64(len(s.GetLogRecords()))
			}
		}
		if counted != nil || n != want {
			t.Errorf("%d, %v, want %d", n, counted, want)
		}
	})
}
