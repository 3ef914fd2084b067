package traffictest_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// drainTime is the drain time of the Envoys in [TestTrafficDrains]. The checks of the first half of
// the test have to end within this time, also on a busy machine.
const drainTime = 20 * time.Second

// lateness is how much later than Envoy a busy machine may do things.
const lateness = 10 * time.Second

// draining is a connection that is open while a policy change removes a resource that it needs.
type draining struct {
	row           // a second connection, opened after the change
	policy string // the changed policy, as TYPE/NAME
	// old is the expected next response on the open connection: the name of the server, or the
	// status of the proxy's local reply.
	old string
	// ends is true if the proxy closes the connection at the end of the drain time.
	ends bool
	// pooled is true if other client connections share an upstream connection of the proxy, which
	// was open before the change.
	pooled bool

	conn *open
}

// TestTrafficDrains opens connections and then removes what allows them. It compares what happens
// to the open and new connections with the drain times that explanations and waits report.
func TestTrafficDrains(t *testing.T) {
	w := emptyWorld(t)
	w.drain = drainTime
	w.agent = w.runAgent(t, fmt.Sprintf("xds.drainTime=%d", drainTime/time.Second))
	const old = "---\n{type: TrafficPermission, mesh: old, name: all, sources: [{match: {kuma.io/service: %s}}], " +
		"destinations: [{match: {kuma.io/service: '*'}}]}\n"
	docs := theMesh(strict) + "---\n{type: Mesh, name: old, " + strict + "}\n" + permission("all", "", "", "Allow") +
		fmt.Sprintf(old, "'*'") + matched("outside", "All") + "---\n{type: ExternalService, mesh: old, name: far-rows, " +
		"tags: {kuma.io/service: far-rows, kuma.io/protocol: tcp}, networking: {address: \"10.20.0.7:9000\"}}\n" +
		witness("default", w.records.path) + witness("old", w.records.path)
	var list []member
	for i, mesh := range []string{"default", "old"} {
		list = append(list, dataplane(mesh, "web", 2+2*i, "{port: 80, tags: {kuma.io/service: web, kuma.io/protocol: http}}"),
			dataplane(mesh, "shop", 3+2*i, "{port: 8080, tags: {kuma.io/service: shop, kuma.io/protocol: http}}, {port: 5432, "+
				"tags: {kuma.io/service: store, kuma.io/protocol: tcp}}"))
	}
	for _, m := range list {
		docs += "---\n" + m.text + "\n"
	}
	w.base = byKey(t, docs)
	w.put(t, w.base)
	w.runProxies(t, w.agent, list)
	for _, n := range []int{3, 5} {
		w.servers.web(w.net.nodes[n], "shop/8080", nodeV4(n)+":8080")
		w.servers.tcp(w.net.nodes[n], "shop/5432", nodeV4(n)+":5432")
	}
	w.live(t)

	const permissions, passthrough, legacy = "MeshTrafficPermission/all", "MeshPassthrough/outside",
		"TrafficPermission/all"
	rows := []draining{
		{row: row{what: "TCP", to: "store.mesh:80", say: aLine, want: closed, policies: []string{permissions}},
			policy: permissions, old: "shop/5432", ends: true},
		{row: row{what: "requests", to: "shop.mesh:80", say: get, want: "403", policies: []string{permissions}},
			policy: permissions, old: "403"},
		{row: row{what: "TCP to an ExternalService", mesh: "old", to: "far-rows.mesh:80", say: aLine, want: closed},
			policy: legacy, old: "box", ends: true},
		{row: row{what: "TCP that leaves", to: box, say: aLine, want: closed}, policy: passthrough, old: "box", ends: true},
		{row: row{what: "TCP, by a legacy policy", mesh: "old", to: "store.mesh:80", say: aLine, want: closed},
			policy: legacy, old: "shop/5432", ends: true},
		{row: row{what: "requests, by a legacy policy", mesh: "old", to: "shop.mesh:80", say: get}, policy: legacy,
			old: "shop/8080", pooled: true},
	}
	for i := range rows {
		d := &rows[i]
		d.conn = w.open(t, &d.row)
		if got := d.conn.retry(); got != "box" && !strings.HasPrefix(got, "shop/") {
			t.Fatalf("%s: before the change it comes to %q", d.what, got)
		}
	}
	began := time.Now()
	next := byKey(t, docs)
	for k, doc := range byKey(t, permission("all", "", "", "Deny")+fmt.Sprintf(old, "nobody")+matched("outside", "None")) {
		next[k] = doc
	}
	w.put(t, next)
	for i := range rows {
		t.Run(rows[i].what, func(t *testing.T) { rows[i].drains(t, w, began) })
	}
	for i := range rows {
		t.Run(rows[i].what+", drained", func(t *testing.T) { rows[i].drained(t, w) })
	}
}

// until waits for the policy and returns how long connections from before the change may remain
// open.
func (d *draining) until(t *testing.T, w *world) time.Time {
	t.Helper()
	kind, name, _ := strings.Cut(d.policy, "/")
	x, err := w.agent.Api().Wait(t.Context(), api.Wait{Type: kind, Mesh: cmp.Or(d.mesh, "default"), Name: name,
		For: api.ForApplied, Timeout: agenttest.LongestWait})
	if err != nil || x.State != api.StateApplied {
		t.Fatalf("%+v, %v", x, err)
	}
	return x.OldUntil
}

