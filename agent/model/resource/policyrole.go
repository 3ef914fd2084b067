package resource

import (
	"cmp"

	"github.com/nearside-mesh/nearside/agent/base/strict"
)

// role sets the role of a policy in a namespace that has none, as Kuma's control plane does. It
// decides which proxies the policy selects. Policies in the namespaces of operators apply to all.
func (d *decoder) role(h *header, root *strict.Node, spec Spec) {
	p, ok := spec.(*Policy)
	ns := h.labels[LabelNamespace]
	if !ok || !h.kubernetes || ns == "" || ns == "kuma-system" || ns == "nearside" || h.labels[LabelPolicyRole] != "" {
		return
	}
	own, role := 0, "consumer"
	for i := range p.To {
		t := &p.To[i].TargetRef
		if (t.Kind == "MeshService" || t.Kind == "MeshHTTPRoute") && t.Name != "" && cmp.Or(t.Namespace, ns) == ns {
			own++
		}
	}
	switch {
	case len(p.To) == 0:
		role = "workload-owner"
	case len(p.From)+len(p.Rules) > 0:
		d.fault(root, "spec", "from, rules, and to exclude each other in the namespace %q; make two policies", ns)
	case own == len(p.To):
		role = "producer"
	case own > 0:
		d.fault(root, "spec.to", "%d of %d items are for services of the namespace %q and apply to all clients, "+
			"the others only to clients in this namespace; make two policies", own, len(p.To), ns)
	}
	h.labels[LabelPolicyRole] = role
}
