package traffictest_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// pace is how a client sends its first bytes.
type pace struct {
	what    string
	silent  time.Duration // before the first byte
	segment func(n int) int
	gap     time.Duration // between the segments of the first write
}

func whole(n int) int { return n }

// paces returns the ways to send, from the issue of slow clients.
func paces() []pace {
	out := []pace{{what: "in two segments", segment: func(n int) int { return (n + 1) / 2 }, gap: 300 * time.Millisecond},
		{what: "one byte at a time", segment: func(int) int { return 1 }, gap: time.Millisecond},
		{what: "one byte at a time, without a pause", segment: func(int) int { return 1 }}}
	for _, d := range []time.Duration{0, 100 * time.Millisecond, 300 * time.Millisecond, time.Second, 2 * time.Second,
		5 * time.Second} {
		out = append(out, pace{what: "after " + d.String(), silent: d, segment: whole})
	}
	return out
}

// slowConn is a connection whose first write is slow.
type slowConn struct {
	net.Conn
	ctx  context.Context // ends a pause
	pace pace
	once sync.Once
}

func (c *slowConn) Write(b []byte) (n int, err error) {
	slow := false
	c.once.Do(func() { slow = true })
	if !slow {
		return c.Conn.Write(b)
	}
	if c.pace.silent > 0 {
		c.pause(c.pace.silent)
	}
	for size := c.pace.segment(len(b)); n < len(b) && err == nil; {
		var m int
		m, err = c.Conn.Write(b[n:min(n+size, len(b))])
		if n += m; n < len(b) && c.pace.gap > 0 {
			c.pause(c.pace.gap)
		}
	}
	return n, err
}

// pause waits in real time, because Envoy does.
func (c *slowConn) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.ctx.Done():
	}
}

// slowRow is a row with the kind of the listener that could be in doubt.
type slowRow struct {
	listener string
	row
	waits string // explained inspection timeout of the client's proxy; "" for none
}

// slowWorld is a world in which web redirects connections to virtual addresses separately, and
// backend-1 is permissive.
func slowWorld(t *testing.T) *world {
	w := emptyWorld(t)
	w.net.virtual = map[int]bool{2: true}
	list := members()
	for i := range list {
		switch m := &list[i]; m.id {
		case "default.web":
			m.text = strings.Replace(m.text, "networking:",
				fmt.Sprintf("labels: {nearside.io/redirect-port-virtual: \"%d\"}, networking:", redirectVirtual), 1)
		case "default.backend-1":
			m.text = strings.Replace(m.text, "inbound: [",
				"inbound: [{port: 7443, tags: {kuma.io/service: own-tls, kuma.io/protocol: tcp}}, ", 1)
		}
	}
	w.agent = w.runAgent(t)
	docs := meshes(w.records.path)
	for _, m := range list {
		docs += "---\n" + m.text + "\n"
	}
	w.base = byKey(t, docs)
	w.put(t, w.base)
	w.runProxies(t, w.agent, list)
	w.workloads()
	w.servers.tls(w.net.nodes[3], "backend-1/7443", nodeV4(3)+":7443", "own.example.com")
	w.live(t)
	mode := func(of, mode string) string {
		return policy("MeshPassthrough", of,
			"{targetRef: {kind: Dataplane, name: "+of+"}, default: {passthroughMode: "+mode+"}}")
	}
	w.apply(t, theMesh(strict+", "+viaEgress+", networking: {outbound: {passthrough: false}}")+
		matched("web", "Matched",
			`{type: Domain, value: api.example.com, port: 443, protocol: tls}`,
			`{type: Domain, value: www.example.com, port: 80, protocol: http}`,
			`{type: CIDR, value: 10.10.0.0/16, port: 5432, protocol: tcp}`,
			`{type: IP, value: 203.0.113.77, port: 443, protocol: tcp}`,
			`{type: IP, value: 10.20.0.8, port: 9000, protocol: tcp}`,
			`{type: Domain, value: api.example.com, port: 9000, protocol: tls}`)+
		mode("backend-1", "None")+mode("backend-2", "All")+
		policy("MeshTLS", "soft", "{targetRef: {kind: Dataplane, name: backend-1}, "+
			"from: [{targetRef: {kind: Mesh}, default: {mode: Permissive}}]}"))
	return w
}

