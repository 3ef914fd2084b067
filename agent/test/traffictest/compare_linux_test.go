package traffictest_test

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// row is a connection or request of a workload with the expected result and reason.
type row struct {
	what string
	mesh string // default if empty
	from string // the dataplane; web if empty
	to   string // HOST:PORT; HOST is an address or a name of the mesh
	ip   string // the address or name that the client dials, if different
	v6   bool   // the client dials the service's second address, which is IPv6
	// named is true if explain has to resolve the name.
	named bool

	say     speech
	name    string // SNI or Host; the host of to if empty
	alpn    []string
	path    string
	method  string
	headers map[string]string
	body    int64

	// want is the name of the server, closed, or the status of the proxy's local reply.
	// Alternatives are separated by |.
	want     string
	upstream func(*answered) bool // checks what the server or the client received
	cluster  string               // expected cluster of the client's proxy; empty for any
	policies []string             // TYPE/NAME of the policies that the explanation must list
	mirrors  map[string]string    // servers that receive a copy of the request, by explained cluster
	// effects are texts of effects that the explanation names, and withoutEffect is one that it does
	// not name.
	effects       []string
	withoutEffect string
	// after runs additional checks.
	after func(t testing.TB, w *world)
	// beyond is the reason why the result does not depend only on the config. The explanation then
	// says what the config allows.
	beyond string
	// elsewhere is true if the decision depends on proxies whose config this agent does not know.
	// The explanation must say so.
	elsewhere bool

	// pending is the reason why the row is known to fail. A row that succeeds must have none.
	pending string
}

// wire is the observed result of a row.
type wire struct {
	answered
	unchained bool // no filter chain of the client's proxy matched
	record    record
	recorded  bool
}

func (x *wire) String() string {
	out := x.got
	if x.recorded {
		out += ", by the log of the client's proxy: " + x.record.String()
	}
	if x.unchained {
		out += ", no filter chain took it"
	}
	return fmt.Sprintf("%s (after %s)", out, x.took.Round(time.Millisecond))
}

// try sends a row and requests its explanation. It returns the differences and both results.
func (r *row) try(t testing.TB, w *world) (faults []string, x *wire, f *explain.Flow) {
	t.Helper()
	at := w.address(t, r)
	if !at.IsValid() {
		return []string{r.to + " has no address of the family"}, &wire{}, nil
	}
	x = w.send(t, r, at)
	f, err := r.explain(t, w, at)
	if err != nil {
		return []string{"it is not explained: " + err.Error()}, x, nil
	}
	if r.want != "" && !slices.Contains(strings.Split(r.want, "|"), x.got) {
		faults = append(faults, fmt.Sprintf("it comes to %q, want %q", x.got, r.want))
	} else if r.upstream != nil && !r.upstream(&x.answered) {
		faults = append(faults, fmt.Sprintf("what came is not what ought to: %+v", x.answered))
	}
	if r.cluster != "" && x.record.Cluster != r.cluster {
		faults = append(faults, fmt.Sprintf("it goes to the cluster %q, want %q", x.record.Cluster, r.cluster))
	}
	for _, p := range r.policies {
		if !slices.ContainsFunc(f.Policies, func(b api.FlowPolicy) bool { return b.Type+"/"+b.Name == p }) {
			faults = append(faults, "explained without "+p)
		}
	}
	for i, e := range append(slices.Clone(r.effects), r.withoutEffect) {
		if explained := hasEffect(f, e); explained != (i < len(r.effects)) {
			faults = append(faults, fmt.Sprintf("effect %q explained: %t", e, explained))
		}
	}
	faults = append(faults, r.agree(x, f)...)
	if r.elsewhere != (f.Beyond != "") {
		faults = append(faults, fmt.Sprintf("explained as decided elsewhere: %q", f.Beyond))
	}
	if r.beyond == "" {
		faults = append(faults, r.arrived(x, f)...)
		faults = append(faults, r.mirrored(t, w, f)...)
	}
	return faults, x, f
}

// hasEffect reports whether an explanation names an effect at the client's proxy or at a server's.
func hasEffect(f *explain.Flow, text string) bool {
	has := func(w explain.Way) bool {
		return slices.ContainsFunc(w.Effects, func(e explain.FlowEffect) bool { return e.Text == text })
	}
	return has(f.Way) || slices.ContainsFunc(f.Servers, has)
}

// send sends a row and collects what the client's proxy recorded about it.
func (w *world) send(t testing.TB, r *row, at netip.AddrPort) *wire {
	t.Helper()
	p := w.proxyOf(r)
	before := p.unchained(t)
	x := &wire{answered: r.send(t, w, p.ns, at)}
	if x.peer == "" || x.got == noAnswer {
		return x
	}
	tick := time.NewTicker(time.Millisecond) // there is no event for a written line
	defer tick.Stop()
	agenttest.Await(t, "the proxy "+p.id+" has logged or counted the connection, with which came: "+x.got, tick.C,
		func() bool {
			x.record, x.recorded = w.records.find(p.id, x.peer)
			if x.got == closed && (!x.recorded || x.record.Chain == "" || x.record.Chain == "-") {
				x.unchained = grown(before, p.unchained(t))
			}
			return x.recorded || x.unchained
		})
	return x
}

