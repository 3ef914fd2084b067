package redirects_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/deliver/redirects"
	"github.com/nearside-mesh/nearside/agent/host/intercept"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// installer records installations.
type installer struct {
	gate  chan struct{} // if not nil, each installation waits for a value
	mu    sync.Mutex
	fail  error
	hosts []netip.Prefix
	in    map[string]string // by Dataplane: the process and the spec
	calls int
}

func (f *installer) Install(e intercept.Envoy, dataplane string, s intercept.Spec) (uint64, bool, error) {
	if f.gate != nil {
		<-f.gate
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	if f.fail != nil {
		return 0, false, f.fail
	}
	f.in[dataplane] = fmt.Sprintf("pid %d: %+v", e.PID, s)
	return uint64(e.PID), true, nil
}

func (f *installer) HostAddresses() ([]netip.Prefix, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hosts, nil
}

func (f *installer) Has(_ uint64, dataplane string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.in[dataplane] != ""
}

func (f *installer) Remove(dataplane string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.in, dataplane)
	return nil
}

func (f *installer) Dataplanes() (out []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for d := range f.in {
		out = append(out, d)
	}
	return out
}

// set changes the installer.
func (f *installer) set(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

// scene is a Redirects with a recorded installer.
type scene struct {
	*redirects.Redirects
	*installer
	t     *testing.T
	store *store.Store
}

func newScene(t *testing.T, change func(*redirects.Options)) *scene {
	s := &scene{t: t, store: agenttest.Memory(t), installer: &installer{in: map[string]string{}}}
	o := redirects.Options{Store: s.store, Installer: s.installer, Enabled: true, DNSPort: 15053,
		Virtual: []netip.Prefix{netip.MustParsePrefix("240.0.0.0/8")}}
	if change != nil {
		change(&o)
	}
	var err error
	if s.Redirects, err = redirects.New(o); err != nil {
		t.Fatal(err)
	}
	return s
}

const (
	uid = "0a1b"
	web = `{type: Dataplane, mesh: default, name: web.shop, labels: {nearside.io/redirect: pod, nearside.io/pod: 0a1b}, ` +
		`networking: {address: 10.1.1.1, inbound: [{port: 8080, tags: {kuma.io/service: web}}], ` +
		`transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001}}}`
)

// put stores a resource, as a file does, and returns it.
func (s *scene) put(text string, source string) *resource.Resource {
	s.t.Helper()
	rs, faults := kinds.Registry().Decode("test", []byte(text))
	if err := faults.Err(); err != nil {
		s.t.Fatal(err)
	}
	src := store.Source{Kind: source, Detail: "x"}
	if _, err := s.store.Apply(store.Batch{Source: src, Ops: []store.Op{{Put: rs[0], Source: src}}}); err != nil {
		s.t.Fatal(err)
	}
	return rs[0]
}

// stream returns a stream of an Envoy in a pod.
func stream(pid int32, pod string) access.Stream {
	return access.Stream{Key: node.Key{ID: "default.web.shop", Flavor: node.FlavorEnvoy},
		Peer: access.Peer{Local: true, UID: 5678, PID: pid, Cgroup: "/kubepods/burstable/pod" + pod + "/c1",
			Process: &access.Process{ID: fmt.Sprint(pid), Pidfd: os.Stdin}}}
}

func (s *scene) problems() string {
	var out []string
	for _, p := range s.Problems() {
		out = append(out, p.Resource+" "+p.Severity+": "+p.Reason)
	}
	return strings.Join(out, "\n")
}

// TestBlocked: an Envoy is blocked until the namespace of its process is redirected, whether its
// Dataplane or its stream comes first, and again when another process connects.
func TestBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changes := 0
		s := newScene(t, func(o *redirects.Options) { o.Changed = func() { changes++ } })
		s.gate = make(chan struct{})
		installed := func() {
			t.Helper()
			synctest.Wait()
			s.gate <- struct{}{}
			synctest.Wait()
		}
		go s.Run(t.Context())
		blocked := func(what string, r *resource.Resource, want bool) {
			t.Helper()
			if got := s.Blocked(stream(1, uid).Key, r); got != want {
				t.Errorf("%s: blocked %t", what, got)
			}
		}
		first := stream(100, uid)
		s.Opened(first)
		synctest.Wait()
		blocked("without a Dataplane", nil, false)
		r := s.put(web, store.SourceFile)
		synctest.Wait()
		blocked("before the installation", r, true)
		installed()
		blocked("after it", r, false)
		if changes == 0 || !strings.HasPrefix(s.in["Dataplane/default/web.shop"], "pid 100") {
			t.Errorf("%d changes, installed %v", changes, s.in)
		}
		second := stream(200, uid)
		s.Opened(second)
		synctest.Wait()
		blocked("another process", r, true)
		installed()
		blocked("after it is redirected", r, false)
		s.Opened(second) // it reconnects
		synctest.Wait()
		blocked("the same process", r, false)
		installed()
		for range 3 {
			s.Closed(second)
		}
		blocked("without a stream", r, true)
		synctest.Wait()
		if s.in["Dataplane/default/web.shop"] == "" {
			t.Error("the redirection ended with the stream")
		}
	})
}

