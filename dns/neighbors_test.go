package dns

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	mdns "github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/dns/forward"
)

// neighbors are attacks by one process or one domain. The lookups of its neighbors are answered.
// Bounds are numbers of events, such as queries and connections, and not times.
var neighbors = map[string]func(*testing.T){
	"ten_thousand_TCP_connections_of_one_user":   attackConnections,
	"TCP_connections_with_queries_of_one_user":   attackBusyConnections,
	"questions_of_one_user_fill_the_table":       attackQuestions,
	"silent_domain":                              attackSilentDomain,
	"silent_domain_with_stale_answers":           attackSilentDomainStale,
	"water_torture_of_names_of_the_mesh":         attackOwnedNames,
	"water_torture_of_forwarded_names":           attackForwardedNames,
	"domain_that_answers_FORMERR":                attackFORMERR,
	"cgroups_of_one_user_and_redirected_sockets": rowOwners,
	"owner_of_a_redirected_connection":           rowRedirected,
	"idle_connections_are_closed_in_their_order": rowIdleOrder,
	"connections_of_one_user_replace_their_own":  rowOwnConnections,
	"connections_whose_query_arrived_are_spared": rowUnread,
}

func TestNeighbors(t *testing.T) { runAll(t, neighbors) }

const attacker, neighbor = 60001, 60002

// as returns a dialer whose sockets belong to a user.
func as(t *testing.T, uid int) *net.Dialer {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("sockets of other users need root")
	}
	return &net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		cerr := c.Control(func(fd uintptr) { err = unix.Fchown(int(fd), uid, -1) })
		return errors.Join(cerr, err)
	}}
}

// dial opens a connection that is closed with the test.
func dial(t *testing.T, d *net.Dialer, network, addr string) net.Conn {
	t.Helper()
	c, err := d.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c
}

func question(t testing.TB, name string) []byte {
	return packed(t, new(mdns.Msg).SetQuestion(mdns.Fqdn(name), mdns.TypeA))
}

// lookup sends a query over an open connection, and returns the reply.
func lookup(c net.Conn, name string) (*mdns.Msg, error) {
	conn := mdns.Conn{Conn: c}
	if err := conn.WriteMsg(new(mdns.Msg).SetQuestion(mdns.Fqdn(name), mdns.TypeA)); err != nil {
		return nil, err
	}
	return conn.ReadMsg()
}

// mustLookup is lookup for a name that must have an address.
func mustLookup(t *testing.T, c net.Conn, name string) {
	t.Helper()
	if m, err := lookup(c, name); err != nil || firstA(m) == "" {
		t.Fatalf("%s: %v, %v", name, m, err)
	}
}

// One user opens 10,000 connections, and uses some of them. Another user's connection stays open,
// its new connections are served, and none of its lookups fails.
func attackConnections(t *testing.T) {
	r := serve(t, ServerOptions{}, "127.0.0.1:0", webHost)
	addr := "127.0.0.1:" + r.addr
	bad, good := as(t, attacker), as(t, neighbor)
	old := dial(t, good, "tcp", addr)
	mustLookup(t, old, "web.mesh")
	var open []net.Conn
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	for i := range 10000 {
		c, err := bad.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if open = append(open, c); len(open) > 1500 { // more than the server's limit, less than that of files
			_ = open[0].Close()
			open = open[1:]
		}
		if i%3 == 0 {
			_, _ = c.Write([]byte{0, 50, 1}) // a part of a query
		}
		if i%100 == 99 {
			mustLookup(t, old, "web.mesh")
			fresh := dial(t, good, "tcp", addr)
			mustLookup(t, fresh, "web.mesh")
			_ = fresh.Close()
		}
	}
	if st := r.Conns(); st.Open > 1024 || st.ClosedIdle < 8000 || st.ClosedBusy != 0 {
		t.Errorf("counted: %+v", st)
	}
}

