package inject

import (
	"strconv"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/bootstrap"
)

// Names and places of the sidecar.
const (
	runVolume   = "nearside"       // the sockets and FIFOs of the agent
	envoyVolume = "nearside-envoy" // the admin socket
	runDir      = "/run/nearside"
	envoyDir    = "/envoy"
	tokenDir    = "/var/run/secrets/kubernetes.io/serviceaccount"
	csiDriver   = "csi.nearside.io"

	defaultUID = 5678
	// socketGroup may use the socket and the FIFOs of the node, if they are not those of the pod only.
	socketGroup = 65533
)

// These types are the parts of a pod spec that are injected, with the fields in the order in which
// manifests usually have them.
type (
	container struct {
		Name            string          `json:"name"`
		Image           string          `json:"image"`
		RestartPolicy   string          `json:"restartPolicy"`
		Command         []string        `json:"command"`
		Args            []string        `json:"args"`
		Env             []envVar        `json:"env"`
		Resources       resources       `json:"resources"`
		StartupProbe    probe           `json:"startupProbe"`
		ReadinessProbe  probe           `json:"readinessProbe"`
		Lifecycle       *lifecycle      `json:"lifecycle,omitempty"`
		SecurityContext securityContext `json:"securityContext"`
		VolumeMounts    []volumeMount   `json:"volumeMounts"`
	}
	envVar struct {
		Name      string     `json:"name"`
		Value     string     `json:"value,omitempty"`
		ValueFrom *valueFrom `json:"valueFrom,omitempty"`
	}
	valueFrom struct {
		FieldRef fieldRef `json:"fieldRef"`
	}
	fieldRef struct {
		FieldPath string `json:"fieldPath"`
	}
	probe struct {
		HTTPGet          httpGet `json:"httpGet"`
		PeriodSeconds    int     `json:"periodSeconds"`
		TimeoutSeconds   int     `json:"timeoutSeconds"`
		FailureThreshold int     `json:"failureThreshold"`
	}
	httpGet struct {
		Path string `json:"path"`
		Port int    `json:"port"`
	}
	lifecycle struct {
		PreStop preStop `json:"preStop"`
	}
	preStop struct {
		Sleep sleep `json:"sleep"`
	}
	sleep struct {
		Seconds int64 `json:"seconds"`
	}
	securityContext struct {
		RunAsUser                int64          `json:"runAsUser"`
		RunAsGroup               int64          `json:"runAsGroup"`
		RunAsNonRoot             bool           `json:"runAsNonRoot"`
		AllowPrivilegeEscalation bool           `json:"allowPrivilegeEscalation"`
		ReadOnlyRootFilesystem   bool           `json:"readOnlyRootFilesystem"`
		Capabilities             capabilities   `json:"capabilities"`
		SeccompProfile           seccompProfile `json:"seccompProfile"`
	}
	capabilities struct {
		Drop []string `json:"drop"`
	}
	seccompProfile struct {
		Type string `json:"type"`
	}
	volumeMount struct {
		Name      string `json:"name"`
		MountPath string `json:"mountPath"`
		ReadOnly  bool   `json:"readOnly,omitempty"`
	}
	volume struct {
		Name     string    `json:"name"`
		CSI      *csi      `json:"csi,omitempty"`
		HostPath *hostPath `json:"hostPath,omitempty"`
		EmptyDir *struct{} `json:"emptyDir,omitempty"`
	}
	csi struct {
		Driver   string `json:"driver"`
		ReadOnly bool   `json:"readOnly"`
	}
	hostPath struct {
		Path string `json:"path"`
		Type string `json:"type"`
	}
)

// startupSeconds is how long an Envoy waits for its first config until the kubelet restarts it. It
// is a day, because a restart does not help, and would delay the pod when the agent returns.
const startupSeconds = 24 * 60 * 60