// explain requests the explanation of a row from the agent.
func (r *row) explain(t testing.TB, w *world, at netip.AddrPort) (*explain.Flow, error) {
	target := explain.Target{Mesh: cmp.Or(r.mesh, "default"), From: cmp.Or(r.from, "web"), To: r.to, IP: r.ip}
	host, _, _ := net.SplitHostPort(r.to)
	switch _, err := netip.ParseAddr(host); {
	case r.v6:
		target.To = at.String()
	case err != nil && !r.named && !strings.HasSuffix(host, ".mesh"):
		target.IP = at.Addr().String()
	}
	api := w.agent.Api()
	if !r.say.http() {
		q := explain.ConnectionQuestion{Target: target, TLS: r.say == overTLS, Silent: r.say == nothing}
		if q.TLS {
			q.SNI, q.ALPN = &r.name, r.alpn
		}
		return api.ExplainConnection(t.Context(), q)
	}
	q := explain.RequestQuestion{Target: target, Method: r.method, Path: r.path, HTTP2: r.say == getH2 || r.say == rpc,
		HTTP10: r.say == get10}
	header := func(name, value string) {
		q.Headers = append(q.Headers, explain.Header{Name: name, Value: value})
	}
	header("host", r.host())
	for k, v := range r.headers {
		header(k, v)
	}
	switch r.say {
	case rpc:
		q.Method, q.Path = "POST", "/grpc.health.v1.Health/Check"
		header("content-type", "application/grpc")
	case upgrade:
		header("connection", "Upgrade")
		header("upgrade", "websocket")
	case connect:
		q.Method = "CONNECT"
	}
	return api.ExplainRequest(t.Context(), q)
}

// agree compares an explanation with the observed result.
func (r *row) agree(x *wire, f *explain.Flow) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	var outcome string
	switch {
	case r.beyond != "":
		if f.Verdict != "allowed" {
			fault("explained as %s, which is said too much: %s", f.Verdict, r.beyond)
		}
		return faults
	case x.got == closed || x.got == noAnswer:
		outcome = "closed"
	case r.say == nothing && strings.Contains(f.Reason, "what the server says before is heard"):
		outcome = "denied" // after the client sends data
	case x.status >= 400 || x.status == 200 && r.say == rpc:
		outcome = "denied"
	default:
		outcome = "allowed"
	}
	verdict, status := f.Verdict, f.Status
	// If servers differ, the one that the proxy selected counts.
	if i := slices.IndexFunc(f.Servers, func(s explain.Way) bool { return s.Address == x.record.Host }); i >= 0 {
		verdict, status = f.Servers[i].Verdict, f.Servers[i].Status
	} else if x.recorded && len(f.Servers) > 0 {
		fault("it comes to the server at %s, of which nothing is explained", x.record.Host)
	}
	if verdict != "allowed" && status == 0 && f.Verdict != "allowed" {
		verdict, status = f.Verdict, f.Status // the client's proxy responds if the server closes the connection
	}
	if outcome == "closed" && verdict == "denied" && status == 0 {
		verdict = "closed" // a denied plain TCP connection is closed
	}
	if verdict != outcome {
		fault("it is %s, and explained as %s: %s", outcome, verdict, f.Reason)
	}
	if status != x.status && (x.status != 0 || x.code != 0) && r.say != rpc {
		fault("the proxy's own answer has the status %d, and %d is explained", x.status, status)
	}
	if f.ClosedAt != "" && len(f.Servers) == 0 && !x.unchained {
		fault("explained as closed at %s, and a filter chain took it", f.ClosedAt)
	}
	if x.unchained && f.FilterChain != "" {
		fault("no filter chain took it, and %q is explained", f.FilterChain)
	}
	if !x.recorded {
		return faults
	}
	if logged := strings.TrimPrefix(x.record.Chain, "-"); logged != f.FilterChain &&
		(logged != "" || !strings.HasPrefix(f.FilterChain, "#")) {
		fault("it went through the chain %q, and %q is explained", logged, f.FilterChain)
	}
	if outcome == "allowed" && x.status == 0 {
		var names []string
		for _, c := range f.Clusters {
			names = append(names, c.Name)
			// Otherwise these are names that the proxy resolves.
			_, err := netip.ParseAddrPort(strings.Join(c.Addresses[:min(1, len(c.Addresses))], ""))
			if c.Name == x.record.Cluster && err == nil && !c.Pinned && c.Endpoints == len(c.Addresses) &&
				!slices.Contains(c.Addresses, x.record.Host) {
				fault("the cluster dials %s, and %v are explained", x.record.Host, c.Addresses)
			}
		}
		if !slices.Contains(names, x.record.Cluster) {
			fault("it went to the cluster %q, and %q are explained", x.record.Cluster, names)
		}
	}
	return faults
}

// run runs a row as a subtest.
func (r *row) run(t *testing.T, w *world) {
	faults, x, f := r.try(t, w)
	if r.after != nil {
		r.after(t, w)
	}
	switch {
	case len(faults) > 0 && r.pending != "":
		t.Logf("pending: %s: %s", r.pending, strings.Join(faults, "; "))
	case r.pending != "":
		t.Errorf("the row holds: take its mark away (pending: %s)", r.pending)
	case len(faults) > 0:
		t.Errorf("%s\nwire: %s\nexplained: %s", strings.Join(faults, "\n"), x, flowText(f))
	}
}

// flowText returns an explanation as text.
func flowText(f *explain.Flow) string {
	if f == nil {
		return "not at all"
	}
	var b strings.Builder
	way := func(w *explain.Way) {
		fmt.Fprintf(&b, "%s: %s\n", w.Verdict, w.Reason)
		for _, s := range w.Steps {
			fmt.Fprintf(&b, "  %s: %s -> %s %s\n", s.At, s.Saw, s.Chose, s.Note)
		}
		for _, c := range w.Clusters {
			fmt.Fprintf(&b, "  %s %d/%d %v\n", c.Name, c.Weight, c.Total, c.Addresses)
		}
	}
	way(&f.Way)
	for i := range f.Servers {
		fmt.Fprintf(&b, " server %s ", f.Servers[i].Dataplane.Name)
		way(&f.Servers[i])
	}
	return b.String()
}
