package convert

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/rand"
)

const apiVersion = "kuma.io/v1alpha1"

type meshService struct {
	APIVersion string            `yaml:"apiVersion"`
	Kind       string            `yaml:"kind"`
	Metadata   metadata          `yaml:"metadata"`
	Spec       meshServiceSpec   `yaml:"spec"`
	Status     meshServiceStatus `yaml:"status,omitempty"`
}

type meshServiceSpec struct {
	Selector selector `yaml:"selector"`
	Ports    []port   `yaml:"ports"`
}

type selector struct {
	DataplaneTags map[string]string `yaml:"dataplaneTags,omitempty"`
	DataplaneRef  *ref              `yaml:"dataplaneRef,omitempty"`
}

type ref struct {
	Name string `yaml:"name"`
}

type port struct {
	Name        string `yaml:"name,omitempty"`
	Port        uint32 `yaml:"port"`
	TargetPort  any    `yaml:"targetPort"` // number or name
	AppProtocol string `yaml:"appProtocol"`
}

type meshServiceStatus struct {
	VIPs []vip `yaml:"vips,omitempty"`
}

type vip struct {
	IP string `yaml:"ip"`
}

// LabelOptional marks a MeshService that exists only while some Dataplane is an endpoint of it,
// ready or not: its namespace does not enable the mesh, so the Service may have only pods without a
// sidecar, and clients must reach them directly.
const LabelOptional = "nearside.io/optional"

// SkipService returns why a Service has no MeshService, or "".
func SkipService(s *Service, namespace *Meta) string {
	switch {
	case s.External:
		return "it has the type ExternalName; its name leads outside of the mesh"
	case len(s.Selector) == 0:
		return "it has no selector; its endpoints are outside of the mesh"
	case enabled(s.Annotations[annotationIgnore]):
		return "it has the annotation " + annotationIgnore
	case s.Annotations[annotationGateway] != "":
		return "it is the Service of a gateway"
	case len(s.Ports) == 0:
		return "it has no TCP ports"
	case !s.Headless && len(s.VIPs) == 0:
		return "it has no cluster IP yet"
	case injection(namespace) == "disabled" && s.Labels[annotationMesh] == "":
		return "its namespace disables the mesh"
	}
	return ""
}

// injection returns whether a namespace is part of the mesh: "enabled", "disabled", or "".
func injection(namespace *Meta) string {
	if namespace == nil {
		return ""
	}
	for _, m := range []map[string]string{namespace.Labels, namespace.Annotations} {
		switch m[annotationInjection] {
		case "enabled", "true":
			return "enabled"
		case "disabled", "false":
			return "disabled"
		}
	}
	return ""
}

// MeshServices returns the document of a Service for which [SkipService] returns "". A headless
// Service has one MeshService for each of its pods, or none; then text is nil.
func MeshServices(s *Service, slices []*Slice, namespace *Meta) (text []byte, notes []string, err error) {
	ports, notes := servicePorts(s)
	base := meshService{APIVersion: apiVersion, Kind: "MeshService", Spec: meshServiceSpec{Ports: ports},
		Metadata: metadata{Name: s.Name, Namespace: s.Namespace, Labels: serviceLabels(s, namespace)}}
	if !s.Headless {
		base.Spec.Selector.DataplaneTags = merged(s.Selector, map[string]string{labelNamespace: s.Namespace})
		base.Status = statusOf(s.VIPs)
		text, err = document(base)
		return text, notes, err
	}
	for _, e := range podsOf(s, slices) {
		one := base
		one.Metadata.Name = headlessName(e.Pod, s.Key)
		if len(one.Metadata.Name)+1+len(s.Namespace) > maxName {
			notes = append(notes, fmt.Sprintf("Service %s: the name of the MeshService of the pod %s is too long; give the "+
				"workload a shorter name", s.Key, e.Pod))
			continue
		}
		one.Metadata.Labels = merged(base.Metadata.Labels, map[string]string{labelPodName: e.Pod})
		one.Spec.Selector.DataplaneRef = &ref{e.Pod + "." + s.Namespace}
		one.Status = statusOf(e.Addresses)
		doc, err := document(one)
		if err != nil {
			return nil, notes, err
		}
		if text != nil {
			text = append(text, "---\n"...)
		}
		text = append(text, doc...)
	}
	return text, notes, nil
}

