package traffictest_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// perState is the number of connections tried with the same policies.
const perState = 10

// TestTrafficFuzz compares the results of random connections under random policies with their
// explanations. TRAFFIC_FUZZ_N is the number of connections (default 20), and TRAFFIC_FUZZ_SEED the
// first seed (default 1).
func TestTrafficFuzz(t *testing.T) {
	n, seed := number(t, "TRAFFIC_FUZZ_N", 20), uint64(number(t, "TRAFFIC_FUZZ_SEED", 1))
	w := newWorld(t)
	for done := 0; done < n; seed++ {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			g := &generator{rand.New(rand.NewPCG(seed, seed))}
			docs := g.state()
			w.apply(t, docs)
			for range min(perState, n-done) {
				done++
				r := g.row()
				if faults, x, f := r.try(t, w); len(faults) > 0 {
					t.Errorf("seed %d, %s (%s):\n%s\nwire: %s\nexplained: %s\nwith\n%s",
						seed, r.what, r.to, strings.Join(faults, "\n"), x, flowText(f), docs)
				}
			}
		})
	}
}

func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q is no number from 1 on", name, text)
	}
	return n
}

// generator creates random policies and connections.
type generator struct{ *rand.Rand }

func pick[T any](g *generator, list ...T) T { return list[g.IntN(len(list))] }

// some returns up to n distinct random items.
func some(g *generator, n int, item func() string) []string {
	var out []string
	for range g.IntN(n + 1) {
		if x := item(); !slices.Contains(out, x) {
			out = append(out, x)
		}
	}
	return out
}

func (g *generator) state() string {
	var b strings.Builder
	if g.IntN(2) == 0 {
		b.WriteString(pick(g, theMesh, taking)(pick(g, strict, lenient) + ", " + viaEgress +
			pick(g, "", ", networking: {outbound: {passthrough: false}}")))
	}
	for i := range g.IntN(4) {
		b.WriteString(g.permission(i))
	}
	for i := range g.IntN(3) {
		b.WriteString(g.passthrough(i))
	}
	if g.IntN(2) == 0 {
		b.WriteString(g.route())
	}
	if g.IntN(4) == 0 {
		b.WriteString(policy("MeshTCPRoute", "t", "{targetRef: "+g.clients()+", to: [{targetRef: {kind: MeshService, "+
			"name: db}, rules: [{default: {backendRefs: ["+pick(g, "{kind: MeshService, name: left}",
			"{kind: MeshService, name: db}", "{kind: MeshServiceSubset, name: db, tags: {version: none}}")+"]}}]}]}"))
	}
	b.WriteString(g.shape())
	return b.String()
}

// clients returns a selector that matches web, and possibly others.
func (g *generator) clients() string {
	return pick(g, "{kind: Mesh}", "{kind: Dataplane, name: web}", "{kind: MeshService, name: web}",
		"{kind: MeshSubset, tags: {team: front}}")
}

func (g *generator) permission(i int) string {
	top := pick(g, "{kind: Mesh}", "{kind: MeshService, name: backend}", "{kind: MeshService, name: db}",
		"{kind: MeshSubset, tags: {version: v1}}", "{kind: MeshService, name: far-web}", "{kind: MeshService, "+
			"name: far-rows}", "{kind: Dataplane, name: backend-1}", "{kind: Dataplane, name: backend-2, sectionName: \"5432\"}",
		"{kind: MeshServiceSubset, name: backend, tags: {version: v2}}")
	var items []string
	for range 1 + g.IntN(3) {
		client := pick(g, "{kind: Mesh}", "{kind: MeshService, name: web}", "{kind: MeshService, name: backend}",
			"{kind: MeshSubset, tags: {team: front}}", "{kind: MeshSubset, tags: {team: back}}",
			"{kind: MeshServiceSubset, name: web, tags: {team: front}}")
		items = append(items,
			"{targetRef: "+client+", default: {action: "+pick(g, "Allow", "Deny", "AllowWithShadowDeny")+"}}")
	}
	return policy("MeshTrafficPermission", fmt.Sprintf("p%d", i),
		"{targetRef: "+top+", from: ["+strings.Join(items, ", ")+"]}")
}

func (g *generator) passthrough(i int) string {
	match := func() string {
		port := pick(g, "", ", port: 443", ", port: 80", ", port: 5432", ", port: 9000")
		switch g.IntN(6) {
		case 0, 1:
			return "{type: Domain, value: " + pick(g, "api.example.com, port: 443", "\"*.cdn.example.com\", port: 443",
				"foreign.example.net, port: 443", "\"*.example.com\", port: 443", "\"*.example.com\", port: 7000",
				"\"*.example.com\"") + ", protocol: tls}"
		case 2:
			return "{type: Domain, value: " + pick(g, "www.example.com", "\"*.example.com\"", "foreign.example.net") +
				", port: 80, protocol: http}"
		case 3:
			return "{type: IP, value: " + pick(g, "198.51.100.10", "203.0.113.77", "10.10.0.5", "10.20.0.7", "198.51.100.30",
				"\"2001:db8:7::7\"") + port + ", protocol: " + pick(g, "tcp", "tls") + "}"
		}
		return "{type: CIDR, value: " + pick(g, "198.51.100.0/24", "203.0.113.0/24", "10.0.0.0/8", "10.10.0.0/16",
			"172.16.0.0/12", "172.20.0.0/16", "\"2001:db8::/32\"") + port + ", protocol: " + pick(g, "tcp", "tls", "tcp") + "}"
	}
	return policy("MeshPassthrough", fmt.Sprintf("m%d", i), "{targetRef: "+
		pick(g, "{kind: Mesh}", "{kind: Dataplane, name: web}")+", default: {passthroughMode: "+pick(g, "All", "None",
		"Matched", "Matched", "Matched", "Matched")+", appendMatch: ["+strings.Join(some(g, 6, match), ", ")+"]}}")
}

