package inject

import "encoding/json"

// Pod is a pod template, or a Pod, with the fields that the injection reads. It decodes from the
// JSON form of the template; other fields are ignored.
type Pod struct {
	// Kind, Name, and Namespace are those of the object that has the template. Namespace is "" if the
	// object names none, and Name if the API server is going to generate it.
	Kind      string `json:"-"`
	Name      string `json:"-"`
	Namespace string `json:"-"`
	// NamespaceMetadata has the labels and annotations of the namespace, if they are known.
	NamespaceMetadata Metadata `json:"-"`

	Metadata Metadata `json:"metadata"`
	Spec     PodSpec  `json:"spec"`
}

// Metadata has labels and annotations.
type Metadata struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// PodSpec is the spec of a pod.
type PodSpec struct {
	HostNetwork                   bool            `json:"hostNetwork"`
	AutomountServiceAccountToken  *bool           `json:"automountServiceAccountToken"`
	ServiceAccountName            string          `json:"serviceAccountName"`
	TerminationGracePeriodSeconds *int64          `json:"terminationGracePeriodSeconds"`
	RestartPolicy                 string          `json:"restartPolicy"`
	OS                            *PodOS          `json:"os"`
	NodeSelector                  json.RawMessage `json:"nodeSelector"`
	SecurityContext               json.RawMessage `json:"securityContext"`
	InitContainers                []Container     `json:"initContainers"`
	Containers                    []Container     `json:"containers"`
	Volumes                       []Volume        `json:"volumes"`
}

// PodOS is the operating system of a pod.
type PodOS struct {
	Name string `json:"name"`
}

// Volume is a volume of a pod.
type Volume struct {
	Name string `json:"name"`
}

// Container is a container of a pod.
type Container struct {
	Name            string          `json:"name"`
	Image           string          `json:"image"`
	RestartPolicy   string          `json:"restartPolicy"`
	Ports           []ContainerPort `json:"ports"`
	Lifecycle       json.RawMessage `json:"lifecycle"`
	SecurityContext json.RawMessage `json:"securityContext"`
	StartupProbe    *Probe          `json:"startupProbe"`
	LivenessProbe   *Probe          `json:"livenessProbe"`
	ReadinessProbe  *Probe          `json:"readinessProbe"`
}

// ContainerPort is a port of a container.
type ContainerPort struct {
	Name          string `json:"name"`
	ContainerPort int    `json:"containerPort"`
	HostPort      int    `json:"hostPort"`
	Protocol      string `json:"protocol"`
}

// Probe is a probe of a container.
type Probe struct {
	HTTPGet   *ProbeTarget    `json:"httpGet"`
	TCPSocket *ProbeTarget    `json:"tcpSocket"`
	GRPC      *ProbeTarget    `json:"grpc"`
	Exec      json.RawMessage `json:"exec"`
}

// ProbeTarget is where a probe connects. Port is a number or the quoted name of a container port.
type ProbeTarget struct {
	Host   string          `json:"host"`
	Port   json.RawMessage `json:"port"`
	Path   string          `json:"path"`
	Scheme string          `json:"scheme"`
}
