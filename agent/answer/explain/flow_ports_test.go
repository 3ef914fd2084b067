package explain_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
)

// TestUndeclaredPorts explains connections to ports of a dataplane without an inbound. The proxy of
// the dataplane decides about them if it intercepts them.
func TestUndeclaredPorts(t *testing.T) {
	const client, tls = `---
{type: Dataplane, mesh: default, name: cron, networking: {address: 10.0.0.9, inbound: [{port: 80, tags: {kuma.io/service: cron}}], transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001}}}
`, "---\n{type: MeshTLS, mesh: default, name: hard, spec: {targetRef: {kind: Mesh}, from: [{targetRef: " +
		"{kind: Mesh}, default: {mode: Strict}}]}}\n"
	for _, tc := range []struct {
		name, docs, to, verdict string
		servers                 int
	}{
		{"closed", tls, "192.0.2.4:7000", "closed", 1},
		{"open", "", "192.0.2.4:7000", "allowed", 1},
		{"no redirection", tls, "10.0.0.2:7000", "allowed", 0},
		{"the address behind an advertised one", tls, "10.0.0.4:7000", "allowed", 0},
		{"the client", tls, "10.0.0.9:7000", "allowed", 0},
		{"two proxies", tls + strings.ReplaceAll(client, "cron", "other"), "10.0.0.9:7000", "allowed", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := meshOf(t, secured+client+tc.docs)
			flow, err := explain.NewTraffic(m).Connection(&explain.ConnectionQuestion{
				Target: explain.Target{Mesh: "default", From: "cron", To: tc.to}})
			if err != nil {
				t.Fatal(err)
			}
			if flow.Verdict != tc.verdict || len(flow.Servers) != tc.servers {
				t.Errorf("%s, %d servers: %s", flow.Verdict, len(flow.Servers), flow.Reason)
			}
			if at := netip.MustParseAddrPort(tc.to); tc.servers > 0 && !explain.Receives(m, at) {
				t.Error("the dataplane does not receive the connection")
			}
		})
	}
}
