// Package convert makes resources of the mesh from objects of Kubernetes, as the control plane of
// Kuma does. All functions are pure, and the same objects give the same bytes.
package convert

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Sidecar is the name of the container with the Envoy of an injected pod.
const Sidecar = "nearside-envoy"

// Key identifies an object. Namespace is empty for objects of the cluster.
type Key struct{ Namespace, Name string }

func (k Key) String() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

// Compare orders keys by namespace, then by name.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Name, o.Name))
}

// Pod holds what a Dataplane needs of a pod.
type Pod struct {
	Key
	UID            string
	ServiceAccount string
	Node           string
	Labels         map[string]string
	Annotations    map[string]string // only those of the mesh
	Owner          Owner
	Created        time.Time
	Ports          []ContainerPort
	IP             string

	Injected    bool // it has the annotation of injected pods and the sidecar
	HostNetwork bool
	Ready       bool // the condition Ready, see LocalPodOf
	Serving     bool // the sidecar is ready
	Deleting    bool
	Ended       bool // all its containers have ended for good
}

// Owner is the object that created a pod.
type Owner struct{ Kind, Name string }

// ContainerPort is a TCP port that a container declares.
type ContainerPort struct {
	Name   string
	Number uint32
}

// Service holds what Dataplanes and MeshServices need of a Service.
type Service struct {
	Key
	Labels          map[string]string
	Annotations     map[string]string // only those of the mesh
	Selector        map[string]string
	VIPs            []string
	Headless        bool
	External        bool // type ExternalName
	PublishNotReady bool
	Ports           []ServicePort // TCP
}

// ServicePort is a TCP port of a Service.
type ServicePort struct {
	Name       string
	Port       uint32
	Target     uint32 // 0 if TargetName is set
	TargetName string
	Protocol   string // appProtocol
}

// Slice holds the pods in an EndpointSlice.
type Slice struct {
	Key
	Service   string
	Endpoints []SliceEndpoint
}

// SliceEndpoint is a pod of an EndpointSlice.
type SliceEndpoint struct {
	Pod       string
	Addresses []string
}

// Meta holds the labels and annotations of a Namespace or a Node.
type Meta struct {
	Name        string
	Labels      map[string]string
	Annotations map[string]string
}

// LocalPodOf returns the relevant part of a pod of this node. It is ready if its containers and
// gates are, from which the kubelet computes the condition Ready. The node controller sets that one
// to false for all pods of a node that it has not heard of, as after an outage of the API server,
// although the pods work.
func LocalPodOf(p *corev1.Pod) *Pod {
	out := PodOf(p)
	out.Ready = out.Ready || is(p, corev1.ContainersReady)
	for _, g := range p.Spec.ReadinessGates {
		out.Ready = out.Ready && is(p, g.ConditionType)
	}
	return out
}

// is reports whether a condition of a pod is true.
func is(p *corev1.Pod, condition corev1.PodConditionType) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == condition {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// PodOf returns the relevant part of a pod.
func PodOf(p *corev1.Pod) *Pod {
	out := &Pod{
		Key: Key{p.Namespace, p.Name}, UID: string(p.UID), ServiceAccount: cmp.Or(p.Spec.ServiceAccountName, "default"),
		Node: p.Spec.NodeName, Labels: p.Labels, Annotations: relevant(p.Annotations), Created: p.CreationTimestamp.Time,
		IP: p.Status.PodIP, HostNetwork: p.Spec.HostNetwork, Deleting: p.DeletionTimestamp != nil,
		Ended: p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
	}
	if o := metav1.GetControllerOfNoCopy(p); o != nil {
		out.Owner = Owner{o.Kind, o.Name}
	}
	// Containers of the workload come first: a port of the workload may have the number of one of an
	// init container.
	for _, list := range [][]corev1.Container{p.Spec.Containers, restartable(p.Spec.InitContainers)} {
		for i := range list {
			if list[i].Name == Sidecar {
				out.Injected = p.Annotations[annotationInjected] == "true"
				continue
			}
			for _, port := range list[i].Ports {
				if port.Protocol == "" || port.Protocol == corev1.ProtocolTCP {
					out.Ports = append(out.Ports, ContainerPort{port.Name, uint32(port.ContainerPort)})
				}
			}
		}
	}
	out.Ready = is(p, corev1.PodReady)
	for _, list := range [][]corev1.ContainerStatus{p.Status.ContainerStatuses, p.Status.InitContainerStatuses} {
		for i := range list {
			if list[i].Name == Sidecar {
				out.Serving = list[i].Ready
			}
		}
	}
	return out
}

func restartable(list []corev1.Container) (out []corev1.Container) {
	for _, c := range list {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			out = append(out, c)
		}
	}
	return out
}

