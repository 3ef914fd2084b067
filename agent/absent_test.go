package agent_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/envoytest"
)

// TestEnvoyAfterRestart restarts the agent of a healthy Envoy. The status shows which resources the
// Envoy has, and kumactl sees a time and a number of updates.
func TestEnvoyAfterRestart(t *testing.T) {
	envoytest.Find(t)
	dir := agenttest.ShortDir(t)
	r := agenttest.Up(t, dir, agent.Deps{})
	agenttest.Apply(t, r.Agent, fmt.Sprintf("type: Mesh\nname: default\n---\n{type: Dataplane, mesh: default, name: web, "+
		"networking: {address: 127.0.0.1, inbound: [{port: %d, tags: {kuma.io/service: web}}]}}\n", freePort(t)))
	synced := func(r *agenttest.Running) (client api.ProxyStatus) {
		t.Helper()
		agenttest.Eventually(t, "the Envoy is synced", func() bool {
			p, err := r.Api().Proxy(t.Context(), "default", "web")
			if err != nil || p.State != api.StateSynced || len(p.Clients[0].Types) < 2 {
				return false
			}
			client = p.Clients[0]
			return !slices.ContainsFunc(client.Types, func(x api.TypeStatus) bool { return x.AckedVersion == "" })
		})
		return client
	}
	startEnvoy(t, r.Agent, "web")
	before := synced(r)
	agenttest.Do(t, r.Stop())
	r = agenttest.Up(t, dir, agent.Deps{})
	after := synced(r)
	for i, x := range after.Types {
		was := before.Types[i]
		if x.TypeURL != was.TypeURL || x.Resources != was.Resources || x.Reported != was.Resources || x.Resources == 0 ||
			x.AckedVersion != was.AckedVersion || x.ReportedAt.IsZero() || !x.AckedAt.Equal(x.ReportedAt) || x.Responses != 0 {
			t.Errorf("before the restart %+v\nafterwards %+v", was, x)
		}
	}
	_, answer := r.Request("GET", "http://nearside/meshes/default/dataplanes/_overview", "")
	var list struct {
		Items []struct {
			DataplaneInsight struct {
				Subscriptions []struct {
					Status struct {
						LastUpdateTime time.Time
						Total          map[string]string
					}
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(answer), &list); err != nil || len(list.Items) != 1 {
		t.Fatalf("%v %s", err, answer)
	}
	s := list.Items[0].DataplaneInsight.Subscriptions
	if len(s) != 1 || !s[0].Status.LastUpdateTime.Equal(after.Types[0].ReportedAt) &&
		s[0].Status.LastUpdateTime.Before(after.Types[0].ReportedAt) ||
		s[0].Status.Total["responsesSent"] != fmt.Sprint(len(after.Types)) {
		t.Errorf("%s", answer)
	}
}

// TestAbsentDataplane checks that a client whose node id matches no Dataplane is a problem with the
// nearest node id, and that it is no longer listed when it has left.
func TestAbsentDataplane(t *testing.T) {
	r := agenttest.Up(t, agenttest.ShortDir(t), agent.Deps{})
	agenttest.Apply(t, r.Agent,
		"type: Mesh\nname: default\n---\n"+agenttest.DataplaneText("default", "backend", "127.0.0.1"))
	stream := r.Ask(&core.Node{Id: "default.bakcend", UserAgentName: "envoy"}, nil)
	problem := func() (out api.Problem) {
		s, err := r.Api().Status(t.Context())
		agenttest.Do(t, err)
		for _, p := range s.Problems {
			if p.Check == api.ClassUnknownNode {
				out = p
			}
		}
		return out
	}
	agenttest.Eventually(t, "the client is a problem", func() bool { return problem().Resource != "" })
	if p := problem(); p.Resource != "Dataplane/default/bakcend" ||
		!strings.HasSuffix(p.Reason, "; the nearest node id is default.backend") ||
		p.Command != "nearside get dataplanes -m default" {
		t.Errorf("%+v", p)
	}
	names := func() string {
		list, err := r.Api().Proxies(t.Context())
		agenttest.Do(t, err)
		var out []string
		for _, p := range list.Items {
			out = append(out, p.Name+" "+p.State)
		}
		return strings.Join(out, ", ")
	}
	if got := names(); got != "backend disconnected, bakcend unknown" {
		t.Errorf("with the client: %s", got)
	}
	agenttest.Do(t, stream.CloseSend())
	agenttest.Eventually(t, "the client has left", func() bool { return names() == "backend disconnected" })
	if p := problem(); p.Resource != "" {
		t.Errorf("after the client has left: %+v", p)
	}
}
