package intercept_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/host/intercept"
	"github.com/nearside-mesh/nearside/dns/table"
)

// site is a network namespace with its own name servers.
type site struct {
	name string
	ns   *netNS
	// servers are queried by the clients of the namespace. The last one does not exist.
	servers []string
}

// siteNames are the names that the servers of the sites know, each at one site only, except
// both.example, which has another address at each site.
func siteNames() []string {
	return []string{"db.docker.example", "kube.cluster.example", "wiki.vpn.example", "real.example", "both.example",
		"missing.example"}
}

func host(name, addr string) table.Host {
	return table.Host{Name: name, Addrs: []netip.Addr{netip.MustParseAddr(addr)}}
}

// link connects two namespaces with the addresses 10.NUMBER.0.2 and 10.NUMBER.0.1.
func link(t testing.TB, client, server *netNS, number int) {
	t.Helper()
	client.run(t, fmt.Sprintf("link add eth%[1]d type veth peer name peer%[1]d netns %[2]s\n"+
		"addr add 10.%[1]d.0.2/24 dev eth%[1]d\naddr add fd10:%[1]d::2/64 dev eth%[1]d nodad\n"+
		"addr add fe80::2:%[1]d/64 dev eth%[1]d nodad\nlink set eth%[1]d up\n",
		number, server.path), "ip", "-batch", "-")
	server.run(t, fmt.Sprintf("addr add 10.%[1]d.0.1/24 dev peer%[1]d\naddr add fd10:%[1]d::1/64 dev peer%[1]d nodad\n"+
		"addr add fe80::%[1]d/64 dev peer%[1]d nodad\nlink set peer%[1]d up\n", number), "ip", "-batch", "-")
}

// dockerRules are the rules of Docker in a container with its name server on random ports of
// 127.0.0.11.
const dockerRules = `iptables-nft -w -t nat -N DOCKER_OUTPUT
iptables-nft -w -t nat -N DOCKER_POSTROUTING
iptables-nft -w -t nat -A OUTPUT -d 127.0.0.11/32 -j DOCKER_OUTPUT
iptables-nft -w -t nat -A POSTROUTING -d 127.0.0.11/32 -j DOCKER_POSTROUTING
iptables-nft -w -t nat -A DOCKER_OUTPUT -d 127.0.0.11/32 -p tcp -m tcp --dport 53 -j DNAT --to-destination 127.0.0.11:36911
iptables-nft -w -t nat -A DOCKER_OUTPUT -d 127.0.0.11/32 -p udp -m udp --dport 53 -j DNAT --to-destination 127.0.0.11:36911
iptables-nft -w -t nat -A DOCKER_POSTROUTING -s 127.0.0.11/32 -p tcp -m tcp --sport 36911 -j SNAT --to-source :53
iptables-nft -w -t nat -A DOCKER_POSTROUTING -s 127.0.0.11/32 -p udp -m udp --sport 36911 -j SNAT --to-source :53
`

// installIn installs the redirection of DNS in a namespace, and holds no file of it afterwards.
func (w *world) installIn(t testing.TB, ns *netNS) {
	t.Helper()
	n, err := intercept.OpenNamespace(ns.path)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if _, err := intercept.Install(n, &intercept.Spec{DNSPort: 15053}, w.dir); err != nil {
		t.Fatal(err)
	}
}

// sites returns a container with a plain server on 127.0.0.11, one with Docker's rules for it, a
// pod with a cluster DNS, and the node with a VPN that has its own domain.
func (w *world) sites(t testing.TB) []site {
	t.Helper()
	if _, err := exec.LookPath("iptables-nft"); err != nil {
		t.Skip("skipped: there is no iptables-nft to make the rules of Docker (Debian: apt-get install iptables)")
	}
	plain, docker, pod, cluster, vpn := newNetNS(t), newNetNS(t), newNetNS(t), newNetNS(t), newNetNS(t)
	link(t, plain, docker, 97) // getent requires an address
	realServer(t, plain, "127.0.0.11:53", host("db.docker.example", "172.17.0.9"), host("both.example", "172.17.0.1"))
	realServer(t, docker, "127.0.0.11:36911", host("db.docker.example", "172.18.0.9"), host("both.example", "172.18.0.1"))
	docker.run(t, dockerRules, "sh", "-e")
	link(t, pod, cluster, 96)
	realServer(t, cluster, "10.96.0.1:53", host("kube.cluster.example", "10.244.0.9"), host("both.example", "10.244.0.1"))
	realServer(t, cluster, "[fd10:96::1]:53", host("kube.cluster.example", "10.244.0.9"),
		host("both.example", "10.244.0.6"))
	realServer(t, cluster, "[fe80::96%peer96]:53", host("kube.cluster.example", "10.244.0.9"))
	link(t, w.node, vpn, 98)
	realServer(t, vpn, "10.98.0.1:53", host("wiki.vpn.example", "10.98.0.9"), host("both.example", "10.98.0.2"))
	return []site{
		{name: "docker", ns: plain, servers: []string{"127.0.0.11:53", "127.0.0.99:53"}},
		{name: "docker with rules", ns: docker, servers: []string{"127.0.0.11:53", "127.0.0.99:53"}},
		{name: "pod", ns: pod, servers: []string{"10.96.0.1:53", "[fd10:96::1]:53", "[fe80::96%eth96]:53", "10.96.0.1:5353"}},
		{name: "vpn", ns: w.node,
			servers: []string{"10.98.0.1:53", outsideV4 + ":53", "[" + outsideV6 + "]:53", "10.98.0.1:5353"}},
	}
}

