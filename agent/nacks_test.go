package agent_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestRejectedPolicy checks a policy whose listener the proxy rejects. The listener must stay
// unchanged and must not be sent again, everything else must be updated, all reports must name the
// policy, its field, and the reason, and a fixed policy must be applied.
func TestRejectedPolicy(t *testing.T) {
	for _, delta := range []bool{true, false} {
		t.Run(fmt.Sprintf("delta=%t", delta), func(t *testing.T) {
			r := agenttest.Up(t, agenttest.Home(t), agent.Deps{})
			agenttest.ByAPI(t, r.Store(), agenttest.WebFile("svc-1", "svc-2"))
			p := startPicky(t, r.Addrs().XDS, "default.web", "WORD", delta)
			p.Want("Cluster localhost:80 svc-1 svc-2")
			p.Want("Listener inbound:10.0.0.1:80 outbound:127.0.0.1:20000 outbound:127.0.0.1:20001")
			agenttest.ByAPI(t, r.Store(), agenttest.Breaker(1))
			p.Want("Cluster svc-1 svc-2")
			if got := waitFor(t, r, "mcb", "limits"); got.State != api.StateApplied || got.Proxies != 1 ||
				got.Acknowledged != 1 {
				t.Errorf("a good policy: %+v", got)
			}

			agenttest.ByAPI(t, r.Store(), listenerPatch("bad", "WORD"))
			p.Want("Listener outbound:127.0.0.1:20000!")
			p.Want("Listener") // without the policy, as before
			got := waitFor(t, r, "meshproxypatch", "bad")
			if got.State != api.StateRejected || got.RejectedTotal != 1 || got.Rejected[0].Resource !=
				"outbound:127.0.0.1:20000" || !strings.Contains(got.Rejected[0].Reason, "it holds the word") {
				t.Fatalf("the bad policy: %+v", got)
			}
			blame := api.Blame{Type: "MeshProxyPatch", Mesh: "default", Name: "bad",
				Field:    "spec.default.appendModifications[1].listener",
				Evidence: api.BlameAlone, Paths: []string{"statPrefix"}}
			same := func(where string, list []api.Blame) {
				t.Helper()
				if len(list) != 1 || fmt.Sprint(list[0]) != fmt.Sprint(blame) {
					t.Errorf("%s: %+v, want %+v", where, list, blame)
				}
			}
			same("wait", got.Rejected[0].Policies)
			without := []api.Omitted{{Type: "MeshProxyPatch", Mesh: "default", Name: "bad"}}
			if !slices.Equal(got.Rejected[0].Without, without) {
				t.Errorf("wait: sent without %+v", got.Rejected[0].Without)
			}
			status, err := r.Api().Proxy(t.Context(), "default", "web")
			agenttest.Do(t, err)
			for _, ts := range status.Clients[0].Types {
				if ts.TypeURL == draft.TypeListener {
					same("what is held", ts.Held[0].Policies)
					if !slices.Equal(ts.Held[0].Without, without) {
						t.Errorf("what is held is sent without %+v", ts.Held[0].Without)
					}
				}
			}
			if !strings.Contains(status.Reason, "it holds the word") ||
				!strings.Contains(status.Reason, "MeshProxyPatch/default/bad (spec.default.appendModifications[1].listener)") {
				t.Errorf("reason of the proxy: %s", status.Reason)
			}
			whole, err := r.Api().Status(t.Context())
			agenttest.Do(t, err)
			if len(whole.Problems) != 1 || whole.Problems[0].Resource != "MeshProxyPatch/default/bad" ||
				!strings.Contains(whole.Problems[0].Reason, "it holds the word") {
				t.Errorf("problems: %+v", whole.Problems)
			}
			list, err := r.Api().Applied(t.Context(), "meshproxypatches", "", "")
			agenttest.Do(t, err)
			if len(list) != 1 || list[0].State != api.StateRejected {
				t.Errorf("states: %+v", list)
			}
			for state, want := range map[string]float64{"rejected": 1, "active": 0} {
				if n := metric(t, r.Agent, "nearside_policies", "MeshProxyPatch", state); n != want {
					t.Errorf("nearside_policies %s: %v, want %v", state, n, want)
				}
			}
			for state, want := range map[string]float64{"rejected": 1, "pending": 0, "synced": 0} {
				if n := metric(t, r.Agent, "nearside_proxies", "default", state); n != want {
					t.Errorf("nearside_proxies %s: %v, want %v", state, n, want)
				}
			}
			if n := metric(t, r.Agent, "nearside_policies", "MeshCircuitBreaker", "active"); n != 1 {
				t.Errorf("the good policy counts %v as active", n)
			}

			// All other resources are updated and acknowledged, and the rejected bytes are not sent
			// again.
			agenttest.ByAPI(t, r.Store(), agenttest.Breaker(2))
			p.Want("Cluster svc-1 svc-2")
			agenttest.ByAPI(t, r.Store(), accessLog("/dev/stdout"))
			p.Want("Listener outbound:127.0.0.1:20001")
			agenttest.ByAPI(t, r.Store(), accessLog("/dev/stderr"))
			p.Want("Listener outbound:127.0.0.1:20001")
			for kind, name := range map[string]string{
				"MeshCircuitBreaker": "limits",
				"MeshAccessLog":      "logs",
				"Dataplane":          "web",
			} {
				if got := waitFor(t, r, kind, name); got.State != api.StateApplied || got.Acknowledged != 1 {
					t.Errorf("%s beside the bad policy: %+v", kind, got)
				}
			}
			if got := waitFor(t, r, "meshproxypatch", "bad"); got.State != api.StateRejected {
				t.Errorf("the bad policy after that: %+v", got)
			}

			// The name of a policy is not part of the config.
			key := resource.Key{Kind: "MeshProxyPatch", Mesh: "default", Name: "bad"}
			batch := store.Batch{Source: store.Source{Kind: store.SourceAPI}, Durable: true,
				Ops: []store.Op{{Delete: key}, {Put: agenttest.Decoded(t, listenerPatch("renamed", "WORD"))[0]}}}
			_, err = r.Store().Apply(batch)
			agenttest.Do(t, err)
			p.Want("Listener outbound:127.0.0.1:20000!") // a new policy gets a new attempt
			p.Want("Listener")
			got = waitFor(t, r, "meshproxypatch", "renamed")
			if got.State != api.StateRejected || got.Rejected[0].Policies[0].Name != "renamed" {
				t.Errorf("under another name: %+v", got)
			}

			agenttest.ByAPI(t, r.Store(), listenerPatch("renamed", "GOOD"))
			p.Want("Listener outbound:127.0.0.1:20000")
			if got := waitFor(t, r, "meshproxypatch", "renamed"); got.State != api.StateApplied {
				t.Errorf("the good one: %+v", got)
			}
			gone, err := r.Api().Wait(t.Context(),
				api.Wait{Type: "MeshProxyPatch", Mesh: "default", Name: "bad", For: api.ForGone, Timeout: "10s"})
			agenttest.Do(t, err)
			if gone.State != api.StateGone {
				t.Errorf("the one that was deleted: %+v", gone)
			}
			whole, err = r.Api().Status(t.Context())
			agenttest.Do(t, err)
			if slices.ContainsFunc(whole.Problems, func(p api.Problem) bool { return p.Severity == "error" }) ||
				whole.Proxies["synced"] != 1 {
				t.Errorf("in the end: %+v %+v", whole.Problems, whole.Proxies)
			}
			if n := metric(t, r.Agent, "nearside_proxies", "default", "synced"); n != 1 {
				t.Errorf("%v proxies are synced in the end, and 1 in the status", n)
			}
			if n := metric(t, r.Agent, "nearside_policies", "MeshProxyPatch", "rejected"); n != 0 {
				t.Errorf("%v policies are rejected in the end", n)
			}
			sent := 0
			for _, ps := range r.Proxies() {
				for _, e := range ps.Events {
					if e.Kind == "nack" {
						sent++
					}
				}
			}
			if sent != 2 {
				t.Errorf("%d responses were rejected, want 1 of each policy", sent)
			}
		})
	}
}

