package access_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/access"
)

func pod(namespace, name, uid string, process uint32) access.Peer {
	return access.Peer{Local: true, UID: process, GID: group, PID: 7,
		Pod: &access.Pod{UID: uid, Namespace: namespace, Name: name, ServiceAccount: "default"}}
}

// TestDecidePod checks that a pod gets its own node id only, whatever user it runs as.
func TestDecidePod(t *testing.T) {
	rules := func(r ...access.ProxyRule) []access.ProxyRule { return r }
	user := access.ProxyRule{Matcher: access.Matcher{UID: "0-9999"}, Nodes: []string{"*"}, Bring: true,
		Services: []string{"*"}}
	shop := access.ProxyRule{Pod: "shop/web-*", Nodes: []string{"default.*"}}
	web := pod("shop", "web-0", "u-1", 5678)
	stored := func(id string, p access.Pins) access.Target { return access.Target{ID: id, Stored: true, Pins: p} }
	for _, c := range []struct {
		name   string
		rules  []access.ProxyRule
		peer   access.Peer
		target access.Target
		want   string // prefix of the rule, or "-" and a substring of the reason
	}{
		{"own id", nil, web, stored("default.web-0.shop", access.Pins{}), "default of pods"},
		{"own id before its Dataplane", nil, web, access.Target{ID: "default.web-0.shop"}, "default of pods"},
		{"own id in another mesh", nil, web, stored("other.web-0.shop", access.Pins{}), "default of pods"},
		{"another pod", nil, web, stored("default.web-1.shop", access.Pins{}), "-MESH.web-0.shop"},
		{"another namespace", nil, web, stored("default.web-0.blog", access.Pins{}), "-MESH.web-0.shop"},
		{"suffix of a longer name", nil, web, stored("default.x.web-0.shop", access.Pins{}), "-MESH.web-0.shop"},
		{"no mesh", nil, web, stored(".web-0.shop", access.Pins{}), "-MESH.web-0.shop"},
		{"zone proxy", nil, pod("a", "egress", "u", 0), access.Target{ID: ".egress.a"}, "-MESH.egress.a"},
		{"dot in the name", nil, pod("b", "a.x", "u", 0), stored("default.a.x.b", access.Pins{}), "default of pods"},
		{"Dataplane from metadata", nil, web, access.Target{ID: "default.web-0.shop", Stored: true, Brought: true},
			"-was sent by the Envoy of another user"},
		{"pin", nil, web, stored("default.web-0.shop", access.Pins{Pod: "u-1"}), "default of pods"},
		{"pin of an earlier pod", nil, web, stored("default.web-0.shop", access.Pins{Pod: "u-0"}),
			"-nearside.io/pod: u-0, but the pod of this peer is u-1"},
		{"pin against the cgroup", nil, with(web, func(p *access.Peer) { p.Cgroup = "/kubepods/podu-0/x" }),
			stored("default.web-0.shop", access.Pins{Pod: "u-0"}), "-but the pod of this peer is u-1"},
		{"pin of root in the pod", nil, pod("shop", "web-0", "u-1", 0),
			stored("default.web-0.shop", access.Pins{Pod: "u-0"}),
			"-but the pod of this peer is u-1"},
		{"pin of a user namespace", nil, with(web, func(p *access.Peer) { p.Foreign = true }),
			stored("default.web-0.shop", access.Pins{Pod: "u-1"}), "default of pods"},
		{"pin by user", nil, web, stored("default.web-0.shop", access.Pins{User: "5678"}),
			"-nearside.io/user: 5678, but the user of this peer is pod shop/web-0"},
		{"root in the pod", nil, pod("shop", "web-0", "u-1", 0),
			stored("default.backend", access.Pins{}), "-MESH.web-0.shop"},
		{"the agent's user in the pod", nil, pod("shop", "web-0", "u-1", agentUID), stored("default.backend", access.Pins{}),
			"-MESH.web-0.shop"},
		{"rules of users", rules(user), web, stored("default.backend", access.Pins{}), "-MESH.web-0.shop"},
		{"rules of users do not apply", rules(user), web, stored("default.web-0.shop", access.Pins{}), "default of pods"},
		{"no rules", rules(), web, stored("default.web-0.shop", access.Pins{}), "default of pods"},
		{"rule", rules(user, shop), web, stored("default.web-0.shop", access.Pins{}), "xds.access[1]"},
		{"rule of another mesh", rules(user, shop), web, stored("other.web-0.shop", access.Pins{}),
			"-xds.access[1] matches the pod but does not list the node id"},
		{"rule of other pods", rules(shop), pod("blog", "web-0", "u-2", 1), stored("default.web-0.blog", access.Pins{}),
			`-add one with pod: "blog/web-0"`},
		{"rule does not widen", rules(access.ProxyRule{Pod: "*/*", Nodes: []string{"*"}}), web,
			stored("default.backend", access.Pins{}), "-MESH.web-0.shop"},
		{"a user is no pod", rules(access.ProxyRule{Pod: "*/*", Nodes: []string{"*"}}), local(5678),
			stored("default.web-0.shop", access.Pins{}), "-no item of xds.access matches the peer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := access.NewProxies(access.ProxyOptions{Rules: c.rules, AgentUID: agentUID, GID: group})
			if err != nil {
				t.Fatal(err)
			}
			g, err := p.Decide(&c.peer, c.target)
			if reason, denied := strings.CutPrefix(c.want, "-"); denied {
				if err == nil || !strings.Contains(err.Error(), reason) {
					t.Errorf("got %v; want %q", err, reason)
				}
				return
			}
			if err != nil || !strings.HasPrefix(g.Rule, c.want) {
				t.Fatalf("got %q, %v; want %q", g.Rule, err, c.want)
			}
			if err := g.Claim([]string{"web"}, nil); err == nil {
				t.Error("a pod may send its Dataplane")
			}
			x, untested, err := p.Examine(&c.peer, c.target)
			if err != nil || len(untested) > 0 || x.Rule != g.Rule {
				t.Errorf("Examine: %q, untested %q, %v; want the same decision", x.Rule, untested, err)
			}
		})
	}
}