// answers returns the answers of all servers of a site.
func (p *site) answers(t testing.TB) string {
	t.Helper()
	var out strings.Builder
	for _, server := range p.servers[:len(p.servers)-1] {
		for _, network := range []string{"udp", "tcp"} {
			c := p.ns.socket(t, network, server)
			for _, name := range siteNames() {
				fmt.Fprintf(&out, "%s %s %s: %s\n", server, network, name, lookup(c, name, mdns.TypeA))
			}
			_ = c.Close()
		}
	}
	return out.String()
}

// TestOrigins: with an interception, the servers of each namespace give the same answers as
// without it, the agent answers the names of the mesh, and the ruleset is restored.
func TestOrigins(t *testing.T) {
	w := newWorld(t)
	p := w.agent(t, w.node)
	sites := w.sites(t)
	var before, rules []string
	for i := range sites {
		before, rules = append(before, sites[i].answers(t)), append(rules, sites[i].ns.rules(t))
		if strings.Contains(before[i], "i/o") {
			t.Fatalf("%s without interception:\n%s", sites[i].name, before[i])
		}
	}
	for i := range sites {
		w.installIn(t, sites[i].ns)
		p.awaitNext("state=active")
	}
	for range 2 { // the second time, answers are cached
		for i := range sites {
			if got := sites[i].answers(t); got != before[i] {
				t.Errorf("%s with interception:\n%swithout it:\n%s", sites[i].name, got, before[i])
			}
		}
	}
	for i := range sites {
		x := &sites[i]
		for _, server := range x.servers[:len(x.servers)-1] {
			for _, network := range []string{"udp", "tcp"} {
				want := outsideV4
				if strings.HasPrefix(server, "[fe80") { // not redirected
					want = "NXDOMAIN"
				}
				if got := x.ns.ask(t, network, server, "web.mesh", mdns.TypeA); got != want {
					t.Errorf("%s: web.mesh by %s over %s: %s, want %s", x.name, server, network, got, want)
				}
			}
		}
		if got := x.ns.ask(t, "udp", "127.0.0.77:53", "real.example", mdns.TypeA); got != "SERVFAIL" {
			t.Errorf("%s: a server that does not exist: %s", x.name, got)
		}
		// A resolv.conf that names the resolver itself: there is no other server to query.
		if got := x.ns.ask(t, "udp", "127.0.0.1:15053", "real.example", mdns.TypeA); got != realV4 {
			t.Errorf("%s: a query to the resolver itself: %s", x.name, got)
		}
		// With an empty resolv.conf, programs query 127.0.0.1.
		if got, err := x.ns.with(t, "", "getent", "ahostsv4", "web.mesh"); err != nil || !strings.Contains(got, outsideV4) {
			t.Errorf("%s: with an empty resolv.conf: %v: %s", x.name, err, got)
		}
	}
	for i := range sites {
		if _, err := intercept.Uninstall(sites[i].ns.open(t), w.dir); err != nil {
			t.Fatal(err)
		}
	}
	for range sites {
		p.awaitNext("interception was uninstalled")
	}
	for i := range sites {
		if got := sites[i].ns.rules(t); got != rules[i] {
			t.Errorf("%s: the ruleset after\n%s\nis not that from before\n%s", sites[i].name, got, rules[i])
		}
		if got := sites[i].answers(t); got != before[i] {
			t.Errorf("%s: after\n%s\nbefore\n%s", sites[i].name, got, before[i])
		}
	}
}

