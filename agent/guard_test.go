package agent_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/deliver/reconcile"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/serve/client"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// unfit is a policy that gives a listener the address of another one, which Envoy rejects.
func unfit(name string, port, address int) string {
	return fmt.Sprintf("{type: MeshProxyPatch, mesh: default, name: %s, spec: {targetRef: {kind: MeshService, "+
		"name: web}, default: {appendModifications: ["+
		"{listener: {operation: Patch, match: {name: 'outbound:127.0.0.1:%d'}, value: 'statPrefix: %s'}}, "+
		"{listener: {operation: Patch, match: {name: 'outbound:127.0.0.1:%d'}, "+
		"value: 'address: {socketAddress: {address: 127.0.0.1, portValue: %d}}'}}]}}}\n", name, port, name, port, address)
}

// mended is the same policy without it.
func mended(name string, port int) string {
	return fmt.Sprintf("{type: MeshProxyPatch, mesh: default, name: %s, spec: {targetRef: {kind: MeshService, "+
		"name: web}, default: {appendModifications: ["+
		"{listener: {operation: Patch, match: {name: 'outbound:127.0.0.1:%d'}, value: 'statPrefix: %s'}}]}}}\n",
		name, port, name)
}

// TestUnfitPolicy has a policy that makes a listener which Envoy would reject: it is not sent, the
// listener stays as it was, everything else goes on, and the policy, its field, the rule and the
// place are named everywhere.
func TestUnfitPolicy(t *testing.T) {
	for _, delta := range []bool{true, false} {
		t.Run(fmt.Sprintf("delta=%t", delta), func(t *testing.T) {
			r := agenttest.Up(t, agenttest.ShortDir(t), agent.Deps{})
			agenttest.ByAPI(t, r.Store(), agenttest.WebFile("svc-1", "svc-2"))
			p := startPicky(t, r.Addrs().XDS, "default.web", "WORD", delta)
			p.Want("Cluster localhost:80 svc-1 svc-2")
			p.Want("Listener inbound:10.0.0.1:80 outbound:127.0.0.1:20000 outbound:127.0.0.1:20001")

			agenttest.ByAPI(t, r.Store(), unfit("bad", 20000, 20001))
			got := waitFor(t, r, "meshproxypatch", "bad")
			if got.State != client.StateRejected || got.RejectedTotal != 1 {
				t.Fatalf("the bad policy: %+v", got)
			}
			x := got.Rejected[0]
			if x.Resource != "outbound:127.0.0.1:20000" || x.By != client.HeldByCheck || !strings.HasPrefix(x.Reason,
				"not sent: Envoy would reject it at /address: ") || !strings.Contains(x.Reason, "(rule 10: ") {
				t.Errorf("rejected: %+v", x)
			}
			blame := client.Blame{Type: "MeshProxyPatch", Mesh: "default", Name: "bad",
				Field:    "spec.default.appendModifications[1].listener",
				Evidence: client.BlameAlone, Paths: []string{"address.socketAddress.portValue", "statPrefix"}}
			if len(x.Policies) != 1 || fmt.Sprint(x.Policies[0]) != fmt.Sprint(blame) {
				t.Errorf("policies: %+v, want %+v", x.Policies, blame)
			}
			status, err := r.Api().Proxy(t.Context(), "default", "web")
			agenttest.Do(t, err)
			held := 0
			for _, ts := range status.Clients[0].Types {
				for _, h := range ts.Held {
					if held++; h.By != client.HeldByCheck || h.Rule != 10 || h.AcceptedVersion == "" || len(h.Policies) != 1 {
						t.Errorf("held: %+v", h)
					}
				}
			}
			if held != 1 || status.State != client.StateRejected || !strings.Contains(status.Reason, "not sent: ") ||
				!strings.Contains(status.Reason, "MeshProxyPatch/default/bad (spec.default.appendModifications[1].listener)") {
				t.Errorf("%d held; %s: %s", held, status.State, status.Reason)
			}
			whole, err := r.Api().Status(t.Context())
			agenttest.Do(t, err)
			if len(whole.Problems) != 1 || whole.Problems[0].Resource != "MeshProxyPatch/default/bad" ||
				whole.Problems[0].Severity != "error" || !strings.HasPrefix(whole.Problems[0].Reason,
				"withheld from default.web: Listener outbound:127.0.0.1:20000: not sent: ") ||
				!strings.Contains(whole.Problems[0].Reason, "it stays as it was accepted last") {
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
			if got := waitFor(t, r, "MeshAccessLog", "logs"); got.State != client.StateApplied || got.Acknowledged != 1 {
				t.Errorf("beside the bad policy: %+v", got)
			}

			agenttest.ByAPI(t, r.Store(), mended("bad", 20000))
			p.Want("Listener outbound:127.0.0.1:20000")
			if got := waitFor(t, r, "meshproxypatch", "bad"); got.State != client.StateApplied {
				t.Errorf("the mended one: %+v", got)
			}
			whole, err = r.Api().Status(t.Context())
			agenttest.Do(t, err)
			if slices.ContainsFunc(whole.Problems, func(p httpapi.Problem) bool { return p.Severity == "error" }) ||
				whole.Proxies["synced"] != 1 {
				t.Errorf("in the end: %+v %+v", whole.Problems, whole.Proxies)
			}
		})
	}
}

// TestConfigIsWhatWasPublished: _config shows what was published, which has the last fit form of a
// withheld listener, or what would be published for a proxy that is not connected, which has none
// of it; and what was computed on request.
func TestConfigIsWhatWasPublished(t *testing.T) {
	r := agenttest.Up(t, agenttest.ShortDir(t), agent.Deps{})
	agenttest.ByAPI(t, r.Store(), agenttest.WebFile("svc-1", "svc-2")+"---\n"+strings.ReplaceAll(
		strings.SplitAfterN(agenttest.WebFile("svc-1", "svc-2"), "---\n", 3)[2], "name: web", "name: new"))
	p := startPicky(t, r.Addrs().XDS, "default.web", "WORD", true)
	p.Want("Cluster localhost:80 svc-1 svc-2")
	p.Want("Listener inbound:10.0.0.1:80 outbound:127.0.0.1:20000 outbound:127.0.0.1:20001")
	agenttest.ByAPI(t, r.Store(), unfit("bad", 20000, 20001))
	waitFor(t, r, "meshproxypatch", "bad")
	const name = "outbound:127.0.0.1:20000"
	shown := func(proxy string, o client.ConfigOptions) string {
		t.Helper()
		c, err := r.Api().Config(t.Context(), "default", proxy, o)
		agenttest.Do(t, err)
		if n := len(c.XDS[draft.TypeListener]); n < 2 {
			t.Errorf("%s %+v: %d listeners", proxy, o, n)
		}
		return string(c.XDS[draft.TypeListener][name])
	}
	if l := shown("web", client.ConfigOptions{}); l == "" || strings.Contains(l, "20001") {
		t.Errorf("published, and shown with the bytes that are withheld: %s", l)
	}
	// For one that starts, the first of the two has the address.
	c, err := r.Api().Config(t.Context(), "default", "new", client.ConfigOptions{})
	agenttest.Do(t, err)
	if c.XDS[draft.TypeListener]["outbound:127.0.0.1:20001"] != nil || c.XDS[draft.TypeListener][name] == nil {
		t.Errorf("would be published: %s", c.XDS[draft.TypeListener])
	}
	for _, proxy := range []string{"web", "new"} {
		if l := shown(proxy, client.ConfigOptions{Computed: true}); !strings.Contains(l, "20001") {
			t.Errorf("computed for %s: %s", proxy, l)
		}
	}
	c, err = r.Api().Config(t.Context(), "default", "web", client.ConfigOptions{Computed: true, Diff: true})
	agenttest.Do(t, err)
	if len(c.Diff) == 0 {
		t.Error("no patch leads from what was published to what was computed")
	}
}

// TestAddressMoves has two listeners of which the second leaves its address, which the first then
// gets: only once the client has taken the second, and without another change.
func TestAddressMoves(t *testing.T) {
	move := func(port, to int) string {
		return fmt.Sprintf("{listener: {operation: Patch, match: {name: 'outbound:127.0.0.1:%d'}, "+
			"value: 'address: {socketAddress: {address: 127.0.0.1, portValue: %d}}'}}", port, to)
	}
	for _, delta := range []bool{true, false} {
		t.Run(fmt.Sprintf("delta=%t", delta), func(t *testing.T) {
			r := agenttest.Up(t, agenttest.ShortDir(t), agent.Deps{})
			agenttest.ByAPI(t, r.Store(), agenttest.WebFile("svc-1", "svc-2"))
			p := startPicky(t, r.Addrs().XDS, "default.web", "WORD", delta)
			p.Want("Cluster localhost:80 svc-1 svc-2")
			p.Want("Listener inbound:10.0.0.1:80 outbound:127.0.0.1:20000 outbound:127.0.0.1:20001")
			agenttest.ByAPI(t, r.Store(), "{type: MeshProxyPatch, mesh: default, name: move, spec: {targetRef: {kind: "+
				"MeshService, name: web}, default: {appendModifications: ["+move(20000, 20001)+", "+move(20001, 20002)+"]}}}\n")
			p.Want("Listener outbound:127.0.0.1:20001")
			p.Want("Listener outbound:127.0.0.1:20000")
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			agenttest.Await(t, "all of it is in force", tick.C, func() bool {
				list, err := r.Api().Applied(t.Context(), "mpp", "default", "move")
				agenttest.Do(t, err)
				return list[0].State == client.StateApplied && list[0].Acknowledged == 1
			})
		})
	}
}

// TestUnfitShadow: a shadow policy holds nothing back.
func TestUnfitShadow(t *testing.T) {
	r := agenttest.Up(t, agenttest.ShortDir(t), agent.Deps{})
	agenttest.ByAPI(t, r.Store(), agenttest.WebFile("svc-1")+"---\n"+
		strings.Replace(unfit("bad", 20000, 20001), "name: bad,", "name: bad, labels: {kuma.io/effect: shadow},", 1))
	p := startPicky(t, r.Addrs().XDS, "default.web", "WORD", true)
	p.Want("Cluster localhost:80 svc-1")
	p.Want("Listener inbound:10.0.0.1:80 outbound:127.0.0.1:20000")
	if got := waitFor(t, r, "Dataplane", "web"); got.State != client.StateApplied || len(r.Last().Problems) != 0 {
		t.Errorf("%+v %+v", got, r.Last().Problems)
	}
}

// serviceBeyond is a service outside the mesh, with a certificate to check it against, "" for none.
func serviceBeyond(ca string) string {
	if ca != "" {
		ca = ", tls: {enabled: true, caCert: {inlineString: " + ca + "}}"
	}
	return "{type: ExternalService, mesh: default, name: api, tags: {kuma.io/service: api, kuma.io/protocol: tcp}, " +
		"networking: {address: '10.9.9.9:443'" + ca + "}}\n"
}

// TestUnfitCluster: a cluster that Envoy would reject stays as it was, and what refers to it goes
// on; one that it never had is not sent, nor is what refers to it, and both come once it is mended.
func TestUnfitCluster(t *testing.T) {
	logs := "{type: MeshAccessLog, mesh: default, name: logs, spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: " +
		"MeshService, name: api}, default: {backends: [{type: File, file: {path: /dev/stdout}}]}}]}}\n"
	for _, delta := range []bool{true, false} {
		t.Run(fmt.Sprintf("delta=%t", delta), func(t *testing.T) {
			r := agenttest.Up(t, agenttest.ShortDir(t), agent.Deps{})
			agenttest.ByAPI(t, r.Store(), agenttest.WebFile("api")+"---\n"+serviceBeyond(""))
			p := startPicky(t, r.Addrs().XDS, "default.web", "WORD", delta)
			p.Want("Cluster api localhost:80")
			p.Want("Listener inbound:10.0.0.1:80 outbound:127.0.0.1:20000")
			agenttest.ByAPI(t, r.Store(), serviceBeyond("garbage")+"---\n"+logs)
			p.Want("Listener outbound:127.0.0.1:20000")
			got := waitFor(t, r, "ExternalService", "api")
			if got.State != client.StateRejected || len(got.Rejected) != 1 || got.Rejected[0].Resource != "api" ||
				!strings.Contains(got.Rejected[0].Reason, "rule 92") {
				t.Errorf("the service: %+v", got)
			}

			// A proxy that comes anew, to an agent that does not know what it had.
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
			if got := waitFor(t, r, "Dataplane", "new"); got.State != client.StateApplied {
				t.Errorf("in the end: %+v", got)
			}
		})
	}
}

// TestUnfitStep: what only the step from the form that the client has makes unfit is withheld from
// that client alone.
func TestUnfitStep(t *testing.T) {
	r := agenttest.Up(t, agenttest.ShortDir(t), agent.Deps{})
	agenttest.ByAPI(t, r.Store(), agenttest.WebFile("svc-1")+"---\n"+
		strings.ReplaceAll(strings.SplitAfterN(agenttest.WebFile("svc-1"), "---\n", 3)[2], "name: web", "name: new"))
	p := startPicky(t, r.Addrs().XDS, "default.web", "WORD", true)
	p.Want("Cluster localhost:80 svc-1")
	p.Want("Listener inbound:10.0.0.1:80 outbound:127.0.0.1:20000")
	agenttest.ByAPI(t, r.Store(),
		strings.Replace(listenerPatch("step", "x"), "statPrefix: x", "enableReusePort: false", 1))
	got := waitFor(t, r, "mpp", "step")
	if got.State != client.StateRejected || !strings.Contains(got.Rejected[0].Reason, "rule 11") ||
		got.Rejected[0].Policies[0].Evidence != client.BlameAlone {
		t.Errorf("the policy: %+v", got)
	}
	n := startPicky(t, r.Addrs().XDS, "default.new", "WORD", true)
	n.Want("Cluster localhost:80 svc-1")
	n.Want("Listener inbound:10.0.0.1:80 outbound:127.0.0.1:20000")
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	agenttest.Await(t, "it is in force at the new one", tick.C, func() bool {
		list, err := r.Api().Applied(t.Context(), "mpp", "default", "step")
		agenttest.Do(t, err)
		return list[0].RejectedTotal == 1 && list[0].Acknowledged == 1
	})
}

// TestUnfitAfterRestart: an agent that starts anew with a bad policy leaves a proxy the listener
// that it has.
func TestUnfitAfterRestart(t *testing.T) {
	dir := agenttest.ShortDir(t)
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
	if got := waitFor(t, r, "mpp", "bad"); got.State != client.StateRejected || got.Rejected[0].Policies[0].Name != "bad" {
		t.Errorf("after the restart: %+v", got)
	}
	agenttest.ByAPI(t, r.Store(), mended("bad", 20000))
	p.Want("Listener outbound:127.0.0.1:20000")
}

// checked returns a reconciler for some proxies, and counts their checks.
func checked(t *testing.T, n int,
	verify func(*generate.Proxy) []finding.Finding) (*reconcile.Reconciler, *agenttest.Publisher, *int) {
	var docs strings.Builder
	var ids []string
	docs.WriteString("{type: Mesh, name: default}\n")
	for i := range n {
		fmt.Fprintf(&docs, "---\n{type: Dataplane, mesh: default, name: web-%d, networking: {address: 10.0.0.%d, "+
			"inbound: [{port: 80, tags: {kuma.io/service: web}}]}}\n", i, i+1)
		ids = append(ids, fmt.Sprintf("default.web-%d", i))
	}
	s, p := agenttest.Memory(t), agenttest.NewPublisher(ids...)
	agenttest.ByAPI(t, s, docs.String())
	count, fit := 0, map[string]bool{}
	return reconcile.New(reconcile.Options{Store: s, Publisher: p, Check: func(x *generate.Proxy, c *check.Checker,
		had *draft.Sealed) []finding.Finding {
		count++
		last := p.Of("default." + x.Name)
		if last == nil || !fit[x.Name] {
			last = &draft.Sealed{}
		}
		if !draft.SameList(had.Resources[draft.RankCluster], last.Resources[draft.RankCluster]) {
			t.Errorf("%s is checked against %v, not against what was published last, %v", x.Name, had, last)
		}
		out := append(x.Check(c, had), verify(x)...)
		fit[x.Name] = p.Of("default."+x.Name) == nil || fit[x.Name]
		return out
	}}), p, &count
}

// TestCheckedOnce: a config is checked when it is another one, or when something is withheld and
// the client has accepted other listeners. What is to be said of many proxies is said once, and
// never too much.
func TestCheckedOnce(t *testing.T) {
	const n = 50
	r, p, count := checked(t, n, func(x *generate.Proxy) []finding.Finding {
		address := "10.0.0." + fmt.Sprint(atoi(t, strings.TrimPrefix(x.Name, "web-"))+1)
		f := finding.Finding{Rule: 29, Severity: finding.Warning, Message: "odd at " + address,
			Place: finding.Place{Type: draft.TypeListener, Resource: "inbound:" + address + ":80", Pointer: "/x"}}
		lint := f
		lint.Severity = finding.Lint
		return []finding.Finding{f, lint}
	})
	first := agenttest.Pass(r)
	if *count != n || len(first) != 1 || !strings.HasPrefix(first[0],
		"warning Dataplane/default/web-0: Listener inbound:10.0.0.1:80 at /x: odd at 10.0.0.1 (rule 29: ") ||
		!strings.HasSuffix(first[0], "; the same on 49 more proxies") {
		t.Errorf("%d checks, problems %q", *count, first)
	}
	if again := agenttest.Pass(r); *count != n || !slices.Equal(again, first) {
		t.Errorf("%d checks without a change, problems %q", *count, again)
	}
	p.Taken["default.web-0"] = p.Of("default.web-0").Resources[draft.RankListener]
	if agenttest.Pass(r); *count != n || len(p.Withheld["default.web-0"]) != 0 {
		t.Errorf("%d checks after a client has accepted listeners, withheld: %+v", *count, p.Withheld)
	}

	block := true
	r, p, count = checked(t, n, func(x *generate.Proxy) []finding.Finding {
		f := finding.Finding{Rule: 29, Severity: finding.Warning, Message: "odd",
			Place: finding.Place{Type: draft.TypeListener, Resource: "inbound:10.0.0.1:80"}}
		if x.Name == "web-0" && block && x.Resource(draft.ResourceID{TypeURL: draft.TypeListener, Name: f.Resource}) != nil {
			f.Severity = finding.Reject
		}
		return []finding.Finding{f}
	})
	agenttest.Pass(r)
	before := *count
	if len(p.Withheld["default.web-0"]) != 1 || len(p.Of("default.web-0").Resources[draft.RankListener]) != 0 {
		t.Errorf("withheld: %+v, published %+v", p.Withheld, p.Of("default.web-0"))
	}
	if agenttest.Pass(r); *count != before {
		t.Errorf("%d checks without a change, there were %d", *count, before)
	}
	block = false
	p.Taken["default.web-0"] = p.Of("default.web-1").Resources[draft.RankListener]
	if agenttest.Pass(r); *count != before+1 || len(p.Withheld["default.web-0"]) != 0 {
		t.Errorf("%d checks after the client has accepted other listeners, want %d; withheld: %+v",
			*count, before+1, p.Withheld)
	}

	r, _, _ = checked(t, n, func(x *generate.Proxy) (out []finding.Finding) {
		for i := range 1000 {
			out = append(out, finding.Finding{Rule: 29, Severity: finding.Warning, Message: x.Name + fmt.Sprint(i),
				Place: finding.Place{Type: draft.TypeListener, Resource: "l"}})
		}
		return out
	})
	if all := agenttest.Pass(r); len(all) > 200 ||
		!slices.ContainsFunc(all, func(s string) bool { return strings.Contains(s, "990 more warnings") }) {
		t.Errorf("%d problems, as %q", len(all), all[0])
	}
}

// TestEndpointsAreCheckedAlone: a change of endpoints alone costs no check of the whole config,
// unless one of the lists has something wrong with it, and until it has not.
func TestEndpointsAreCheckedAlone(t *testing.T) {
	s, p := agenttest.Memory(t), agenttest.NewPublisher("default.web")
	agenttest.ByAPI(t, s, agenttest.WebFile("svc", "other")+"---\n"+agenttest.DataplaneText("default", "svc", "10.0.0.2"))
	count, heavy := 0, uint32(0)
	r := reconcile.New(reconcile.Options{Store: s, Publisher: p,
		Check: func(x *generate.Proxy, c *check.Checker, had *draft.Sealed) []finding.Finding {
			count++
			return x.Check(c, had)
		},
		Generate: func(in generate.Input, prev *generate.Proxy, memo *generate.Memo) (*generate.Proxy, error) {
			made, err := generate.Generate(in, prev, memo)
			if err != nil || heavy == 0 {
				return made, err
			}
			one := &endpointv3.LbEndpoint{LoadBalancingWeight: wrapperspb.UInt32(heavy),
				HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
					Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
						Address:       "10.0.0.9",
						PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 80},
					}}}}}}
			body, err := proto.Marshal(&endpointv3.ClusterLoadAssignment{ClusterName: "svc",
				Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{one, one}}}})
			agenttest.Do(t, err)
			next, sealed, rank := *made, *made.Sealed, draft.Rank(draft.TypeEndpoint)
			list := slices.Clone(sealed.Resources[rank])
			list[slices.IndexFunc(list, func(r *draft.Resource) bool { return r.Name == "svc" })] = draft.NewResource("svc",
				body)
			sealed.Resources[rank], sealed.Versions[rank] = draft.Order(list)
			next.Sealed = &sealed
			return &next, nil
		}})
	want := func(what string, checks, withheld int) {
		t.Helper()
		before := p.Of("default.web")
		if agenttest.Pass(r); count != checks || len(p.Withheld["default.web"]) != withheld ||
			(p.Of("default.web") == before) != (withheld > 0) {
			t.Fatalf("%s: %d checks and %+v withheld, want %d and %d; a new config: %t", what, count, p.Withheld["default.web"],
				checks, withheld, p.Of("default.web") != before)
		}
	}
	want("the first config", 1, 0)
	agenttest.ByAPI(t, s, agenttest.DataplaneText("default", "svc", "10.0.0.3"))
	want("another endpoint", 1, 0)
	agenttest.ByAPI(t, s, agenttest.DataplaneText("default", "svc", "10.0.0.4"))
	heavy = 1 << 31
	want("endpoints that are too heavy, and what stays instead", 3, 1)
	agenttest.ByAPI(t, s, agenttest.DataplaneText("default", "svc", "10.0.0.5"))
	want("still", 5, 1)
	heavy = 1
	want("endpoints that are not", 6, 0)
	heavy = 2
	want("others", 6, 0)
	agenttest.ByAPI(t, s, agenttest.WebFile("svc"))
	want("another listener", 7, 0)
}

