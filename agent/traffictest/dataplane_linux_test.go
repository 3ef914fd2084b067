package traffictest_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/agenttest"
	"github.com/nearside-mesh/nearside/agent/client"
	"github.com/nearside-mesh/nearside/agent/envoy"
	"github.com/nearside-mesh/nearside/agent/envoy/match"
	"github.com/nearside-mesh/nearside/agent/resource"
	"github.com/nearside-mesh/nearside/agent/store"
)

// Servers, by what they are called and where they are.
const (
	api       = "198.51.100.10:443"
	apiV6     = "[2001:db8:1::10]:443"
	cdn       = "198.51.100.20:443"
	www       = "198.51.100.30:80"
	h2        = "198.51.100.31:81"
	foreign   = "203.0.113.66:443"
	foreignV6 = "[2001:db8:66::66]:443"
	foreignW  = "203.0.113.66:80"
	beside    = "203.0.113.77:443" // has an address that a match about plain TCP names
	database  = "10.10.0.5:5432"
	outside   = "10.11.0.5:5432" // of the network that the database is in
	box       = "10.20.0.7:9000"
	boxBeside = "10.20.0.8:9000"
	boxV6     = "[2001:db8:7::7]:9000"
	otherV6   = "[2001:db8:8::8]:9000"
	mysql     = "10.10.0.9:3306"
	mysqlNext = "10.10.0.8:3306"
	inner     = "172.20.0.5:7000" // in a network within another one
	outer     = "172.21.0.5:7000" // in the other one alone
	backendAt = routerV4 + ":8080"
	ledgerAt  = routerV4 + ":8081"
)

// outerWorld starts the servers.
func outerWorld(t *testing.T, ns *netns) *world {
	t.Helper()
	w := newWorld(t, ns, map[string][]string{
		"api.example.com": {"2001:db8:1::10", "198.51.100.10"},
		"www.example.com": {"198.51.100.30"}, "h2.example.com": {"198.51.100.31"}, "a.cdn.example.com": {"198.51.100.20"},
	})
	w.tls("api", api, "api.example.com")
	w.tls("api over IPv6", apiV6, "api.example.com") // which a proxy without an IPv6 address of its own does not dial
	w.tls("cdn", cdn, "a.cdn.example.com")
	w.tls("foreign", foreign, "foreign.example.net")
	w.tls("foreign", foreignV6, "foreign.example.net")
	w.tls("beside", beside, "beside.example.net")
	w.tls("inner", inner, "inner.example.net")
	w.tls("outer", outer, "outer.example.net")
	w.web("www", www)
	w.web("h2", h2)
	w.web("foreign web", foreignW)
	w.web("backend", backendAt)
	w.greeter("mysql", mysql)
	w.greeter("next mysql", mysqlNext)
	for name, at := range map[string]string{"database": database, "outside": outside, "box": box, "beside the box": boxBeside,
		"box v6": boxV6, "other v6": otherV6, "ledger": ledgerAt} {
		w.tcp(name, at)
	}
	return w
}

// addressesOf lists the addresses of the servers, each once.
func addressesOf(t *testing.T, servers ...string) []string {
	t.Helper()
	var out []string
	for _, s := range servers {
		host, _, err := net.SplitHostPort(s)
		agenttest.Do(t, err)
		if host != routerV4 && !slices.Contains(out, host) {
			out = append(out, host)
		}
	}
	return out
}

const localResources = `
---
type: Dataplane
mesh: default
name: web
networking:
  address: ` + nodeV4 + `
  transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001}
  inbound: [{port: 80, tags: {kuma.io/service: web}}]
---
type: Dataplane
mesh: default
name: backend-1
networking:
  address: ` + routerV4 + `
  inbound: [{port: 8080, tags: {kuma.io/service: backend, kuma.io/protocol: http}}]
---
type: Dataplane
mesh: default
name: ledger-1
networking:
  address: ` + routerV4 + `
  inbound: [{port: 8081, tags: {kuma.io/service: ledger}}]
`

// journey is a workload on a node with its proxy and a running agent.
type journey struct {
	t     *testing.T
	agent *agenttest.Running
	proxy *dataplane
	node  *netns
	world *world
	port  int // of the last visit
}

