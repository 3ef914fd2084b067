package explain_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
)

// TestClusterNames explains requests to names in the DNS of a Kubernetes cluster. They mean the
// Service of the workload's namespace, unless they have another one.
func TestClusterNames(t *testing.T) {
	docs := "{type: Mesh, name: default}\n"
	for i, ns := range []string{"red", "blue"} {
		for j, s := range []string{"web", "backend"} {
			docs += fmt.Sprintf(`---
{apiVersion: kuma.io/v1alpha1, kind: Dataplane, metadata: {name: %[1]s-0, namespace: %[2]s}, spec: {networking: {address: 10.0.0.%[3]d,
  inbound: [{port: 8080, name: http, tags: {kuma.io/service: %[1]s_%[2]s_svc_80, kuma.io/protocol: http, app: %[1]s, k8s.kuma.io/namespace: %[2]s}}],
  transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001}}}}
---
{apiVersion: kuma.io/v1alpha1, kind: MeshService, metadata: {name: %[1]s, namespace: %[2]s}, status: {vips: [{ip: 10.96.0.%[3]d}]},
  spec: {selector: {dataplaneTags: {app: %[1]s, k8s.kuma.io/namespace: %[2]s}}, ports: [{port: 80, targetPort: http, appProtocol: http}]}}
`, s, ns, 1+2*i+j)
		}
	}
	traffic := explain.NewTraffic(meshOf(t, docs))
	for host, want := range map[string]string{
		"backend": "default_backend_red_", "backend.red": "default_backend_red_", "backend.blue": "default_backend_blue_",
		"backend.blue.svc": "default_backend_blue_", "backend.blue.svc.cluster.local": "default_backend_blue_",
		"backend.green": "outbound:passthrough:ipv4", "backend.blue.svc.example.com": "outbound:passthrough:ipv4",
		"nothing": "no service of the mesh default has the name nothing",
	} {
		flow, err := traffic.Request(&explain.RequestQuestion{Target: explain.Target{From: "web-0.red", To: host + ":80"}})
		if err != nil {
			t.Errorf("%s: %v", host, err)
			continue
		}
		if !strings.Contains(flow.Reason, want) {
			t.Errorf("%s: %s: %s, want %s", host, flow.Verdict, flow.Reason, want)
		}
	}
}
