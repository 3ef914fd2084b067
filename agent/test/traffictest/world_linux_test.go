package traffictest_test

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/compute/bootstrap"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// Servers outside the mesh.
const (
	apiService = "198.51.100.10:443"
	apiV6      = "[2001:db8:1::10]:443"
	cdn        = "198.51.100.20:443"
	www        = "198.51.100.30:80"
	h2         = "198.51.100.31:81"
	partner    = "198.51.100.40:8080"
	foreign    = "203.0.113.66:443"
	foreignV6  = "[2001:db8:66::66]:443"
	foreignW   = "203.0.113.66:80"
	beside     = "203.0.113.77:443" // its address appears in a plain TCP match
	database   = "10.10.0.5:5432"
	outside    = "10.11.0.5:5432" // in the same network as the database
	box        = "10.20.0.7:9000" // an ExternalService in mesh default
	boxBeside  = "10.20.0.8:9000"
	boxThird   = "10.20.0.9:9000"
	boxV6      = "[2001:db8:7::7]:9000"
	otherV6    = "[2001:db8:8::8]:9000"
	mysql      = "10.10.0.9:3306"
	mysqlNext  = "10.10.0.8:3306"
	mysqlOn80  = "10.10.0.8:80"
	inner      = "172.20.0.5:7000" // in a network nested in another one
	nowhereV6  = "[2001:db8:99::99]:1"
	outer      = "172.21.0.5:7000" // only in the enclosing network
	nowhere    = "198.51.100.99:1" // without a listener
)

// outsiders starts the servers outside the mesh.
func outsiders(w *servers, ns *netns) {
	w.tls(ns, "api", apiService, "api.example.com")
	w.tls(ns, "api over IPv6", apiV6, "api.example.com") // unreachable for a proxy without an IPv6 address
	w.tls(ns, "cdn", cdn, "a.cdn.example.com", moving+"example.com")
	for _, at := range []string{foreign, foreignV6} {
		w.tls(ns, "foreign", at, "foreign.example.net", moving+"example.com")
	}
	w.tls(ns, "beside", beside, "beside.example.net")
	w.tls(ns, "inner", inner, "inner.example.net")
	w.tls(ns, "outer", outer, "outer.example.net")
	for name, at := range map[string]string{"www": www, "h2": h2, "foreign-web": foreignW, "partner": partner} {
		w.web(ns, name, at)
	}
	w.greeter(ns, "mysql", mysql)
	w.greeter(ns, "next-mysql", mysqlNext)
	w.greeter(ns, "mysql-on-80", mysqlOn80)
	for name, at := range map[string]string{"database": database, "outside": outside, "box": box,
		"beside-the-box": boxBeside, "third": boxThird,
		"box-v6": boxV6, "other-v6": otherV6} {
		w.tcp(ns, name, at)
	}
}

// meshes returns the initial meshes. The access log shows the test which route was taken.
func meshes(log string) string {
	return `
{type: Mesh, name: default, mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}, routing: {zoneEgress: true}}
---
{type: Mesh, name: plain}
---
{type: HostnameGenerator, name: outside, spec: {template: "{{ .DisplayName }}.outside", selector: {meshExternalService: {}}}}
---
{type: MeshExternalService, mesh: default, name: partner, spec: {match: {type: HostnameGenerator, port: 80, protocol: http}, endpoints: [{address: 198.51.100.40, port: 8080}]}}
---
{type: MeshExternalService, mesh: default, name: rows, spec: {match: {type: HostnameGenerator, port: 5432, protocol: tcp}, endpoints: [{address: 10.10.0.5, port: 5432}]}}
---
{type: ExternalService, mesh: default, name: far-web, tags: {kuma.io/service: far-web, kuma.io/protocol: http}, networking: {address: "www.example.com:80"}}
---
{type: ExternalService, mesh: default, name: far-rows, tags: {kuma.io/service: far-rows, kuma.io/protocol: tcp}, networking: {address: "10.20.0.7:9000"}}
---
{type: ExternalService, mesh: plain, name: far-web, tags: {kuma.io/service: far-web, kuma.io/protocol: http}, networking: {address: "www.example.com:80"}}
---
{type: MeshTrafficPermission, mesh: default, name: all, spec: {targetRef: {kind: Mesh}, from: [{targetRef: {kind: Mesh}, default: {action: Allow}}]}}
` + witness("default", log) + witness("plain", log)
}