func atoi(t *testing.T, s string) int {
	n, err := strconv.Atoi(s)
	agenttest.Do(t, err)
	return n
}

// TestCheckPanics: a defect of the check never costs a proxy its config, and is told.
func TestCheckPanics(t *testing.T) {
	bad := true
	r, p, _ := checked(t, 2, func(x *generate.Proxy) []finding.Finding {
		if x.Name == "web-0" && bad {
			panic("oh")
		}
		return []finding.Finding{{Rule: 5, Severity: finding.Reject, Message: "no",
			Place: finding.Place{Type: draft.TypeListener, Resource: "inbound:10.0.0.2:80"}}}
	})
	got := agenttest.Pass(r)
	if len(got) != 1 || !strings.HasPrefix(got[0],
		"error Dataplane/default/web-0: its config could not be checked and is sent unchecked: internal error: oh") {
		t.Errorf("problems: %q", got)
	}
	if p.Of("default.web-0") == nil || len(p.Withheld["default.web-0"]) != 0 {
		t.Errorf("web-0: %+v %+v", p.Of("default.web-0"), p.Withheld["default.web-0"])
	}
	want := draft.Withheld{ID: draft.ResourceID{TypeURL: draft.TypeListener, Name: "inbound:10.0.0.2:80"}, Rule: 5,
		Reason: "not sent: Envoy would reject it: no (rule 5: A star in server_names is a whole first label)"}
	list := p.Withheld["default.web-1"]
	if len(list) == 1 && list[0].Resource != nil {
		want.Resource = list[0].Resource
	}
	if len(list) != 1 || list[0] != want {
		t.Errorf("web-1: %+v", list)
	}
	bad = false
	p.Taken["default.web-0"] = p.Of("default.web-0").Resources[draft.RankListener]
	if got := agenttest.Pass(r); len(got) != 0 {
		t.Errorf("problems later: %q", got)
	}
}

