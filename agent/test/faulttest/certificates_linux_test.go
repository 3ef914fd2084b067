package faulttest_test

import (
	"os"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

const sureWeb = "---\n{type: Dataplane, mesh: sure, name: web, networking: {address: $IP, inbound: [{port: 81, tags: " +
	"{kuma.io/service: web, kuma.io/protocol: http}}], outbound: [{port: 20001, tags: {kuma.io/service: web}}]}}\n"

func sureTimeout(value string) string {
	return "---\n{type: MeshTimeout, mesh: sure, name: t, spec: " +
		to(everything, "{connectionTimeout: "+value+"}") + "}\n"
}

// TestCertificates tests provided CAs with faults. The proxy keeps its certificates.
func TestCertificates(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	now := time.Now()
	n.authority(t, "good", now.Add(-time.Hour), now.Add(time.Hour))
	n.authority(t, "old", now.Add(-2*time.Hour), now.Add(-time.Hour))
	n.authority(t, "early", now.Add(time.Hour), now.Add(2*time.Hour))
	n.authority(t, "open", now.Add(-time.Hour), now.Add(time.Hour))
	agenttest.Do(t, os.Chmod(n.path("open.key"), 0o644))
	n.file("mesh.yaml", provided("sure", "good"))
	n.file("web.yaml", sureWeb+sureTimeout("2s"))
	n.start()
	n.envoy(t, 0, "--name web --mesh sure")
	n.synced("sure", "web")
	mesh := func(name string) func(*testing.T, *node) func() {
		return func(*testing.T, *node) func() {
			n.file("mesh.yaml", provided("sure", name))
			return func() { n.file("mesh.yaml", provided("sure", "good")) }
		}
	}
	status := []string{"nearside status"}
	const keeps = "the previous authority remains in force"
	for _, r := range []row{
		{fault: "expired CA", provoke: mesh("old"), commands: status, problem: ofOne, severity: warning,
			says: []string{"Mesh/sure: mtls.backends[0] (own): conf.cert: the certificate expired at ", keeps}},
		{fault: "CA not yet valid", provoke: mesh("early"), commands: status, problem: ofOne, severity: warning,
			says: []string{"Mesh/sure: mtls.backends[0] (own): conf.cert: the certificate is not valid before ", keeps}},
		{fault: "missing certificate", provoke: mesh("nowhere"), commands: status, problem: ofOne, severity: warning,
			says: []string{"Mesh/sure: mtls.backends[0] (own): conf.cert: ", "$DIR/nowhere.crt", "no such file or directory"}},
		{fault: "key that others can read", provoke: mesh("open"), commands: status, problem: ofOne, severity: warning,
			says: []string{"Mesh/sure: mtls.backends[0] (own): conf.key: $DIR/open.key is accessible to users other than its " +
				"owner (mode 0644)"}},
	} {
		t.Run(r.fault, func(t *testing.T) { r.test(t, n) })
	}
}

// TestStaleConfig tests a policy that changes while the config of its proxy cannot be built.
func TestStaleConfig(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	now := time.Now()
	n.authority(t, "own", now.Add(-2*time.Hour), now.Add(-time.Hour))
	n.file("mesh.yaml", "{type: Mesh, name: sure}")
	n.file("web.yaml", sureWeb+sureTimeout("2s"))
	n.start()
	n.envoy(t, 0, "--name web --mesh sure")
	n.synced("sure", "web")
	row{fault: "stale config after an expired CA", provoke: func(*testing.T, *node) func() {
		n.file("mesh.yaml", provided("sure", "own"))
		n.file("web.yaml", sureWeb+sureTimeout("3s"))
		return func() { n.file("mesh.yaml", "{type: Mesh, name: sure}") }
	}, commands: []string{"nearside wait meshtimeout/t -m sure --timeout 1s",
		"nearside explain policy meshtimeout/t -m sure --dataplane web"},
		says: []string{"sure/web: it keeps an older config: no new config can be computed: mtls.backends[0] " +
			"(own): conf.cert: the certificate expired at "}, problem: ofOne, severity: serious}.test(t, n)
}
