package resolver_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	miekg "github.com/miekg/dns"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/deliver/resolver"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/host/sockets"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/virtualip"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/dns"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
)

// TestMain allows the goroutine of lumberjack, which never ends.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"))
}

// node is a running resolver with the result of the last reconciliation.
type node struct {
	*resolver.Resolver
	t    *testing.T
	last atomic.Pointer[status.Result]
	cfg  *config.Config
	logs *agenttest.Logs
	stop func() error

	domains []string // external names with virtual addresses
}

// newNode returns a resolver with a scripted upstream. The given config keys take precedence.
func newNode(t *testing.T, docs string, set ...string) *node {
	t.Helper()
	n := &node{t: t, logs: agenttest.NewLogs()}
	cfg, _, faults := config.Load(agenttest.Options(t.TempDir(),
		append([]string{"dns.listen=127.0.0.1:0", "dns.upstreams=127.0.0.1:1"}, set...)...))
	if faults != nil {
		t.Fatal(faults)
	}
	n.cfg = cfg
	agenttest.Do(t, os.MkdirAll(cfg.Paths.Logs, 0o750))
	n.reconcile(docs)
	r, err := resolver.New(resolver.Options{Config: cfg, Last: n.last.Load, Log: n.logs.Logger()})
	if err != nil {
		t.Fatal(err)
	}
	n.Resolver = r
	return n
}

// reconcile simulates a reconciliation: new meshes, with the given dataplanes on this node.
func (n *node) reconcile(docs string, local ...string) {
	n.t.Helper()
	if docs == "" {
		n.last.Store(&status.Result{})
		return
	}
	rs, faults := kinds.Registry().Decode("test", []byte(docs))
	if faults != nil {
		n.t.Fatal(faults)
	}
	set := resource.NewSet(rs)
	last := &status.Result{Meshes: map[string]*generate.Mesh{}, Proxies: map[generate.ProxyID]*generate.Proxy{}}
	for _, r := range set.Kind("Mesh") {
		m, err := generate.NewMesh(set, r.Name, mesh.Options{VIPs: virtualip.Options{Domains: n.domains}},
			kinds.Plugins(), policy.Options{}, nil)
		if err != nil {
			n.t.Fatal(err)
		}
		last.Meshes[r.Name] = m
	}
	for _, l := range local {
		in, name, _ := strings.Cut(l, "/")
		last.Proxies[generate.ProxyID{Mesh: in, Name: name}] = nil
	}
	n.last.Store(last)
}

// run opens the sockets and serves queries until the test ends.
func (n *node) run() *node {
	n.t.Helper()
	n.Update()
	agenttest.Do(n.t, n.Open(n.t.Context()))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	n.stop = sync.OnceValue(func() error { cancel(); return <-done })
	n.t.Cleanup(func() {
		if err := n.stop(); err != nil {
			n.t.Error(err)
		}
	})
	return n
}

// ask returns the answer to a question: the response code and the data of the records.
func (n *node) ask(network, name string, qtype uint16) string {
	n.t.Helper()
	return askAt(n.t, n.State().Listen[0], network, name, qtype)
}

func askAt(t *testing.T, at, network, name string, qtype uint16) string {
	t.Helper()
	got, err := answerAt(at, network, name, qtype, patience)
	if err != nil {
		t.Fatalf("%s %s: %v", network, name, err)
	}
	return got
}

func answerAt(at, network, name string, qtype uint16, wait time.Duration) (string, error) {
	m := new(miekg.Msg)
	m.SetQuestion(miekg.Fqdn(name), qtype)
	got, _, err := (&miekg.Client{Net: network, Timeout: wait}).Exchange(m, at)
	if err != nil {
		return "", err
	}
	out := []string{miekg.RcodeToString[got.Rcode]}
	for _, rr := range got.Answer {
		out = append(out, strings.TrimPrefix(rr.String(), rr.Header().String()))
	}
	return strings.Join(out, " "), nil
}