// slowRows returns connections through each kind of listener.
func slowRows() []slowRow {
	const stranger = "whom the other mesh lets in"
	at := func(n, port int) string { return fmt.Sprintf("%s:%d", nodeV4(n), port) }
	return []slowRow{
		{"outbound and inbound STRICT", row{to: "db.mesh:80", say: aLine, want: "backend-2/5432"}, ""},
		{"outbound of HTTP", row{to: "backend.mesh:80", say: get, want: backends}, ""},
		{"virtual address without a service", row{to: "240.255.255.254:80", say: aLine, want: closed}, ""},
		{"virtual address without a service, TLS", row{to: "240.255.255.254:443", say: overTLS, name: "api.example.com",
			want: closed}, ""},
		{"virtual address through the main listener", row{from: "backend-2", to: "db.mesh:80", say: aLine,
			want: "backend-2/5432"}, ""},
		{"virtual address without a service through the main listener", row{from: "backend-2", to: "240.255.255.254:80",
			say: aLine, want: closed}, ""},
		{"inbound STRICT, from outside the mesh", row{mesh: "plain", to: at(4, 5432), say: aLine, want: closed,
			beyond: stranger}, ""},
		{"inbound PERMISSIVE of HTTP", row{mesh: "plain", to: at(3, 8080), say: get, want: "backend-1/8080",
			beyond: stranger}, ""},
		{"inbound PERMISSIVE of TCP", row{mesh: "plain", to: at(3, 7001), say: aLine, want: "backend-1/left",
			beyond: stranger}, ""},
		{"inbound PERMISSIVE, TLS of the workload", row{mesh: "plain", to: at(3, 7443), say: overTLS,
			name: "own.example.com", want: "backend-1/7443", beyond: stranger}, ""},
		{"inbound PERMISSIVE, TLS of the mesh without a certificate", row{mesh: "plain", to: at(3, 7443), say: overTLS,
			alpn: []string{"kuma"}, want: closed, beyond: stranger}, ""},
		{"inbound without mTLS", row{mesh: "plain", to: "store.mesh:80", say: aLine, want: "shop/5432"}, ""},
		{"inbound without mTLS, HTTP", row{mesh: "plain", to: "shop.mesh:80", say: get, want: "shop/8080"}, ""},
		{"passthrough of an open mesh", row{mesh: "plain", to: database, say: aLine, want: "database"}, ""},
		{"passthrough All", row{from: "backend-2", to: foreign, say: overTLS, name: "foreign.example.net", want: "foreign"},
			""},
		{"passthrough None", row{from: "backend-1", to: foreign, say: overTLS, name: "foreign.example.net", want: closed},
			""},
		{"passthrough Matched, TLS on a mixed port", row{to: apiService, say: overTLS, name: "api.example.com",
			want: "api"}, "15s"},
		{"passthrough Matched, TLS to an address of tcp", row{to: beside, say: overTLS, name: "beside.example.net",
			want: "beside"}, "15s"},
		{"passthrough Matched, TLS without a match", row{to: foreign, say: overTLS, name: "foreign.example.net",
			want: closed}, "15s"},
		{"passthrough Matched, HTTP", row{to: www, say: get, name: "www.example.com", want: "www"}, "15s"},
		{"passthrough Matched, another protocol on a port of HTTP", row{to: www, say: aLine, want: closed}, "15s"},
		{"passthrough Matched, HTTP/2", row{to: www, say: getH2, name: "www.example.com", want: "www"}, "15s"},
		{"passthrough Matched, tcp alone", row{to: database, say: aLine, want: "database"}, ""},
		{"passthrough Matched, tcp on a mixed port", row{to: boxBeside, say: aLine, want: "beside-the-box"}, "15s"},
		{"passthrough Matched, no match", row{to: outside, say: aLine, want: closed}, ""},
		{"egress of HTTP", row{to: "partner.outside:80", say: get, want: "partner"}, ""},
		{"egress of TCP", row{to: "rows.outside:5432", say: aLine, want: "database"}, ""},
	}
}

