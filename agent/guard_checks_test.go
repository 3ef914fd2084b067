package agent_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/deliver/reconcile"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// checked returns a reconciler for n proxies and counts their checks.
func checked(t *testing.T, n int,
	verify func(*generate.Proxy) []finding.Finding) (*reconcile.Reconciler, *agenttest.Publisher, *int) {
	var docs strings.Builder
	var ids []string
	docs.WriteString("{type: Mesh, name: default}\n")
	for i := range n {
		fmt.Fprintf(&docs, "---\n{type: Dataplane, mesh: default, name: web-%d, networking: {address: 10.0.0.%d, "+
			"inbound: [{port: 80, servicePort: 81, tags: {kuma.io/service: web}}]}}\n", i, i+1)
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

// TestCheckedOnce checks that a config is checked only if it changes, or if part of it is withheld
// and the client has accepted other listeners. A message about many proxies must appear once, and
// its length must be bounded.
func TestCheckedOnce(t *testing.T) {
	const n = 50
	r, p, count := checked(t, n, func(x *generate.Proxy) []finding.Finding {
		address := "10.0.0." + fmt.Sprint(atoi(t, strings.TrimPrefix(x.Name, "web-"))+1)
		f := finding.Finding{Rule: 29, Severity: finding.Warning, Message: "odd at " + address,
			Position: finding.Position{Type: draft.TypeListener, Resource: "inbound:" + address + ":80", Pointer: "/x"}}
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
	if second := agenttest.Pass(r); *count != n || !slices.Equal(second, first) {
		t.Errorf("%d checks without a change, problems %q", *count, second)
	}
	p.Taken["default.web-0"] = p.Of("default.web-0").Resources[draft.RankListener]
	if agenttest.Pass(r); *count != n || len(p.Withheld["default.web-0"]) != 0 {
		t.Errorf("%d checks after a client has accepted listeners, withheld: %+v", *count, p.Withheld)
	}

	block := true
	r, p, count = checked(t, n, func(x *generate.Proxy) []finding.Finding {
		f := finding.Finding{Rule: 29, Severity: finding.Warning, Message: "odd",
			Position: finding.Position{Type: draft.TypeListener, Resource: "inbound:10.0.0.1:80"}}
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
				Position: finding.Position{Type: draft.TypeListener, Resource: "l"}})
		}
		return out
	})
	if all := agenttest.Pass(r); len(all) > 200 ||
		!slices.ContainsFunc(all, func(s string) bool { return strings.Contains(s, "990 more warnings") }) {
		t.Errorf("%d problems, as %q", len(all), all[0])
	}
}

// TestEndpointsAreCheckedAlone checks that a change of only endpoints does not cause a check of the
// whole config, unless one of the endpoint lists has a finding.
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
			created, err := generate.Generate(in, prev, memo)
			if err != nil || heavy == 0 {
				return created, err
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
			next, sealed, rank := *created, *created.Sealed, draft.Rank(draft.TypeEndpoint)
			list := slices.Clone(sealed.Resources[rank])
			list[slices.IndexFunc(list, func(r *draft.Resource) bool { return r.Name == "svc" })] = draft.NewResource(rank,
				"svc", body)
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

// TestCheckPanics checks that an internal error of the check never costs a proxy its config, and is
// reported.
func TestCheckPanics(t *testing.T) {
	bad := true
	r, p, _ := checked(t, 2, func(x *generate.Proxy) []finding.Finding {
		if x.Name == "web-0" && bad {
			panic("oh")
		}
		return []finding.Finding{{Rule: 5, Severity: finding.Reject, Message: "no",
			Position: finding.Position{Type: draft.TypeListener, Resource: "inbound:10.0.0.2:80"}}}
	})
	got := agenttest.Pass(r)
	if len(got) != 1 || !strings.HasPrefix(got[0],
		"error Dataplane/default/web-0: its config cannot be checked and is sent unchecked: internal error: oh") {
		t.Errorf("problems: %q", got)
	}
	if p.Of("default.web-0") == nil || len(p.Withheld["default.web-0"]) != 0 {
		t.Errorf("web-0: %+v %+v", p.Of("default.web-0"), p.Withheld["default.web-0"])
	}
	want := draft.Withheld{ID: draft.ResourceID{TypeURL: draft.TypeListener, Name: "inbound:10.0.0.2:80"}, Rule: 5,
		Reason: "not sent: Envoy would reject it: no (rule 5: A wildcard in server_names is the whole first label)"}
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

// TestUnfitZoneProxy checks that config which an egress cannot use is withheld from it like from
// other proxies, and that no operation waits for it.
func TestUnfitZoneProxy(t *testing.T) {
	r := agenttest.Up(t, agenttest.ShortDir(t), agent.Deps{})
	egress := "---\n{type: ZoneEgress, name: out, networking: {address: 10.0.0.9, port: 10002}}\n"
	mesh := "{type: Mesh, name: default, mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}, " +
		"routing: {zoneEgress: true}}\n"
	agenttest.ByAPI(t, r.Store(), mesh+egress+"---\n"+serviceBeyond("garbage"))
	p := startPicky(t, r.Addrs().XDS, ".egress.out", "WORD", true)
	p.Want("Cluster")
	p.Want("Listener") // a listener without a valid destination is not sent either
	if got := waitFor(t, r, "ExternalService", "api"); got.State != api.StateRejected ||
		got.Rejected[0].Resource != "default:api" || got.Rejected[0].By != api.HeldByCheck {
		t.Errorf("the service: %+v", got)
	}
	var problems []api.Problem
	agenttest.Eventually(t, "it is said what it is about", func() bool {
		whole, err := r.Api().Status(t.Context())
		agenttest.Do(t, err)
		problems = whole.Problems
		return slices.ContainsFunc(problems, func(p api.Problem) bool {
			return p.Resource == "ZoneEgress/out" && strings.Contains(p.Reason, "no policy affects it")
		})
	})
	agenttest.ByAPI(t, r.Store(), serviceBeyond(""))
	p.Want("Cluster default:api")
}
