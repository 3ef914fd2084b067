package convert

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Annotations and labels of the mesh.
const (
	annotationInjected  = "kuma.io/sidecar-injected"
	annotationInjection = "kuma.io/sidecar-injection"
	annotationMesh      = "kuma.io/mesh"
	annotationGateway   = "kuma.io/gateway"
	annotationIgnore    = "kuma.io/ignore"
	annotationFamily    = "kuma.io/transparent-proxying-ip-family-mode"
	annotationDirect    = "kuma.io/direct-access-services"

	labelEnv            = "kuma.io/env"
	labelManagedBy      = "kuma.io/managed-by"
	labelNamespace      = "k8s.kuma.io/namespace"
	labelServiceName    = "k8s.kuma.io/service-name"
	labelServiceAccount = "k8s.kuma.io/service-account"
	labelHeadless       = "k8s.kuma.io/is-headless-service"
	labelPodName        = "statefulset.kubernetes.io/pod-name"
	labelPod            = "nearside.io/pod"
	labelRedirect       = "nearside.io/redirect"

	tagService     = "kuma.io/service"
	tagProtocol    = "kuma.io/protocol"
	tagInstance    = "kuma.io/instance"
	tagServicePort = "k8s.kuma.io/service-port"
)

// Ports of the proxy in a pod. noServicePort marks the inbound of a pod without Services; no process
// listens there.
const (
	redirectInbound  = 15006
	redirectOutbound = 15001
	noServicePort    = 49151
)

type dataplane struct {
	APIVersion string        `yaml:"apiVersion"`
	Kind       string        `yaml:"kind"`
	Mesh       string        `yaml:"mesh"`
	Metadata   metadata      `yaml:"metadata"`
	Spec       dataplaneSpec `yaml:"spec"`
}

type metadata struct {
	Name        string            `yaml:"name"`
	Namespace   string            `yaml:"namespace,omitempty"`
	Labels      map[string]string `yaml:"labels,omitempty"`
	Annotations map[string]string `yaml:"annotations,omitempty"`
}

type dataplaneSpec struct {
	Networking networking `yaml:"networking"`
}

type networking struct {
	Address             string       `yaml:"address"`
	Gateway             *gateway     `yaml:"gateway,omitempty"`
	Inbound             []inbound    `yaml:"inbound,omitempty"`
	TransparentProxying *transparent `yaml:"transparentProxying,omitempty"`
}

type gateway struct {
	Type string            `yaml:"type"`
	Tags map[string]string `yaml:"tags"`
}

type inbound struct {
	Port  uint32            `yaml:"port"`
	Name  string            `yaml:"name,omitempty"`
	State string            `yaml:"state"`
	Tags  map[string]string `yaml:"tags"`
}

type transparent struct {
	RedirectPortInbound  uint32   `yaml:"redirectPortInbound"`
	RedirectPortOutbound uint32   `yaml:"redirectPortOutbound"`
	IPFamilyMode         string   `yaml:"ipFamilyMode,omitempty"`
	DirectAccessServices []string `yaml:"directAccessServices,omitempty"`
}

// Skip returns why a pod has no Dataplane, or "". noteworthy means that its user may expect one.
func Skip(p *Pod) (reason string, noteworthy bool) {
	switch {
	case !p.Injected:
		return "the pod is not injected", false
	case p.Ended:
		return "the pod has ended", false
	case p.HostNetwork:
		return "the pod uses the network of the node, whose traffic the mesh does not redirect; remove hostNetwork " +
			"or disable the injection with the label " + annotationInjection + ": disabled", true
	case p.IP == "":
		return "the pod has no IP address yet", false
	case p.Annotations[annotationGateway] == "builtin":
		return "metadata.annotations[\"" + annotationGateway + "\"]: nearside has no builtin gateways; use the value " +
			"enabled for a delegated gateway", true
	case len(p.Name)+len(p.Namespace) > maxPodName:
		return fmt.Sprintf("the names of the pod and its namespace have %d characters, at most %d are allowed, so that the "+
			"tag kuma.io/service fits; give the workload a shorter name", len(p.Name)+len(p.Namespace), maxPodName), true
	}
	return "", false
}

// maxName is the maximum length of the name of a resource, and of the value of a tag.
const (
	maxName    = 253
	maxPodName = maxName - len("__svc")
)

// Dataplane returns the document of a pod for which [Skip] returns "". The Services are those of the
// pod's namespace; namespace and node may be nil. The notes tell which Services do not reach the pod.
func Dataplane(p *Pod, services []*Service, namespace, node *Meta) (text []byte, notes []string, err error) {
	mesh := meshOf(namespace, p.Labels, p.Annotations)
	var nodeTags map[string]string
	if node != nil {
		nodeTags = node.Labels
	}
	ins, notes := inbounds(p, services, nodeTags)
	tp := &transparent{RedirectPortInbound: redirectInbound, RedirectPortOutbound: redirectOutbound}
	switch mode := p.Annotations[annotationFamily]; strings.ToLower(mode) {
	case "", "dualstack":
	case "ipv4":
		tp.IPFamilyMode = "IPv4"
	case "ipv6":
		tp.IPFamilyMode = "IPv6"
	default:
		notes = append(notes, fmt.Sprintf("metadata.annotations[%q]: without effect: %q is none of dualstack, ipv4, "+
			"ipv6", annotationFamily, mode))
	}
	for s := range strings.SplitSeq(p.Annotations[annotationDirect], ",") {
		if s = strings.TrimSpace(s); s != "" {
			tp.DirectAccessServices = append(tp.DirectAccessServices, s)
		}
	}
	d := dataplane{APIVersion: apiVersion, Kind: "Dataplane", Mesh: mesh,
		Metadata: metadata{Name: p.Name, Namespace: p.Namespace, Labels: podLabels(p, mesh), Annotations: p.Annotations},
		Spec:     dataplaneSpec{networking{Address: p.IP, Inbound: ins, TransparentProxying: tp}},
	}
	if p.Annotations[annotationGateway] != "" {
		// As in Kuma, a delegated gateway has the tags of its first inbound, and accepts traffic itself.
		tags := ins[0].Tags
		delete(tags, tagProtocol)
		d.Spec.Networking.Inbound, d.Spec.Networking.Gateway = nil, &gateway{"DELEGATED", tags}
	}
	text, err = document(d)
	return text, notes, err
}

