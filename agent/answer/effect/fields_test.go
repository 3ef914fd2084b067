package effect_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/effect"
)

// shown formats items for comparison.
func shown(items []effect.Item) string {
	var b strings.Builder
	for _, it := range items {
		fmt.Fprintf(&b, "%s: %s", it.Field, it.Effect)
		if it.Reason != "" {
			b.WriteString(": " + it.Reason)
		}
		b.WriteString("\n")
		for _, p := range it.Places {
			fmt.Fprintf(&b, "  %s", p.On)
			if p.Inbound != nil {
				fmt.Fprintf(&b, " %d", p.Inbound.Port)
			}
			for i, d := range p.Outbounds {
				if i == 4 {
					fmt.Fprintf(&b, " and %d more", len(p.Outbounds)-i)
					break
				}
				b.WriteString(" " + d.String())
			}
			b.WriteString("\n")
			for _, f := range p.Fields {
				fmt.Fprintf(&b, "    %s=%s %s", f.Path, f.Value, f.Effect)
				for _, by := range f.By {
					fmt.Fprintf(&b, " (%s %s)", by.Name, by.Field)
				}
				b.WriteString("\n")
			}
		}
	}
	return b.String()
}

// TestFields checks the effect of fields per destination.
func TestFields(t *testing.T) {
	rs := bigMesh(t, 16,
		"{type: MeshTimeout, mesh: default, name: a, spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, "+
			"default: {connectionTimeout: 3s, idleTimeout: 20s, http: {requestTimeout: 9s, streamIdleTimeout: 7s}}}]}}",
		"{type: MeshTimeout, mesh: default, name: b, spec: {targetRef: {kind: MeshService, name: web}, to: ["+
			"{targetRef: {kind: MeshService, name: svc-0}, default: {connectionTimeout: 4s, idleTimeout: 20s}}]}}",
		"{type: MeshRetry, mesh: default, name: r, spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, "+
			"default: {http: {numRetries: 1, retryOn: [\"5xx\", GatewayError]}, tcp: {maxConnectAttempt: 3}}}]}}",
		"{type: MeshTrafficPermission, mesh: default, name: p, spec: {targetRef: {kind: Mesh}, "+
			"from: [{targetRef: {kind: Mesh}, default: {action: Allow}}]}}",
	)
	x := effect.New(meshOf(t, rs, "default"), options())
	for name, want := range map[[2]string]string{
		{"MeshTimeout", "a"}: `spec.to[0].default: part
  outbounds svc-0
    connectionTimeout="3s" none (b spec.to[0].default)
    idleTimeout="20s" same (b spec.to[0].default)
    http.requestTimeout="9s" all
    http.streamIdleTimeout="7s" all
  outbounds svc-1 svc-10 svc-12 svc-13 and 9 more
    connectionTimeout="3s" all
    idleTimeout="20s" all
    http.requestTimeout="9s" all
    http.streamIdleTimeout="7s" all
  outbounds svc-11
    connectionTimeout="3s" all
    idleTimeout="20s" all
    http.requestTimeout="9s" none
    http.streamIdleTimeout="7s" none
  outbounds svc-15 svc-3
    connectionTimeout="3s" all
    idleTimeout="20s" all
    http.requestTimeout="9s" none
    http.streamIdleTimeout="7s" none
`,
		{"MeshTimeout", "b"}: `spec.to[0].default: all
  outbounds svc-0
    connectionTimeout="4s" all
    idleTimeout="20s" same (a spec.to[0].default)
`,
		{"MeshRetry", "r"}: `spec.to[0].default: part
  outbounds svc-0 svc-1 svc-10 svc-12 and 9 more
    tcp.maxConnectAttempt=3 none
    http.numRetries=1 all
    http.retryOn=["5xx","GatewayError"] all
  outbounds svc-11
    tcp.maxConnectAttempt=3 all
    http.numRetries=1 none
    http.retryOn=["5xx","GatewayError"] none
  outbounds svc-15 svc-3
    tcp.maxConnectAttempt=3 all
    http.numRetries=1 none
    http.retryOn=["5xx","GatewayError"] none
  outbounds svc-7
    tcp.maxConnectAttempt=3 none
    http.numRetries=1 none
    http.retryOn=["5xx","GatewayError"] none
`,
		{"MeshTrafficPermission", "p"}: `spec.from[0].default: none
  inbound 8080
    action="Allow" none
`,
	} {
		if got := shown(x.Fields(find(t, rs, name[0], name[1]), "web")); got != want {
			t.Errorf("%s\ngot\n%s\nwant\n%s", name, got, want)
		}
	}
}
