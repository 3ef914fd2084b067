package agent_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// limitOf returns a policy about idle connections to svc-1. The listener has its value.
func limitOf(seconds int) string {
	return fmt.Sprintf("{type: MeshTimeout, mesh: default, name: t, spec: {targetRef: {kind: Mesh}, to: [{targetRef: "+
		"{kind: MeshService, name: svc-1}, default: {idleTimeout: %ds}}]}}\n", seconds)
}

// TestExplainPolicyGoesByTheEnvoy checks that explanations of policies are about what an Envoy has:
// a listener without a policy with which it is withheld, and an older config if no new one can be
// built.
func TestExplainPolicyGoesByTheEnvoy(t *testing.T) {
	r := agenttest.Up(t, agenttest.ShortDir(t), agent.Deps{})
	agenttest.ByAPI(t, r.Store(), agenttest.WebFile("svc-1", "svc-2")+"---\n"+limitOf(20))
	p := startPicky(t, r.Addrs().XDS, "default.web", "WORD", true)
	p.Want("Cluster localhost:80 svc-1 svc-2")
	p.Want("Listener inbound:10.0.0.1:80 outbound:127.0.0.1:20000 outbound:127.0.0.1:20001")
	waitFor(t, r, "meshtimeout", "t")
	ask := func(kind, name, effect, fields string, parts ...string) {
		t.Helper()
		x, err := r.Api().ExplainPolicy(t.Context(),
			explain.PolicyQuestion{Type: kind, Mesh: "default", Name: name, Dataplane: "web"})
		agenttest.Do(t, err)
		items := ""
		for i := range x.Items {
			items += x.Items[i].Effect
		}
		if x.Effect != effect || items != fields || (len(parts) == 0) != (x.Held == "") {
			t.Errorf("%s/%s: %s, fields %s, held %q, want %s and %s", kind, name, x.Effect, items, x.Held, effect, fields)
		}
		for _, text := range parts {
			if !strings.Contains(x.Held, text) {
				t.Errorf("%s/%s: held %q, want %q", kind, name, x.Held, text)
			}
		}
	}
	ask("meshtimeout", "t", api.EffectAll, api.EffectAll)

	agenttest.ByAPI(t, r.Store(), unfit("bad", 20000, 20001))
	waitFor(t, r, "meshproxypatch", "bad")
	ask("meshproxypatch", "bad", api.EffectNone, api.EffectNone,
		"outbound:127.0.0.1:20000 is withheld: not sent: Envoy would reject it")
	ask("meshtimeout", "t", api.EffectAll, api.EffectAll) // also in the older listener

	agenttest.ByAPI(t, r.Store(), limitOf(30))
	p.Want("Listener outbound:127.0.0.1:20000")
	waitFor(t, r, "meshtimeout", "t")
	ask("meshtimeout", "t", api.EffectAll, api.EffectAll) // in the listener without the other policy
	ask("meshproxypatch", "bad", api.EffectNone, api.EffectNone,
		"; the Envoy gets the version without MeshProxyPatch/default/bad")

	agenttest.ByAPI(t, r.Store(), mended("bad", 20000))
	p.Want("Listener outbound:127.0.0.1:20000")
	waitFor(t, r, "meshproxypatch", "bad")
	ask("meshproxypatch", "bad", api.EffectAll, api.EffectAll)
	ask("meshtimeout", "t", api.EffectAll, api.EffectAll)

	agenttest.ByAPI(t, r.Store(), "{type: Mesh, name: default, mtls: {enabledBackend: own, backends: [{name: own, "+
		"type: provided, conf: {cert: {file: /none/cert.pem}, key: {file: /none/key.pem}}}]}}\n---\n"+limitOf(40))
	if got := waitFor(t, r, "meshtimeout", "t"); got.State != api.StateStale {
		t.Errorf("stale: %+v", got)
	}
	ask("meshtimeout", "t", api.EffectPart, api.EffectNone,
		"the Envoy keeps an older config: no new config can be computed", "/none/cert.pem", "; the Envoy has revision ")
}
