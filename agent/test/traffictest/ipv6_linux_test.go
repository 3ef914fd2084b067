package traffictest_test

import (
	"fmt"
	"testing"
)

// TestTrafficIPv6 opens connections between dataplanes without IPv4, with the virtual addresses
// that the agent selects.
func TestTrafficIPv6(t *testing.T) {
	w := emptyWorld(t)
	w.agent = w.runAgent(t)
	list := []member{
		dataplane("default", "web", 2, "{port: 80, tags: {kuma.io/service: web, kuma.io/protocol: http}}"),
		dataplane("default", "shop", 3, "{port: 8080, tags: {kuma.io/service: shop, kuma.io/protocol: http}}, {port: 5432, "+
			"tags: {kuma.io/service: store, kuma.io/protocol: tcp}}"),
	}
	docs := "{type: Mesh, name: default}\n" + witness("default", w.records.path)
	for i := range list {
		m := &list[i]
		m.text = fmt.Sprintf("{type: Dataplane, mesh: default, name: %s, networking: {address: \"%s\", "+
			"transparentProxying: {ipFamilyMode: IPv6, redirectPortInbound: 15006, redirectPortOutbound: 15001}, "+
			"inbound: [%s]}}", m.name, nodeV6(m.address), m.inbound)
		docs += "---\n" + m.text + "\n"
	}
	w.base = byKey(t, docs)
	w.put(t, w.base)
	w.runProxies(t, w.agent, list)
	w.servers.web(w.net.nodes[3], "shop/8080", fmt.Sprintf("[%s]:8080", nodeV6(3)))
	w.servers.tcp(w.net.nodes[3], "shop/5432", fmt.Sprintf("[%s]:5432", nodeV6(3)))
	for _, p := range w.proxies {
		p.probe = nowhereV6
	}
	w.live(t)
	for _, r := range []row{
		{what: "HTTP", to: "shop.mesh:80", v6: true, say: get, want: "shop/8080"},
		{what: "TCP", to: "store.mesh:80", v6: true, say: aLine, want: "shop/5432"},
		{what: "past a service", to: fmt.Sprintf("[%s]:5432", nodeV6(3)), say: aLine, want: "shop/5432"},
		{what: "outside", to: otherV6, say: aLine, want: "other-v6"},
	} {
		t.Run(r.what, func(t *testing.T) { r.run(t, w) })
	}
}
