package traffictest_test

import (
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestTrafficProbes checks that a workload whose probe fails receives no requests, although its
// Envoy runs. Each workload and its Envoy are in their own network namespace, with redirection.
func TestTrafficProbes(t *testing.T) {
	w := newWorld(t)
	probed := func(name, path string) string {
		return changed("default."+name, "{port: 8080, ",
			"{port: 8080, serviceProbe: {interval: 100ms, http: {path: "+path+"}}, ")
	}
	updates, stop := w.agent.Store().Watch()
	defer stop()
	await := func(name string, excluded bool) {
		t.Helper()
		agenttest.Await(t, "the probe of "+name+" has its result", updates, func() bool {
			rec, ok := w.agent.Store().Snapshot().Get(resource.EndpointStateOf(key("Dataplane", name)))
			if !ok {
				return !excluded
			}
			s, ok := rec.Spec.(*resource.EndpointState)
			return ok && s.Excludes(8080) == excluded
		})
		w.awaitIdle(t)
	}
	reached := func() string {
		seen := map[string]bool{}
		r := row{to: "backend.mesh:80", say: get}
		for range 12 {
			a := r.send(t, w, w.proxyOf(&r).ns, w.address(t, &r))
			seen[a.got] = true
		}
		var out []string
		for _, name := range strings.Split(backends, "|") {
			if seen[name] {
				out = append(out, name)
			}
			delete(seen, name)
		}
		for name := range seen {
			out = append(out, "unexpected "+name)
		}
		return strings.Join(out, "|")
	}
	// The agent computes configs after it has stored a result.
	reaches := func(what, want string) {
		t.Helper()
		agenttest.Eventually(t, what+", and requests reach "+want, func() bool { return reached() == want })
	}
	w.apply(t, probed("backend-1", "/")+probed("backend-2", "/"))
	await("backend-1", false)
	reaches("both workloads are healthy", backends)
	w.apply(t, probed("backend-1", sick)+probed("backend-2", "/"))
	await("backend-1", true)
	reaches("the first workload fails its probe", "backend-2/8080")
	w.apply(t, probed("backend-1", "/")+probed("backend-2", "/"))
	await("backend-1", false)
	reaches("it has recovered", backends)
}