// TestRejectedWithoutPolicy checks that the Dataplane is named as the cause if no policy shapes the
// rejected resource.
func TestRejectedWithoutPolicy(t *testing.T) {
	r := agenttest.Up(t, agenttest.Home(t), agent.Deps{})
	agenttest.ByAPI(t, r.Store(), agenttest.WebFile("svc-1"))
	p := startPicky(t, r.Addrs().XDS, "default.web", "outbound:127.0.0.1:20000", true)
	p.Want("Cluster localhost:80 svc-1")
	p.Want("Listener inbound:10.0.0.1:80 outbound:127.0.0.1:20000!")
	if got := waitFor(t, r, "dataplane", "web"); got.State != api.StateRejected || len(got.Rejected[0].Policies) != 0 {
		t.Errorf("wait: %+v", got)
	}
	whole, err := r.Api().Status(t.Context())
	agenttest.Do(t, err)
	if len(whole.Problems) != 1 || whole.Problems[0].Resource != "Dataplane/default/web" ||
		!strings.Contains(whole.Problems[0].Reason, "no policy affects it") {
		t.Errorf("problems: %+v", whole.Problems)
	}
}

// TestRejectedFromTheStart connects a proxy when the invalid policy already exists together with
// another policy for the same listener, and again after a restart of the agent. The reported cause
// must be the raw patch: the proxy accepts the listener without it.
func TestRejectedFromTheStart(t *testing.T) {
	dir := agenttest.Home(t)
	r := agenttest.Up(t, dir, agent.Deps{})
	agenttest.ByAPI(t, r.Store(), agenttest.WebFile("svc-1", "svc-2")+"---\n"+listenerPatch("bad", "WORD")+"---\n"+
		strings.Replace(accessLog("/dev/stdout"), "svc-2", "svc-1", 1)+"---\n"+agenttest.Breaker(1))
	for range 2 {
		p := startPicky(t, r.Addrs().XDS, "default.web", "WORD", true)
		p.Want("Cluster localhost:80 svc-1 svc-2")
		p.Want("Listener inbound:10.0.0.1:80 outbound:127.0.0.1:20000! outbound:127.0.0.1:20001")
		p.Want("Listener outbound:127.0.0.1:20000") // without the policy
		got := waitFor(t, r, "mpp", "bad")
		if got.State != api.StateRejected || len(got.Rejected) != 1 {
			t.Fatalf("wait: %+v", got)
		}
		agenttest.Eventually(t, "the accepted version proves the cause", func() bool {
			var names []string
			for _, b := range waitFor(t, r, "mpp", "bad").Rejected[0].Policies {
				names = append(names, b.Name+" "+b.Evidence)
			}
			return slices.Equal(names, []string{"bad alone", "logs shapes"})
		})
		if got := waitFor(t, r, "MeshCircuitBreaker", "limits"); got.State != api.StateApplied || got.Acknowledged != 1 {
			t.Errorf("another policy: %+v", got)
		}
		for kind, want := range map[string]float64{"MeshProxyPatch": 1, "MeshAccessLog": 0} {
			if n := metric(t, r.Agent, "nearside_policies", kind, "rejected"); n != want {
				t.Errorf("%s: %v are rejected, want %v", kind, n, want)
			}
		}
		agenttest.Do(t, r.Stop())
		r = agenttest.Up(t, dir, agent.Deps{})
	}
}

