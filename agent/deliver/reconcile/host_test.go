package reconcile_test

import (
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/deliver/reconcile"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestEnvoyThatIsTooOld checks the warning about an Envoy older than the oldest supported version.
func TestEnvoyThatIsTooOld(t *testing.T) {
	s := agenttest.Memory(t)
	agenttest.ByAPI(t, s, agenttest.WebFile("svc-1"))
	build := &finding.Build{Version: finding.ParseVersion("1.35.9")}
	r := reconcile.New(reconcile.Options{Store: s, Publisher: agenttest.NewPublisher("default.web"),
		Build: func(node.Key) *finding.Build { return build }})
	if got := agenttest.Pass(r); len(got) != 1 || !strings.HasPrefix(got[0],
		"warning Dataplane/default/web: its Envoy 1.35.9 is older than 1.36, ") || !strings.HasSuffix(got[0], "Upgrade it") {
		t.Errorf("1.35.9: %q", got)
	}
	for _, version := range []string{"1.36.0", "1.40.0", "2.0.0", ""} {
		build = &finding.Build{Version: finding.ParseVersion(version)}
		if got := agenttest.Pass(r); len(got) != 0 {
			t.Errorf("%q: %q", version, got)
		}
	}
}

// TestHostOfAnEnvoy checks that a log file that an Envoy cannot open withholds the listener, only
// from this proxy and until the file can be opened. Other problems of its host are warnings.
func TestHostOfAnEnvoy(t *testing.T) {
	s := agenttest.Memory(t)
	agenttest.ByAPI(t, s, agenttest.WebFile("svc-1", "svc-2", "far")+"---\n"+agenttest.PortedText("default",
		"other", "10.0.0.2")+"\n---\n{type: MeshAccessLog, mesh: default, name: logs, spec: {targetRef: {kind: Mesh}, "+
		"to: [{targetRef: {kind: Mesh}, default: {backends: [{type: File, file: {path: /none/a.log}}]}}]}}\n---\n"+
		"{type: ExternalService, mesh: default, name: far, tags: {kuma.io/service: far}, "+
		"networking: {address: 'far.example.com:443'}}\n")
	p := agenttest.NewPublisher("default.web", "default.other")
	build := &finding.Build{Version: finding.ParseVersion("1.36.2")}
	hosts := map[string]*finding.Host{}
	asked := map[string][]string{}
	r := reconcile.New(reconcile.Options{Store: s, Publisher: p, Build: func(node.Key) *finding.Build { return build },
		Host: func(k node.Key, files []string) *finding.Host { asked[k.ID] = files; return hosts[k.ID] }})

	if got := agenttest.Pass(r); got != nil || len(p.Withheld["default.web"]) != 0 {
		t.Errorf("unknown host: %q, withheld %v", got, p.Withheld)
	}
	if got := strings.Join(asked["default.web"], " "); got != "/none/a.log" || len(asked["default.other"]) != 0 {
		t.Errorf("asked about %v", asked)
	}
	before := p.Has["default.web"]

	hosts["default.web"] = &finding.Host{OpenFiles: 67, Workers: 2,
		Resolver: "/etc/resolv.conf names b, and named a when this Envoy connected"}
	got := agenttest.Pass(r)
	if len(got) != 2 || !strings.HasPrefix(got[0], "warning Dataplane/default/web: /etc/resolv.conf names b, ") ||
		!strings.Contains(got[0], "Restart the Envoy") || !strings.HasPrefix(got[1],
		"warning Dataplane/default/web: its Envoy may open 67 files, and 4 listeners with 2 workers need about 81: ") ||
		!strings.Contains(got[1], "LimitNOFILE") {
		t.Errorf("limits and names: %q", got)
	}
	if p.Has["default.web"] != before {
		t.Error("a warning changes what is published")
	}

	hosts["default.web"] = &finding.Host{OpenFiles: 81, Workers: 2, Guessed: true,
		Unwritable: map[string]string{"/none/a.log": "it is a directory"}}
	if got := agenttest.Pass(r); len(got) == 0 || !strings.Contains(got[0],
		`Envoy cannot open "/none/a.log", unless it has another file system: it is a directory`) ||
		len(p.Withheld["default.web"]) != 0 {
		t.Errorf("a guess: %q, withheld %v", got, p.Withheld)
	}

	hosts["default.web"] = &finding.Host{
		Unwritable: map[string]string{"/none/a.log": "the directory /none does not exist; make it"},
	}
	agenttest.ByAPI(t, s, agenttest.Breaker(2))
	agenttest.Pass(r)
	held := p.Withheld["default.web"]
	if len(held) == 0 || !strings.Contains(held[0].Reason, "the directory /none does not exist; make it") ||
		len(p.Withheld["default.other"]) != 0 {
		t.Errorf("a directory is missing: withheld %v", p.Withheld)
	}
	hosts["default.web"] = &finding.Host{}
	if agenttest.Pass(r); len(p.Withheld["default.web"]) != 0 {
		t.Errorf("the directory is there: withheld %v", p.Withheld["default.web"])
	}
}
