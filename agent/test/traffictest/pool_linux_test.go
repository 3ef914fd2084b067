package traffictest_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/bootstrap"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// pool is a group of machines.
type pool struct {
	t    *testing.T
	net  *network
	all  []*machine
	from time.Time
}

func (p *pool) say(format string, args ...any) {
	p.t.Logf("%6.1f s  %s", time.Since(p.from).Seconds(), fmt.Sprintf(format, args...))
}

// cut moves machines to a separate link. heal moves them back.
func (p *pool) cut(list ...*machine) {
	batch := "link add br1 type bridge\nlink set br1 up\n"
	for _, m := range list {
		batch += fmt.Sprintf("link set veth%d master br1\n", m.n)
	}
	p.net.router.run(p.t, batch, "ip", "-batch", "-")
}

func (p *pool) heal(list ...*machine) {
	batch := ""
	for _, m := range list {
		batch += fmt.Sprintf("link set veth%d master br0\n", m.n)
	}
	p.net.router.run(p.t, batch+"link del br1\n", "ip", "-batch", "-")
}

// sees waits until the Envoy of m considers the endpoints of o unhealthy, or healthy if unhealthy
// is false. The endpoints of a dead machine disappear after some time.
func (m *machine) sees(o *machine, unhealthy bool) {
	m.t.Helper()
	m.await(fmt.Sprintf("the Envoy counts %s as unhealthy: %t", o.name, unhealthy), func() bool {
		_, b, err := m.envy.get("/clusters")
		at := "shop::" + nodeV4(o.n) + ":8081::health_flags::"
		i := strings.Index(string(b), at)
		if err != nil || i < 0 {
			return err == nil && unhealthy
		}
		line, _, _ := strings.Cut(string(b)[i+len(at):], "\n")
		return strings.Contains(line, "eds") == unhealthy
	})
}

// config waits until the config of the machine's Envoy contains text.
func (m *machine) config(text string) {
	m.t.Helper()
	m.await("the Envoy has "+text, func() bool {
		_, b, err := m.envy.get("/config_dump")
		return err == nil && strings.Contains(string(b), text)
	})
}

func timeoutOf(name, value string) string {
	return "{type: MeshTimeout, mesh: default, name: " + name + ", spec: {targetRef: {kind: Mesh}, " +
		"to: [{targetRef: {kind: Mesh}, default: {http: {requestTimeout: " + value + "}}}]}}\n"
}

func marked(mark string) func(*api.Item) bool {
	return func(i *api.Item) bool { return itemLabel(i, resource.LabelLiveness) == mark }
}

func itemLabel(i *api.Item, label string) string {
	var doc struct {
		Labels map[string]string `json:"labels"`
	}
	if json.Unmarshal(i.Resource, &doc) != nil {
		return ""
	}
	return doc.Labels[label]
}

// startEnvoy starts the Envoy of a machine.
func (m *machine) startEnvoy(binary *os.File) {
	m.envy = startEnvoy(m.t, binary, m.ns, bootstrap.Options{Type: node.ProxyDataplane, Mesh: "default",
		Name: m.name, XDSSocket: filepath.Join(m.dir, "run", "xds.sock")}, "default."+m.name, nowhere, time.Second)
}

