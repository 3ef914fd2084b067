package traffictest_test

import (
	"fmt"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// TestTrafficFamilies opens connections between an IPv4-only, an IPv6-only, and a dual-stack
// dataplane, with the virtual addresses that the agent selects. Each dataplane must listen on its
// own families and reach the others, whatever their families are.
func TestTrafficFamilies(t *testing.T) {
	w := emptyWorld(t)
	w.agent = w.runAgent(t)
	docs := "{type: Mesh, name: default, mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}}\n" +
		permission("all", "", "", "Allow") + witness("default", w.records.path)
	var list []member
	for i, d := range []struct{ name, mode string }{
		{"four", resource.IPFamilyIPv4}, {"six", resource.IPFamilyIPv6}, {"both", resource.IPFamilyDualStack},
	} {
		m := member{id: "default." + d.name, mesh: "default", name: d.name, address: i + 2}
		at := nodeV4(m.address)
		if d.name == "six" {
			at = nodeV6(m.address)
		}
		m.text = fmt.Sprintf("{type: Dataplane, mesh: default, name: %[1]s, networking: {address: \"%[2]s\", "+
			"transparentProxying: {ipFamilyMode: %[3]s, redirectPortInbound: 15006, redirectPortOutbound: 15001}, inbound: ["+
			"{port: 8080, tags: {kuma.io/service: %[1]s, kuma.io/protocol: http}}, {port: 5432, "+
			"tags: {kuma.io/service: %[1]s-rows, kuma.io/protocol: tcp}}]}}", d.name, at, d.mode)
		docs += "---\n" + m.text + "\n"
		list = append(list, m)
	}
	w.base = byKey(t, docs)
	w.put(t, w.base)
	w.runProxies(t, w.agent, list)
	w.proxies["default.six"].probe = nowhereV6
	for _, m := range list {
		at := nodeV4(m.address)
		if m.name == "six" {
			at = "[" + nodeV6(m.address) + "]"
		}
		w.servers.web(w.net.nodes[m.address], m.name+"/8080", at+":8080")
		w.servers.tcp(w.net.nodes[m.address], m.name+"/5432", at+":5432")
	}
	w.live(t)
	for _, from := range list {
		for _, to := range list {
			for _, v6 := range []bool{false, true} {
				rows := []row{
					{what: "HTTP", to: to.name + ".mesh:80", say: get, want: to.name + "/8080"},
					{what: "TCP", to: to.name + "-rows.mesh:80", say: aLine, want: to.name + "/5432"},
				}
				for _, r := range rows {
					r.from, r.v6 = from.name, v6
					if from.name == "four" && v6 || from.name == "six" && !v6 {
						r.want = closed
						r.to = w.address(t, &r).String() // its names resolve to the other family
					}
					family := map[bool]string{false: "IPv4", true: "IPv6"}[v6]
					t.Run(fmt.Sprintf("%s from %s to %s by %s", r.what, from.name, to.name, family), func(t *testing.T) {
						r.run(t, w)
					})
				}
			}
		}
	}
	for _, r := range []row{
		{what: "IPv4 leaves", from: "four", to: box, say: aLine, want: "box"},
		{what: "IPv6 leaves", from: "six", to: otherV6, say: aLine, want: "other-v6"},
		{what: "IPv4 leaves where both are", from: "both", to: box, say: aLine, want: "box"},
		{what: "IPv6 leaves where both are", from: "both", to: otherV6, say: aLine, want: "other-v6"},
		{what: "IPv6 does not leave where IPv4 is", from: "four", to: otherV6, say: aLine, want: closed},
	} {
		t.Run(r.what, func(t *testing.T) { r.run(t, w) })
	}
}
