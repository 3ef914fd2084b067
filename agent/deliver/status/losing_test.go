package status_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/deliver/reconcile"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

func fileLog(name, path string) string {
	return "---\n{type: MeshAccessLog, mesh: default, name: " + name + ", spec: {targetRef: {kind: Mesh}, " +
		"from: [{targetRef: {kind: Mesh}, default: {backends: [{type: File, file: {path: " + path + "}}]}}]}}\n"
}

// TestLosing checks the states of policies with files that an Envoy has opened and cannot write.
func TestLosing(t *testing.T) {
	s := agenttest.TwoProxies(t)
	agenttest.ByAPI(t, s, fileLog("one", "/var/log/nearside/one.log"))
	p := track(t, s, reconcile.Options{})
	counts := api.ProxyCounts{WritesFailed: 3, WritesDone: 1}
	p.Parts.Counts = func() map[string]api.ProxyCounts { return map[string]api.ProxyCounts{"default.web": counts} }
	if got := p.waited(t, "MeshAccessLog", "one"); got.State != api.StateApplied || len(p.Losing()) != 0 {
		t.Errorf("failed before: %+v", got)
	}
	counts.Failing = true
	got := p.waited(t, "MeshAccessLog", "one")
	if got.State != api.StateRejected || got.RejectedTotal != 1 ||
		got.Rejected[0].Resource != "file /var/log/nearside/one.log" ||
		!strings.Contains(got.Rejected[0].Reason, "filesystem.write_failed is 3") || got.Acknowledged != 0 {
		t.Errorf("failing: %+v", got)
	}
	lost := func() string {
		for _, x := range p.Status(t.Context(), status.View{Whole: true}).Problems {
			if x.Check == api.ClassLostLines {
				return x.Reason
			}
		}
		return ""
	}
	if got := lost(); !strings.HasSuffix(got, "; MeshAccessLog/default/one loses lines in /var/log/nearside/one.log now") {
		t.Errorf("problem: %q", got)
	}
	if got := p.Losing(); len(got) != 1 || !got[resource.Key{Kind: "MeshAccessLog", Mesh: "default", Name: "one"}] {
		t.Errorf("losing: %v", got)
	}

	// The counters do not say which of several files has failed.
	agenttest.ByAPI(t, s, "{type: MeshAccessLog, mesh: default, name: two, spec: {targetRef: {kind: Mesh}, "+
		"to: [{targetRef: {kind: Mesh}, default: {backends: [{type: File, "+
		"file: {path: /var/log/nearside/two.log}}]}}]}}\n---\n"+redis)
	for _, name := range []string{"one", "two"} {
		got := p.waited(t, "MeshAccessLog", name)
		if got.State != api.StateApplied || !slices.ContainsFunc(got.Warnings, func(w string) bool {
			return strings.Contains(w, "of which of 2 files; this policy writes /var/log/nearside/"+name+".log")
		}) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := lost(); len(p.Losing()) != 0 ||
		!strings.Contains(got, "MeshAccessLog/default/two may lose lines in /var/log/nearside/two.log") {
		t.Errorf("two files: %v, %q", p.Losing(), got)
	}
	counts.Failing = false
	if got := p.waited(t, "MeshAccessLog", "two"); got.State != api.StateApplied || len(got.Warnings) != 0 {
		t.Errorf("in the end: %+v", got)
	}
}