// becomes repeats a query until the answer is as expected, because tables are built
// asynchronously. Lost queries are repeated too, because a full socket buffer drops them.
func (n *node) becomes(name string, qtype uint16, want string) {
	n.t.Helper()
	late := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	got := ""
	for got != want {
		select {
		case <-tick.C:
			answer, err := answerAt(n.State().Listen[0], "udp", name, qtype, time.Second)
			if err == nil {
				got = answer
			} else if timeout := net.Error(nil); !errors.As(err, &timeout) || !timeout.Timeout() {
				n.t.Fatalf("udp %s: %v", name, err)
			}
		case <-late:
			n.t.Fatalf("%s: %q, want %q", name, got, want)
		}
	}
}

func dataplane(in, name, address, service, more string) string {
	return fmt.Sprintf("---\ntype: Dataplane\nmesh: %s\nname: %s\nnetworking:\n  address: %s\n"+
		"  inbound: [{port: 80, tags: {kuma.io/service: %s}}]\n%s", in, name, address, service, more)
}

const oneMesh = "type: Mesh\nname: default\n"

// upstream answers every name with one address, and counts queries.
func upstream(t *testing.T) (addr string, asked *atomic.Int32) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	asked = new(atomic.Int32)
	srv := &miekg.Server{PacketConn: conn, Handler: miekg.HandlerFunc(func(w miekg.ResponseWriter, q *miekg.Msg) {
		asked.Add(1)
		m := new(miekg.Msg)
		m.SetReply(q)
		if q.Question[0].Qtype == miekg.TypeA {
			m.Answer = append(m.Answer, &miekg.A{Hdr: miekg.RR_Header{Name: q.Question[0].Name, Rrtype: miekg.TypeA,
				Class: miekg.ClassINET, Ttl: 60}, A: net.IPv4(198, 51, 100, 7)})
		}
		_ = w.WriteMsg(m)
	})}
	done := make(chan error, 1)
	go func() { done <- srv.ActivateAndServe() }()
	t.Cleanup(func() { _ = srv.Shutdown(); <-done })
	return conn.LocalAddr().String(), asked
}

func reverse(addr string) string {
	name, _ := miekg.ReverseAddr(addr)
	return strings.TrimSuffix(name, ".")
}

// gather returns the metrics of a collector by name and labels, and the counts of histograms.
func gather(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	reg := prometheus.NewRegistry()
	agenttest.Do(t, reg.Register(c))
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			name := f.GetName()
			if labels != nil {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			switch {
			case m.GetCounter() != nil:
				out[name] = m.GetCounter().GetValue()
			case m.GetGauge() != nil:
				out[name] = m.GetGauge().GetValue()
			case m.GetHistogram() != nil:
				out[name] = float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return out
}

// given returns the sockets of an address as a socket unit passes them. Queries queue in them
// before there is an agent.
func given(t *testing.T) (book *sockets.Book, at string) {
	t.Helper()
	udp, tcp, err := dns.Listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"), 1)
	if err != nil {
		t.Fatal(err)
	}
	s := dns.Sockets{UDP: udp, TCP: []*net.TCPListener{tcp.(*net.TCPListener)}}
	files, err := s.Files()
	agenttest.Do(t, err, s.Close())
	named := make([]*os.File, len(files))
	for i, name := range []string{sockets.UnitUDP, sockets.UnitTCP} {
		fd, err := syscall.Dup(int(files[i].Fd()))
		agenttest.Do(t, err, files[i].Close())
		named[i] = os.NewFile(uintptr(fd), name)
	}
	return sockets.New(sockets.Options{Given: named}), tcp.Addr().String()
}

// remade returns the node's resolver with other sockets.
func (n *node) remade(book *sockets.Book) *resolver.Resolver {
	n.t.Helper()
	r, err := resolver.New(resolver.Options{Config: n.cfg, Last: n.last.Load, Sockets: book, Log: n.logs.Logger()})
	if err != nil {
		n.t.Fatal(err)
	}
	return r
}