// witness returns a policy that makes the proxies of a mesh log the routes taken to a file.
func witness(mesh, log string) string {
	format, _ := recordFormat()
	backends := "{backends: [{type: File, file: {path: " + log + ", format: " + format + "}}]}"
	return "---\n{type: MeshAccessLog, mesh: " + mesh +
		", name: witness, spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, default: " + backends + "}]}}\n"
}

// member is a proxy of the world.
type member struct {
	id, mesh, name string
	kind           node.Type
	address        int    // last byte of the IP address
	inbound        string // for dataplanes
	text           string
}

const redirection = "transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001}"

func dataplane(mesh, name string, address int, inbound string) member {
	return member{id: mesh + "." + name, mesh: mesh, name: name, address: address, inbound: inbound,
		text: fmt.Sprintf("{type: Dataplane, mesh: %s, name: %s, networking: {address: %s, %s, inbound: [%s]}}",
			mesh, name, nodeV4(address), redirection, inbound)}
}

// serverFirst labels a dataplane with a port whose server sends first.
func serverFirst(port string, m member) member {
	m.text = strings.Replace(m.text, "networking:", "labels: {nearside.io/server-first: \""+port+"\"}, networking:", 1)
	return m
}

func members() []member {
	return []member{
		dataplane("default", "web", 2, "{port: 80, tags: {kuma.io/service: web, kuma.io/protocol: http, team: front}}"),
		dataplane("default", "backend-1", 3, "{port: 8080, tags: {kuma.io/service: backend, kuma.io/protocol: http, "+
			"version: v1}}, {port: 9090, tags: {kuma.io/service: calls, kuma.io/protocol: grpc}}, {port: 7001, "+
			"servicePort: 7100, serviceAddress: 127.0.0.1, tags: {kuma.io/service: left, kuma.io/protocol: tcp}}, {port: "+
			"7002, servicePort: 7100, serviceAddress: 127.0.0.2, tags: {kuma.io/service: right, kuma.io/protocol: tcp}}"),
		serverFirst("3306",
			dataplane("default", "backend-2", 4, "{port: 8080, tags: {kuma.io/service: backend, kuma.io/protocol: http, "+
				"version: v2}}, {port: 5432, tags: {kuma.io/service: db, kuma.io/protocol: tcp}}, {port: 3306, "+
				"tags: {kuma.io/service: banner, kuma.io/protocol: tcp}}")),
		{id: ".egress.out", name: "out", kind: node.ProxyEgress, address: 5,
			text: "{type: ZoneEgress, name: out, networking: {address: " + nodeV4(5) + ", port: 10002}}"},
		dataplane("plain", "web", 6, "{port: 80, tags: {kuma.io/service: web, kuma.io/protocol: http}}"),
		dataplane("plain", "shop", 7, "{port: 8080, tags: {kuma.io/service: shop, kuma.io/protocol: http}},"+
			" {port: 5432, tags: {kuma.io/service: store, kuma.io/protocol: tcp}}, {port: 3306, "+
			"tags: {kuma.io/service: banner, kuma.io/protocol: tcp}}"),
	}
}

// world is a mesh on a separate network: proxies, their workloads, agents, and servers outside.
type world struct {
	t       testing.TB
	net     *network
	servers *servers
	records *records
	agent   *agenttest.Running   // answers explain requests
	agents  []*agenttest.Running // all agents
	binary  *os.File
	drain   time.Duration     // drain time of the Envoys
	proxies map[string]*proxy // by node ID
	base    map[resource.Key]string
	now     map[resource.Key]string
	vips    map[string][]netip.Addr // by MESH and name
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := emptyWorld(t)
	w.agent = w.runAgent(t, "vips.families=DualStack")
	docs := meshes(w.records.path)
	for _, m := range members() {
		docs += "---\n" + m.text + "\n"
	}
	w.base = byKey(t, docs)
	w.put(t, w.base)
	w.runProxies(t, w.agent, members())
	w.workloads()
	w.live(t)
	return w
}

