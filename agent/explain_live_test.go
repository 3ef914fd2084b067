package agent_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestExplainGoesByTheEnvoy checks that explanations use the listener that an Envoy has, if that
// differs from the generated one or is missing. They must also say how long connections from before
// a change remain open.
func TestExplainGoesByTheEnvoy(t *testing.T) {
	r := agenttest.Up(t, agenttest.ShortDir(t), agent.Deps{})
	agenttest.ByAPI(t, r.Store(), agenttest.WebFile("svc-1", "svc-2", "svc-3"))
	ask := func(to string) *explain.Flow {
		t.Helper()
		flow, err := r.Api().ExplainConnection(t.Context(),
			explain.ConnectionQuestion{Target: explain.Target{From: "web", To: to}})
		agenttest.Do(t, err)
		return flow
	}
	held := func(f *explain.Flow) explain.FlowHeld {
		t.Helper()
		if len(f.Held) != 1 || f.Held[0].Type != "listener" || !strings.Contains(f.Reason, f.Held[0].Name+" is "+
			map[string]string{"envoy": "rejected by Envoy", "check": "withheld from Envoy"}[f.Held[0].By]) {
			t.Fatalf("%s: %s; what the Envoy does not have is %+v", f.Verdict, f.Reason, f.Held)
		}
		return f.Held[0]
	}

	p := startPicky(t, r.Addrs().XDS, "default.web", "127.0.0.1:20002", true)
	p.Want("Cluster localhost:80 svc-1 svc-2 svc-3")
	p.Want("Listener inbound:10.0.0.1:80 outbound:127.0.0.1:20000 outbound:127.0.0.1:20001 outbound:127.0.0.1:20002!")
	waitFor(t, r, "dataplane", "web")
	f := ask("127.0.0.1:20002")
	if h := held(f); f.Verdict != explain.VerdictClosed || f.Listener != "" || !f.Accepted ||
		h.By != explain.HeldByEnvoy || h.Has != explain.HasNothing || h.Name != "outbound:127.0.0.1:20002" {
		t.Errorf("a listener that was rejected: %s: %s; %+v", f.Verdict, f.Reason, h)
	}
	if f := ask("127.0.0.1:20001"); f.Listener != "outbound:127.0.0.1:20001" || !f.Accepted || f.Held != nil ||
		f.OldUntil != nil {
		t.Errorf("another listener: %+v", f)
	}

	agenttest.ByAPI(t, r.Store(), unfit("bad", 20000, 20001))
	waitFor(t, r, "meshproxypatch", "bad")
	f = ask("127.0.0.1:20000")
	if h := held(f); f.Listener != "outbound:127.0.0.1:20000" || h.By != explain.HeldByCheck ||
		h.Has != explain.HasWithout || len(h.Without) != 1 || h.Without[0].Name != "bad" ||
		!strings.Contains(f.Reason, ": Envoy gets the version without MeshProxyPatch/default/bad") {
		t.Errorf("a listener that is withheld: %s: %s; %+v", f.Verdict, f.Reason, h)
	}

	before := time.Now()
	agenttest.ByAPI(t, r.Store(), mended("bad", 20000))
	p.Want("Listener outbound:127.0.0.1:20000 outbound:127.0.0.1:20002!") // a new listener is sent again
	waitFor(t, r, "meshproxypatch", "bad")
	f = ask("127.0.0.1:20000")
	if f.OldUntil == nil || !f.OldUntil.After(before) || f.Held != nil ||
		!strings.Contains(f.Reason, "older connections may use its previous filter chains until ") {
		t.Errorf("a listener that was changed: %s; %v, %+v", f.Reason, f.OldUntil, f.Held)
	}
}

// TestExplainAfterOvertakenAck checks a client that acknowledges a listener, reconnects, and
// rejects it. The explanation must use the client's current version and report the rejection.
func TestExplainAfterOvertakenAck(t *testing.T) {
	for name, c := range map[string]struct {
		resumes bool   // reconnects with its resources from before the change; false means without any
		has     string // its resource instead of the rejected one
		says    string
	}{
		"started anew": {false, explain.HasNothing,
			"Envoy accepted this version before and reconnected without it; Envoy has no other version"},
		"with the old form": {true, explain.HasOlder, "Envoy uses an older version (OLD) from before it connected; " +
			"run nearside proxy config web to show it"},
	} {
		t.Run(name, func(t *testing.T) {
			r := agenttest.Up(t, agenttest.ShortDir(t), agent.Deps{})
			agenttest.ByAPI(t, r.Store(), agenttest.WebFile("svc-1"))
			first := startPicky(t, r.Addrs().XDS, "default.web", "no such word", true)
			first.Want("Cluster localhost:80 svc-1")
			first.Want("Listener inbound:10.0.0.1:80 outbound:127.0.0.1:20000")
			old := map[string]map[string]string{}
			for url, versions := range first.vers {
				old[url] = maps.Clone(versions)
			}
			// A version without this policy would restrict access less, so it is not sent.
			agenttest.ByAPI(t, r.Store(), modification("odd", "networkFilter",
				"operation: AddFirst, match: {listenerName: 'outbound:127.0.0.1:20000'}",
				"name: envoy.filters.network.rbac\ntypedConfig: {'@type': type.googleapis.com/envoy.extensions.filters."+
					"network.rbac.v3.RBAC, statPrefix: teapot, rules: {action: DENY}}"))
			first.Want("Listener outbound:127.0.0.1:20000")
			waitFor(t, r, "meshproxypatch", "odd") // the client acknowledges it
			agenttest.Do(t, first.d.CloseSend())

			var second *pickyProxy
			if c.resumes {
				second = &pickyProxy{t: t, id: "default.web", delta: true, word: "teapot", nonce: map[string]string{},
					had: map[string]string{}, vers: old}
				second.resume(r.Addrs().XDS)
				second.Want("Listener outbound:127.0.0.1:20000!")
			} else {
				second = startPicky(t, r.Addrs().XDS, "default.web", "teapot", true)
				second.Want("Cluster localhost:80 svc-1")
				second.Want("Listener inbound:10.0.0.1:80 outbound:127.0.0.1:20000!")
			}
			var f *explain.Flow
			for begun := time.Now(); f == nil || len(f.Held) == 0; <-time.After(10 * time.Millisecond) {
				if time.Since(begun) > agenttest.Patience {
					t.Fatalf("%s: %s", f.Verdict, f.Reason)
				}
				var err error
				f, err = r.Api().ExplainConnection(t.Context(),
					explain.ConnectionQuestion{Target: explain.Target{From: "web", To: "127.0.0.1:20000"}})
				agenttest.Do(t, err)
			}
			h := f.Held[0]
			if !f.Accepted || h.Name != "outbound:127.0.0.1:20000" || h.By != explain.HeldByEnvoy || h.Has != c.has ||
				!strings.Contains(h.Reason, "it holds the word") || !strings.Contains(f.Reason, "is rejected by Envoy (") ||
				!strings.Contains(f.Reason,
					strings.ReplaceAll(c.says, "OLD", old[envoy.KindListener.URL()]["outbound:127.0.0.1:20000"])) {
				t.Errorf("%s: %s; %+v", f.Verdict, f.Reason, f.Held)
			}
		})
	}
}