// TestSlowClients checks that the time until a client sends decides nothing: whatever the pace, the
// outcome is that of the explanation. All clients run at the same time.
func TestSlowClients(t *testing.T) {
	w := slowWorld(t)
	rows := slowRows()
	verdicts := make([]string, len(rows))
	for i := range rows {
		r := &rows[i]
		f, err := r.explain(t, w, w.address(t, &r.row))
		agenttest.Do(t, err)
		verdicts[i] = f.Verdict
		if open := r.want != closed; r.beyond == "" && open != (f.Verdict == "allowed") {
			t.Errorf("%s: want %q, explained as %s: %s", r.listener, r.want, f.Verdict, f.Reason)
		}
		waits := ""
		if f.Wait != nil {
			waits = f.Wait.After
		}
		if waits != r.waits {
			t.Errorf("%s: explained as waiting %q for the client, want %q", r.listener, waits, r.waits)
		}
	}
	var wg sync.WaitGroup
	for i := range rows {
		r := &rows[i]
		at, ns := w.address(t, &r.row), w.proxyOf(&r.row).ns
		for _, p := range paces() {
			wg.Go(func() {
				began := time.Now()
				c, err := ns.dial(at)
				if err != nil {
					t.Errorf("%s: %v", r.listener, err)
					return
				}
				defer c.Close()
				_ = c.SetDeadline(began.Add(agenttest.Patience)) // a later error shows it
				a, err := r.talk(&slowConn{Conn: c, ctx: t.Context(), pace: p}, w)
				wants := strings.Split(r.want, "|")
				if got := outcome(a, err); !slices.Contains(wants, got) {
					rec, _ := w.records.find(w.proxyOf(&r.row).id, c.LocalAddr().String())
					t.Errorf("%s, %s: it comes to %q after %s (%v), want %q, explained as %s; logged: %s", r.listener, p.what,
						got, time.Since(began).Round(time.Millisecond), err, r.want, verdicts[i], rec)
				}
			})
		}
	}
	wg.Go(func() { w.serversFirst(t) })
	wg.Go(func() { w.closesUnassigned(t) })
	wg.Wait()
}

// outcome returns the name of the server that a client has reached, or closed.
func outcome(a answered, err error) string {
	switch {
	case err == nil:
		return a.got
	case isTimeout(err):
		return noAnswer
	}
	return closed
}

// inspection is shorter than the time that an Envoy waits for the first bytes of a client where it
// inspects them, and long enough for a busy machine.
const inspection = 14 * time.Second

// serversFirst checks that the first bytes of a server arrive at once where nothing is inspected,
// although an http match names port 80.
func (w *world) serversFirst(t *testing.T) {
	for _, r := range []slowRow{
		{"virtual address", row{to: "banner.mesh:80", say: nothing, want: "backend-2/3306"}, ""},
		{"virtual address through the main listener", row{from: "backend-2", to: "banner.mesh:80", say: nothing,
			want: "backend-2/3306"}, ""},
		{"passthrough All", row{from: "backend-2", to: mysqlNext, say: nothing, want: "next-mysql"}, ""},
	} {
		if a := r.send(t, w, w.proxyOf(&r.row).ns, w.address(t, &r.row)); a.got != r.want || a.took > inspection {
			t.Errorf("%s: the first bytes of a server: %q after %s", r.listener, a.got, a.took)
		}
	}
}

// closesUnassigned checks that a connection to a virtual address without a service is closed at
// once, and logged with a flag.
func (w *world) closesUnassigned(t *testing.T) {
	for _, from := range []string{"web", "backend-2"} {
		r := &row{from: from, to: "240.255.255.253:5432", say: nothing, want: closed}
		a := r.send(t, w, w.proxyOf(r).ns, mustAddrPort(r.to))
		if a.got != closed || a.took > inspection {
			t.Errorf("%s: a virtual address without a service: %q after %s", from, a.got, a.took)
		}
		var rec record
		agenttest.Eventually(t, "the closed connection of "+from+" is logged", func() bool {
			var ok bool
			rec, ok = w.records.find(w.proxyOf(r).id, a.peer)
			return ok
		})
		if rec.Flags != "UH" || rec.Cluster != "outbound:passthrough:virtual" {
			t.Errorf("%s: %s", from, rec)
		}
	}
}
