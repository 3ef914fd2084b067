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
	agenttest.Eventually(t, "there is no problem any more", func() bool { return problem().Resource == "" })
}

// TestRefusedUser checks that a refused Envoy of another user is a problem, and that it leaves the
// list when its process has ended and the Envoy of the right user is accepted.
func TestRefusedUser(t *testing.T) {
	person := agenttest.People(t)
	r := agenttest.Up(t, openDir(t), agent.Deps{}, "xds.socket.group=61000", "xds.socket.mode=0666")
	agenttest.Apply(t, r.Agent,
		"type: Mesh\nname: default\n---\n"+agenttest.DataplaneText("default", "web", "127.0.0.1"))
	got := person(61041).Try(agenttest.Act{Do: "xds", Socket: r.Addrs().XDS, NodeID: "default.web"})
	if got[0].Got != "PermissionDenied" {
		t.Fatalf("%+v", got)
	}
	p, err := r.Api().Proxy(t.Context(), "default", "web")
	agenttest.Do(t, err)
	if p.State != api.StateRefused || len(p.Refused) != 1 || p.Refused[0].User != "uid=61041" || p.Refused[0].Count != 1 ||
		!strings.Contains(p.Reason, "has been refused since") || strings.Contains(p.Reason, "start one") {
		t.Errorf("%+v", p)
	}
	s, err := r.Api().Status(t.Context())
	agenttest.Do(t, err)
	if !slices.ContainsFunc(s.Problems, func(x api.Problem) bool {
		return x.Check == api.ClassStreamRefused && x.Resource == "Dataplane/default/web" &&
			x.Severity == api.SeverityError && x.Command == "nearside check --bootstrap FILE --user 61041"
	}) {
		t.Errorf("problems: %+v", s.Problems)
	}
	agenttest.Next(t, r.Ask(&core.Node{Id: "default.web", UserAgentName: "envoy"}, nil), map[string]string{})
	if p, err = r.Api().Proxy(t.Context(), "default", "web"); err != nil || len(p.Refused) != 0 ||
		p.State == api.StateRefused {
		t.Errorf("%+v %v", p, err)
	}
}
