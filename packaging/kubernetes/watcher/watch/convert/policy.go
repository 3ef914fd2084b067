package convert

import (
	"fmt"
	"slices"
	"strings"
)

// Values of kuma.io/policy-role: where a policy of a namespace applies.
const (
	labelRole         = "kuma.io/policy-role"
	roleSystem        = "system"
	roleProducer      = "producer"
	roleConsumer      = "consumer"
	roleWorkloadOwner = "workload-owner"
)

// Kinds returns the kinds of Kuma's custom resources that the watcher reads. The others belong to a
// control plane, or describe pods and Services, which the watcher reads itself.
func Kinds() []string {
	return slices.Concat(policyKinds(), []string{
		"CircuitBreaker", "ExternalService", "FaultInjection", "GlobalAccessLogBackend", "HealthCheck", "HostnameGenerator",
		"Mesh", "MeshAccessLogBackend", "MeshExternalService", "MeshMultiZoneService", "MeshOpenTelemetryBackend",
		"ProxyTemplate", "RateLimit", "Retry", "Timeout", "TrafficLog", "TrafficPermission", "TrafficRoute",
		"TrafficTrace", "VirtualOutbound",
	})
}

// policyKinds returns the kinds that namespaces of applications may contain, because they apply only
// to the namespace, or only to traffic to its services.
func policyKinds() []string {
	return []string{
		"MeshAccessLog", "MeshCircuitBreaker", "MeshFaultInjection", "MeshHTTPRoute", "MeshHealthCheck",
		"MeshLoadBalancingStrategy", "MeshMetric", "MeshPassthrough", "MeshProxyPatch", "MeshRateLimit", "MeshRetry",
		"MeshTCPRoute", "MeshTLS", "MeshTimeout", "MeshTrace", "MeshTrafficPermission",
	}
}

// Resource returns the document of a custom resource of Kuma, or the reason why it is not used.
// Resources of the cluster and of system namespaces apply to the mesh. A policy of another namespace
// gets the role that its content has in Kuma, whatever its labels say, so that a user of one
// namespace cannot change the traffic of another one.
func Resource(object map[string]any, system []string) (text []byte, skip string, err error) {
	kind, _ := object["kind"].(string)
	meta, _ := object["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	namespace, _ := meta["namespace"].(string)
	labels := stringMap(meta["labels"])
	for k := range labels {
		if strings.HasPrefix(k, "nearside.io/") {
			delete(labels, k)
		}
	}
	switch {
	case !slices.Contains(Kinds(), kind):
		return nil, fmt.Sprintf("the kind %s is not read", kind), nil
	case namespace == "":
	case slices.Contains(system, namespace):
		if slices.Contains(policyKinds(), kind) {
			labels[labelRole] = roleSystem
		}
	case slices.Contains(policyKinds(), kind):
		labels[labelRole] = role(object["spec"], namespace)
	default:
		return nil, fmt.Sprintf("metadata.namespace: a %s applies to the whole mesh, and %q is no system namespace; create it "+
			"in one of: %s", kind, namespace, strings.Join(system, ", ")), nil
	}
	out := map[string]any{"apiVersion": object["apiVersion"], "kind": kind, "spec": object["spec"]}
	if mesh, ok := object["mesh"].(string); ok && mesh != "" {
		out["mesh"] = mesh
	}
	m := map[string]any{"name": name}
	if namespace != "" {
		m["namespace"] = namespace
	}
	if len(labels) > 0 {
		m["labels"] = labels
	}
	out["metadata"] = m
	if out["spec"] == nil {
		out["spec"] = map[string]any{}
	}
	text, err = document(out)
	return text, "", err
}

func stringMap(v any) map[string]string {
	out := map[string]string{}
	m, _ := v.(map[string]any)
	for k, v := range m {
		if s, ok := v.(string); ok {
			out[k] = s
		}
	}
	return out
}

// role returns the role of a policy: a producer configures only traffic to services of its own
// namespace, for all clients.
func role(spec any, namespace string) string {
	m, _ := spec.(map[string]any)
	to, _ := m["to"].([]any)
	if len(to) == 0 {
		return roleWorkloadOwner
	}
	if m["from"] != nil || m["rules"] != nil {
		return roleConsumer
	}
	for _, item := range to {
		one, _ := item.(map[string]any)
		target, _ := one["targetRef"].(map[string]any)
		name, _ := target["name"].(string)
		kind, _ := target["kind"].(string)
		ns, given := target["namespace"].(string)
		if kind != "MeshService" && kind != "MeshHTTPRoute" || name == "" || given && ns != namespace {
			return roleConsumer
		}
	}
	return roleProducer
}