// TestFailure: a failed installation is a problem of the Dataplane, and is repeated. A failed
// change leaves the previous redirection in force.
func TestFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil)
		s.fail = errors.New("no rights")
		go s.Run(t.Context())
		r := s.put(web, store.SourceFile)
		s.Opened(stream(100, uid))
		synctest.Wait()
		const want = "Dataplane/default/web.shop error: it gets no config, because its traffic cannot be redirected: " +
			"no rights"
		if got := s.problems(); got != want || !s.Blocked(stream(100, uid).Key, r) {
			t.Errorf("problems %q", got)
		}
		if st := s.Status(); st.Failed != 1 || !strings.HasSuffix(st.Fault, "no rights") {
			t.Errorf("status %+v", st)
		}
		time.Sleep(40 * time.Second)
		synctest.Wait()
		if s.calls < 5 || s.calls > 8 {
			t.Errorf("%d attempts in 40 s", s.calls)
		}
		s.set(func() { s.fail = nil })
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := s.problems(); got != "" || s.Blocked(stream(100, uid).Key, r) {
			t.Errorf("afterwards: %q", got)
		}
		calls := s.calls
		time.Sleep(time.Minute)
		synctest.Wait()
		if s.calls != calls {
			t.Errorf("%d attempts without a reason", s.calls-calls)
		}

		s.set(func() { s.fail = errors.New("busy") })
		r = s.put(strings.Replace(web, "redirectPortInbound: 15006", "redirectPortInbound: 15007", 1), store.SourceFile)
		synctest.Wait()
		const stale = "its changed redirection is not in force, the previous one is: busy"
		if got := s.problems(); !strings.HasSuffix(got, stale) || s.Blocked(stream(100, uid).Key, r) {
			t.Errorf("a failed change: %q", got)
		}
		s.set(func() { s.fail = nil })
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := s.in["Dataplane/default/web.shop"]; s.problems() != "" || !strings.Contains(got, "Inbound:15007") {
			t.Errorf("the change: %s", got)
		}
	})
}

// TestLook: removed installations, and other addresses of the node, are noticed. Installations for
// which no Dataplane asks are removed, except if there is no Dataplane.
func TestLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil)
		s.in["Dataplane/default/old.shop"], s.in["Dataplane/default/gone.shop"] = "x", "x"
		s.put(strings.NewReplacer("web.shop", "old.shop", "nearside.io/redirect: pod, ", "").Replace(web), store.SourceFile)
		go s.Run(t.Context())
		synctest.Wait()
		if s.Has(0, "Dataplane/default/old.shop") || !s.Has(0, "Dataplane/default/gone.shop") {
			t.Errorf("installed %v", s.Dataplanes())
		}
		s.put(strings.Replace(web, "15001}", "15001, redirect: {probePorts: [8080]}}", 1), store.SourceFile)
		s.Opened(stream(100, uid))
		synctest.Wait()
		if st := s.Status(); st.Redirected != 1 || st.Probes != 1 {
			t.Errorf("status %+v", st)
		}
		for name, change := range map[string]func(){
			"removed":   func() { delete(s.in, "Dataplane/default/web.shop") },
			"addresses": func() { s.hosts = []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")} },
		} {
			calls := s.calls
			s.set(change)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if s.calls != calls+1 || !s.Has(0, "Dataplane/default/web.shop") {
				t.Errorf("%s: %d calls, installed %v", name, s.calls-calls, s.Dataplanes())
			}
		}
	})
}