// TestOriginsOfOneSocket: a program that queries several servers from one socket, as musl does,
// gets the answer of each.
func TestOriginsOfOneSocket(t *testing.T) {
	w := newWorld(t)
	p := w.agent(t, w.node)
	pod := newNetNS(t)
	want := map[string]string{}
	for i := range 3 {
		server := fmt.Sprintf("127.0.1.%d:53", i)
		want[server] = fmt.Sprintf("192.0.2.%d", i)
		realServer(t, pod, server, host("both.example", want[server]))
	}
	w.installIn(t, pod)
	p.awaitNext("state=active")
	var c *net.UDPConn
	var err error
	pod.do(func() { c, err = net.ListenUDP("udp4", &net.UDPAddr{}) })
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 2 {
		for server := range want {
			q := new(mdns.Msg)
			wire, err := q.SetQuestion("both.example.", mdns.TypeA).Pack()
			if err == nil {
				_, err = c.WriteToUDPAddrPort(wire, netip.MustParseAddrPort(server))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		_ = c.SetReadDeadline(time.Now().Add(patience))
		for range want {
			b := make([]byte, 512)
			n, from, err := c.ReadFromUDPAddrPort(b)
			if err != nil {
				t.Fatal(err)
			}
			var m mdns.Msg
			if err := m.Unpack(b[:n]); err != nil || len(m.Answer) != 1 {
				t.Fatalf("%v: %v", err, &m)
			}
			if got := m.Answer[0].(*mdns.A).A.String(); got != want[from.String()] {
				t.Errorf("%s answered %s, want %s", from, got, want[from.String()])
			}
		}
	}
}

// TestPodEndsMidQuery: when a pod ends, its queries in flight fail immediately, and the agent
// closes all files.
func TestPodEndsMidQuery(t *testing.T) {
	w := newWorld(t)
	p := w.agent(t, w.node)
	files := func() int {
		list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	endPod := func(pod *netNS) {
		pod.close()
		p.awaitNext("network namespace no longer exists")
	}
	earlier := newNetNS(t)
	w.installIn(t, earlier)
	p.awaitNext("state=active")
	endPod(earlier)
	before := files()
	pod := newNetNS(t)
	var silent net.PacketConn
	var err error
	pod.do(func() { silent, err = net.ListenPacket("udp", "127.0.0.11:53") })
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	w.installIn(t, pod)
	p.awaitNext("state=active")
	c := pod.socket(t, "udp", "127.0.0.11:53")
	if err := c.WriteMsg(new(mdns.Msg).SetQuestion("real.example.", mdns.TypeA)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := silent.ReadFrom(make([]byte, 512)); err != nil { // the query of the agent
		t.Fatal(err)
	}
	endPod(pod)
	raw, err := c.Conn.(*net.UDPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 512)
	var n int
	err = errors.Join(raw.Read(func(fd uintptr) bool {
		n, _, err = unix.Recvfrom(int(fd), b, unix.MSG_DONTWAIT)
		return true
	}), err)
	var m mdns.Msg
	if err := errors.Join(err, m.Unpack(b[:max(n, 0)])); err != nil || m.Rcode != mdns.RcodeServerFailure {
		t.Errorf("the client gets %v, %v, want SERVFAIL", err, &m)
	}
	for late := time.Now().Add(patience); files() > before; <-time.After(10 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("%d files are open, %d before", files(), before)
		}
	}
}

// TestChangedResolvConf: as soon as programs query another server, that one answers them. An answer
// of the earlier server is not used, although the names are equal.
func TestChangedResolvConf(t *testing.T) {
	w := newWorld(t)
	p := w.agent(t, w.node)
	pod := w.sites(t)[2].ns
	w.installIn(t, pod)
	p.awaitNext("state=active")
	const script = `getent ahostsv4 both.example
		for server in fd10:96::1 127.0.0.77 127.0.0.1 10.96.0.1; do
			echo "nameserver $server" > /etc/resolv.conf
			getent ahostsv4 both.example || echo none
			getent ahostsv4 web.mesh || echo none
		done`
	out, err := pod.with(t, "nameserver 10.96.0.1\n", "sh", "-c", script)
	var got []string
	for line := range strings.Lines(out) {
		if strings.Contains(line, "STREAM") || strings.HasPrefix(line, "none") {
			got = append(got, strings.Fields(line)[0])
		}
	}
	want := []string{"10.244.0.1", "10.244.0.6", outsideV4, "none", outsideV4, "none", outsideV4, "10.244.0.1", outsideV4}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v: got %v, want %v\n%s", err, got, want, out)
	}
}
