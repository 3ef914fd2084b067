package traffictest_test

import (
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// TestRollingRestart restarts the agents of five machines one after the other, while a sixth
// machine is dead and the Envoys of the others send requests. No request may fail: an agent that
// starts must not serve the dataplane of the dead machine as healthy.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	p := startPool(t, 6)
	rest, dead := p.all[:5], p.all[5]
	for _, m := range p.all {
		m.await("an answer of "+dead.name, func() bool {
			who, err := m.ask(ownPort+dead.n, time.Second)
			return err == nil && who == dead.name
		})
	}
	p.net.router.run(t, fmt.Sprintf("link set veth%d down\n", dead.n), "ip", "-batch", "-")
	dead.killAgent()
	dead.envy.kill()
	for _, m := range rest {
		m.sees(dead, true)
	}
	for _, m := range rest {
		m.startLoad()
		m.more(5)
	}
	p.quiet(rest)
	before := failures(rest)
	p.say("one of six machines is dead, and no Envoy sends requests to it")
	for i, m := range rest {
		m.stopAgent()
		m.startAgent(rest[(i+1)%len(rest)].n)
		m.await(dead.name+" is dead or, 30 s after its death, removed", func() bool {
			got, err := m.api.Get(t.Context(), "dataplanes", "default", dead.name)
			var refused *api.Error
			if errors.As(err, &refused) {
				return refused.Status == http.StatusNotFound
			}
			return err == nil && marked(resource.LivenessDead)(got)
		})
		m.await("the Envoy is in sync with the new agent", func() bool {
			got, err := m.api.Proxy(t.Context(), "default", m.name)
			return err == nil && got.State == api.StateSynced
		})
		for _, o := range rest {
			o.more(25)
		}
		p.say("%s restarted", m.name)
	}
	total := 0
	for _, m := range rest {
		m.load.end() // when the last request is answered
		n, _ := m.load.counts()
		total += n
	}
	if now := failures(rest); now != before {
		t.Errorf("%d of %d requests failed", now-before, total)
	}
	p.say("%d requests, and %d failed", total, failures(rest)-before)
}

// stopAgent stops the agent of a machine as a service manager does.
func (m *machine) stopAgent() {
	m.t.Helper()
	if err := m.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		m.t.Fatal(err)
	}
	m.await("the agent stops", func() bool {
		select {
		case <-m.gone:
			return true
		default:
			return false
		}
	})
}
