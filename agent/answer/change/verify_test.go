package change_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/change"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

// changeOf returns a question about adding the documents put to the documents now.
func changeOf(t testing.TB, now, put string) change.Question {
	t.Helper()
	return change.Question{Set: resource.NewSet(decode(t, now)), Put: decode(t, put), NewMesh: newMesh,
		Decode: kinds.Registry().DecodeOne}
}

func verify(t testing.TB, v change.Question) *change.Verified {
	t.Helper()
	out, err := change.Verify(t.Context(), v)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// onAll returns a patch that breaks the inbounds of all dataplanes.
func onAll(name string) string {
	return strings.Replace(kindtest.Breaking(name, "{kind: Mesh}"), `match: {name: "inbound:10.1.0.3:8080"}`,
		"match: {origin: inbound}", 1)
}

func TestVerifyTellsAlikeFindingsOnce(t *testing.T) {
	v := verify(t, changeOf(t, services, onAll("bad")))
	if v.Proxies != 3 || len(v.Findings) != 1 {
		t.Fatalf("%d proxies: %+v", v.Proxies, v.Findings)
	}
	f := v.Findings[0]
	if f.Total != 3 || !slices.Equal(f.Proxies, []string{"default/svc-1", "default/svc-2", "default/web"}) ||
		f.Resource != "inbound:10.1.0.1:8080" {
		t.Errorf("%+v", f)
	}
	if want := []api.Cause{{Ref: api.Ref{Type: "MeshProxyPatch", Mesh: "default", Name: "bad"},
		Field: "spec.default.appendModifications[1].listener", Change: true}}; !slices.Equal(f.Causes, want) {
		t.Errorf("causes %+v, want %+v", f.Causes, want)
	}
	if second := verify(t, changeOf(t, services, onAll("bad"))); fmt.Sprint(second.Findings) != fmt.Sprint(v.Findings) {
		t.Error("two answers differ")
	}
}

func TestVerifyKnowsWhatOtherProxiesHaveAlready(t *testing.T) {
	replica := "{type: Dataplane, mesh: default, name: svc-1-b, networking: {address: 10.1.0.9, inbound: [{port: 8080, " +
		"tags: {kuma.io/service: svc-1, kuma.io/protocol: http, version: v1}}]}}"
	v := verify(t, changeOf(t, services+"\n---\n"+onAll("old"), replica))
	if len(v.Findings) != 0 || len(v.Known) != 1 || !slices.Equal(v.Known[0].Proxies, []string{"default/svc-1-b"}) {
		t.Errorf("new: %+v\nknown: %+v", v.Findings, v.Known)
	}
	// A finding that no other proxy has is new.
	v = verify(t, changeOf(t,
		services+"\n---\n"+strings.Replace(kindtest.Breaking("old", "{kind: Mesh}"), "10.1.0.3", "10.1.0.9", 1), replica))
	if len(v.Findings) != 1 || len(v.Known) != 0 {
		t.Errorf("new: %+v\nknown: %+v", v.Findings, v.Known)
	}
}

func TestVerifyWithoutAnythingBefore(t *testing.T) {
	v := changeOf(t, "", services+"\n---\n"+onAll("bad"))
	v.Set = nil
	if got := verify(t, v); len(got.Findings) != 1 || got.Findings[0].Total != 3 || len(got.Findings[0].Causes) != 1 {
		t.Errorf("%+v", got.Findings)
	}
}

func TestVerifyChecksTheStep(t *testing.T) {
	patch := func(value string) string {
		return fmt.Sprintf("{type: MeshProxyPatch, mesh: default, name: p, spec: {targetRef: {kind: Mesh}, "+
			"default: {appendModifications: [{listener: {operation: Patch, match: {origin: inbound}, value: '%s'}}]}}}", value)
	}
	now := services + "\n---\n" + patch("{enableReusePort: true}")
	v := changeOf(t, services, patch("{enableReusePort: false}"))
	v.Set = resource.NewSet(decode(t, now))
	if got := verify(t, v); len(got.Findings) != 0 {
		t.Fatalf("a proxy that starts takes either: %+v", got.Findings)
	}
	// A proxy that has the old value rejects the new one.
	m, err := newMesh(v.Set, "default", nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := generate.Generate(generate.Input{Mesh: m, Name: "web", Flavor: node.FlavorEnvoy}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	v.InForce = func(id generate.ProxyID) *generate.Proxy {
		if id.Name == "web" {
			return p
		}
		return nil
	}
	got := verify(t, v)
	if len(got.Findings) != 1 || got.Findings[0].Rule != 11 || got.Findings[0].Total != 1 ||
		len(got.Findings[0].Causes) != 1 {
		t.Errorf("%+v", got.Findings)
	}
}

func TestVerifyEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	v := changeOf(t, services, onAll("bad"))
	v.Progress = func(done, all int) {
		if done == 2 && all == 3 {
			cancel()
		}
	}
	got, err := change.Verify(ctx, v)
	if err != nil || got.Proxies != 2 || got.Of != 3 || len(got.Findings) != 1 || got.Findings[0].Total != 2 {
		t.Errorf("%v: %+v", err, got)
	}
	// The limits of trials and findings are reported.
	v = changeOf(t, services,
		onAll("bad")+"\n---"+strings.Replace(kindtest.Breaking("worse", "{kind: Mesh}"), "%LATE%", "%LATER%", 1))
	v.MaxTrials, v.MaxFindings = 1, 1
	if got := verify(t, v); len(got.Findings) != 1 || got.More == 0 {
		t.Errorf("%+v", got)
	}
	// A mesh that cannot be derived is an error.
	v.NewMesh = func(*resource.Set, string, *generate.Mesh) (*generate.Mesh, error) {
		return nil, fmt.Errorf("no mesh today")
	}
	if _, err := change.Verify(t.Context(), v); err == nil || err.Error() != "no mesh today" {
		t.Errorf("the error is %v", err)
	}
}

func TestVerifyAsksEnvoyAboutWhatChanges(t *testing.T) {
	v := changeOf(t, services, slow("5s"))
	cluster := draft.ResourceID{TypeURL: envoy.KindCluster.URL(), Name: "svc-1"}
	m, err := newMesh(v.Set, "default", nil)
	if err != nil {
		t.Fatal(err)
	}
	was, err := generate.Generate(generate.Input{Mesh: m, Name: "web", Flavor: node.FlavorEnvoy}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	asked := map[string]int{}
	v.Try = func(_ context.Context, p *generate.Proxy) ([]finding.Finding, error) {
		asked[p.Name]++
		if r := p.Resource(cluster); r != nil && r.Version != was.Resource(cluster).Version {
			return []finding.Finding{{Rule: change.RuleOfEnvoy, Severity: finding.Reject,
				Position: finding.Position{Type: cluster.TypeURL, Resource: "svc-1"}, Message: "not today"}}, nil
		}
		if p.Name == "svc-1" {
			return nil, errors.New("no answer")
		}
		return nil, nil
	}
	got := verify(t, v)
	if len(got.Findings) != 1 {
		t.Fatalf("%+v", got)
	}
	f := got.Findings[0]
	if f.By != api.FoundByEnvoy || f.Rule != 0 ||
		f.String() != "Cluster svc-1: not today (said by Envoy), on default/web" || len(f.Causes) != 1 ||
		f.Causes[0].Name != "t1" || !strings.HasPrefix(f.Causes[0].Field, "spec.to[0].default") {
		t.Errorf("%s %+v", f.String(), f)
	}
	if asked["web"] > 3 {
		t.Errorf("it was asked %d times about web", asked["web"])
	}
	if want := []api.Problem{{Resource: "Dataplane/default/svc-1", Severity: api.SeverityWarning,
		Reason: "no answer"}}; !slices.Equal(got.Notes, want) {
		t.Errorf("notes: %+v", got.Notes)
	}
}
