package agent_test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestPortsInUse checks that an agent starts while other processes use its TCP addresses, reports
// them, and serves each as soon as it is free.
func TestPortsInUse(t *testing.T) {
	dir := agenttest.ShortDir(t)
	agenttest.WriteSecret(t, dir+"/token", "0123456789abcdef0123")
	taken := map[string]net.Listener{}
	set := []string{"metrics.tokenFile=" + dir + "/token", "api.tokenFile=" + dir + "/token",

		"xds.insecure=true"}
	for _, key := range []string{"api.tcp", "xds.tcp", "metrics.listen", "ui.listen"} {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", freePort(t)))
		agenttest.Do(t, err)
		defer l.Close()
		taken[key] = l
		set = append(set, key+"="+l.Addr().String())
	}
	r := agenttest.Up(t, dir, agent.Deps{}, set...)
	problem := func() (reason string) {
		s, err := r.Api().Status(t.Context())
		agenttest.Do(t, err)
		for _, p := range s.Problems {
			if p.Check == "listeners" {
				if p.Severity != api.SeverityError || p.Unready || !strings.HasPrefix(p.Command, "ss -lntp ") {
					t.Errorf("problem: %+v", p)
				}
				reason = p.Reason
			}
		}
		return reason
	}
	for key, l := range taken {
		if want := key + ": another process listens on " + l.Addr().String(); !strings.Contains(problem(), want) {
			t.Errorf("the problem is %q, want %q", problem(), want)
		}
	}
	for key, l := range taken {
		agenttest.Do(t, l.Close())
		agenttest.Eventually(t, key+" is open", func() bool { return !strings.Contains(problem(), key) })
		c, err := net.DialTimeout("tcp", l.Addr().String(), time.Minute)
		agenttest.Do(t, err)
		agenttest.Do(t, c.Close())
	}
	if got := problem(); got != "" {
		t.Errorf("the problem is %q", got)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		"http://"+taken["metrics.listen"].Addr().String()+"/metrics", nil)
	agenttest.Do(t, err)
	req.Header.Set("Authorization", "Bearer 0123456789abcdef0123")
	res, err := http.DefaultClient.Do(req)
	agenttest.Do(t, err)
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Errorf("metrics: %s", res.Status)
	}
}
