package status_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

var webKey = node.Key{ID: "default.web", Flavor: node.FlavorEnvoy}

// TestServiceInsight checks the status of a service by the port with the most endpoints.
func TestServiceInsight(t *testing.T) {
	mesh := store.Record{Resource: &resource.Resource{Key: agenttest.MeshKey("default")}}
	for _, c := range []struct {
		ready, missing int
		want           string
	}{{3, 0, "online"}, {0, 0, "offline"}, {2, 0, "partially_degraded"}, {3, 1, "partially_degraded"}, {3, 3, "offline"},
		{0, 1, "offline"}} {
		got := status.ServiceInsight(mesh, &api.Service{Name: "backend", Ports: []api.ServicePort{
			{Ready: c.ready, Total: 3, Zones: []string{"b", "a"}}, {Ready: 1, Total: 2, Zones: []string{"b"}}}}, c.missing)
		if got.Status != c.want || got.Mesh != "default" || got.Name != "backend" || strings.Join(got.Zones, "") != "ab" {
			t.Errorf("%+v: %+v", c, got)
		}
	}
	if got := status.ServiceInsight(mesh, &api.Service{}, 0); got.Status != "not_available" {
		t.Errorf("no ports: %+v", got)
	}
}

// TestHasTags checks the filters for lists of proxies.
func TestHasTags(t *testing.T) {
	dp := agenttest.Decoded(t, agenttest.DataplaneText("default", "web-1", "10.0.0.1"))[0]
	for _, c := range []struct {
		tags          []string
		gateway, name string
		want          bool
	}{
		{nil, "", "", true}, {nil, "", "eb-", true}, {nil, "", "other", false},
		{nil, "true", "", false}, {nil, "false", "", true},
		{[]string{resource.TagService + ":web-1"}, "", "", true}, {[]string{resource.TagService + ":other"}, "", "", false},
	} {
		if got := status.HasTags(dp, c.tags, c.gateway, c.name); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestCounts checks that counters of Envoys become problems and refusals of their proxies.
func TestCounts(t *testing.T) {
	all := []api.Proxy{
		{Mesh: "default", Name: "a", Clients: []api.ProxyStatus{{NodeID: "default.a"}}},
		{Mesh: "default", Name: "b", Clients: []api.ProxyStatus{{NodeID: "default.b"}}},
		{Mesh: "default", Name: "c"},
	}
	status.AddCounts(all,
		map[string]api.ProxyCounts{"default.a": {Refused: 1}, "default.b": {Refused: 3, WritesFailed: 2}})
	if len(all[0].Problems) != 0 || len(all[1].Problems) != 1 || !strings.Contains(all[1].Problems[0].Reason, "2 writes") {
		t.Errorf("problems: %+v, %+v", all[0].Problems, all[1].Problems)
	}
	if got := status.Refusals(all); len(got) != 2 || got[0].Name != "b" || got[0].Count != 3 || got[1].Name != "a" {
		t.Errorf("refusals: %+v", got)
	}
}

// TestFit checks that a config counts as fit only if it was published without changes.
func TestFit(t *testing.T) {
	id := generate.ProxyID{Mesh: "default", Name: "web", Flavor: node.FlavorEnvoy}
	whole := &generate.Proxy{Sealed: &draft.Sealed{}}
	less := &generate.Proxy{Sealed: &draft.Sealed{}}
	proxies := map[generate.ProxyID]*generate.Proxy{id: whole}
	for name, c := range map[string]struct {
		result *status.Result
		want   bool
	}{
		"no result":     {nil, false},
		"not published": {&status.Result{Proxies: proxies}, false},
		"withheld":      {&status.Result{Proxies: proxies, Published: map[node.Key]*generate.Proxy{webKey: less}}, false},
		"whole":         {&status.Result{Proxies: proxies, Published: map[node.Key]*generate.Proxy{webKey: whole}}, true},
	} {
		if got := c.result.Fit(webKey, id); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestRejections checks that a rejection is a problem of its policy, else of its proxy, and that
// the text contains the resource, the field, and a remedy for a port in use.
func TestRejections(t *testing.T) {
	bind := "cannot bind '0.0.0.0:8080': Address already in use"
	blame := []api.Blame{{Type: "MeshTimeout", Mesh: "default", Name: "slow", Field: "spec.to[0]",
		Evidence: api.BlameChanged}}
	rejected := draft.Rejection{Node: webKey, Mesh: "default", Name: "web", By: api.HeldByProxy, Reason: bind,
		Attributed: true,
		ID:         draft.ResourceID{TypeURL: draft.TypeListener, Name: "inbound"}}
	unattributed := rejected
	unattributed.Attributed = false
	withheld := rejected
	withheld.By, withheld.Blame = api.HeldByCheck, blame
	for _, c := range []struct {
		rejection draft.Rejection
		state     string
		want      []string
	}{
		{rejected, api.StateServing, []string{"Dataplane/default/web", "rejected by default.web: Listener inbound: " + bind,
			"the cause is on the host of the Envoy, not in a policy: find the process that listens there with " +
				`"ss -lntp 'sport = :8080'"`}},
		{unattributed, api.StateServing, []string{"Dataplane/default/web", "the cause is on the host of the Envoy"}},
		{withheld, api.StateServing, []string{"MeshTimeout/default/slow", "withheld from default.web", "; see spec.to[0]"}},
		{rejected, api.StateDisconnected, nil},
	} {
		tracker := &status.Tracker{Progress: func() []rollout.Progress {
			return []rollout.Progress{{Node: webKey, State: c.state, Rejected: []draft.Rejection{c.rejection}}}
		}}
		got := tracker.Rejections()
		if len(got) != min(1, len(c.want)) {
			t.Errorf("%+v, want %q", got, c.want)
			continue
		}
		for i, words := range c.want {
			if text := got[0].Reason; i == 0 && got[0].Resource != words || i > 0 && !strings.Contains(text, words) {
				t.Errorf("%+v, want %q", got[0], words)
			}
		}
	}
}

// TestAnswer checks the answers to questions of other nodes: none to invalid ones, pending for
// another version, and the state of the same version.
func TestAnswer(t *testing.T) {
	s := agenttest.TwoProxies(t)
	agenttest.ByAPI(t, s, agenttest.Breaker(1))
	tracker := &status.Tracker{Registry: kinds.Registry(), Store: s, Last: func() *status.Result { return nil }}
	rec, _ := s.Snapshot().Get(resource.Key{Kind: "MeshCircuitBreaker", Mesh: "default", Name: "limits"})
	digest := fmt.Sprintf("%x", rec.Digest)
	for question, want := range map[string]string{
		"junk":                                "",
		`{"type":"Nonsense","name":"limits"}`: "",
		`{"type":"MeshCircuitBreaker","mesh":"default","name":"limits"}`:                                            "",
		`{"type":"MeshCircuitBreaker","mesh":"default","name":"limits","for":"nonsense","digest":"` + digest + `"}`: "",
		`{"type":"MeshCircuitBreaker","mesh":"default","name":"limits","digest":"00"}`: "another " +
			"version is in force there, from api",
		`{"type":"MeshCircuitBreaker","mesh":"default","name":"other","digest":"00"}`: "it has not arrived there yet",
		`{"type":"MeshCircuitBreaker","mesh":"default","name":"limits","for":"gone"}`: "it still exists, at revision",
		`{"type":"MeshCircuitBreaker","mesh":"default","name":"limits","digest":"` + digest +
			`"}`: "its configs are being computed",
	} {
		answer := tracker.Answer(t.Context(), []byte(question))
		if want == "" {
			if answer != nil {
				t.Errorf("%s: %s", question, answer)
			}
			continue
		}
		var got api.Applied
		agenttest.Do(t, json.Unmarshal(answer, &got))
		if got.State != api.StatePending || !strings.Contains(got.Reason, want) {
			t.Errorf("%s: %s, want %q", question, answer, want)
		}
	}
}
