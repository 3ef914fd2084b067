package agent_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/answer/render"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// unfit returns a policy that gives a listener the address of another listener, which Envoy
// rejects.
func unfit(name string, port, address int) string {
	return fmt.Sprintf("{type: MeshProxyPatch, mesh: default, name: %s, spec: {targetRef: {kind: MeshService, "+
		"name: web}, default: {appendModifications: ["+
		"{listener: {operation: Patch, match: {name: 'outbound:127.0.0.1:%d'}, value: 'statPrefix: %s'}}, "+
		"{listener: {operation: Patch, match: {name: 'outbound:127.0.0.1:%d'}, "+
		"value: 'address: {socketAddress: {address: 127.0.0.1, portValue: %d}}'}}]}}}\n", name, port, name, port, address)
}

// mended returns the same policy without the conflict.
func mended(name string, port int) string {
	return fmt.Sprintf("{type: MeshProxyPatch, mesh: default, name: %s, spec: {targetRef: {kind: MeshService, "+
		"name: web}, default: {appendModifications: ["+
		"{listener: {operation: Patch, match: {name: 'outbound:127.0.0.1:%d'}, value: 'statPrefix: %s'}}]}}}\n",
		name, port, name)
}

// TestUnfitPolicy checks a policy whose listener Envoy would reject. The listener must not be sent
// and must stay unchanged, everything else must be updated, and all reports must name the policy,
// field, rule, and location.
func TestUnfitPolicy(t *testing.T) {
	for _, delta := range []bool{true, false} {
		t.Run(fmt.Sprintf("delta=%t", delta), func(t *testing.T) {
			r := agenttest.Up(t, agenttest.Home(t), agent.Deps{})
			agenttest.ByAPI(t, r.Store(), agenttest.WebFile("svc-1", "svc-2"))
			p := startPicky(t, r.Addrs().XDS, "default.web", "WORD", delta)
			p.Want("Cluster localhost:80 svc-1 svc-2")
			p.Want("Listener inbound:10.0.0.1:80 outbound:127.0.0.1:20000 outbound:127.0.0.1:20001")

			agenttest.ByAPI(t, r.Store(), unfit("bad", 20000, 20001))
			got := waitFor(t, r, "meshproxypatch", "bad")
			if got.State != api.StateRejected || got.RejectedTotal != 1 {
				t.Fatalf("the bad policy: %+v", got)
			}
			x := got.Rejected[0]
			if x.Resource != "outbound:127.0.0.1:20000" || x.By != api.HeldByCheck || !strings.HasPrefix(x.Reason,
				"not sent: Envoy would reject it at /address: ") || !strings.Contains(x.Reason, "(rule 10: ") {
				t.Errorf("rejected: %+v", x)
			}
			blame := api.Blame{Type: "MeshProxyPatch", Mesh: "default", Name: "bad",
				Field:    "spec.default.appendModifications[1].listener",
				Evidence: api.BlameAlone, Paths: []string{"address.socketAddress.portValue", "statPrefix"}}
			if len(x.Policies) != 1 || fmt.Sprint(x.Policies[0]) != fmt.Sprint(blame) {
				t.Errorf("policies: %+v, want %+v", x.Policies, blame)
			}
			status, err := r.Api().Proxy(t.Context(), "default", "web")
			agenttest.Do(t, err)
			held := 0
			for _, ts := range status.Clients[0].Types {
				for _, h := range ts.Held {
					if held++; h.By != api.HeldByCheck || h.Rule != 10 || h.AcceptedVersion == "" || len(h.Policies) != 1 {
						t.Errorf("held: %+v", h)
					}
				}
			}
			if held != 1 || status.State != api.StateRejected || !strings.Contains(status.Reason, "not sent: ") ||
				!strings.Contains(status.Reason, "MeshProxyPatch/default/bad (spec.default.appendModifications[1].listener)") {
				t.Errorf("%d held; %s: %s", held, status.State, status.Reason)
			}
			whole, err := r.Api().Status(t.Context())
			agenttest.Do(t, err)
			if len(whole.Problems) != 1 || whole.Problems[0].Resource != "MeshProxyPatch/default/bad" ||
				whole.Problems[0].Severity != "error" || !strings.HasPrefix(whole.Problems[0].Reason,
				"withheld from default.web: Listener outbound:127.0.0.1:20000: not sent: ") ||
				!strings.Contains(whole.Problems[0].Reason, "Envoy gets the version without MeshProxyPatch/default/bad") {
				t.Errorf("problems: %+v", whole.Problems)
			}
			for labels, want := range map[string]float64{
				"nearside_xds_refused_total listener":        1,
				"nearside_xds_held_resources check listener": 1,
				"nearside_xds_nacks_total listener":          0,
				"nearside_policies MeshProxyPatch rejected":  1,
			} {
				words := strings.Fields(labels)
				if n := metric(t, r.Agent, words[0], words[1:]...); n != want {
					t.Errorf("%s: %v, want %v", labels, n, want)
				}
			}

			agenttest.ByAPI(t, r.Store(), agenttest.Breaker(2))
			p.Want("Cluster svc-1 svc-2")
			agenttest.ByAPI(t, r.Store(), accessLog("/dev/stdout"))
			p.Want("Listener outbound:127.0.0.1:20001")
			if got := waitFor(t, r, "MeshAccessLog", "logs"); got.State != api.StateApplied || got.Acknowledged != 1 {
				t.Errorf("beside the bad policy: %+v", got)
			}

			agenttest.ByAPI(t, r.Store(), mended("bad", 20000))
			p.Want("Listener outbound:127.0.0.1:20000")
			if got := waitFor(t, r, "meshproxypatch", "bad"); got.State != api.StateApplied {
				t.Errorf("the mended one: %+v", got)
			}
			whole, err = r.Api().Status(t.Context())
			agenttest.Do(t, err)
			if slices.ContainsFunc(whole.Problems, func(p api.Problem) bool { return p.Severity == "error" }) ||
				whole.Proxies["synced"] != 1 {
				t.Errorf("in the end: %+v %+v", whole.Problems, whole.Proxies)
			}
		})
	}
}