// emptyWorld returns a world with only the servers outside the mesh and DNS.
func emptyWorld(t testing.TB) *world {
	t.Helper()
	w := quietWorld(t)
	for _, at := range []string{routerV4, routerV6} {
		w.servers.resolver(w.net.router, net.JoinHostPort(at, "53"))
	}
	return w
}

// quietWorld is an emptyWorld without a DNS server.
func quietWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, binary: realEnvoy(t), net: newNetwork(t, addressesOf(t)), proxies: map[string]*proxy{},
		now: map[resource.Key]string{}}
	w.records = newRecords(t)
	w.servers = newServers(t, names)
	outsiders(w.servers, w.net.router)
	return w
}

// runAgent starts an agent with a socket that the Envoys can reach.
func (w *world) runAgent(t testing.TB, set ...string) *agenttest.Running {
	t.Helper()
	return w.runAgentFor(t, `nodes: ["*"]`, set...)
}

// runAgentFor is like runAgent with the rights of the Envoys' user.
func (w *world) runAgentFor(t testing.TB, rights string, set ...string) *agenttest.Running {
	t.Helper()
	dir := agenttest.ShortDir(t)
	agenttest.Do(t, os.Chmod(dir, 0o755), os.Mkdir(filepath.Join(dir, "resources"), 0o755))
	a := agenttest.Up(t, dir, agent.Deps{},
		append(set, "xds.socket.mode=0666", fmt.Sprintf(`xds.access=[{user: "%d", %s}]`, envoyUser, rights))...)
	w.agents = append(w.agents, a)
	return a
}

// runProxies starts the Envoys of an agent, each on a separate node.
func (w *world) runProxies(t testing.TB, a *agenttest.Running, list []member) {
	t.Helper()
	for _, m := range list {
		ns := w.net.node(m.address, m.kind == node.ProxyDataplane)
		probe := nowhere
		if m.kind != node.ProxyDataplane {
			probe = nodeV4(m.address) + ":10002"
		}
		w.proxies[m.id] = startEnvoy(t, w.binary, ns,
			bootstrap.Options{Type: m.kind, Mesh: m.mesh, Name: m.name, XDSSocket: a.Addrs().XDS}, m.id, probe, w.drain)
	}
}

// live waits until all proxies serve their current config.
func (w *world) live(t testing.TB) {
	t.Helper()
	for _, p := range w.proxies {
		p.live(t)
	}
	w.awaitIdle(t)
}

// workloads starts the servers of the mesh.
func (w *world) workloads() {
	at := func(n, port int) string { return fmt.Sprintf("%s:%d", nodeV4(n), port) }
	s, nodes := w.servers, w.net.nodes
	s.web(nodes[2], "web/80", at(2, 80))
	s.web(nodes[3], "backend-1/8080", at(3, 8080))
	s.web(nodes[3], "backend-1/9090", at(3, 9090))
	s.tcp(nodes[3], "backend-1/left", "127.0.0.1:7100")
	s.tcp(nodes[3], "backend-1/right", "127.0.0.2:7100")
	s.web(nodes[4], "backend-2/8080", at(4, 8080))
	s.tcp(nodes[4], "backend-2/5432", at(4, 5432))
	s.greeter(nodes[4], "backend-2/3306", at(4, 3306))
	s.tcp(nodes[4], "backend-2/6000", at(4, 6000)) // a port without an inbound
	s.web(nodes[6], "web/80", at(6, 80))
	s.web(nodes[7], "shop/8080", at(7, 8080))
	s.tcp(nodes[7], "shop/5432", at(7, 5432))
	s.greeter(nodes[7], "shop/3306", at(7, 3306))
}

