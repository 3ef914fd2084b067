package resource_test

import (
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// TestPolicyRoles decodes policies of a namespace. Their role follows from their items, unless they
// have a label.
func TestPolicyRoles(t *testing.T) {
	r := registry(t)
	const to, from = "to: [%]", "from: [{targetRef: {kind: Mesh}, default: {connectionTimeout: 1s}}]"
	items := func(refs ...string) string {
		var out []string
		for _, ref := range refs {
			out = append(out, "{targetRef: {"+ref+"}, default: {connectionTimeout: 1s}}")
		}
		return strings.Replace(to, "%", strings.Join(out, ", "), 1)
	}
	const own, named, other, all = "kind: MeshService, name: web", "kind: MeshService, name: web, namespace: shop",
		"kind: MeshService, name: web, namespace: bank", "kind: Mesh"
	for _, c := range []struct{ what, namespace, label, items, want string }{
		{"own service", "shop", "", items(own), "producer"},
		{"own service with its namespace", "shop", "", items(named, own), "producer"},
		{"service of another namespace", "shop", "", items(other), "consumer"},
		{"all services", "shop", "", items(all), "consumer"},
		{"services by labels", "shop", "", items("kind: MeshService, labels: {a: b}"), "consumer"},
		{"inbound", "shop", "", from, "workload-owner"},
		{"inbound, the same label", "shop", "workload-owner", from, "workload-owner"},
		{"own service and others", "shop", "", items(own, all), "spec.to: 1 of 2 items are for services of the namespace"},
		{"both directions", "shop", "", from + ", " + items(all), "spec: from, rules, and to exclude each other"},
		{"label of an operator", "shop", "system", items(own, all), "system"},
		{"operators", "kuma-system", "", from + ", " + items(own, all), ""},
		{"operators, a producer of another zone", "kuma-system", "producer", items(all), "producer"},
	} {
		labels := ""
		if c.label != "" {
			labels = ", labels: {kuma.io/policy-role: " + c.label + "}"
		}
		list, faults := r.Decode("p.yaml", []byte("{apiVersion: kuma.io/v1alpha1, kind: MeshTimeout, metadata: {name: p, "+
			"namespace: "+c.namespace+labels+"}, spec: {targetRef: {kind: Mesh}, "+c.items+"}}"))
		got := ""
		if len(list) > 0 {
			got = list[0].Labels[resource.LabelPolicyRole]
		}
		if len(faults) > 0 {
			got = faults[0].Field + ": " + faults[0].Reason
		}
		if len(faults) > 1 || c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q (%v)", c.what, got, c.want, faults)
		}
	}
	// The universal format has no namespaces, so it says its role.
	list, faults := r.Decode("p.yaml", []byte("{type: MeshTimeout, name: p, labels: {k8s.kuma.io/namespace: shop}, spec: "+
		"{targetRef: {kind: Mesh}, "+items(all)+"}}"))
	if len(faults) > 0 || list[0].Labels[resource.LabelPolicyRole] != "" {
		t.Errorf("universal: %v, %v", list, faults)
	}
}
