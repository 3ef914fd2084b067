package agent_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/client"
	"github.com/nearside-mesh/nearside/agent/inspect"
)

// unfit is a policy that gives a listener the address of another one, which Envoy rejects.
func unfit(name string, port, address int) string {
	return fmt.Sprintf("{type: MeshProxyPatch, mesh: default, name: %s, spec: {targetRef: {kind: MeshService, name: web}, default: {appendModifications: ["+
		"{listener: {operation: Patch, match: {name: 'outbound:127.0.0.1:%d'}, value: 'statPrefix: %s'}}, "+
		"{listener: {operation: Patch, match: {name: 'outbound:127.0.0.1:%d'}, value: 'address: {socketAddress: {address: 127.0.0.1, portValue: %d}}'}}]}}}\n", name, port, name, port, address)
}

// mended is the same policy without it.
func mended(name string, port int) string {
	return fmt.Sprintf("{type: MeshProxyPatch, mesh: default, name: %s, spec: {targetRef: {kind: MeshService, name: web}, default: {appendModifications: ["+
		"{listener: {operation: Patch, match: {name: 'outbound:127.0.0.1:%d'}, value: 'statPrefix: %s'}}]}}}\n", name, port, name)
}

// TestUnfitPolicy has a policy that makes a listener which Envoy would reject: it is not sent, the listener stays as it
// was, everything else goes on, and the policy, its field, the rule and the place are named everywhere.
func TestUnfitPolicy(t *testing.T) {
	for _, delta := range []bool{true, false} {
		t.Run(fmt.Sprintf("delta=%t", delta), func(t *testing.T) {
			r := up(t, shortDir(t), agent.Deps{})
			byAPI(t, r.Store(), webFile("svc-1", "svc-2"))
			p := startPicky(t, r.Addrs().XDS, "default.web", "WORD", delta)
			p.want("Cluster localhost:80 svc-1 svc-2")
			p.want("Listener inbound:10.0.0.1:80 outbound:127.0.0.1:20000 outbound:127.0.0.1:20001")

			byAPI(t, r.Store(), unfit("bad", 20000, 20001))
			got := waitFor(t, r, "meshproxypatch", "bad")
			if got.State != client.StateRejected || got.RejectedTotal != 1 {
				t.Fatalf("the bad policy: %+v", got)
			}
			x := got.Rejected[0]
			if x.Resource != "outbound:127.0.0.1:20000" || x.By != client.HeldByCheck || !strings.HasPrefix(x.Reason, "not sent: Envoy would reject it at /address: ") || !strings.Contains(x.Reason, "(rule 10: ") {
				t.Errorf("rejected: %+v", x)
			}
			blame := client.Blame{Type: "MeshProxyPatch", Mesh: "default", Name: "bad", Field: "spec.default.appendModifications[1].listener",
				Evidence: client.BlameAlone, Paths: []string{"address.socketAddress.portValue", "statPrefix"}}
			if len(x.Policies) != 1 || fmt.Sprint(x.Policies[0]) != fmt.Sprint(blame) {
				t.Errorf("policies: %+v, want %+v", x.Policies, blame)
			}
			status, err := r.api().Proxy(t.Context(), "default", "web")
			do(t, err)
			held := 0
			for _, ts := range status.Clients[0].Types {
				for _, h := range ts.Held {
					if held++; h.By != client.HeldByCheck || h.Rule != 10 || h.AcceptedVersion == "" || len(h.Policies) != 1 {
						t.Errorf("held: %+v", h)
					}
				}
			}
			if held != 1 || status.State != client.StateRejected || !strings.Contains(status.Reason, "not sent: ") || !strings.Contains(status.Reason, "MeshProxyPatch/default/bad (spec.default.appendModifications[1].listener)") {
				t.Errorf("%d held; %s: %s", held, status.State, status.Reason)
			}
			whole, err := r.api().Status(t.Context())
			do(t, err)
			if len(whole.Problems) != 1 || whole.Problems[0].Resource != "MeshProxyPatch/default/bad" || whole.Problems[0].Severity != "error" ||
				!strings.HasPrefix(whole.Problems[0].Reason, "held back from default.web: Listener outbound:127.0.0.1:20000: not sent: ") || !strings.Contains(whole.Problems[0].Reason, "it stays as it was accepted last") {
				t.Errorf("problems: %+v", whole.Problems)
			}
			for labels, want := range map[string]float64{"nearside_xds_refused_total listener": 1, "nearside_xds_held_resources check listener": 1, "nearside_xds_nacks_total listener": 0, "nearside_policies MeshProxyPatch rejected": 1} {
				words := strings.Fields(labels)
				if n := metric(t, r.Agent, words[0], words[1:]...); n != want {
					t.Errorf("%s: %v, want %v", labels, n, want)
				}
			}

			byAPI(t, r.Store(), breaker(2))
			p.want("Cluster svc-1 svc-2")
			byAPI(t, r.Store(), accessLog("/dev/stdout"))
			p.want("Listener outbound:127.0.0.1:20001")
			if got := waitFor(t, r, "MeshAccessLog", "logs"); got.State != client.StateApplied || got.Acknowledged != 1 {
				t.Errorf("beside the bad policy: %+v", got)
			}

			byAPI(t, r.Store(), mended("bad", 20000))
			p.want("Listener outbound:127.0.0.1:20000")
			if got := waitFor(t, r, "meshproxypatch", "bad"); got.State != client.StateApplied {
				t.Errorf("the mended one: %+v", got)
			}
			whole, err = r.api().Status(t.Context())
			do(t, err)
			if slices.ContainsFunc(whole.Problems, func(p inspect.Problem) bool { return p.Severity == "error" }) || whole.Proxies["synced"] != 1 {
				t.Errorf("in the end: %+v %+v", whole.Problems, whole.Proxies)
			}
		})
	}
}

// TestUnfitShadow: a shadow policy holds nothing back.
func TestUnfitShadow(t *testing.T) {
	r := up(t, shortDir(t), agent.Deps{})
	byAPI(t, r.Store(), webFile("svc-1")+"---\n"+strings.Replace(unfit("bad", 20000, 20001), "name: bad,", "name: bad, labels: {kuma.io/effect: shadow},", 1))
	p := startPicky(t, r.Addrs().XDS, "default.web", "WORD", true)
	p.want("Cluster localhost:80 svc-1")
	p.want("Listener inbound:10.0.0.1:80 outbound:127.0.0.1:20000")
	if got := waitFor(t, r, "Dataplane", "web"); got.State != client.StateApplied || len(r.Last().Problems) != 0 {
		t.Errorf("%+v %+v", got, r.Last().Problems)
	}
}
