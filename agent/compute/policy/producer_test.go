package policy_test

import (
	"strings"
	"testing"
)

// TestProducers checks that a policy of a producer changes only the services of its namespace, also
// if another service has the same name without a namespace.
func TestProducers(t *testing.T) {
	const services = "{type: MeshService, name: web.shop, labels: {k8s.kuma.io/namespace: shop, kuma.io/display-name: " +
		"web}, spec: {selector: {dataplaneTags: {kuma.io/service: backend}}, ports: [{port: 80}]}}\n---\n{type: " +
		"MeshService, name: db, spec: {selector: {dataplaneTags: {kuma.io/service: web}}, ports: [{port: 80}]}}\n---\n" +
		"{type: MeshHTTPRoute, name: route, spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: MeshService, name: " +
		"backend}, names: [r1]}]}}\n---\n"
	for target, want := range map[string]string{
		"kind: MeshService, name: web":               "MeshService/default/web.shop",
		"kind: MeshService, name: db":                "",
		"kind: MeshService, name: backend":           "",
		"kind: MeshService, name: web_shop_svc_80":   "web_shop_svc_80",
		"kind: MeshService, name: web_bank_svc_80":   "",
		"kind: MeshHTTPRoute, name: route":           "",
		"kind: MeshService, name: db, namespace: ''": "",
	} {
		k := rulesOf(t, index(t, services+"{type: MeshT, name: p.shop, labels: {k8s.kuma.io/namespace: shop, "+
			"kuma.io/policy-role: producer}, spec: {targetRef: {kind: Mesh}, to: [{targetRef: {"+target+
			"}, default: {a: x}}]}}"), "web", "MeshT")
		var got []string
		for _, r := range k.To {
			for _, tag := range r.Subset {
				got = append(got, tag.Value)
			}
		}
		for _, r := range k.ToResources {
			got = append(got, r.Resource.String())
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%s: applies to %q, want %q", target, s, want)
		}
	}
}
