package traffictest_test

import (
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestTrafficZones opens connections from one zone to another, through the ingress of the second
// zone. Each zone has a separate agent. Both agents use the same CA.
func TestTrafficZones(t *testing.T) {
	w := emptyWorld(t)
	key, err := x509.MarshalPKCS8PrivateKey(w.servers.key)
	agenttest.Do(t, err)
	inline := func(kind string, der []byte) string {
		text := string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
		return `{inlineString: "` + strings.ReplaceAll(text, "\n", `\n`) + `"}`
	}
	mesh := "{type: Mesh, name: default, mtls: {enabledBackend: ca, backends: [{name: ca, type: provided, conf: {cert: " +
		inline("CERTIFICATE", w.servers.ca.Raw) + ", key: " + inline("PRIVATE KEY", key) + "}}]}}\n" +
		permission("all", "", "", "Allow")

	web := dataplane("default", "web", 2, "{port: 80, tags: {kuma.io/service: web, kuma.io/protocol: http}}")
	backend := dataplane("default", "backend-1", 3, "{port: 8080, tags: {kuma.io/service: backend, "+
		"kuma.io/protocol: http}}, {port: 5432, tags: {kuma.io/service: db, kuma.io/protocol: tcp}}")
	ingress := member{id: ".ingress.in", name: "in", kind: node.ProxyIngress, address: 4,
		text: "{type: ZoneIngress, name: in, zone: east, networking: {address: " + nodeV4(4) +
			", port: 10002, advertisedAddress: " + nodeV4(4) + ", advertisedPort: 10002}, availableServices: [" +
			"{mesh: default, instances: 1, tags: {kuma.io/service: backend, kuma.io/protocol: http}}, {mesh: default, " +
			"instances: 1, tags: {kuma.io/service: db, kuma.io/protocol: tcp}}]}"}

	east := w.runAgent(t, "node.zone=east")
	agenttest.ByAPI(t, east.Store(), mesh+"---\n"+backend.text+"\n---\n"+ingress.text+"\n")
	w.agent = w.runAgent(t, "node.zone=west")
	w.base = byKey(t, mesh+witness("default", w.records.path)+"---\n"+web.text+"\n---\n"+ingress.text+"\n")
	w.put(t, w.base)
	w.runProxies(t, east, []member{backend, ingress})
	w.runProxies(t, w.agent, []member{web})
	w.servers.web(w.net.nodes[3], "backend-1/8080", nodeV4(3)+":8080")
	w.servers.tcp(w.net.nodes[3], "backend-1/5432", nodeV4(3)+":5432")
	w.live(t)

	for _, r := range []row{
		{what: "HTTP", to: "backend.mesh:80", say: get, want: "backend-1/8080"},
		{what: "HTTP/2", to: "backend.mesh:80", say: getH2, want: "backend-1/8080"},
		{what: "100 MB", to: "backend.mesh:80", say: get, method: "POST", body: 100 * mega, want: "backend-1/8080",
			upstream: sized(100 * mega)},
		{what: "TCP", to: "db.mesh:80", say: aLine, want: "backend-1/5432"},
		{what: "TCP, closed by half", to: "db.mesh:80", say: halfway, body: mega, want: "backend-1/5432",
			upstream: sized(mega)},
	} {
		r.elsewhere = true
		t.Run(r.what, func(t *testing.T) { r.run(t, w) })
	}
	agenttest.ByAPI(t, east.Store(), permission("all", "", "", "Deny"))
	_, err = east.Api().Wait(t.Context(), api.Wait{Type: "MeshTrafficPermission", Mesh: "default", Name: "all",
		For: api.ForApplied, Timeout: agenttest.LongestWait})
	agenttest.Do(t, err)
	w.awaitIdle(t)
	for _, r := range []row{
		{what: "HTTP denied there", to: "backend.mesh:80", say: get, want: "403", beyond: "what the other zone says"},
		{what: "TCP denied there", to: "db.mesh:80", say: aLine, want: closed, beyond: "what the other zone says"},
	} {
		r.elsewhere = true
		t.Run(r.what, func(t *testing.T) { r.run(t, w) })
	}
}
