package agent_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// dieAt makes this process kill itself when it reaches a step for the nth time. where has the form
// STEP:N; "" means never. Steps are the begin and end of computing or checking a config, and the
// end of a state file transaction.
func dieAt(where string, deps *agent.Deps) {
	at, count, _ := strings.Cut(where, ":")
	n, _ := strconv.ParseInt(count, 10, 64)
	var times atomic.Int64
	step := func(name string) {
		if name == at && times.Add(1) == n {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // until the signal arrives
		}
	}
	if at == "" {
		return
	}
	deps.Generate = func(in generate.Input, prev *generate.Proxy, memo *generate.Memo) (*generate.Proxy, error) {
		step("generate")
		p, err := generate.Generate(in, prev, memo)
		step("generated")
		return p, err
	}
	verify := (*generate.Proxy).Check
	deps.Check = func(p *generate.Proxy, c *check.Checker, had *draft.Sealed) []finding.Finding {
		step("check")
		out := verify(p, c, had)
		step("checked")
		return out
	}
	deps.Sync = func() error { step("sync"); return nil }
}

// try makes a write and reports whether it was acknowledged. The agent may die meanwhile.
func (a *stormAgent) try(method, path, body string) bool {
	a.t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context,
		_, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", a.socket("nearside.sock"))
	}}, Timeout: stormPatience}
	req, err := http.NewRequest(method, "http://nearside"+path, strings.NewReader(body))
	agenttest.Do(a.t, err)
	resp, err := c.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 400 && resp.StatusCode != http.StatusNotFound {
		a.t.Fatalf("%s %s: %s", method, path, resp.Status)
	}
	return true
}

// alive waits until the process serves or dies, and reports whether it serves.
func (a *stormAgent) alive(died <-chan struct{}) bool {
	for {
		select {
		case <-died:
			return false
		case <-time.After(5 * time.Millisecond):
			if conn, err := net.Dial("unix", a.socket("nearside.sock")); err == nil {
				conn.Close()
				return true
			}
		}
	}
}

// TestStormOfDeaths kills the agent at each step of its passes and writes, at the first and at
// later occurrences, and at random times. Meanwhile a policy is written and the previous one
// deleted. In the end all proxies must have everything. The active policy must be the last
// acknowledged one or the one whose write was interrupted, and no deleted policy may be active.
func TestStormOfDeaths(t *testing.T) {
	services, proxies, counts, moments := 5, 5, []int{1, 4}, 2
	if os.Getenv("STORM") == "full" {
		services, proxies, counts, moments = 1000, 50, []int{1, 2, 3, 10, 49, 50, 51, 60, 99}, 60
	}
	a := newStormAgent(t, services, proxies)
	c := newCrowdOfClients(t, a, services, proxies)
	var at []string
	for _, step := range []string{"generate", "generated", "check", "checked", "sync"} {
		for _, n := range counts {
			at = append(at, fmt.Sprintf("%s:%d", step, n))
		}
	}
	for range moments {
		at = append(at, "")
	}
	may := []string{} // policies that may be the active one
	name := func(i int) string { return fmt.Sprintf("kept-%d", i) }
	c.connect(0, proxies)
	deaths := map[string]int{}
	for i, where := range at {
		a.start(nil, stormEnv+"_DIE="+where)
		died := make(chan struct{})
		go func() { _ = a.cmd.Wait(); close(died) }()
		if a.alive(died) {
			text := fmt.Sprintf(`{"type":"MeshTimeout","mesh":"default","name":"%s","spec":{"targetRef":{"kind":"Mesh"},"to":[{"targetRef":{"kind":"Mesh"},"default":{"connectionTimeout":"%ds"}}]}}`, name(i), 1+i)
			if may = append(may, name(i)); a.try(http.MethodPost, "/v1/apply", text) {
				sure := true
				for _, old := range may[:len(may)-1] {
					sure = sure && a.gone(old)
				}
				if sure {
					may = may[len(may)-1:]
				}
			}
			if where == "" {
				<-time.After(time.Duration(i*7919%400) * time.Millisecond)
			} else {
				select {
				case <-died:
				case <-time.After(2 * time.Second): // the step did not occur that often
				}
			}
		}
		select {
		case <-died:
			deaths[where]++
		default:
			_ = a.cmd.Process.Kill()
			<-died
		}
	}
	c.epoch.Add(1)
	a.start(nil)
	c.await(proxies, stormPatience)
	t.Logf("%d starts, of which %d ended at the step itself", len(at), len(deaths))
	text := a.ask(http.MethodGet, "/meshes/default/meshtimeouts?size=1000", "")
	var there []string
	for i := range at {
		if strings.Contains(text, `"`+name(i)+`"`) {
			there = append(there, name(i))
		}
	}
	for _, n := range there {
		if !slices.Contains(may, n) {
			t.Errorf("%s is in force, whose deletion was acknowledged", n)
		}
	}
	if len(there) == 0 && len(may) == 1 {
		t.Errorf("%s was acknowledged and is not there", may[0])
	}
	st := a.ask(http.MethodGet, "/v1/status", "")
	for _, word := range []string{"quarantined", "damaged", "setAside"} {
		if strings.Contains(st, `"`+word+`"`) {
			t.Errorf("after the kills the status tells of damage: %s", st)
		}
	}
	c.nobodyRefused(a)
}

// gone deletes a policy. It returns true if the deletion is acknowledged or the policy does not
// exist.
func (a *stormAgent) gone(name string) bool {
	return a.try(http.MethodDelete, "/meshes/default/meshtimeouts/"+name, "")
}