func (g *generator) route() string {
	rule := func() string {
		match := pick(g, "{path: {type: PathPrefix, value: "+g.path()+"}}", "{path: {type: Exact, value: "+g.path()+"}}",
			"{path: {type: RegularExpression, value: \"/[a-z]+\"}}",
			"{method: POST}", "{headers: [{type: Exact, name: x-user, value: me}]}",
			"{queryParams: [{type: Exact, name: v, value: two}]}",
			"{path: {type: PathPrefix, value: "+g.path()+"}, method: GET}")
		return "{matches: [" + match + "], default: " + pick(g, "{backendRefs: ["+version("v1")+"]}",
			"{backendRefs: ["+version("v2")+"]}", "{backendRefs: [{kind: MeshService, name: calls}]}",
			"{backendRefs: ["+version("v1")+", "+version("v2")+"]}", redirect("hostname: other.example.com, statusCode: 301"),
			rewrite("ReplaceFullPath", "/all"), "{backendRefs: ["+version("none")+"]}") + "}"
	}
	rules := append(some(g, 4, rule), rule())
	return policy("MeshHTTPRoute", "r", "{targetRef: "+g.clients()+
		", to: [{targetRef: {kind: MeshService, name: backend}, rules: ["+strings.Join(rules, ", ")+"]}]}")
}

func (g *generator) path() string { return pick(g, "/", "/one", "/one/two", "/exact") }

// shape returns policies that do not change the route.
func (g *generator) shape() string {
	return pick(g, "",
		policy("MeshTimeout", "s", to("", "{connectionTimeout: 5s, http: {requestTimeout: 10s}}")),
		policy("MeshRetry", "s", to("", "{http: {numRetries: 2, retryOn: [ConnectFailure]}}")),
		policy("MeshLoadBalancingStrategy",
			"s", to("", "{loadBalancer: {type: "+pick(g, "Random", "LeastRequest", "RoundRobin")+"}}")),
		policy("MeshCircuitBreaker", "s", to("", "{connectionLimits: {maxConnections: 100}}")),
		policy("MeshTLS", "s",
			"{targetRef: {kind: Mesh}, from: [{targetRef: {kind: Mesh}, default: {tlsVersion: {min: TLS12, max: TLS13}}}]}"),
		policy("MeshHealthCheck",
			"s", to("", "{interval: 10s, timeout: 2s, unhealthyThreshold: 3, healthyThreshold: 1, tcp: {}}")))
}

func (g *generator) row() *row {
	r := &row{say: get}
	switch g.IntN(5) {
	case 0, 1: // HTTP inside the mesh
		r.to, r.say = "backend.mesh:80", pick(g, get, get, getH2, getH2, get10, upgrade)
		r.path, r.method = g.path()+pick(g, "", "", "/more", "?v=two", "?v=one"), pick(g, "", "", "POST")
		if r.say == upgrade {
			r.method = ""
		}
		if g.IntN(3) == 0 {
			r.headers = map[string]string{"x-user": pick(g, "me", "you")}
		}
	case 2: // TCP inside the mesh
		r.to, r.say = pick(g, "db.mesh:80", "left.mesh:80", "db.mesh:80"), aLine
		switch g.IntN(5) {
		case 0:
			r.to, r.say = "calls.mesh:80", pick(g, rpc, rpc, upgrade)
		case 1:
			r.to, r.say = "banner.mesh:80", nothing
		}
	case 3: // TLS and lines to external servers
		r.to = pick(g, apiService, cdn, foreign, beside, database, outside, box, boxBeside, inner, outer, boxV6,
			otherV6, foreignV6)
		r.say = pick(g, overTLS, aLine)
		if !strings.HasSuffix(r.to, ":443") && !strings.HasSuffix(r.to, ":7000") {
			r.say = aLine // no server speaks TLS there
		}
		if r.say == overTLS {
			r.name = pick(g, "", "api.example.com", "a.cdn.example.com", "foreign.example.net", "b.example.com")
		}
	case 4: // HTTP to external servers
		r.to, r.say, r.name = pick(g, www, foreignW), pick(g, get, get, getH2, get10, upgrade),
			pick(g, "www.example.com", "foreign.example.net", "other.example.com", "www.example.com:80")
	}
	if g.IntN(6) == 0 { // external services through the egress
		r = &row{say: pick(g, get, getH2, upgrade), to: "partner.outside:80"}
		switch g.IntN(4) {
		case 0:
			r.to = "far-web.mesh:80"
		case 1:
			r.to, r.say = "far-rows.mesh:80", aLine
		case 2:
			r.to, r.say = "rows.outside:5432", aLine
		}
	}
	r.what = fmt.Sprintf("%s %s %s %s %v", r.say, r.name, r.method, r.path, r.headers)
	return r
}