// One user holds all connections with questions to a silent server. A connection of another user
// replaces one of them.
func attackBusyConnections(t *testing.T) {
	c := newTester(t, forward.Options{}, newScripted(t, "127.0.0.1:0", func(*upstreamQuery) {}))
	c.swap(host("web.mesh", "240.0.0.1"))
	c.srv.conns.mu.Lock()
	c.srv.conns.limit = 40
	c.srv.conns.mu.Unlock()
	bad, good := as(t, attacker), as(t, neighbor)
	for i := range 40 {
		conn := dial(t, bad, "tcp", c.addr.String())
		before := c.srv.bySource(mdns.TypeA)
		if _, err := conn.Write(framedForTest(question(t, fmt.Sprintf("n%d.example", i)))); err != nil {
			t.Fatal(err)
		}
		if got := c.source(before, mdns.TypeA); got != fromUpstream {
			t.Fatalf("question %d: %s", i, sourceNames[got])
		}
	}
	another := dial(t, bad, "tcp", c.addr.String())
	if _, err := another.Read(make([]byte, 1)); err == nil {
		t.Error("another connection of the same user is served")
	}
	for range 19 {
		mustLookup(t, dial(t, good, "tcp", c.addr.String()), "web.mesh")
	}
	if st := c.srv.Conns(); st.Refused != 1 || st.ClosedBusy != 19 || st.ClosedIdle != 0 || st.Open != 40 {
		t.Errorf("counted: %+v", st)
	}
}

// Owners of sockets are users with their cgroups. A socket that is closed has no known owner.
func rowOwners(t *testing.T) {
	o := newOwners()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := func(d *net.Dialer) (client, server net.Conn) {
		client = dial(t, d, "tcp", l.Addr().String())
		server, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = server.Close() })
		return client, server
	}
	a, a1 := accepted(as(t, attacker))
	_, a2 := accepted(as(t, attacker))
	_, b := accepted(as(t, neighbor))
	of := o.ofTCP(a1)
	if of != o.ofTCP(a2) || of == o.ofTCP(b) || of == o.unknown() || o.ofTCP(b) == o.unknown() {
		t.Errorf("owners %v %v %v, unknown %v", of, o.ofTCP(a2), o.ofTCP(b), o.unknown())
	}
	_ = a.Close()
	if got := o.ofTCP(a1); got != o.unknown() {
		t.Errorf("a closed socket belongs to %v", got)
	}
	one, two := o.ofUser(user{uid: 7, cgroup: 1}), o.ofUser(user{uid: 7, cgroup: 2})
	if one.group != two.group || one.member == two.member {
		t.Errorf("cgroups of a user: %v %v", one, two)
	}
	socket := &udpReplier{}
	if got := socketOf(&aliasReplier{via: uncachedReplier{via: socket}}); got != forward.Replier(socket) {
		t.Errorf("the socket of a changed reply is %v", got)
	}
	u := dial(t, as(t, attacker), "udp", "127.0.0.1:9")
	client := u.LocalAddr().(*net.UDPAddr).AddrPort()
	away, right := netip.MustParseAddrPort("127.0.0.1:15053"), netip.MustParseAddrPort("127.0.0.1:9")
	if got := o.ofUDP(client, 0, []netip.AddrPort{away}); got != o.unknown() {
		t.Errorf("connected to another server, it belongs to %v", got)
	}
	if got := o.ofUDP(client, recentTime, []netip.AddrPort{away, right}); got != of {
		t.Errorf("a UDP socket belongs to %v, want %v", got, of)
	}
}