// TestSpec checks what a Dataplane asks for, and the reasons why it gets nothing.
func TestSpec(t *testing.T) {
	replace := func(old, with string) string { return strings.Replace(web, old, with, 1) }
	options := func(o string) string { return replace("15001}", "15001, redirect: {"+o+"}}") }
	for _, c := range []struct {
		name, text string
		stream     access.Stream
		source     string
		disabled   bool
		want       []string
	}{
		{name: "all", text: web, want: []string{"DNSPort:15053", "Outbound:15001", "Inbound:15006",
			"ExcludeInboundPorts:[9902]", "Virtual:0"}},
		{name: "options", text: options("excludeInboundPorts: [22], excludeOutboundPorts: [25], probePorts: [8081], " +
			"excludeInboundIPs: [10.9.0.0/16], excludeOutboundIPs: [10.8.8.8], withoutDNS: true"),
			want: []string{"DNSPort:0", "ExcludeInboundPorts:[22 9902]", "ExcludeOutboundPorts:[25]", "ProbePorts:[8081]",
				"ExcludeInboundCIDRs:[10.9.0.0/16]", "ExcludeOutboundCIDRs:[10.8.8.8/32]"}},
		{name: "DNS port", text: options("dnsPort: 1053"), want: []string{"DNSPort:1053"}},
		{name: "virtual", text: replace("labels: {", `labels: {nearside.io/redirect-port-virtual: "15002", `),
			want: []string{"Virtual:15002", "VirtualCIDRs:[240.0.0.0/8]"}},
		{name: "gateway", text: replace("inbound: [{port: 8080, tags: {kuma.io/service: web}}]",
			"gateway: {tags: {kuma.io/service: web}}"), want: []string{"Inbound:0", "Outbound:15001"}},
		{name: "API", text: web, source: store.SourceAPI, want: []string{"Outbound:15001"}},
		{name: "disabled", text: web, disabled: true, want: []string{"intercept.pods is false; set intercept.pods: true"}},
		{name: "metadata", text: web, source: store.SourceEnvoy, want: []string{"only a Dataplane of a file or of the API"}},
		{name: "peer", text: web, source: store.SourcePeer, want: []string{"only a Dataplane of a file or of the API"}},
		{name: "value", text: replace("redirect: pod", "redirect: host"), want: []string{`"host" is not supported; use pod`}},
		{name: "no pin", text: replace(", nearside.io/pod: 0a1b", ""),
			want: []string{"the label nearside.io/pod is missing"}},
		{name: "other pod", text: web, stream: stream(1, "ffff"), want: []string{"its Envoy is in the pod ffff"}},
		{name: "no pod", text: web, stream: access.Stream{Key: stream(1, "").Key,
			Peer: access.Peer{Local: true, PID: 1, Cgroup: "/system.slice/envoy.service"}},
			want: []string{`its Envoy is not in a pod (its cgroup is "/system.slice/envoy.service")`}},
		{name: "TCP", text: web, stream: access.Stream{Key: stream(1, "").Key, Peer: access.Peer{Addr: "10.0.0.1:1"}},
			want: []string{"not connected over a unix socket"}},
		{name: "gRPC", text: web, stream: func() access.Stream {
			st := stream(1, uid)
			st.Key.Flavor = node.FlavorGRPC
			return st
		}(), want: []string{"only an Envoy can receive"}},
		{name: "no ports",
			text: replace(", transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001}", ""),
			want: []string{"networking.transparentProxying is missing"}},
		{name: "one port", text: options("dnsPort: 15001"), want: []string{"redirect.dnsPort is 15001, a port of Envoy"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t, func(o *redirects.Options) { o.Enabled = !c.disabled })
				go s.Run(t.Context())
				if c.source == "" {
					c.source = store.SourceFile
				}
				if c.stream.Key.ID == "" {
					c.stream = stream(1, uid)
				}
				r := s.put(c.text, c.source)
				s.Opened(c.stream)
				synctest.Wait()
				got := s.in["Dataplane/default/web.shop"] + s.problems()
				for _, want := range c.want {
					if !strings.Contains(got, want) {
						t.Errorf("%s\nlacks %s", got, want)
					}
				}
				if installed := s.problems() == ""; s.Blocked(c.stream.Key, r) == installed {
					t.Errorf("blocked %t: %s", !installed, got)
				}
			})
		})
	}
}

// TestOthers: Dataplanes without the label, and zone proxies, are never blocked.
func TestOthers(t *testing.T) {
	s := newScene(t, nil)
	plain := s.put(strings.Replace(web, "nearside.io/redirect: pod, ", "", 1), store.SourceFile)
	if s.Blocked(stream(1, uid).Key, plain) || s.Blocked(node.Key{ID: "ingress.zi"}, nil) {
		t.Error("blocked")
	}
	if list := s.Problems(); !slices.Equal(list, nil) {
		t.Errorf("problems %+v", list)
	}
}
