package traffictest_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/bootstrap"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// followWithin is how long the Envoys may take to stop using an endpoint whose Envoy has ended. It
// takes less than a second unless the machine is busy.
const followWithin = 15 * time.Second

// requests sends requests through an Envoy to an address, and records when those began that failed.
type requests struct {
	envoy  *proxy
	mu     sync.Mutex
	total  int
	failed []time.Time
	by     map[string]int // responses by server
	stop   func()
}

func sendRequests(t testing.TB, p *proxy, at netip.AddrPort) *requests {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, done := &requests{envoy: p, by: map[string]int{}}, make(chan struct{})
	c := &http.Client{Timeout: agenttest.Patience, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return p.ns.dial(at) }}}
	r.stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(r.stop)
	go func() {
		defer close(done)
		pace := time.NewTicker(5 * time.Millisecond)
		defer pace.Stop()
		for ctx.Err() == nil {
			<-pace.C
			began := time.Now()
			name, err := fetch(c)
			r.mu.Lock()
			r.total++
			if r.by[name]++; err != nil {
				r.failed = append(r.failed, began)
			}
			r.mu.Unlock()
		}
	}()
	return r
}

func fetch(c *http.Client) (string, error) {
	resp, err := c.Get("http://shop/")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("status %d", resp.StatusCode)
	}
	return string(b), err
}

// since returns the number of requests that began after a time and failed, and how long after it
// the last one began.
func (r *requests) since(at time.Time) (n int, last time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.failed {
		if f.After(at) {
			n, last = n+1, f.Sub(at)
		}
	}
	return n, last
}

// gets waits for n more responses of a server, or of any server if name is empty.
func (r *requests) gets(t testing.TB, name string, n int) {
	t.Helper()
	count := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		if name == "" {
			return r.total
		}
		return r.by[name]
	}
	from := count()
	agenttest.Eventually(t, fmt.Sprintf("%d more requests to %q", n, name), func() bool { return count() >= from+n })
}

// endpointsFollow ends the Envoy of a server in each way and starts it again, under requests of
// others. Failures end when the clients' Envoys have lost the endpoint, which is at once, and the
// start of the Envoy causes none.
func endpointsFollow(t *testing.T, name, endpoint string, envoy func() *proxy, clients []*requests) {
	t.Helper()
	p := envoy()
	for _, r := range clients {
		r.gets(t, name, 5)
	}
	for _, how := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		began := time.Now()
		agenttest.Do(t, p.process.Signal(how))
		<-p.done
		ended := time.Since(began)
		for _, r := range clients {
			agenttest.Eventually(t, "an Envoy does not use "+endpoint, func() bool { return !r.envoy.uses(t, endpoint) })
			r.gets(t, "", 3) // until its worker knows
			gone := time.Now()
			r.gets(t, "", 150)
			n, last := r.since(began)
			t.Logf("%v: the Envoy ended after %v, %d requests failed, the last one after %v", how, ended, n, last)
			if n, _ := r.since(gone); n > 0 || gone.Sub(began) > ended+followWithin {
				t.Errorf("%v: the Envoy ended after %v, the endpoint was gone after %v, and then %d requests failed", how,
					ended, gone.Sub(began), n)
			}
		}
		began = time.Now()
		p = envoy()
		for _, r := range clients {
			r.gets(t, name, 20)
			if n, last := r.since(began); n > 0 {
				t.Errorf("after the start of the Envoy, %d requests failed, the last one after %v", n, last)
			}
		}
	}
}

// TestEndpointsFollowTheirEnvoys ends and starts Envoys that bring their Dataplanes in their node
// metadata.
func TestEndpointsFollowTheirEnvoys(t *testing.T) {
	w := quietWorld(t)
	w.agent = w.runAgentFor(t, `nodes: ["*"], bring: true, services: ["*"], tags: ["*"]`)
	w.base = byKey(t, theMesh(strict)+permission("all", "", "", "Allow"))
	w.put(t, w.base)
	start := func(m member) *proxy {
		doc := agenttest.Decoded(t, m.text)[0]
		text, err := resource.Marshal(doc)
		agenttest.Do(t, err)
		return startEnvoy(t, w.binary, w.net.nodes[m.address], bootstrap.Options{Mesh: m.mesh, Name: m.name,
			XDSSocket: w.agent.Addrs().XDS, Dataplane: text}, m.id, nowhere, w.drain)
	}
	list := []member{
		dataplane("default", "web", 2, "{port: 80, tags: {kuma.io/service: web, kuma.io/protocol: http}}"),
		dataplane("default", "shop-1", 3, "{port: 8080, tags: {kuma.io/service: shop, kuma.io/protocol: http}}"),
		dataplane("default", "shop-2", 4, "{port: 8080, tags: {kuma.io/service: shop, kuma.io/protocol: http}}"),
	}
	for _, m := range list {
		serveName(t, w.net.node(m.address, true), fmt.Sprint(nodeV4(m.address), ":8080"), m.name)
	}
	web := start(list[0])
	start(list[1]).live(t)
	web.live(t)
	var at netip.AddrPort
	agenttest.Eventually(t, "the service has an address", func() bool {
		w.vips = nil
		all := w.addressesOf(t, "default", "shop.mesh")
		if len(all) > 0 {
			at = netip.AddrPortFrom(all[0], 80)
		}
		return len(all) > 0
	})
	agenttest.Eventually(t, "the service responds", func() bool {
		c, err := web.ns.dial(at)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	clients := []*requests{sendRequests(t, web, at)}
	clients[0].gets(t, "shop-1", 5)
	endpointsFollow(t, "shop-2", nodeV4(4)+":8080", func() *proxy { return start(list[2]) }, clients)
	if list := w.agent.Store().Snapshot().Set().Kind(resource.KindEndpointState); len(list) > 0 {
		t.Errorf("states remain: %v", list)
	}
}

// serveName serves a name over HTTP until the test ends.
func serveName(t testing.TB, ns *netns, at, name string) {
	t.Helper()
	l, err := ns.listen(at)
	agenttest.Do(t, err)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, name)
	})}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
}

// TestEndpointsInPool ends and starts the Envoy of one of three machines, whose Dataplanes were
// written over the API.
func TestEndpointsInPool(t *testing.T) {
	t.Parallel()
	p := startPool(t, 3)
	last := p.all[2]
	var clients []*requests
	for _, m := range p.all[:2] {
		m.await("an answer of "+last.name, func() bool {
			who, err := m.ask(ownPort+last.n, time.Second)
			return err == nil && who == last.name
		})
		clients = append(clients, sendRequests(t, m.envy, netip.MustParseAddrPort(fmt.Sprint("127.0.0.1:", shopPort))))
	}
	binary, first := realEnvoy(t), true
	endpointsFollow(t, last.name, nodeV4(last.n)+":8081", func() *proxy {
		if !first {
			last.startEnvoy(binary)
		}
		first = false
		return last.envy
	}, clients)
}