// holds checks that a wait and an explanation say that an open TCP connection keeps its permission.
func (d *draining) holds(t *testing.T, w *world) {
	t.Helper()
	kind, name, _ := strings.Cut(d.policy, "/")
	x, err := w.agent.Api().Wait(t.Context(), api.Wait{Type: kind, Mesh: cmp.Or(d.mesh, "default"), Name: name,
		For: api.ForApplied, Timeout: agenttest.LongestWait})
	agenttest.Do(t, err)
	shops := slices.IndexFunc(x.Old, func(o api.OldProxy) bool { return o.Name == "shop" })
	if shops < 0 || !x.Old[shops].Permission {
		t.Errorf("the wait does not say that the permission holds: %+v", x.Old)
	}
	f, err := d.explain(t, w, w.address(t, &d.row))
	agenttest.Do(t, err)
	const kept = "a TCP connection from before the change keeps its previous permission until then"
	if !slices.ContainsFunc(f.Servers, func(s explain.Way) bool { return strings.Contains(s.Reason, kept) }) {
		t.Errorf("the explanation does not say that the permission holds: %+v", f.Servers)
	}
}

// explained returns how long such connections may remain open according to an explanation.
func (d *draining) explained(t *testing.T, w *world) (out time.Time) {
	t.Helper()
	f, err := d.explain(t, w, w.address(t, &d.row))
	agenttest.Do(t, err)
	ways := append([]explain.Way{f.Way}, f.Servers...)
	for i := range ways {
		if u := ways[i].OldUntil; u != nil {
			if !strings.Contains(ways[i].Reason, "older connections may use its previous filter chains until ") {
				t.Errorf("until %s, and the reason does not tell: %s", u, ways[i].Reason)
			}
			if u.After(out) {
				out = *u
			}
		}
	}
	return out
}

// drains checks the behavior of the open connection and of a new one against the reported drain
// time while the old filter chains drain.
func (d *draining) drains(t *testing.T, w *world, began time.Time) {
	until := d.until(t, w)
	if d.policy != "MeshPassthrough/outside" && d.to == "store.mesh:80" {
		d.holds(t, w)
	}
	if until.Before(began.Add(drainTime)) {
		t.Fatalf("by the wait connections live until %s; the change was at %s", until, began)
	}
	if at := d.explained(t, w); at.Before(began.Add(drainTime)) || at.After(until) {
		t.Errorf("explained until %s, and by the wait until %s", at, until)
	}
	kind, name, _ := strings.Cut(d.policy, "/")
	dp := map[string]string{"MeshPassthrough": "web"}[kind]
	x, err := w.agent.Api().ExplainPolicy(t.Context(),
		explain.PolicyQuestion{Type: kind, Mesh: cmp.Or(d.mesh, "default"), Name: name, Dataplane: cmp.Or(dp, "shop")})
	agenttest.Do(t, err)
	// Waiting for the policy covers all proxies and reports the latest of their times. This message
	// is about one proxy, in whole seconds.
	_, said, _ := strings.Cut(strings.Join(x.Warnings, "\n"), "may use the previous filters until ")
	said, _, _ = strings.Cut(said, ",")
	at, err := time.Parse(time.RFC3339, said)
	if !x.Selected || err != nil || at.Before(began.Add(drainTime).Truncate(time.Second)) || at.After(until) {
		t.Errorf("the explanation of the policy does not tell of %s: selected %v, %q", until, x.Selected, x.Warnings)
	}
	if !d.pooled {
		d.run(t, w)
	}
	if got := d.conn.retry(); got != d.old {
		t.Errorf("the open connection comes to %q, want %q", got, d.old)
	}
}

// drained checks that the open connection ends at the reported time, and checks the responses after
// that.
func (d *draining) drained(t *testing.T, w *world) {
	until := d.until(t, w)
	if d.ends {
		if err := d.conn.end(); err != nil {
			t.Fatalf("the open connection: %v", err)
		}
		if now := time.Now(); !until.IsZero() && now.After(until.Add(lateness)) {
			t.Errorf("the open connection was closed at %s, and was to live until %s", now, until)
		}
	}
	agenttest.Eventually(t, "nobody says any more that old connections live", func() bool {
		return d.until(t, w).IsZero() && d.explained(t, w).IsZero()
	})
	if d.pooled {
		d.want = "503" // the proxy opens a new upstream connection
		d.run(t, w)
	}
}

// open is a persistent connection.
type open struct {
	net.Conn
	r     *bufio.Reader
	http  *http.Client
	host  string
	taken bool
}

func (w *world) open(t *testing.T, r *row) *open {
	t.Helper()
	c, err := w.proxyOf(r).ns.dial(w.address(t, r))
	agenttest.Do(t, err)
	t.Cleanup(func() { c.Close() })
	o := &open{Conn: c, r: bufio.NewReader(c), host: r.host()}
	if r.say.http() {
		o.http = &http.Client{Timeout: agenttest.Patience,
			Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
				if o.taken {
					return nil, errors.New("the connection was closed")
				}
				o.taken = true
				return c, nil
			}}}
	}
	return o
}

// retry sends another request and returns the name of the responder.
func (o *open) retry() string {
	if o.http != nil {
		resp, err := o.http.Get("http://" + o.host + "/")
		a, err := heard(resp, err)
		if err != nil {
			return err.Error()
		}
		return a.got
	}
	if err := o.SetDeadline(time.Now().Add(agenttest.Patience)); err != nil {
		return err.Error()
	}
	if _, err := io.WriteString(o, "hello\n"); err != nil {
		return closed
	}
	s, err := o.r.ReadString('\n')
	if err != nil {
		return closed
	}
	return strings.TrimSpace(s)
}

// end waits until the peer closes the connection.
func (o *open) end() error {
	if err := o.SetDeadline(time.Now().Add(agenttest.Patience)); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, o.r); err != nil && isTimeout(err) {
		return err
	}
	return nil
}