// TestConfigIsWhatWasPublished checks that _config shows the published config, with the last valid
// version of a withheld listener. For a disconnected proxy it must show the config without the
// listener, and on request the generated config.
func TestConfigIsWhatWasPublished(t *testing.T) {
	r := agenttest.Up(t, agenttest.Home(t), agent.Deps{})
	agenttest.ByAPI(t, r.Store(), agenttest.WebFile("svc-1", "svc-2")+"---\n"+strings.ReplaceAll(
		strings.SplitAfterN(agenttest.WebFile("svc-1", "svc-2"), "---\n", 3)[2], "name: web", "name: new"))
	p := startPicky(t, r.Addrs().XDS, "default.web", "WORD", true)
	p.Want("Cluster localhost:80 svc-1 svc-2")
	p.Want("Listener inbound:10.0.0.1:80 outbound:127.0.0.1:20000 outbound:127.0.0.1:20001")
	agenttest.ByAPI(t, r.Store(), unfit("bad", 20000, 20001))
	waitFor(t, r, "meshproxypatch", "bad")
	const name = "outbound:127.0.0.1:20000"
	shown := func(proxy string, o render.ConfigOptions) string {
		t.Helper()
		c, err := r.Api().Config(t.Context(), "default", proxy, o)
		agenttest.Do(t, err)
		if n := len(c.XDS[draft.TypeListener]); n < 2 {
			t.Errorf("%s %+v: %d listeners", proxy, o, n)
		}
		return string(c.XDS[draft.TypeListener][name])
	}
	if l := shown("web", render.ConfigOptions{}); l == "" || strings.Contains(l, "20001") {
		t.Errorf("published, and shown with the bytes that are withheld: %s", l)
	}
	// For a proxy that starts, the first of the two listeners has the address.
	c, err := r.Api().Config(t.Context(), "default", "new", render.ConfigOptions{})
	agenttest.Do(t, err)
	if c.XDS[draft.TypeListener]["outbound:127.0.0.1:20001"] != nil || c.XDS[draft.TypeListener][name] == nil {
		t.Errorf("would be published: %s", c.XDS[draft.TypeListener])
	}
	for _, proxy := range []string{"web", "new"} {
		if l := shown(proxy, render.ConfigOptions{Computed: true}); !strings.Contains(l, "20001") {
			t.Errorf("computed for %s: %s", proxy, l)
		}
	}
	c, err = r.Api().Config(t.Context(), "default", "web", render.ConfigOptions{Computed: true, Diff: true})
	agenttest.Do(t, err)
	if len(c.Diff) == 0 {
		t.Error("no patch leads from what was published to what was computed")
	}
}