// TestUnfitZoneProxy: what an egress cannot take is withheld from it like from any other, and
// waited for by nobody.
func TestUnfitZoneProxy(t *testing.T) {
	r := agenttest.Up(t, agenttest.ShortDir(t), agent.Deps{})
	egress := "---\n{type: ZoneEgress, name: out, networking: {address: 10.0.0.9, port: 10002}}\n"
	mesh := "{type: Mesh, name: default, mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}, " +
		"routing: {zoneEgress: true}}\n"
	agenttest.ByAPI(t, r.Store(), mesh+egress+"---\n"+serviceBeyond("garbage"))
	p := startPicky(t, r.Addrs().XDS, ".egress.out", "WORD", true)
	p.Want("Cluster")
	p.Want("Listener") // what leads nowhere else is not sent either
	if got := waitFor(t, r, "ExternalService", "api"); got.State != client.StateRejected ||
		got.Rejected[0].Resource != "default:api" || got.Rejected[0].By != client.HeldByCheck {
		t.Errorf("the service: %+v", got)
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	var problems []httpapi.Problem
	agenttest.Await(t, "it is said what it is about", tick.C, func() bool {
		whole, err := r.Api().Status(t.Context())
		agenttest.Do(t, err)
		problems = whole.Problems
		return slices.ContainsFunc(problems, func(p httpapi.Problem) bool {
			return p.Resource == "ZoneEgress/out" && strings.Contains(p.Reason, "no policy shapes it")
		})
	})
	agenttest.ByAPI(t, r.Store(), serviceBeyond(""))
	p.Want("Cluster default:api")
}