// podsOf returns the pods of a headless Service with the addresses of both families, sorted.
func podsOf(s *Service, list []*Slice) (out []SliceEndpoint) {
	for _, sl := range list {
		if sl.Service != s.Name || sl.Namespace != s.Namespace {
			continue
		}
		out = append(out, sl.Endpoints...)
	}
	slices.SortStableFunc(out, func(a, b SliceEndpoint) int { return strings.Compare(a.Pod, b.Pod) })
	for i := len(out) - 1; i > 0; i-- {
		if out[i].Pod == out[i-1].Pod {
			out[i-1].Addresses = slices.Concat(out[i-1].Addresses, out[i].Addresses)
			out = slices.Delete(out, i, i+1)
		}
	}
	for i := range out {
		out[i].Addresses = slices.Compact(slices.Sorted(slices.Values(out[i].Addresses)))
	}
	return out
}

func statusOf(ips []string) (out meshServiceStatus) {
	for _, ip := range ips {
		out.VIPs = append(out.VIPs, vip{ip})
	}
	return out
}

// headlessName returns the name that Kuma gives the MeshService of a pod of a headless Service.
func headlessName(pod string, s Key) string {
	h := fnv.New32a()
	h.Write([]byte(s.Name))
	h.Write([]byte(s.Namespace))
	return pod + "-" + rand.SafeEncodeString(fmt.Sprint(h.Sum32()))
}

// serviceLabels returns the labels of a MeshService, as Kuma's controller sets them.
func serviceLabels(s *Service, namespace *Meta) map[string]string {
	out := map[string]string{}
	for k, v := range s.Labels {
		if !ofMesh(k) {
			out[k] = v
		}
	}
	out[annotationMesh] = meshOf(namespace, s.Labels, s.Annotations)
	out[labelEnv] = "kubernetes"
	out[labelNamespace] = s.Namespace
	out[labelServiceName] = s.Name
	out[labelManagedBy] = "k8s-controller"
	out[labelHeadless] = fmt.Sprint(s.Headless)
	if s.Labels[annotationMesh] == "" && injection(namespace) != "enabled" {
		out[LabelOptional] = "true"
	}
	return out
}

func servicePorts(s *Service) (out []port, notes []string) {
	for i := range s.Ports {
		p := &s.Ports[i]
		protocol, note := protocolOf(s, p)
		if note != "" {
			notes = append(notes, note)
		}
		one := port{Name: p.Name, Port: p.Port, TargetPort: p.Target, AppProtocol: protocol}
		if p.TargetName != "" {
			one.TargetPort = p.TargetName
		}
		out = append(out, one)
	}
	return out, notes
}

// protocolOf returns the protocol of a port: appProtocol, or else Kuma's annotation of the Service.
func protocolOf(s *Service, p *ServicePort) (protocol, note string) {
	if known := knownProtocol(p.Protocol); known != "" {
		return known, ""
	}
	key := fmt.Sprintf("%d.service.kuma.io/protocol", p.Port)
	v, ok := s.Annotations[key]
	if !ok {
		return "tcp", ""
	}
	if known := knownProtocol(v); known != "" {
		return known, ""
	}
	return "tcp", fmt.Sprintf("Service %s: metadata.annotations[%q]: %q is none of http, http2, grpc, tcp, tls, kafka; tcp is used",
		s.Key, key, v)
}

// knownProtocol returns the protocol of the mesh for a name, or "".
func knownProtocol(name string) string {
	switch name = strings.ToLower(name); name {
	case "http", "http2", "grpc", "tcp", "tls", "kafka":
		return name
	case "kubernetes.io/h2c":
		return "http2"
	case "kubernetes.io/ws":
		return "http"
	}
	return ""
}

// document returns a resource as YAML with sorted keys.
func document(v any) ([]byte, error) {
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	e.CompactSeqIndent()
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return out.Bytes(), e.Close()
}