// TestAddressMoves checks a change that moves an address from the second of two listeners to the
// first. The first one may be sent only after the client has ACKed the second one, without another
// change.
func TestAddressMoves(t *testing.T) {
	move := func(port, to int) string {
		return fmt.Sprintf("{listener: {operation: Patch, match: {name: 'outbound:127.0.0.1:%d'}, "+
			"value: 'address: {socketAddress: {address: 127.0.0.1, portValue: %d}}'}}", port, to)
	}
	for _, delta := range []bool{true, false} {
		t.Run(fmt.Sprintf("delta=%t", delta), func(t *testing.T) {
			r := agenttest.Up(t, agenttest.Home(t), agent.Deps{})
			agenttest.ByAPI(t, r.Store(), agenttest.WebFile("svc-1", "svc-2"))
			p := startPicky(t, r.Addrs().XDS, "default.web", "WORD", delta)
			p.Want("Cluster localhost:80 svc-1 svc-2")
			p.Want("Listener inbound:10.0.0.1:80 outbound:127.0.0.1:20000 outbound:127.0.0.1:20001")
			agenttest.ByAPI(t, r.Store(), "{type: MeshProxyPatch, mesh: default, name: move, spec: {targetRef: {kind: "+
				"MeshService, name: web}, default: {appendModifications: ["+move(20000, 20001)+", "+move(20001, 20002)+"]}}}\n")
			p.Want("Listener outbound:127.0.0.1:20001")
			p.Want("Listener outbound:127.0.0.1:20000")
			agenttest.Eventually(t, "all of it is in force", func() bool {
				list, err := r.Api().Applied(t.Context(), "mpp", "default", "move")
				agenttest.Do(t, err)
				return list[0].State == api.StateApplied && list[0].Acknowledged == 1
			})
		})
	}
}

// TestUnfitShadow checks that a shadow policy does not withhold anything.
func TestUnfitShadow(t *testing.T) {
	r := agenttest.Up(t, agenttest.Home(t), agent.Deps{})
	agenttest.ByAPI(t, r.Store(), agenttest.WebFile("svc-1")+"---\n"+
		strings.Replace(unfit("bad", 20000, 20001), "name: bad,", "name: bad, labels: {kuma.io/effect: shadow},", 1))
	p := startPicky(t, r.Addrs().XDS, "default.web", "WORD", true)
	p.Want("Cluster localhost:80 svc-1")
	p.Want("Listener inbound:10.0.0.1:80 outbound:127.0.0.1:20000")
	if got := waitFor(t, r, "Dataplane", "web"); got.State != api.StateApplied || len(r.Last().Problems) != 0 {
		t.Errorf("%+v %+v", got, r.Last().Problems)
	}
}

// serviceBeyond returns a service outside the mesh with a CA certificate for verification, or
// without one if ca is empty.
func serviceBeyond(ca string) string {
	if ca != "" {
		ca = ", tls: {enabled: true, caCert: {inlineString: " + ca + "}}"
	}
	return "{type: ExternalService, mesh: default, name: api, tags: {kuma.io/service: api, kuma.io/protocol: tcp}, " +
		"networking: {address: '10.9.9.9:443'" + ca + "}}\n"
}

// TestUnfitCluster checks that a cluster that Envoy would reject stays unchanged, and resources
// that refer to it are updated. A new cluster of this kind must not be sent, nor resources that
// refer to it. Both must be sent when the cluster is valid again.
func TestUnfitCluster(t *testing.T) {
	logs := "{type: MeshAccessLog, mesh: default, name: logs, spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: " +
		"MeshService, name: api}, default: {backends: [{type: File, file: {path: /dev/stdout}}]}}]}}\n"
	for _, delta := range []bool{true, false} {
		t.Run(fmt.Sprintf("delta=%t", delta), func(t *testing.T) {
			r := agenttest.Up(t, agenttest.Home(t), agent.Deps{})
			agenttest.ByAPI(t, r.Store(), agenttest.WebFile("api")+"---\n"+serviceBeyond(""))
			p := startPicky(t, r.Addrs().XDS, "default.web", "WORD", delta)
			p.Want("Cluster api localhost:80")
			p.Want("Listener inbound:10.0.0.1:80 outbound:127.0.0.1:20000")
			agenttest.ByAPI(t, r.Store(), serviceBeyond("garbage")+"---\n"+logs)
			p.Want("Listener outbound:127.0.0.1:20000")
			got := waitFor(t, r, "ExternalService", "api")
			if got.State != api.StateRejected || len(got.Rejected) != 1 || got.Rejected[0].Resource != "api" ||
				!strings.Contains(got.Rejected[0].Reason, "rule 92") {
				t.Errorf("the service: %+v", got)
			}

			// A proxy connects to an agent that does not know the proxy's earlier config.
			agenttest.ByAPI(t, r.Store(),
				strings.ReplaceAll(strings.SplitAfterN(agenttest.WebFile("api"), "---\n", 3)[2], "web", "new"))
			n := startPicky(t, r.Addrs().XDS, "default.new", "WORD", delta)
			n.Want("Cluster localhost:80")
			n.Want("Listener inbound:10.0.0.1:80")
			whole, err := r.Api().Status(t.Context())
			agenttest.Do(t, err)
			var about []string
			for _, x := range whole.Problems {
				if x.Resource == "Dataplane/default/new" {
					about = append(about, x.Reason)
				}
			}
			if len(about) != 1 || !strings.HasPrefix(about[0], "withheld from default.new: Cluster api: not sent: ") ||
				!strings.Contains(about[0], "and 1 more") || !strings.Contains(about[0], "it is not in force") {
				t.Errorf("problems: %q", about)
			}

			agenttest.ByAPI(t, r.Store(), serviceBeyond(""))
			n.Want("Cluster api")
			n.Want("Listener outbound:127.0.0.1:20000")
			if got := waitFor(t, r, "Dataplane", "new"); got.State != api.StateApplied {
				t.Errorf("in the end: %+v", got)
			}
		})
	}
}

