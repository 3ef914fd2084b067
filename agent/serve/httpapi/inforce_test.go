package httpapi_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/store"
)

const redirected = `
---
type: Dataplane
mesh: default
name: web
networking:
  address: 192.0.2.1
  transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001}
  inbound: [{port: 8080, tags: {kuma.io/service: web}}]
`

func passthroughDoc(name, conf string) string {
	return fmt.Sprintf("---\n{type: MeshPassthrough, mesh: default, name: %s, spec: {targetRef: {kind: Dataplane, "+
		"name: web}, default: %s}}\n", name, conf)
}

// inForceOf is what the status says of the passthrough of a proxy: "MODE by WHO" and a line for
// each permit.
func inForceOf(t *testing.T, documents string) []string {
	t.Helper()
	a := start(t)
	a.put(store.Source{Kind: store.SourceAPI}, documents)
	a.reconcile()
	got := a.do("GET", "/v1/dataplanes/default/web/status", "")
	a.want(got, 200)
	var p api.Proxy
	if err := json.Unmarshal([]byte(got.body), &p); err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for _, f := range p.InForce {
		out = append(out, fmt.Sprintf("%s %s by %s", f.Type, f.Mode, f.Decides))
		for _, x := range f.Permits {
			line := fmt.Sprintf("%s %s:%d -> %s, %s, pinned %v, %v %v, by", x.Protocol, x.Value, x.Port, x.Reaches, x.Cluster,
				x.Pinned, x.IPv4, x.IPv6)
			for _, p := range x.Policies {
				line += " " + p.Name + " " + strings.TrimPrefix(p.Field, "spec.default.appendMatch")
			}
			for _, l := range x.AccessLogs {
				line += ", to " + l.Sink
			}
			out = append(out, line)
		}
	}
	return out
}

// TestStatusSaysWhatIsInForce: the mode with who decided it, and each match with where it leads.
func TestStatusSaysWhatIsInForce(t *testing.T) {
	open, closed := "type: Mesh\nname: default\n",
		"type: Mesh\nname: default\nnetworking: {outbound: {passthrough: false}}\n"
	every := passthroughDoc("b", `{passthroughMode: Matched, appendMatch: [
		{type: Domain, value: API.example.com, port: 443, protocol: tls}, {type: Domain, value: "*.example.com", port: 443, protocol: tls},
		{type: Domain, value: www.example.com, protocol: tls}, {type: Domain, value: "*", port: 8443, protocol: tls},
		{type: CIDR, value: 10.1.2.3/8, port: 22, protocol: tcp}, {type: CIDR, value: "::/0", port: 23, protocol: tcp},
		{type: IP, value: "2001:db8::7", port: 3306, protocol: mysql}, {type: Domain, value: "*.*.example.com", port: 80, protocol: http}]}`)
	second := passthroughDoc("a", `{appendMatch: [{type: Domain, value: api.example.com, port: 443, protocol: tls}]}`)
	logged := "---\n{type: MeshAccessLog, mesh: default, name: log, spec: {targetRef: {kind: Mesh}, " +
		"to: [{targetRef: {kind: Mesh}, default: {backends: [{type: File, file: {path: /tmp/out.log}}]}}]}}\n"
	for name, c := range map[string]struct {
		documents string
		want      []string
	}{
		"an open mesh": {open + redirected,
			[]string{"MeshPassthrough All by Mesh/default networking.outbound.passthrough"}},
		"a closed mesh": {closed + redirected,
			[]string{"MeshPassthrough None by Mesh/default networking.outbound.passthrough"}},
		"no redirection": {closed + "---\n" + web + passthroughDoc("p", "{passthroughMode: All}"), []string{}},
		"a policy over the mesh": {
			closed + redirected + passthroughDoc("p", "{passthroughMode: All}"),
			[]string{"MeshPassthrough All by MeshPassthrough/default/p spec.default.passthroughMode"},
		},
		"the older form": {
			closed + redirected + passthroughDoc("p", "{enabled: true}"),
			[]string{"MeshPassthrough All by MeshPassthrough/default/p spec.default.enabled"},
		},
		"the stronger of two": {
			closed + redirected + passthroughDoc("z", "{passthroughMode: All}") + passthroughDoc("a", "{passthroughMode: None}"),
			[]string{"MeshPassthrough None by MeshPassthrough/default/a spec.default.passthroughMode"},
		},
		"no mode": {
			closed + redirected + second,
			[]string{
				"MeshPassthrough Matched by MeshPassthrough/default/a spec.default",
				"tls api.example.com:443 -> the addresses of api.example.com, resolved by the proxy, " +
					"meshpassthrough_tls_api.example.com_443, pinned true, true true, by a [0]",
			},
		},
		"the mesh over a policy without a mode": {
			strings.Replace(closed, "false", "true", 1) + redirected + second,
			[]string{"MeshPassthrough All by Mesh/default networking.outbound.passthrough"},
		},
		"matches of all forms": {
			closed + redirected + every + second + logged,
			[]string{
				"MeshPassthrough Matched by MeshPassthrough/default/b spec.default.passthroughMode",
				"http *.*.example.com:80 -> nothing: no client can send such a name, meshpassthrough_http_*.*.example.com_80, " +
					"pinned false, true true, by b [7], to /tmp/out.log",
				"mysql 2001:db8::7:3306 -> the address 2001:db8::7, meshpassthrough_tcp_2001:db8::7_3306, pinned false, " +
					"false true, by b [6], to /tmp/out.log",
				"tcp 10.1.2.3/8:22 -> any address in 10.0.0.0/8, meshpassthrough_tcp_10.1.2.3/8_22, pinned false, true false, " +
					"by b [4], to /tmp/out.log",
				"tcp ::/0:23 -> any address, meshpassthrough_tcp_::/0_23, pinned false, false true, by b [5], to /tmp/out.log",
				"tls *:8443 -> any address, with any name, meshpassthrough_tls_*_8443, pinned false, true true, by b [3], " +
					"to /tmp/out.log",
				"tls *.example.com:443 -> any address, with a matching name: the proxy resolves wildcards only if " +
					"nearside.io/dns-pinned is true, meshpassthrough_tls_*.example.com_443, pinned false, true true, by b [1], " +
					"to /tmp/out.log",
				"tls api.example.com:443 -> the addresses of api.example.com, resolved by the proxy, " +
					"meshpassthrough_tls_api.example.com_443, pinned true, true true, by b [0] a [0], to /tmp/out.log",
				"tls www.example.com:0 -> any address, with that name: the proxy resolves only domains with a port, " +
					"meshpassthrough_tls_www.example.com_*, pinned false, true true, by b [2], to /tmp/out.log",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, want := strings.Join(inForceOf(t, c.documents), "\n"), strings.Join(c.want, "\n")
			if got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// TestInForceIsNotInLists checks that lists omit the fields that are computed per proxy.
func TestInForceIsNotInLists(t *testing.T) {
	a := start(t)
	a.put(store.Source{Kind: store.SourceAPI}, "type: Mesh\nname: default\n"+redirected)
	if got := a.do("GET", "/v1/dataplanes/default/web/status", ""); strings.Contains(got.body, "inForce") {
		t.Errorf("before the first reconciliation: %s", got.body)
	}
	a.reconcile()
	if got := a.do("GET", "/v1/dataplanes", ""); strings.Contains(got.body, "inForce") {
		t.Errorf("in a list: %s", got.body)
	}
}