// byKey splits documents into resources by key.
func byKey(t testing.TB, docs string) map[resource.Key]string {
	t.Helper()
	out := map[resource.Key]string{}
	for doc := range strings.SplitSeq(docs, "---\n") {
		if strings.TrimSpace(doc) != "" {
			out[agenttest.Decoded(t, doc)[0].Key] = doc
		}
	}
	return out
}

// apply restores the initial state plus the given documents, and waits until every proxy has
// applied it.
func (w *world) apply(t testing.TB, docs string, without ...resource.Key) {
	t.Helper()
	want := map[resource.Key]string{}
	for k, doc := range w.base {
		want[k] = doc
	}
	for _, k := range without {
		delete(want, k)
	}
	for k, doc := range byKey(t, docs) {
		want[k] = doc
	}
	if w.put(t, want) {
		w.awaitIdle(t)
	}
}

// put stores the wanted resources and reports whether anything changed.
func (w *world) put(t testing.TB, want map[resource.Key]string) bool {
	t.Helper()
	b := store.Batch{Source: store.Source{Kind: store.SourceAPI}, Durable: true, Author: "test"}
	wait := api.Wait{For: api.ForApplied, Timeout: agenttest.LongestWait}
	note := func(k resource.Key) { wait.Type, wait.Mesh, wait.Name = k.Kind, k.Mesh, k.Name }
	for k := range w.now {
		if _, ok := want[k]; !ok {
			b.Ops = append(b.Ops, store.Op{Delete: k})
			wait.For = api.ForGone
			note(k)
		}
	}
	for k, doc := range want {
		if w.now[k] != doc {
			b.Ops = append(b.Ops, store.Op{Put: agenttest.Decoded(t, doc)[0]})
			wait.For = api.ForApplied
			note(k)
		}
	}
	if len(b.Ops) == 0 {
		return false
	}
	_, err := w.agent.Store().Apply(b)
	agenttest.Do(t, err)
	w.now, w.vips = want, nil
	w.wait(t, wait)
	for k := range want {
		if k.Kind != "Mesh" {
			continue
		}
		// A Mesh change can be applied in steps of several seconds each. Wait for the last one,
		// because a later step would close connections.
		x := w.wait(t, api.Wait{Type: k.Kind, Name: k.Name, For: api.ForApplied, Timeout: agenttest.LongestWait})
		if x.State != api.StateApplied {
			t.Fatalf("%+v", x)
		}
	}
	return true
}

// wait repeats a request that waits for the effects of a change until there is an outcome.
func (w *world) wait(t testing.TB, o api.Wait) (out *api.Applied) {
	t.Helper()
	agenttest.Eventually(t, fmt.Sprintf("%s/%s is %s", o.Type, o.Name, o.For), func() bool {
		var err error
		out, err = w.agent.Api().Wait(t.Context(), o)
		agenttest.Do(t, err)
		return out.State != api.StatePending
	})
	return out
}

// awaitIdle waits until every proxy has applied its config, or the accepted subset of it.
func (w *world) awaitIdle(t testing.TB) {
	t.Helper()
	agenttest.Eventually(t, "all proxies are in sync", func() bool {
		n := 0
		for _, a := range w.agents {
			for _, p := range a.Proxies() {
				if p.Streams > 0 &&
					(p.InSync || slices.ContainsFunc(p.Types, func(s api.TypeStatus) bool { return len(s.Held) > 0 })) {
					n++
				}
			}
		}
		return n == len(w.proxies)
	})
	// Check all proxies first: a connection that one proxy drains is open at another one.
	for _, p := range w.proxies {
		p.awaitIdle(t)
	}
	for _, p := range w.proxies {
		p.pass(t)
	}
}

func (w *world) proxyOf(r *row) *proxy {
	return w.proxies[cmp.Or(r.mesh, "default")+"."+cmp.Or(r.from, "web")]
}
