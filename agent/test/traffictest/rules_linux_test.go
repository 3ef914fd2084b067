package traffictest_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/servername"
)

// Matches of rules.
const (
	matchWeb    = `spiffeID: {type: Exact, value: "spiffe://default/web"}`
	matchDB     = `spiffeID: {type: Exact, value: "spiffe://default/db"}` // one of several IDs of backend-2
	matchPrefix = `spiffeID: {type: Prefix, value: "spiffe://default/d"}`
)

// rulesOf returns a policy for the whole mesh with rules. Each rule is a match, or "" for all
// clients, and a conf.
func rulesOf(kind string, rules ...[2]string) string {
	var list []string
	for _, r := range rules {
		if r[0] != "" {
			r[0] = "matches: [{" + r[0] + "}], "
		}
		list = append(list, "{"+r[0]+"default: "+r[1]+"}")
	}
	return policy(kind, "rules", "{targetRef: {kind: Mesh}, rules: ["+strings.Join(list, ", ")+"]}")
}

// matchName returns a match by the server name of a MeshService.
func matchName(service string) string {
	name := servername.Of("default", &mesh.Outbound{Service: &mesh.Service{
		ID: mesh.ServiceID{Kind: mesh.KindMeshService, Name: service}, FullName: service, Port: 80,
	}})
	return "sni: {type: Exact, value: " + name + "}"
}

// byRules returns scenes in which rules of policies act on one of two clients, or on the requests
// of a client for one of two server names.
func byRules(log string) []scene {
	log += ".rules"
	resources := asResources()
	first, second := matchName("first"), matchName("second")
	duration := func(least, most time.Duration) func(*answered) bool {
		return func(a *answered) bool { return a.took >= least && a.took < most }
	}
	within := func(d string) string { return "{http: {requestTimeout: " + d + "}}" }
	late := func(what, from, to, d string, ok func(*answered) bool) row {
		return row{what: what, from: from, to: to, say: getH2, headers: map[string]string{"x-wait": "1"}, want: "504",
			upstream: ok, beyond: "how long a server takes", policies: []string{"MeshTimeout/rules"},
			effects: []string{"a request may take " + d + ", then 504"}}
	}
	const most = 7900 * time.Millisecond // longer than a busy machine takes for a short timeout
	limit := func(n int, d, more string) string {
		return fmt.Sprintf("{local: {http: {requestRate: {num: %d, interval: %s}%s}}}", n, d, more)
	}
	limited := func(what, from, to, want, effect string) row {
		r := row{what: what, from: from, to: to, say: getH2, want: want, effects: []string{effect}}
		if !strings.HasPrefix(want, "backend") {
			r.beyond = "what was sent before"
		}
		return r
	}
	const few, some, many = "at most 1 requests in 1h, more answered with 423",
		"at most 1 requests in 1h, more answered with 429", "at most 1000 requests in 1s, more answered with 429"
	abort := func(status int) string {
		return fmt.Sprintf("{http: [{abort: {httpStatus: %d, percentage: 100}}]}", status)
	}
	delay := func(d string) string { return "{http: [{delay: {value: " + d + ", percentage: 100}}]}" }
	return []scene{
		{what: "timeouts by certificate and server name", docs: resources + rulesOf("MeshTimeout",
			[2]string{matchWeb, within("60ms")}, [2]string{matchWeb + ", " + first, within("90ms")},
			[2]string{first, within("70ms")}, [2]string{"", within("8s")}), rows: []row{
			late("certificate", "", "calls.mesh:80", "60ms", duration(0, most)),
			late("certificate and server name", "", "first.inside:80", "90ms", duration(0, most)),
			late("server name", "backend-2", "first.inside:80", "70ms", duration(0, most)),
			late("neither", "backend-2", "calls.mesh:80", "8s", duration(most, time.Minute)),
			{what: "in time", to: "first.inside:80", say: get, want: "backend-1/8080"},
		}},
		{what: "timeouts by prefix", docs: rulesOf("MeshTimeout", [2]string{matchPrefix, within("60ms")},
			[2]string{"", within("8s")}), rows: []row{
			late("a client with several IDs", "backend-2", "calls.mesh:80", "60ms", duration(0, most)),
			late("another client", "", "calls.mesh:80", "8s", duration(most, time.Minute)),
		}},
		{what: "limits by certificate and server name", docs: resources + rulesOf("MeshRateLimit",
			[2]string{matchWeb + ", " + first, limit(1, "1h", ", onRateLimit: {status: 423}")},
			[2]string{first, limit(1, "1h", "")}, [2]string{"", limit(1000, "1s", "")}), rows: []row{
			limited("the first", "", "first.inside:80", "backend-1/8080", few),
			limited("the second", "", "first.inside:80", "423", few),
			limited("the first of another client", "backend-2", "first.inside:80", "backend-1/8080", some),
			limited("the second of it", "backend-2", "first.inside:80", "429", some),
			limited("another server name", "", "calls.mesh:80", "backend-1/9090", many),
			limited("another server name again", "", "calls.mesh:80", "backend-1/9090", many),
		}},
		{what: "limits by prefix", docs: rulesOf("MeshRateLimit", [2]string{matchPrefix, limit(1, "1h", "")}), rows: []row{
			limited("the first", "backend-2", "calls.mesh:80", "backend-1/9090", some),
			limited("the second", "backend-2", "calls.mesh:80", "429", some),
			{what: "another client", to: "calls.mesh:80", say: getH2, want: "backend-1/9090", withoutEffect: some},
			{what: "another client again", to: "calls.mesh:80", say: getH2, want: "backend-1/9090", withoutEffect: some},
		}},
		{what: "faults by certificate and server name", docs: resources + rulesOf("MeshFaultInjection",
			[2]string{matchWeb + ", " + first, abort(417)}, [2]string{first, abort(418)},
			[2]string{matchWeb, delay("60ms")}, [2]string{"", delay("50ms")}), rows: []row{
			{what: "certificate and server name", to: "first.inside:80", say: get, want: "417",
				policies: []string{"MeshFaultInjection/rules"}},
			{what: "server name", from: "backend-2", to: "first.inside:80", say: get, want: "418"},
			{what: "certificate", to: "calls.mesh:80", say: getH2, want: "backend-1/9090",
				effects:  []string{"100 % delayed by 60ms", "100 % delayed by 50ms"},
				upstream: duration(110*time.Millisecond, time.Minute)},
			{what: "neither", from: "backend-2", to: "calls.mesh:80", say: getH2, want: "backend-1/9090",
				effects: []string{"100 % delayed by 50ms"}, withoutEffect: "100 % delayed by 60ms",
				upstream: duration(50*time.Millisecond, time.Minute)},
		}},
		{what: "faults by one of several IDs", docs: theMesh(lenient+", "+viaEgress) +
			rulesOf("MeshFaultInjection", [2]string{matchDB, abort(418)}), rows: []row{
			{what: "the client", from: "backend-2", to: "calls.mesh:80", say: getH2, want: "418"},
			{what: "another client", to: "calls.mesh:80", say: getH2, want: "backend-1/9090"},
			{what: "HTTP without a certificate", mesh: "plain", to: nodeV4(3) + ":8080", say: get, want: "backend-1/8080",
				elsewhere: true},
		}},
		logsByRules(log, resources, first, second),
	}
}

