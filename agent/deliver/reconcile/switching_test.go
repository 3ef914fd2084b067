package reconcile_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/deliver/reconcile"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestMutualTLSIsSwitchedInSteps: inbounds take TLS before clients use it, and plain text until
// none sends it; and back.
func TestMutualTLSIsSwitchedInSteps(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s, p := agenttest.TwoProxies(t), agenttest.NewPublisher("default.web", "default.other")
	r := reconcile.New(reconcile.Options{Store: s, Publisher: p, Now: func() time.Time { return now }})
	mesh := func(more string) { agenttest.ByAPI(t, s, "type: Mesh\nname: default\n"+more) }
	const strict, open = "mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}\n",
		"mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin, mode: PERMISSIVE}]}\n"
	// state is whether inbounds take TLS, whether they take plain text, and whether clients use TLS.
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
		told := strings.Join(agenttest.Pass(r), "\n")
		if got := state(); got != want {
			t.Fatalf("it is %q, want %q", got, want)
		}
		if view := r.Last().Meshes["default"].View; view.Switching != strings.Contains(told,
			"mutual TLS is being switched") && view.Switching {
			t.Errorf("%q: switching is not told: %s", want, told)
		}
		if why := r.Last().Switching["default"]; why != "" != strings.Contains(told, "mutual TLS is being switched") ||
			!strings.Contains(told, why) {
			t.Errorf("%q: it waits for %q, and what is told is %s", want, why, told)
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
	mesh(strict) // on second thought
	step(5*time.Second, "tls plain clients")
	mesh("")
	step(5*time.Second, "tls plain")
	step(5*time.Second, "plain")
	step(time.Minute, "plain")

	// An agent that starts finds what is there, and where no proxy is connected nothing has to wait.
	mesh(strict)
	r = reconcile.New(reconcile.Options{Store: s, Publisher: p, Now: func() time.Time { return now }})
	step(0, "tls clients")
	r = reconcile.New(reconcile.Options{Store: s, Publisher: agenttest.NewPublisher(),
		Now: func() time.Time { return now }})
	step(0, "tls clients")
	mesh("")
	step(0, "plain")
}
