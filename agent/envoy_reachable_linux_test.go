package agent_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/render"
	"github.com/nearside-mesh/nearside/agent/answer/traffic"
	"github.com/nearside-mesh/nearside/agent/serve/client"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/envoytest"
)

// TestReachableByTraffic redirects a workload's connections to a real Envoy. The workload calls one
// of two services, and the test applies the list proposed from the log. After that the other
// service must be unreachable, and calls to it must be reported.
func TestReachableByTraffic(t *testing.T) {
	real := envoytest.Find(t)
	if !agenttest.OwnNetwork(t) {
		return
	}
	dir := redirected(t, real, "addr add 203.0.113.9/32 dev lo\nroute add 240.0.0.0/4 dev lo src 203.0.113.9\n")
	for _, at := range []string{"127.0.0.1:7000", "127.0.0.1:7001"} {
		outside(t, at)
	}
	a := agenttest.RunAgent(t)
	api := client.New(a.Addrs().API, agenttest.Patience)
	log := dir + "/access.log"
	dataplane := func(lists string) string {
		return "{type: Dataplane, mesh: default, name: web, networking: {address: 127.0.0.2, inbound: [{port: 8080, " +
			"tags: {kuma.io/service: web}}], transparentProxying: {redirectPortInbound: 15006, " +
			"redirectPortOutbound: 15001, ipFamilyMode: IPv4" + lists + "}}}\n"
	}
	agenttest.Apply(t, a, `{type: Mesh, name: default, meshServices: {mode: Exclusive}}
---
{type: Dataplane, mesh: default, name: db-1, networking: {address: 127.0.0.1, inbound: [{port: 7000, tags: {kuma.io/service: db}}]}}
---
{type: Dataplane, mesh: default, name: cart-1, networking: {address: 127.0.0.1, inbound: [{port: 7001, tags: {kuma.io/service: cart}}]}}
---
{type: MeshAccessLog, mesh: default, name: all, spec: {to: [{targetRef: {kind: Mesh}, default: {backends: [{type: File, file: {path: `+log+`}}, {type: File, file: {path: `+log+`.json, format: {type: Json, json: [{key: to, value: '%UPSTREAM_CLUSTER%'}, {key: dialled, value: '%DOWNSTREAM_LOCAL_ADDRESS%'}, {key: at, value: '%START_TIME%'}]}}}]}}]}}
---
`+dataplane(""))
	startEnvoy(t, a, "web")
	t.Cleanup(func() {
		if text, _ := os.ReadFile(log); t.Failed() {
			t.Logf("the log:\n%.2000s", text)
		}
	})
	virtual := map[string]string{}
	b, err := api.Backends(t.Context(), "default", "web")
	agenttest.Do(t, err)
	for _, x := range b.Items {
		if x.Ref != nil {
			virtual[x.Name] = x.Addresses[0].String()
		}
	}
	agenttest.Eventually(t, "the Envoy has its config", func() bool {
		list := a.Proxies()
		return len(list) == 1 && list[0].InSync
	})
	agenttest.Eventually(t, "the Envoy has the service", func() bool { return visit(t, virtual["db"], "", false) })

	// suggest requests a proposal from one of the two logs once the log contains the expected
	// lines.
	suggest := func(path, want string) *traffic.ReachableProposal {
		t.Helper()
		config, err := api.Config(t.Context(), "default", "web", render.ConfigOptions{})
		agenttest.Do(t, err)
		b, err := api.Backends(t.Context(), "default", "web")
		agenttest.Do(t, err)
		var p *traffic.ReachableProposal
		said := ""
		agenttest.Eventually(t, path+" tells of "+want, func() bool {
			x, err := traffic.NewUsage(config.XDS, b, time.Time{})
			agenttest.Do(t, err)
			for _, l := range x.Logs {
				if l.Path == path && l.Reason == "" {
					_, err := x.ReadFile(path, []*traffic.Log{l})
					agenttest.Do(t, err)
				}
			}
			p, err = x.Propose(traffic.ReachableOptions{})
			agenttest.Do(t, err)
			var list []string
			for _, e := range p.Backends {
				list = append(list, fmt.Sprintf("%s %s %t", e.Destination, e.Why, e.Unlisted))
			}
			slices.Sort(list)
			said = strings.Join(list, ", ")
			return said == want
		})
		if p.Lines.Foreign > 0 || p.Lines.Ambiguous > 0 || len(p.Unknown) > 0 {
			t.Errorf("%s: %+v", path, p.Lines)
		}
		return p
	}
	for _, path := range []string{log, log + ".json"} {
		p := suggest(path, "MeshService/db:7000 used false")
		if !strings.Contains(p.Fragment, "refs:\n      # ") || !strings.Contains(p.Fragment,
			"- {kind: MeshService, name: db, port: 7000}\n") || strings.Contains(p.Fragment, "cart") {
			t.Error(p.Fragment)
		}
	}
	agenttest.Apply(t, a, dataplane(", reachableBackends: {refs: [{kind: MeshService, name: db, port: 7000}]}"))
	agenttest.Eventually(t, "the other service is out of reach", func() bool {
		return !visit(t, virtual["cart"], "", false)
	})
	if !visit(t, virtual["db"], "", false) {
		t.Error("what is listed is out of reach")
	}
	for _, path := range []string{log, log + ".json"} {
		p := suggest(path, "MeshService/cart:7001 used true, MeshService/db:7000 used false")
		if !p.Unlisted() || !strings.Contains(p.Fragment, "name: cart, port: 7001") {
			t.Error(p.Fragment)
		}
	}
}