// TestManyReject checks that the same rejection by many proxies is attributed to the same policy
// for each proxy.
func TestManyReject(t *testing.T) {
	r := agenttest.Up(t, agenttest.Home(t), agent.Deps{})
	const n = 8
	var docs strings.Builder
	docs.WriteString("type: Mesh\nname: default\n")
	for i := range n {
		fmt.Fprintf(&docs, "---\n{type: Dataplane, mesh: default, name: web-%d, networking: {address: 10.0.0.%d, inbound: "+
			"[{port: 80, tags: {kuma.io/service: web}}], outbound: [{port: 20000, tags: {kuma.io/service: svc-1}}]}}\n", i, i+1)
	}
	agenttest.ByAPI(t, r.Store(), docs.String())
	var all []*pickyProxy
	for i := range n {
		p := startPicky(t, r.Addrs().XDS, fmt.Sprintf("default.web-%d", i), "WORD", i%2 == 0)
		p.Want("Cluster localhost:80 svc-1")
		p.Want(fmt.Sprintf("Listener inbound:10.0.0.%d:80 outbound:127.0.0.1:20000", i+1))
		all = append(all, p)
	}
	agenttest.ByAPI(t, r.Store(), listenerPatch("bad", "WORD"))
	for _, p := range all {
		p.Want("Listener outbound:127.0.0.1:20000!")
		p.Want("Listener")
	}
	agenttest.Eventually(t, "all are put down to the policy", func() bool {
		list, err := r.Api().Applied(t.Context(), "mpp", "default", "bad")
		agenttest.Do(t, err)
		return list[0].RejectedTotal == n && list[0].Proxies == n
	})
	whole, err := r.Api().Status(t.Context())
	agenttest.Do(t, err)
	if len(whole.Problems) != 1 || !strings.Contains(whole.Problems[0].Reason, fmt.Sprintf("rejected by %d proxies", n)) {
		t.Errorf("problems: %+v", whole.Problems)
	}
}
