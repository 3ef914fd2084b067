package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// BenchmarkKumactl compares kumactl commands with the corresponding nearside commands, on an agent
// with 1,000 dataplanes. For kumactl, it makes the recorded requests in order with a new connection
// and decodes the responses. The unit "times" is kumactl's time divided by that of nearside.
// Process start is not included.
func BenchmarkKumactl(b *testing.B) {
	var docs strings.Builder
	docs.WriteString("type: Mesh\nname: default\n---\ntype: MeshTimeout\nmesh: default\nname: slow\n" +
		"spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, default: {connectionTimeout: 7s}}]}\n")
	for i := range 1000 {
		fmt.Fprintf(&docs, "---\ntype: Dataplane\nmesh: default\nname: dp-%d\nnetworking:\n  address: 10.0.%d.%d\n"+
			"  inbound: [{port: 8080, tags: {kuma.io/service: svc-%d, kuma.io/protocol: http}}]\n", i, i/250, i%250+1, i%100)
		docs.WriteString("  outbound: [{port: 20001, tags: {kuma.io/service: svc-1}}, {port: 20002, " +
			"tags: {kuma.io/service: svc-2}}]\n")
	}
	r := agenttest.Up(b, agenttest.ShortDir(b), agent.Deps{})
	agenttest.Apply(b, r.Agent, docs.String())
	if _, err := r.Api().Wait(b.Context(),
		api.Wait{Type: "MeshTimeout", Mesh: "default", Name: "slow", Timeout: "25s"}); err != nil {
		b.Fatal(err)
	}
	ask := func(b *testing.B, paths ...string) {
		t := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", r.Addrs().API)
		}}
		defer t.CloseIdleConnections()
		c := &http.Client{Transport: t, Timeout: time.Minute}
		for _, path := range append([]string{"/"}, paths...) { // kumactl first queries the version
			resp, err := c.Get("http://localhost" + path)
			if err != nil {
				b.Fatal(err)
			}
			var body any
			err = json.NewDecoder(resp.Body).Decode(&body)
			resp.Body.Close()
			if err != nil || resp.StatusCode != http.StatusOK {
				b.Fatalf("%s: %s: %v", path, resp.Status, err)
			}
		}
	}
	const dp = "/meshes/default/dataplanes/dp-7"
	for _, c := range []struct{ name, path, native string }{
		{"GetAll", "/meshes/default/dataplanes?size=1000", "get dataplanes"},
		{"Get", dp, "get dataplane dp-7 -o json"},
		{"InspectAll", "/meshes/default/dataplanes/_overview?size=1000", "inspect dataplanes"},
		{"Config", dp + "/_config?shadow=false", "inspect dataplane dp-7 --config-dump"},
		{"Shadow", dp + "/_config?include=diff&shadow=true", "inspect dataplane dp-7 --config-dump --shadow --include=diff"},
		{"Policies", dp + "/policies", "inspect dataplane dp-7 --type=policies"},
		{"Services", "/meshes/default/service-insights", "inspect services"},
	} {
		b.Run(c.name, func(b *testing.B) {
			native := func() {
				var out, errs bytes.Buffer
				if code := Main(append(strings.Fields(c.native), "--socket", r.Addrs().API), nil, &out, &errs,
					nil); code != command.ExitOK {
					b.Fatalf("%s: exit code %d: %s", c.native, code, errs.String())
				}
			}
			ask(b, c.path)
			native()
			var kumactl, own time.Duration
			for b.Loop() {
				begun := time.Now()
				ask(b, c.path)
				kumactl += time.Since(begun)
				begun = time.Now()
				native()
				own += time.Since(begun)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(kumactl.Microseconds())/1000/float64(b.N), "kumactl-ms")
			b.ReportMetric(float64(own.Microseconds())/1000/float64(b.N), "nearside-ms")
			b.ReportMetric(float64(kumactl)/float64(own), "times")
		})
	}
}