// container returns the sidecar with a bootstrap that forwards probes of the application.
func (s *settings) container(routes []bootstrap.ProbeRoute) (*container, error) {
	// The kubelet replaces $(NAME) in arguments.
	o := bootstrap.Options{Mesh: s.mesh, Name: "$(POD_NAME).$(POD_NAMESPACE)", Cluster: s.cluster,
		XDSSocket: runDir + "/xds.sock", AdminSocket: envoyDir + "/admin.sock",
		MaxConnections: bootstrap.DefaultMaxConnections, MaxHeapBytes: s.maxHeap(),
		Readiness: bootstrap.Readiness{Address: "$(POD_IP)", Port: bootstrap.DefaultReadinessPort}}
	if len(routes) > 0 {
		o.Probes = bootstrap.Probes{Address: "$(POD_IP)", Port: s.virtualPort, Routes: routes}
	}
	config, err := bootstrap.Render(o)
	if err != nil {
		return nil, err
	}
	args := []string{"--config-yaml", string(config), "--service-node", s.mesh + "." + o.Name,
		"--service-cluster", s.cluster, "--log-level", s.logLevel}
	if s.componentLogLevel != "" {
		args = append(args, "--component-log-level", s.componentLogLevel)
	}
	ready := probe{HTTPGet: httpGet{"/ready", bootstrap.DefaultReadinessPort}, PeriodSeconds: 5, TimeoutSeconds: 3,
		FailureThreshold: 3}
	startup := ready
	startup.PeriodSeconds, startup.FailureThreshold = 1, startupSeconds
	group := s.uid
	if s.identity == IdentityHostPath {
		group = socketGroup
	}
	c := &container{
		Name: ContainerName, Image: s.image, RestartPolicy: "Always", Command: []string{"envoy"},
		Args: append(args, bootstrap.Flags(s.concurrency)...),
		Env: append([]envVar{field("POD_NAME", "metadata.name"), field("POD_NAMESPACE", "metadata.namespace"),
			field("POD_IP", "status.podIP")}, s.env...),
		Resources: s.resources, StartupProbe: startup, ReadinessProbe: ready,
		SecurityContext: securityContext{RunAsUser: s.uid, RunAsGroup: group, RunAsNonRoot: true,
			ReadOnlyRootFilesystem: true, Capabilities: capabilities{[]string{"ALL"}},
			SeccompProfile: seccompProfile{"RuntimeDefault"}},
		// The last mount hides the token of the ServiceAccount, which Envoy does not need, and which the
		// API server mounts otherwise.
		VolumeMounts: []volumeMount{{runVolume, runDir, true}, {envoyVolume, envoyDir, false}, {envoyVolume, tokenDir, true}},
	}
	if s.drain > 0 {
		c.Lifecycle = sleepFor(s.drain)
	}
	return c, nil
}

func field(name, path string) envVar {
	return envVar{Name: name, ValueFrom: &valueFrom{fieldRef{path}}}
}

func sleepFor(d time.Duration) *lifecycle {
	return &lifecycle{preStop{sleep{seconds(d)}}}
}

// seconds rounds a duration up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// literal escapes a text in arguments, so that the kubelet replaces nothing in it.
func literal(text string) string { return strings.ReplaceAll(text, "$", "$$") }

// volumes returns the volumes of the sidecar.
func (s *settings) volumes() []volume {
	run := volume{Name: runVolume, CSI: &csi{csiDriver, true}}
	if s.identity == IdentityHostPath {
		run = volume{Name: runVolume, HostPath: &hostPath{runDir, "Directory"}}
	}
	return []volume{run, {Name: envoyVolume, EmptyDir: &struct{}{}}}
}

// ports returns the ports of the sidecar with their purpose.
func (s *settings) ports() map[int]string {
	out := map[int]string{bootstrap.DefaultReadinessPort: "its readiness", 15001: "outgoing connections",
		15006: "incoming connections"}
	if s.virtualPort > 0 {
		out[int(s.virtualPort)] = "probes (annotation " + virtualProbesPortAnnotation + "=" +
			strconv.Itoa(int(s.virtualPort)) + ")"
	}
	return out
}