// podLabels returns the labels of a pod's Dataplane. Labels of the mesh come only from the watcher,
// so that a pod cannot choose another identity.
func podLabels(p *Pod, mesh string) map[string]string {
	out := map[string]string{}
	for k, v := range p.Labels {
		if !ofMesh(k) {
			out[k] = v
		}
	}
	out[annotationMesh] = mesh
	out[labelEnv] = "kubernetes"
	out[labelNamespace] = p.Namespace
	out[labelServiceAccount] = p.ServiceAccount
	out[labelPod] = p.UID
	out[labelRedirect] = "pod"
	return out
}

// meshOf returns the mesh of an object: from its labels, its annotations, or its namespace.
func meshOf(namespace *Meta, labels, annotations map[string]string) string {
	for _, m := range []map[string]string{labels, annotations} {
		if v := m[annotationMesh]; v != "" {
			return v
		}
	}
	if namespace != nil {
		return meshOf(nil, namespace.Labels, namespace.Annotations)
	}
	return "default"
}

// Selects reports whether a Service selects a pod with these labels.
func Selects(s *Service, namespace string, labels map[string]string) bool {
	if s.Namespace != namespace || len(s.Selector) == 0 || s.External || enabled(s.Annotations[annotationIgnore]) {
		return false
	}
	for k, v := range s.Selector {
		if have, ok := labels[k]; !ok || have != v {
			return false
		}
	}
	return true
}

func enabled(v string) bool { return v == "true" || v == "enabled" }

// inbounds returns at least one inbound, sorted by Service and port.
func inbounds(p *Pod, services []*Service, node map[string]string) (out []inbound, notes []string) {
	services = slices.SortedFunc(slices.Values(services), func(a, b *Service) int { return a.Compare(b.Key) })
	for _, s := range services {
		if !Selects(s, p.Namespace, p.Labels) {
			continue
		}
		for i := range s.Ports {
			port := &s.Ports[i]
			at, ok := targetOf(p, port)
			if !ok {
				notes = append(notes, fmt.Sprintf("Service %s: port %d leads to the port %q, which no container of the pod "+
					"declares; this pod is no endpoint of it", s.Key, port.Port, port.TargetName))
				continue
			}
			protocol, note := protocolOf(s, port)
			if note != "" {
				notes = append(notes, note)
			}
			tags := podTags(p, node)
			tags[tagService] = fmt.Sprintf("%s_%s_svc_%d", s.Name, s.Namespace, port.Port)
			tags[tagProtocol] = protocol
			tags[labelServiceName] = s.Name
			tags[tagServicePort] = strconv.FormatUint(uint64(port.Port), 10)
			if s.Headless {
				tags[tagInstance] = p.Name
			}
			out = append(out, inbound{Port: at.Number, Name: at.Name, State: stateOf(p, s.PublishNotReady), Tags: tags})
		}
	}
	if len(out) == 0 {
		tags := podTags(p, node)
		tags[tagService] = fmt.Sprintf("%s_%s_svc", workload(p), p.Namespace)
		tags[tagProtocol] = "tcp"
		tags[tagInstance] = p.Name
		out = append(out, inbound{Port: noServicePort, State: stateOf(p, false), Tags: tags})
	}
	return out, notes
}

func podTags(p *Pod, node map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range p.Labels {
		if v != "" && !ofMesh(k) {
			out[k] = v
		}
	}
	maps.Copy(out, node) // a pod cannot choose its locality
	out[labelNamespace] = p.Namespace
	return out
}

// stateOf returns the state of an inbound. Like an EndpointSlice, it follows the condition Ready of
// the pod, which contains the readiness of all containers, also of the sidecar. A Service with
// publishNotReadyAddresses needs only the sidecar.
func stateOf(p *Pod, publishNotReady bool) string {
	if !p.Deleting && (p.Ready || publishNotReady && p.Serving) {
		return "Ready"
	}
	return "NotReady"
}

// targetOf returns the port of the pod that a port of a Service leads to. A number needs no
// declaration; if several containers declare the port, the first one gives its name.
func targetOf(p *Pod, port *ServicePort) (ContainerPort, bool) {
	for _, c := range p.Ports {
		if port.TargetName != "" && c.Name == port.TargetName || port.TargetName == "" && c.Number == port.Target {
			return c, true
		}
	}
	return ContainerPort{Number: port.Target}, port.TargetName == ""
}

// workload returns the name of the workload that a pod without Services belongs to. The names of
// ReplicaSets and Jobs contain the name of their owner, so no watch of them is necessary.
func workload(p *Pod) string {
	name := p.Owner.Name
	switch p.Owner.Kind {
	case "":
		return p.Name
	case "ReplicaSet":
		if hash := p.Labels["pod-template-hash"]; hash != "" {
			name = strings.TrimSuffix(name, "-"+hash)
		}
	case "Job":
		// A CronJob appends the scheduled time in minutes.
		if i := strings.LastIndexByte(name, '-'); i > 0 && len(name)-i > 8 && strings.Trim(name[i+1:], "0123456789") == "" {
			name = name[:i]
		}
	}
	return name
}
