package ads_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/deliver/ads"
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Short names of the types.
const (
	cds = draft.TypeCluster
	eds = draft.TypeEndpoint
	lds = draft.TypeListener
	rds = draft.TypeRoute
)

// shortType returns the short name of a type, for messages.
func shortType(url string) string {
	return map[string]string{cds: "CDS", eds: "EDS", lds: "LDS", rds: "RDS", draft.TypeSecret: "SDS"}[url]
}

// config returns a sealed config of words "TYPE:name=body". The same words give the same versions.
func config(words ...string) *draft.Sealed {
	s := &draft.Sealed{}
	for _, word := range words {
		kind, rest, _ := strings.Cut(word, ":")
		name, body, _ := strings.Cut(rest, "=")
		rank := draft.Rank(map[string]string{"CDS": cds, "EDS": eds, "LDS": lds, "RDS": rds}[kind])
		s.Resources[rank] = append(s.Resources[rank], resourceOf(rank, name, body))
	}
	return seal(s)
}

func seal(s *draft.Sealed) *draft.Sealed {
	for rank := range s.Resources {
		slices.SortFunc(s.Resources[rank], func(a, b *draft.Resource) int { return strings.Compare(a.Name, b.Name) })
		h := sha256.New()
		for _, r := range s.Resources[rank] {
			fmt.Fprintf(h, "%s %s\n", r.Name, r.Version)
		}
		s.Versions[rank] = hex.EncodeToString(h.Sum(nil)[:8])
	}
	return s
}

// versionsOf returns the versions that a client of this config reports for a type.
func versionsOf(s *draft.Sealed, typeURL string) map[string]string {
	out := map[string]string{}
	for _, r := range s.Resources[draft.Rank(typeURL)] {
		out[r.Name] = r.Version
	}
	return out
}

// agent is a running server on a Unix socket.
type agent struct {
	*ads.Server
	*rollout.Proxies
	t    testing.TB
	path string
	stop func()

	mu       sync.Mutex
	latest   *draft.Sealed    // the config for a node that connects
	withheld []draft.Withheld // with latest
	revision uint64           // the revision of published configs
}

// ownDrain is the type of [ads.ServerOptions].Drain.
type ownDrain = func(context.Context, node.Ref, *access.Peer, *api.DrainRequest) (*api.Drain, *api.Error)

// options are the options of rollout and of the server.
type options struct {
	Log      *slog.Logger
	Now      func() time.Time
	Registry prometheus.Registerer

	Changed, Rejected, Forgot                      func()
	Stored                                         func(node.Ref) uint64
	UnknownGrace, RemovalWait, WarmWait, DrainTime time.Duration
	HandoverTime, AckTimeout                       time.Duration
	Handler                                        ads.StreamHandler
	Inbounds                                       func(node.Ref, *access.Process, []string)
	Authorize                                      func(*access.Peer, node.Ref) (access.Grant, error)
	Examine                                        func(access.Stream, node.Ref) api.Admission
	Drain                                          ownDrain
	Metadata                                       [][]string
	FirstRequestTimeout                            time.Duration
	MaxStreams, MaxPeerStreams, MaxPeerSilent      uint32
	MaxPeerConns, RecvBytes                        int
	MaxPeerBytes, MaxPeerRequests                  int64
}

func (o options) servers() (*rollout.Proxies, *ads.Server) {
	p := rollout.New(rollout.Options{Log: o.Log, Now: o.Now, Registry: o.Registry, Changed: o.Changed,
		Rejected: o.Rejected, Forgot: o.Forgot, Stored: o.Stored, UnknownGrace: o.UnknownGrace,
		RemovalWait: o.RemovalWait, WarmWait: o.WarmWait, DrainTime: o.DrainTime, HandoverTime: o.HandoverTime,
		AckTimeout: o.AckTimeout, Inbounds: o.Inbounds})
	return p, ads.NewServer(p, ads.ServerOptions{Log: o.Log, Now: o.Now, Registry: o.Registry, Handler: o.Handler,
		Authorize: o.Authorize, Examine: o.Examine, Drain: o.Drain, Metadata: o.Metadata,
		FirstRequestTimeout: o.FirstRequestTimeout,
		MaxStreams:          o.MaxStreams, MaxPeerStreams: o.MaxPeerStreams, MaxPeerSilent: o.MaxPeerSilent,
		MaxPeerConns: o.MaxPeerConns, RecvBytes: o.RecvBytes, MaxPeerBytes: o.MaxPeerBytes,
		MaxPeerRequests: o.MaxPeerRequests})
}

// farListener presents clients of loopback addresses as clients of other nodes, 10.0.0.9 for
// 127.0.0.9. On loopback the kernel reports the client's process.
type farListener struct{ net.Listener }

func (l farListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return farConn{c}, nil
}

type farConn struct{ net.Conn }

func (c farConn) RemoteAddr() net.Addr {
	a, ok := c.Conn.RemoteAddr().(*net.TCPAddr)
	if !ok || !a.IP.IsLoopback() {
		return c.Conn.RemoteAddr()
	}
	far := slices.Clone(a.IP.To4())
	far[0] = 10
	return &net.TCPAddr{IP: far, Port: a.Port}
}