// startPool creates n machines on one link, in a mesh with a builtin CA.
func startPool(t *testing.T, n int) *pool {
	binary := realEnvoy(t)
	p := &pool{t: t, net: newNetwork(t, nil), from: time.Now()}
	var numbers []int
	for i := range n {
		numbers = append(numbers, 2+i)
	}
	key := strings.Repeat("A", 43) + "=\n"
	for _, n := range numbers {
		m := &machine{t: t, n: n, name: machineName(n), dir: agenttest.ShortDir(t), ns: p.net.node(n, false)}
		agenttest.Do(t, os.Chmod(m.dir, 0o755), os.Mkdir(filepath.Join(m.dir, "resources"), 0o755))
		agenttest.WriteSecret(t, filepath.Join(m.dir, "keyring"), key)
		l, err := m.ns.listen("127.0.0.1:8080")
		agenttest.Do(t, err)
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, m.name)
		})}
		go srv.Serve(l)
		t.Cleanup(func() { srv.Close() })
		p.all = append(p.all, m)
		t.Cleanup(func() {
			m.killAgent()
			if t.Failed() {
				text, _ := os.ReadFile(filepath.Join(m.dir, "agent.log"))
				t.Logf("the agent %s:\n%s", m.name, text[max(0, len(text)-4000):])
			}
		})
		m.startAgent(2)
		if n == 2 {
			m.apply("{type: Mesh, name: default, mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin, " +
				"mode: STRICT}]}}\n---\n" +
				"{type: MeshTrafficPermission, mesh: default, name: all, spec: {targetRef: {kind: Mesh}, " +
				"from: [{targetRef: {kind: Mesh}, default: {action: Allow}}]}}\n")
		} else {
			m.has("the mesh", "meshes", "", "default", func(*api.Item) bool { return true })
		}
		m.apply(dataplaneOf(n, numbers))
	}
	for _, m := range p.all {
		m.startEnvoy(binary)
	}
	for _, m := range p.all {
		m.envy.live(t)
	}
	return p
}

// TestTrafficInPool checks that five machines with separate builtin CAs reach each other under
// strict mutual TLS, that all apply what one of them stores, and that traffic continues without two
// of the agents. With POOL=whole (make pool) it also checks that the machines reconcile after a
// network partition and stop using two machines that die.
func TestTrafficInPool(t *testing.T) {
	t.Parallel()
	p := startPool(t, 5)
	first := p.all[0]
	for _, m := range p.all {
		for _, o := range p.all {
			m.await("an answer of "+o.name, func() bool {
				who, err := m.ask(ownPort+o.n, time.Second)
				return err == nil && who == o.name
			})
		}
	}
	p.say("each of five Envoys reaches each, with a CA on each node")
	first.ns.do(func() {
		c, err := net.DialTimeout("tcp", nodeV4(3)+":8081", time.Second)
		if err == nil {
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(5 * time.Second))
			_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: shop\r\n\r\n")
			if b, _ := io.ReadAll(c); len(b) > 0 {
				t.Errorf("without TLS: %.80q", b)
			}
		}
	})
	for _, m := range p.all {
		m.startLoad()
	}

	began := time.Now()
	first.apply(timeoutOf("all", "7.777s"))
	for _, m := range p.all {
		m.config("7.777s")
	}
	p.say("a policy of one agent is in all five Envoys after %d ms", time.Since(began).Milliseconds())

	left, right := p.all[:2], p.all[2:]
	p.drain(p.all[4])
	whole := os.Getenv("POOL") == "whole"
	if whole {
		p.cutAndHeal(left, right)
	}
	before := failures(p.all)
	for _, m := range left {
		m.killAgent()
	}
	for _, m := range right {
		for _, o := range left {
			m.has(o.name+" without its agent", "dataplanes", "default", o.name, marked(resource.LivenessNoAgent))
			m.sees(o, false)
		}
	}
	for _, m := range p.all {
		m.more(50)
	}
	if now := failures(p.all); now != before {
		t.Errorf("%d requests failed while two agents were dead", now-before)
	}
	p.say("two agents killed, and their machines are served: no request failed")
	for _, m := range left {
		m.startAgent(4)
	}
	for _, m := range right {
		for _, o := range left {
			m.has(o.name+" with its agent", "dataplanes", "default", o.name, marked(""))
		}
	}
	p.say("their agents are back")

	if whole {
		p.lose(p.all[:3], p.all[3:])
	}
}