// logsByRules returns a scene in which each rule that matches a client writes a line.
func logsByRules(log, resources, first, second string) scene {
	rule := func(match, name string) [2]string {
		return [2]string{match, logTo(log, "Plain",
			"plain: \""+name+" %REQ(:PATH)% %DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%\"")}
	}
	names := []string{"web-first", "web", "first", "second", "prefix", "all"}
	lines := func(path string, client int, want ...string) func(t testing.TB, w *world) {
		return func(t testing.TB, w *world) {
			for _, name := range names {
				line := fmt.Sprintf("%s %s %s", name, path, nodeV4(client))
				if slices.Contains(want, name) {
					logged(log, "^"+regexp.QuoteMeta(line)+"$")(t, w)
				}
			}
			b, _ := os.ReadFile(log) // the line of "all" is the last one of a request
			for _, name := range names {
				line := fmt.Sprintf("%s %s %s", name, path, nodeV4(client))
				if got := strings.Count("\n"+string(b), "\n"+line+"\n"); got > 1 || (got == 1) != slices.Contains(want, name) {
					t.Errorf("the log has %q %d times", line, got)
				}
			}
		}
	}
	return scene{what: "logs by certificate and server name", docs: resources + rulesOf("MeshAccessLog",
		rule("", "all"), rule(first, "first"), rule(second, "second"), rule(matchPrefix, "prefix"), rule(matchWeb, "web"),
		rule(matchWeb+", "+first, "web-first")), rows: []row{
		{what: "HTTP", to: "first.inside:80", say: get, path: "/one", want: "backend-1/8080",
			policies: []string{"MeshAccessLog/rules"}, after: lines("/one", 2, "web-first", "web", "first", "all")},
		{what: "HTTP of another client", from: "backend-2", to: "first.inside:80", say: get, path: "/two",
			want: "backend-1/8080", after: lines("/two", 4, "first", "prefix", "all")},
		{what: "HTTP by another name", from: "backend-2", to: "calls.mesh:80", say: getH2, path: "/three",
			want: "backend-1/9090", after: lines("/three", 4, "prefix", "all")},
		{what: "TCP", to: "second.inside:80", say: aLine, want: "backend-2/5432",
			after: lines("-", 2, "web", "second", "all")},
		{what: "TCP of another client", from: "backend-1", to: "db.mesh:80", say: aLine, want: "backend-2/5432",
			after: lines("-", 3, "all")},
	}}
}