// TestPodPeer checks the names of a pod, and that its ids give no rights of users.
func TestPodPeer(t *testing.T) {
	root := pod("shop", "web-0", "u-1", 0)
	if root.Root() || root.IsUser() || !root.MayHaveSecrets() {
		t.Errorf("root in a pod: Root %v, IsUser %v, MayHaveSecrets %v", root.Root(), root.IsUser(), root.MayHaveSecrets())
	}
	if root.String() != "pod shop/web-0 (pid 7)" || root.Account() != "pod shop/web-0" ||
		root.Owner() != "pod shop/web-0" {
		t.Errorf("got %q, %q, %q", root.String(), root.Account(), root.Owner())
	}
	other := pod("shop", "web-1", "u-2", 0)
	if root.Holder() == other.Holder() {
		t.Error("two pods of one user may use a node id together")
	}
}

// TestPodRules checks that an entry with pod has no keys of other peers.
func TestPodRules(t *testing.T) {
	for _, c := range []struct {
		rule access.ProxyRule
		want string
	}{
		{access.ProxyRule{Pod: "shop", Nodes: []string{"*"}}, `pod: "shop" is not of the form NAMESPACE/NAME`},
		{access.ProxyRule{Pod: "*"}, "NAMESPACE/NAME"},
		{access.ProxyRule{Pod: "a/b/c"}, "NAMESPACE/NAME"},
		{access.ProxyRule{Pod: "/b"}, "NAMESPACE/NAME"},
		{access.ProxyRule{Pod: "a/b", Matcher: access.Matcher{UID: "1"}}, "pod cannot be combined with"},
		{access.ProxyRule{Pod: "a/b", Certificate: "x"}, "pod cannot be combined with"},
		{access.ProxyRule{Pod: "a/b", Bring: true}, "remove bring"},
		{access.ProxyRule{Pod: "a/b", Tags: []string{"x=y"}}, "remove bring"},
		{access.ProxyRule{Pod: "a*/b-*"}, ""},
	} {
		_, err := access.NewProxies(access.ProxyOptions{Rules: []access.ProxyRule{c.rule}})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: got %v; want %q", c.rule, err, c.want)
		}
	}
}

// TestPodConn checks that the peer of a pod's connection is the pod, with the process that
// connected.
func TestPodConn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	want := &access.Pod{UID: "u", Namespace: "shop", Name: "web-0"}
	conn := &access.PodConn{UnixConn: s.(*net.UnixConn), Pod: want}
	p, err := access.PeerOf(conn, true)
	if err != nil || p.Pod != want || !p.Local || int(p.PID) != os.Getpid() {
		t.Fatalf("got %+v, %v", p, err)
	}
	x := access.ProcessOf(conn, p)
	if x == nil {
		t.Fatal("the process is unknown")
	}
	x.Pidfd.Close()
}