// TestUnfitStep checks that a config that is invalid only as an update of a client's current config
// is withheld only from that client.
func TestUnfitStep(t *testing.T) {
	r := agenttest.Up(t, agenttest.Home(t), agent.Deps{})
	agenttest.ByAPI(t, r.Store(), agenttest.WebFile("svc-1")+"---\n"+
		strings.ReplaceAll(strings.SplitAfterN(agenttest.WebFile("svc-1"), "---\n", 3)[2], "name: web", "name: new"))
	p := startPicky(t, r.Addrs().XDS, "default.web", "WORD", true)
	p.Want("Cluster localhost:80 svc-1")
	p.Want("Listener inbound:10.0.0.1:80 outbound:127.0.0.1:20000")
	agenttest.ByAPI(t, r.Store(),
		strings.Replace(listenerPatch("step", "x"), "statPrefix: x", "enableReusePort: false", 1))
	got := waitFor(t, r, "mpp", "step")
	if got.State != api.StateRejected || !strings.Contains(got.Rejected[0].Reason, "rule 11") ||
		got.Rejected[0].Policies[0].Evidence != api.BlameAlone {
		t.Errorf("the policy: %+v", got)
	}
	n := startPicky(t, r.Addrs().XDS, "default.new", "WORD", true)
	n.Want("Cluster localhost:80 svc-1")
	n.Want("Listener inbound:10.0.0.1:80 outbound:127.0.0.1:20000")
	agenttest.Eventually(t, "it is in force at the new one", func() bool {
		list, err := r.Api().Applied(t.Context(), "mpp", "default", "step")
		agenttest.Do(t, err)
		return list[0].RejectedTotal == 1 && list[0].Acknowledged == 1
	})
}

// TestUnfitAfterRestart checks that a restarted agent with an invalid policy leaves a proxy its
// current listener.
func TestUnfitAfterRestart(t *testing.T) {
	dir := agenttest.Home(t)
	r := agenttest.Up(t, dir, agent.Deps{})
	agenttest.ByAPI(t, r.Store(), agenttest.WebFile("svc-1", "svc-2"))
	p := startPicky(t, r.Addrs().XDS, "default.web", "WORD", true)
	p.Want("Cluster localhost:80 svc-1 svc-2")
	p.Want("Listener inbound:10.0.0.1:80 outbound:127.0.0.1:20000 outbound:127.0.0.1:20001")
	agenttest.ByAPI(t, r.Store(), unfit("bad", 20000, 20001))
	waitFor(t, r, "mpp", "bad")
	agenttest.Do(t, r.Stop())

	r = agenttest.Up(t, dir, agent.Deps{})
	p.resume(r.Addrs().XDS)
	agenttest.ByAPI(t, r.Store(), agenttest.Breaker(1))
	p.Want("Cluster svc-1 svc-2")
	if got := waitFor(t, r, "mpp", "bad"); got.State != api.StateRejected || got.Rejected[0].Policies[0].Name != "bad" {
		t.Errorf("after the restart: %+v", got)
	}
	agenttest.ByAPI(t, r.Store(), mended("bad", 20000))
	p.Want("Listener outbound:127.0.0.1:20000")
}
