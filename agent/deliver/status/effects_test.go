package status_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/deliver/reconcile"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// redis is a service that speaks TCP, and web a proxy that reaches only redis.
const redis = "{type: Dataplane, mesh: default, name: redis, networking: {address: 10.0.0.3, inbound: [{port: 6379, " +
	"tags: {kuma.io/service: redis, kuma.io/protocol: tcp}}]}}\n---\n" +
	"{type: Dataplane, mesh: default, name: web, networking: {address: 10.0.0.1, inbound: [{port: 80, " +
	"tags: {kuma.io/service: web, kuma.io/protocol: http}}], " +
	"outbound: [{port: 90, tags: {kuma.io/service: redis}}]}}\n---\n"

func retry(name, conf string) string {
	return fmt.Sprintf("{type: MeshRetry, mesh: default, name: %s, spec: {targetRef: {kind: Dataplane, name: web}, "+
		"to: [{targetRef: {kind: MeshService, name: redis}, default: {%s}}]}}\n---\n", name, conf)
}

// TestNoEffect checks that a policy without effect has its own state, is a problem, and counts,
// until a change gives it an effect.
func TestNoEffect(t *testing.T) {
	s := agenttest.TwoProxies(t)
	agenttest.ByAPI(t, s, redis+retry("slow", "http: {numRetries: 3}"))
	p := track(t, s, reconcile.Options{})
	got := p.waited(t, "MeshRetry", "slow")
	if got.State != api.StateNoEffect || got.Effect != api.EffectNone || got.Acknowledged != 1 ||
		!strings.HasPrefix(got.Reason, "no effect on any proxy: ") {
		t.Errorf("wait: %+v", got)
	}
	all := func(resource.Key) bool { return true }
	if list := p.List(t.Context(), "MeshRetry", all); list.Items[0].State != api.StateNoEffect {
		t.Errorf("list: %+v", list)
	}
	problems := func() []api.Problem {
		return slices.DeleteFunc(p.Status(t.Context(), status.View{Whole: true}).Problems,
			func(x api.Problem) bool { return x.Check != api.ClassNoEffect })
	}
	if list := problems(); len(list) != 1 || list[0].Resource != "MeshRetry/default/slow" ||
		list[0].Severity != api.SeverityWarning || list[0].Reason != got.Reason ||
		list[0].Command != "nearside explain policy MeshRetry/slow -m default --dataplane web" {
		t.Errorf("problems: %+v", list)
	}
	if lacking := p.Lacking(t.Context()); len(lacking) != 1 {
		t.Errorf("lacking: %v", lacking)
	}

	agenttest.ByAPI(t, s, strings.Replace(redis, "protocol: tcp", "protocol: http", 1))
	if got := p.waited(t, "MeshRetry", "slow"); got.State != api.StateApplied || got.Effect != api.EffectAll {
		t.Errorf("wait: %+v", got)
	}
	if list := problems(); len(list) != 0 {
		t.Errorf("problems: %+v", list)
	}
	agenttest.ByAPI(t, s, redis)
	if got := p.waited(t, "MeshRetry", "slow"); got.State != api.StateNoEffect {
		t.Errorf("wait: %+v", got)
	}
}

// TestEffectsAreCached checks that a new instance of a service does not repeat the work, that a
// change of another policy, of a protocol, or of the name of a selected dataplane does, and that
// every answer equals that of an empty cache.
func TestEffectsAreCached(t *testing.T) {
	s := agenttest.TwoProxies(t)
	agenttest.ByAPI(t, s, redis+retry("slow", "http: {numRetries: 3}")+retry("late", "tcp: {maxConnectAttempt: 3}")+
		strings.Replace(retry("absent", "tcp: {maxConnectAttempt: 4}"), "name: web", "name: web-2", 1))
	p := track(t, s, reconcile.Options{})
	other := "{type: Dataplane, mesh: default, name: redis-%d, networking: {address: 10.0.1.%d, inbound: [{port: 6379, " +
		"tags: {kuma.io/service: redis, kuma.io/protocol: %s}}]}}"
	for _, c := range []struct{ name, change string }{
		{"nothing", ""},
		{"an instance", fmt.Sprintf(other, 2, 2, "tcp")},
		{"a protocol", fmt.Sprintf(other, 2, 2, "http") + "\n---\n" + strings.Replace(redis, "tcp", "http", 1)},
		{"a policy", retry("late", "tcp: {maxConnectAttempt: 5}")},
		{"a duplicate", retry("zz", "tcp: {maxConnectAttempt: 5}")},
		{"a new name", strings.Replace(redis, "name: web,", "name: web-2,", 1)},
		{"the original", redis},
	} {
		name, change := c.name, c.change
		if change != "" {
			agenttest.ByAPI(t, s, change)
		}
		p.r.Pass()
		fresh := &status.Tracker{Registry: p.Registry, Store: s, Last: p.Last}
		list := func(t2 *status.Tracker) (out []string) {
			for _, x := range t2.List(t.Context(), "MeshRetry", func(resource.Key) bool { return true }).Items {
				out = append(out, fmt.Sprintf("%s %s %s %s %d", x.Name, x.State, x.Effect, x.Reason, x.Selected))
			}
			return out
		}
		if got, want := list(p.Tracker), list(fresh); !slices.Equal(got, want) &&
			!slices.Equal(statesOf(got), statesOf(want)) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// statesOf drops what depends on acknowledgments.
func statesOf(list []string) (out []string) {
	for _, x := range list {
		out = append(out, strings.Replace(x, api.StatePending, api.StateApplied, 1))
	}
	return out
}