// drain drains a machine, and checks that no Envoy of the pool has its endpoint when that is said.
// Then it undoes the drain.
func (p *pool) drain(m *machine) {
	t := p.t
	began := time.Now()
	got, err := m.api.Drain(t.Context(), "default", m.name, api.DrainRequest{})
	if err != nil || got.State != api.DrainDraining || got.Nodes != len(p.all) || got.Proxies != len(p.all) ||
		got.Envoy != "" {
		t.Fatalf("%+v, %v", got, err)
	}
	ended := time.Since(began)
	has := func(o *machine) bool {
		_, b, err := o.envy.get("/clusters")
		agenttest.Do(t, err)
		return strings.Contains(string(b), "shop::"+nodeV4(m.n)+":8081::")
	}
	for _, o := range p.all {
		if has(o) {
			t.Errorf("%s has the endpoint of %s, which is drained", o.name, m.name)
		}
	}
	if got, err := m.api.Drain(t.Context(), "default", m.name, api.DrainRequest{Undo: true}); err != nil ||
		got.State != api.DrainUndone {
		t.Errorf("%+v, %v", got, err)
	}
	for _, o := range p.all {
		o.await("the endpoint of "+m.name, func() bool { return has(o) })
	}
	p.say("a machine was drained in %d ms, and is back", ended.Milliseconds())
}

// cutAndHeal checks that after a network partition both sides have the writes of each side.
func (p *pool) cutAndHeal(left, right []*machine) {
	t := p.t
	p.cut(left...)
	for _, m := range left {
		for _, o := range right {
			m.sees(o, true)
			o.sees(m, true)
		}
	}
	p.say("cut in 2 and 3: both sides count the other as unhealthy")
	left[0].apply(timeoutOf("left", "1.111s") + "---\n" + timeoutOf("both", "2.222s"))
	right[0].apply(timeoutOf("right", "3.333s") + "---\n" + timeoutOf("both", "4.444s"))
	// The two machines consider three of five endpoints unhealthy, so Envoy uses all of them (its
	// panic threshold is 50 %).
	before := failures(right)
	for _, m := range right {
		m.more(50)
	}
	if now := failures(right); now != before {
		t.Errorf("%d requests failed on the larger side of the cut", now-before)
	}
	began := time.Now()
	p.heal(left...)
	for _, m := range p.all {
		for name, value := range map[string]string{"left": "1.111s", "right": "3.333s", "both": "4.444s"} {
			m.has(name+" after the cut", "meshtimeouts", "default", name, func(i *api.Item) bool {
				return strings.Contains(string(i.Resource), value)
			})
		}
	}
	p.say("healed: all have what both sides wrote after %.1f s", time.Since(began).Seconds())
	for _, m := range p.all {
		for _, o := range p.all {
			if m != o {
				m.sees(o, false)
			}
		}
	}
	p.quiet(p.all)
	p.say("and serve each other again")

}

// lose checks that the other machines stop using dead ones and that no data is lost.
func (p *pool) lose(rest, dead []*machine) {
	t := p.t
	before := failures(rest)
	began := time.Now()
	for _, m := range dead {
		m.load.end()
		p.net.router.run(t, fmt.Sprintf("link set veth%d down\n", m.n), "ip", "-batch", "-")
		m.killAgent()
		m.envy.kill()
	}
	for _, m := range rest {
		for _, o := range dead {
			m.sees(o, true)
		}
	}
	unhealthy := time.Since(began)
	p.quiet(rest) // requests that were in flight may still fail
	after := failures(rest)
	for _, m := range rest {
		m.more(50)
	}
	if now := failures(rest); now != after {
		t.Errorf("%d requests failed after the dead machines were left out", now-after)
	}
	p.say("two machines killed: unhealthy in each Envoy after %.1f s, %d requests failed until then, none later",
		unhealthy.Seconds(), after-before)
	for _, m := range rest {
		for _, name := range []string{"all", "left", "right", "both"} {
			m.has("nothing is lost", "meshtimeouts", "default", name, func(*api.Item) bool { return true })
		}
	}
}

// quiet waits until machines receive a response to each of several requests in a row. Requests that
// were in flight on a broken link may fail long after that.
func (p *pool) quiet(list []*machine) {
	p.t.Helper()
	for _, m := range list {
		m.load.mu.Lock()
		m.load.streak = 0
		m.load.mu.Unlock()
	}
	for _, m := range list {
		m.await("all is answered", func() bool {
			m.load.mu.Lock()
			defer m.load.mu.Unlock()
			return m.load.streak >= 30
		})
	}
}

// failures returns the number of failed requests of the machines.
func failures(list []*machine) (n int) {
	for _, m := range list {
		_, failed := m.load.counts()
		n += failed
	}
	return n
}