func startAgent(t testing.TB, o options, extra ...net.Listener) *agent {
	t.Helper()
	dir, err := os.MkdirTemp("", "xds")
	if err != nil {
		t.Fatal(err)
	}
	o.FirstRequestTimeout = cmp.Or(o.FirstRequestTimeout, patience)
	p, server := o.servers()
	a := &agent{Server: server, Proxies: p, t: t, path: filepath.Join(dir, "xds.sock")}
	l, err := net.Listen("unix", a.path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	for i := range extra {
		extra[i] = farListener{extra[i]}
	}
	go func() { done <- a.Serve(ctx, append(extra, l)...) }()
	a.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
		os.RemoveAll(dir)
	})
	t.Cleanup(a.stop)
	return a
}

// serving starts an agent that serves each node the last pushed config, initially cfg.
func serving(t testing.TB, cfg *draft.Sealed) *agent { return servingWith(t, cfg, options{}) }

func servingWith(t testing.TB, cfg *draft.Sealed, o options, extra ...net.Listener) *agent {
	t.Helper()
	var a *agent
	changed := make(chan struct{}, 1)
	onChange := o.Changed
	o.Changed = func() {
		if onChange != nil {
			onChange()
		}
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	o.Handler = onOpen(func(s access.Stream) error {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.give(s.Key, a.latest)
		return nil
	})
	a = startAgent(t, o, extra...)
	a.latest = cfg
	a.Ready()
	done, ended := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(done); <-ended })
	go func() { // publishes the last pushed config whenever the server requests it
		defer close(ended)
		for {
			select {
			case <-changed:
				a.mu.Lock()
				if len(a.withheld) > 0 {
					a.give(web, a.latest)
				}
				for _, p := range a.Progress() {
					if p.State == api.StateUnknown { // its config was dropped with the previous stream
						a.give(p.Node, a.latest)
					}
				}
				a.mu.Unlock()
			case <-done:
				return
			}
		}
	}()
	return a
}

func (a *agent) give(key node.Key, cfg *draft.Sealed) {
	a.Publish(map[node.Key]rollout.Config{key: {Sealed: cfg, Revision: a.revision, LastStream: everyStream,
		Withheld: a.withheld, Listeners: a.Listeners(key)}})
}

// everyStream states that a config includes the state for all streams, including those that are
// still connecting.
const everyStream = math.MaxUint64

// web is the node in most tests.
var web = node.Key{ID: "default.web", Flavor: node.FlavorEnvoy}

// push publishes a config for web, from which the check withholds some resources, given as
// "TYPE:name".
func (a *agent) push(cfg *draft.Sealed, withheld ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.latest, a.withheld = without(cfg, a.latest, withheld)
	a.revision++
	a.give(web, a.latest)
}

// without replaces withheld resources by their last published form, or removes them.
func without(cfg, last *draft.Sealed, words []string) (*draft.Sealed, []draft.Withheld) {
	if len(words) == 0 {
		return cfg, nil
	}
	if last == nil {
		last = &draft.Sealed{}
	}
	var list []draft.Withheld
	var older envoy.Snapshot
	out := *cfg
	for _, word := range words {
		kind, name, _ := strings.Cut(word, ":")
		url := map[string]string{"CDS": cds, "EDS": eds, "LDS": lds, "RDS": rds}[kind]
		w := draft.Withheld{ID: draft.ResourceID{TypeURL: url, Name: name}, Rule: 20, Reason: name + " is unfit"}
		if rank := draft.Rank(url); rank >= 0 {
			if w.Resource = draft.Find(cfg.Resources[rank], name); w.Resource == nil {
				continue
			}
			if form := draft.Find(last.Resources[rank], name); form != nil {
				older[rank] = append(older[rank], form)
			} else {
				out.Resources[rank] = draft.Merge(out.Resources[rank], nil, func(n string) bool { return n == name })
			}
		}
		list = append(list, w)
	}
	out.Resources = draft.Substitute(&out.Resources, &older, &last.Resources)
	for rank := range out.Resources {
		out.Resources[rank] = slices.Clone(out.Resources[rank])
	}
	return seal(&out), list
}

func (a *agent) status(id string) api.ProxyStatus {
	a.t.Helper()
	for _, p := range a.Status() {
		if p.NodeID == id {
			return p
		}
	}
	a.t.Fatalf("no status of %s", id)
	return api.ProxyStatus{}
}

func typeStatus(t testing.TB, p api.ProxyStatus, typeURL string) api.TypeStatus {
	t.Helper()
	for _, ts := range p.Types {
		if ts.TypeURL == typeURL {
			return ts
		}
	}
	t.Fatalf("no status of %s", shortType(typeURL))
	return api.TypeStatus{}
}

// wait polls a condition until it holds or the time limit expires.
func (a *agent) wait(cond func() bool) {
	a.t.Helper()
	for end := time.Now().Add(patience); !cond(); runtime.Gosched() {
		if time.Now().After(end) {
			a.t.Fatal("the condition did not come true")
		}
	}
}

// onOpen is a handler that implements only Opened.
type onOpen func(access.Stream) error

func (f onOpen) Opened(s access.Stream) error { return f(s) }
func (onOpen) Closed(access.Stream)           {}

// dial connects to the agent.
func (a *agent) dial(opts ...grpc.DialOption) *grpc.ClientConn {
	a.t.Helper()
	return dialTo(a.t, "unix://"+a.path, opts...)
}

func dialTo(t testing.TB, target string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(target, append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64 << 20))}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func nodeOf(id string) *corev3.Node { return &corev3.Node{Id: id} }

// patience is how long a test waits for an expected event, also on a busy machine.
const patience = 2 * time.Minute

// deadline returns the context of a client, so that a lost response fails the test instead of
// blocking it.
func deadline(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}