// ServiceOf returns the relevant part of a Service.
func ServiceOf(s *corev1.Service) *Service {
	out := &Service{
		Key: Key{s.Namespace, s.Name}, Labels: s.Labels, Annotations: relevant(s.Annotations),
		Selector: s.Spec.Selector, Headless: s.Spec.ClusterIP == corev1.ClusterIPNone,
		External: s.Spec.Type == corev1.ServiceTypeExternalName, PublishNotReady: s.Spec.PublishNotReadyAddresses,
	}
	for _, ip := range s.Spec.ClusterIPs {
		if ip != "" && ip != corev1.ClusterIPNone {
			out.VIPs = append(out.VIPs, ip)
		}
	}
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		if p.Protocol != "" && p.Protocol != corev1.ProtocolTCP {
			continue
		}
		port := ServicePort{Name: p.Name, Port: uint32(p.Port), Target: uint32(p.TargetPort.IntVal),
			TargetName: p.TargetPort.StrVal}
		if port.Target == 0 && port.TargetName == "" {
			port.Target = port.Port
		}
		if p.AppProtocol != nil {
			port.Protocol = *p.AppProtocol
		}
		out.Ports = append(out.Ports, port)
	}
	return out
}

// SliceOf returns the pods of an EndpointSlice.
func SliceOf(s *discoveryv1.EndpointSlice) *Slice {
	out := &Slice{Key: Key{s.Namespace, s.Name}, Service: s.Labels[discoveryv1.LabelServiceName]}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if e.TargetRef == nil || e.TargetRef.Kind != "Pod" {
			continue
		}
		out.Endpoints = append(out.Endpoints, SliceEndpoint{e.TargetRef.Name, slices.Sorted(slices.Values(e.Addresses))})
	}
	slices.SortFunc(out.Endpoints, func(a, b SliceEndpoint) int { return cmp.Compare(a.Pod, b.Pod) })
	return out
}

// NamespaceOf returns the relevant part of a Namespace.
func NamespaceOf(m *metav1.PartialObjectMetadata) *Meta {
	return &Meta{Name: m.Name, Labels: relevant(m.Labels), Annotations: relevant(m.Annotations)}
}

// NodeOf returns the labels of a Node that become tags.
func NodeOf(m *metav1.PartialObjectMetadata) *Meta {
	out := &Meta{Name: m.Name, Labels: map[string]string{}}
	for _, k := range nodeLabels() {
		if v := m.Labels[k]; v != "" {
			out.Labels[k] = v
		}
	}
	return out
}

func nodeLabels() []string {
	return []string{corev1.LabelHostname, corev1.LabelTopologyRegion, corev1.LabelTopologyZone}
}

// relevant returns the labels or annotations of the mesh. Others may be large and change often.
func relevant(m map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range m {
		if ofMesh(k) {
			out[k] = v
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// ofMesh reports whether the key of a label or annotation belongs to Kuma or nearside.
func ofMesh(key string) bool {
	prefix, _, ok := strings.Cut(key, "/")
	return ok && (prefix == "kuma.io" || strings.HasSuffix(prefix, ".kuma.io") || prefix == "nearside.io" ||
		strings.HasSuffix(prefix, ".nearside.io"))
}

// merged returns a copy of a with the entries of b, which take precedence.
func merged(a, b map[string]string) map[string]string {
	out := make(map[string]string, len(a)+len(b))
	maps.Copy(out, a)
	maps.Copy(out, b)
	return out
}
