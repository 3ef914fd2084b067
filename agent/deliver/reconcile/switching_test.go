package reconcile_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/deliver/reconcile"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestMutualTLSIsSwitchedInSteps checks that inbounds accept TLS before clients use it, and accept
// plain text until no client sends it; and the reverse.
func TestMutualTLSIsSwitchedInSteps(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s, p := agenttest.TwoProxies(t), agenttest.NewPublisher("default.web", "default.other")
	r := reconcile.New(reconcile.Options{Store: s, Publisher: p, Now: func() time.Time { return now }})
	mesh := func(more string) { agenttest.ByAPI(t, s, "type: Mesh\nname: default\n"+more) }
	const strict, open = "mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}\n",
		"mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin, mode: PERMISSIVE}]}\n"
	// state returns whether inbounds accept TLS and plain text, and whether clients use TLS.
	state := func() string {
		view := r.Last().Meshes["default"].View
		var out []string
		if b := view.Spec.MTLSEnabled(); b != nil {
			out = append(out, "tls")
			if b.Permissive() {
				out = append(out, "plain")
			}
		} else {
			out = append(out, "plain")
		}
		for _, service := range view.Services() {
			if view.UsesTLS(service) {
				return strings.Join(append(out, "clients"), " ")
			}
		}
		return strings.Join(out, " ")
	}
	step := func(after time.Duration, want string) {
		t.Helper()
		now = now.Add(after)
		problems := strings.Join(agenttest.Pass(r), "\n")
		if got := state(); got != want {
			t.Fatalf("it is %q, want %q", got, want)
		}
		if view := r.Last().Meshes["default"].View; view.Switching != strings.Contains(problems,
			"mutual TLS is being switched") && view.Switching {
			t.Errorf("%q: switching is not reported: %s", want, problems)
		}
		if why := r.Last().Switching[resource.Key{Kind: "Mesh", Name: "default"}]; why != "" != strings.Contains(problems,
			"mutual TLS is being switched") || !strings.Contains(problems, why) {
			t.Errorf("%q: waits for %q, reported: %s", want, why, problems)
		}
	}
	step(0, "plain")
	mesh(strict)
	step(time.Minute, "tls plain")
	step(time.Second, "tls plain")
	step(5*time.Second, "tls plain clients")
	step(4*time.Second, "tls plain clients")
	step(time.Second, "tls clients")
	mesh(open)
	step(0, "tls plain clients")
	mesh(strict)
	step(0, "tls clients")
	mesh("")
	step(time.Minute, "tls plain clients")
	step(5*time.Second, "tls plain")
	mesh(strict) // reverted before the end
	step(5*time.Second, "tls plain clients")
	mesh("")
	step(5*time.Second, "tls plain")
	step(5*time.Second, "plain")
	step(time.Minute, "plain")

	// A change that follows the last step of another one waits, too: some proxies may be in the step
	// before.
	mesh(strict)
	step(time.Minute, "tls plain")
	step(5*time.Second, "tls plain clients")
	step(5*time.Second, "tls clients")
	mesh("")
	step(time.Second, "tls clients")
	step(4*time.Second, "tls plain clients")
	step(5*time.Second, "tls plain")
	step(5*time.Second, "plain")
	mesh(strict)
	step(time.Second, "plain")
	mesh("")
	step(time.Second, "plain")
	step(time.Minute, "plain")

	// After a restart, an agent continues with the current state. Without connected proxies, it need
	// not wait.
	mesh(strict)
	r = reconcile.New(reconcile.Options{Store: s, Publisher: p, Now: func() time.Time { return now }})
	step(0, "tls clients")
	r = reconcile.New(reconcile.Options{Store: s, Publisher: agenttest.NewPublisher(),
		Now: func() time.Time { return now }})
	step(0, "tls clients")
	mesh("")
	step(0, "plain")
}