// The owner of a redirected connection is found by the address that its client used.
func rowRedirected(t *testing.T) {
	nft, err := exec.LookPath("nft")
	if err != nil || os.Geteuid() != 0 {
		t.Skip("a redirection needs nft and root")
	}
	outside := newOwners()
	outside.own() // of the namespace of the test
	done := make(chan struct{})
	go func() { // on a thread that ends with the goroutine
		defer close(done)
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Errorf("a new network namespace: %v", err)
			return
		}
		run := func(name string, args ...string) {
			if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s", name, err, out)
			}
		}
		run("ip", "link", "set", "lo", "up")
		run("ip", "route", "add", "default", "dev", "lo")
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Error(err)
			return
		}
		defer l.Close()
		run(nft, fmt.Sprintf(`add table ip t; add chain ip t o { type nat hook output priority -100; };
			add rule ip t o tcp dport 53 redirect to :%d`, l.Addr().(*net.TCPAddr).Port))
		c, err := as(t, attacker).Dial("tcp", "192.0.2.53:53")
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		server, err := l.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		defer server.Close()
		o := newOwners()
		if got := o.ofTCP(server); got == o.unknown() || got.group != o.ofUser(user{uid: attacker}).group {
			t.Errorf("the owner is %v, unknown is %v", got, o.unknown())
		}
		if raw := l.(syscall.Conn); newOwners().foreign(raw) != 0 || outside.foreign(raw) == 0 {
			t.Errorf("the namespace is foreign: %d from inside, %d from outside", newOwners().foreign(raw), outside.foreign(raw))
		}
	}()
	<-done
}

// Of the connections of one owner, the one that has been idle longest is closed first.
func rowIdleOrder(t *testing.T) {
	r := serve(t, ServerOptions{MaxConns: 8}, "127.0.0.1:0", webHost)
	lookup := func(c net.Conn) { // and wait until the server considers the connection idle
		t.Helper()
		mustLookup(t, c, "web.mesh")
		idle := func() bool {
			r.conns.mu.Lock()
			defer r.conns.mu.Unlock()
			return !slices.ContainsFunc(r.conns.open, func(c *tcpConn) bool { return !c.idle() })
		}
		for !idle() {
			runtime.Gosched()
		}
	}
	var open []net.Conn
	for range 7 {
		c := dial(t, &net.Dialer{}, "tcp", "127.0.0.1:"+r.addr)
		lookup(c)
		open = append(open, c)
	}
	lookup(open[0]) // open[1] is now idle for longest
	lookup(dial(t, &net.Dialer{}, "tcp", "127.0.0.1:"+r.addr))
	if _, err := open[1].Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the connection that was idle for longest: %v", err)
	}
	for i, c := range open {
		if i != 1 {
			mustLookup(t, c, "web.mesh")
		}
	}
}

// A user with the most connections replaces its own. Those of others stay open.
func rowOwnConnections(t *testing.T) {
	r := serve(t, ServerOptions{MaxConns: 16}, "127.0.0.1:0", webHost)
	var others []net.Conn
	for range 3 {
		others = append(others, dial(t, as(t, neighbor), "tcp", "127.0.0.1:"+r.addr))
		mustLookup(t, others[len(others)-1], "web.mesh")
	}
	for range 100 {
		mustLookup(t, dial(t, as(t, attacker), "tcp", "127.0.0.1:"+r.addr), "web.mesh")
	}
	for _, c := range others {
		mustLookup(t, c, "web.mesh")
	}
	if st := r.Conns(); st.Open != 14 || st.ClosedIdle != 89 || st.Refused != 0 {
		t.Errorf("counted: %+v", st)
	}
}

// A connection whose query has arrived but was not read is not idle.
func rowUnread(t *testing.T) {
	s := NewServer(ServerOptions{MaxConns: 8})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var clients []net.Conn
	var served []*tcpConn
	add := func() {
		clients = append(clients, dial(t, &net.Dialer{}, "tcp", l.Addr().String()))
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		served = append(served, listener{s: s}.newConn(t.Context(), c))
		if !s.conns.admit(served[len(served)-1]) {
			t.Fatal("not admitted")
		}
	}
	for range 7 {
		add()
	}
	if _, err := clients[0].Write([]byte{0}); err != nil {
		t.Fatal(err)
	}
	for late := time.Now().Add(patience); !served[0].unread(); {
		if time.Now().After(late) {
			t.Fatal("the byte does not arrive")
		}
	}
	add()
	if served[0].index < 0 || served[1].index >= 0 {
		t.Errorf("the wrong connection is closed: positions %d and %d", served[0].index, served[1].index)
	}
}