func begun(t *testing.T) *journey {
	t.Helper()
	node, internet := newNode(t, addressesOf(t, api, apiV6, cdn, www, h2, foreign, foreignV6, beside, database, outside, box, boxBeside,
		boxV6, otherV6, mysql, mysqlNext, inner, outer))
	j := &journey{t: t, node: node, world: outerWorld(t, internet), port: 20000} // below those that the kernel gives
	dir := agenttest.ShortDir(t)
	agenttest.Do(t, os.Mkdir(filepath.Join(dir, "resources"), 0o755))
	j.agent = agenttest.Up(t, dir, agent.Deps{})
	j.apply("type: Mesh\nname: default\n" + localResources)
	j.proxy = runDataplane(t, node, agenttest.Dial(t, j.agent.Addrs().XDS), "default.web", j.world.resolve)
	agenttest.InSync(t, j.agent.Agent, "default.web")
	return j
}

// apply stores documents, and waits until the proxy has acknowledged the first of them.
func (j *journey) apply(documents string) {
	j.t.Helper()
	rs := agenttest.Decoded(j.t, documents)
	agenttest.ByAPI(j.t, j.agent.Store(), documents)
	j.wait(rs[0].Key, client.ForApplied, client.StateApplied)
}

// remove deletes a resource, and waits until the proxy has acknowledged that.
func (j *journey) remove(k resource.Key) {
	j.t.Helper()
	_, err := j.agent.Store().Apply(store.Batch{Source: store.Source{Kind: store.SourceAPI}, Ops: []store.Op{{Delete: k}}})
	agenttest.Do(j.t, err)
	j.wait(k, client.ForGone, client.StateGone)
}

func (j *journey) wait(k resource.Key, what, state string) {
	j.t.Helper()
	a, err := j.agent.Api().Wait(j.t.Context(), client.Wait{Type: k.Kind, Mesh: k.Mesh, Name: k.Name, For: what, Timeout: agenttest.Patience.String()})
	agenttest.Do(j.t, err)
	if a.State != state {
		j.t.Fatalf("%s is %s, want %s: %+v", k, a.State, state, a)
	}
}

// visits pays each visit, and asks for it to be explained.
func (j *journey) visits(of string, list []visit) {
	j.t.Helper()
	for i := range list {
		v := &list[i]
		j.t.Run(of+"/"+v.what, func(t *testing.T) {
			j.port++
			got, from := v.pay(t, j.node, j.port, j.world)
			if got != v.want {
				t.Errorf("got %s, want %s", got, v.want)
			}
			trace := j.proxy.trace(from)
			if v.say == nothing && trace != nil && trace.Outcome == match.TimedOut {
				return // there is no question that says that a client waits
			}
			f := v.explained(t, j.agent.Api(), "web")
			agrees(t, got, trace, f)
			if pinned := len(f.Clusters) > 0 && f.Clusters[0].Pinned; pinned != v.pinned {
				t.Errorf("explained as pinned: %v, want %v: %+v", pinned, v.pinned, f.Clusters)
			}
		})
	}
}

// virtual is the address at which a workload dials a service of the mesh.
func (j *journey) virtual(service string) string {
	j.t.Helper()
	j.proxy.mu.Lock()
	defer j.proxy.mu.Unlock()
	for _, r := range j.proxy.parts[envoy.KindListener] {
		var m listenerv3.Listener
		agenttest.Do(j.t, proto.Unmarshal(r.Body, &m))
		tags := m.GetMetadata().GetFilterMetadata()["io.kuma.tags"].GetFields()
		if at, ok := strings.CutPrefix(r.Name, "outbound:"); ok && tags["kuma.io/service"].GetStringValue() == service {
			return at
		}
	}
	j.t.Fatalf("the proxy has no listener for %s", service)
	return ""
}

// shut fails unless what is closed is closed on purpose: by a cluster that is there and has no endpoints.
func (j *journey) shut() {
	j.t.Helper()
	for _, name := range []string{"outbound:passthrough:ipv4", "outbound:passthrough:ipv6"} {
		var c clusterv3.Cluster
		if !j.proxy.part(envoy.KindCluster, name, &c) || c.GetType() != clusterv3.Cluster_STATIC || len(c.GetLoadAssignment().GetEndpoints()) > 0 {
			j.t.Errorf("the cluster %s is not an empty one: %s", name, &c)
		}
	}
}

// passthroughOf is a policy for the proxy.
func passthroughOf(mode string, matches ...string) string {
	return fmt.Sprintf("type: MeshPassthrough\nmesh: default\nname: outside\nspec:\n  targetRef: {kind: Dataplane, name: web}\n"+
		"  default: {passthroughMode: %s, appendMatch: [%s]}\n", mode, strings.Join(matches, ", "))
}
