package inject

import (
	"fmt"
	"slices"
)

// systemNamespaces have pods that a cluster needs before its mesh works.
var systemNamespaces = []string{"kube-system", "kube-public", "kube-node-lease", AgentNamespace, "kuma-system"}

// Select reports whether to inject a pod. If not, the note has the reason. Labels take precedence
// over annotations, and those of the pod over those of its namespace, as in Kuma.
func Select(pod Pod, o Options) (bool, Note, error) {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if c.Name == KumaContainerName {
			return false, Note{}, fmt.Errorf("container %q: Kuma has injected this pod, and two sidecars cannot both receive "+
				"its traffic: inject the manifest that Kuma has not changed", c.Name)
		}
	}
	if pod.Spec.OS != nil && pod.Spec.OS.Name == "windows" {
		return false, Note{Field: "spec.os.name", Text: "Windows pods are not supported"}, nil
	}
	decision, err := decide(pod)
	switch {
	case err != nil:
		return false, Note{}, err
	case decision.set && !decision.enabled:
		return false, Note{Text: "disabled by " + decision.by}, nil
	case pod.Spec.HostNetwork:
		return false, Note{Field: "spec.hostNetwork", Warning: decision.onPod,
			Text: "a pod in the node's network cannot have a sidecar"}, nil
	case !decision.set && slices.Contains(systemNamespaces, pod.Namespace):
		return false, Note{Text: "namespace " + pod.Namespace + " is not injected; label the pod " +
			InjectionKey + ": enabled to inject it"}, nil
	case !decision.set && o.EnabledOnly:
		return false, Note{Text: "neither the pod nor its namespace has " + InjectionKey + ": enabled"}, nil
	}
	return true, Note{}, nil
}

// decision is what the labels and annotations of a pod and its namespace say about injection.
type decision struct {
	set, enabled, onPod bool
	by                  string
}

// decide returns the first decision in the order of precedence.
func decide(pod Pod) (decision, error) {
	for _, source := range []struct {
		values map[string]string
		field  string
		onPod  bool
	}{
		{pod.Metadata.Labels, "metadata.labels", true},
		{pod.Metadata.Annotations, "metadata.annotations", true},
		{pod.NamespaceMetadata.Labels, "the labels of namespace " + pod.Namespace, false},
		{pod.NamespaceMetadata.Annotations, "the annotations of namespace " + pod.Namespace, false},
	} {
		value, ok := source.values[InjectionKey]
		if !ok {
			continue
		}
		switch value {
		case "enabled", "true":
			return decision{true, true, source.onPod, source.field}, nil
		case "disabled", "false":
			return decision{true, false, source.onPod, source.field}, nil
		}
		return decision{}, fmt.Errorf("%s: %s: %q must be enabled, disabled, true, or false", source.field, InjectionKey,
			value)
	}
	return decision{}, nil
}
