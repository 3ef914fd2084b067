// Package test checks the manifests against the types of Kubernetes, against each other, and
// against the defaults of the agent.
package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

func run(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(name, args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, errs.String())
	}
	return out
}

func kustomize(t *testing.T, dir string) []byte {
	t.Helper()
	return run(t, "go", "tool", "kustomize", "build", dir)
}

func helm(t *testing.T, args ...string) []byte {
	t.Helper()
	return run(t, "go", append([]string{"tool", "helm", "template", "nearside", "../chart",
		"--namespace", "nearside", "--kube-version", "1.34.0"}, args...)...)
}

// decode decodes manifests strictly into Kubernetes types, by KIND/NAME.
func decode(t *testing.T, text []byte) map[string]any {
	t.Helper()
	out := map[string]any{}
	for _, doc := range strings.Split("\n"+string(text), "\n---") {
		var head struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
			Metadata   struct {
				Name string `json:"name"`
			} `json:"metadata"`
		}
		if err := yaml.Unmarshal([]byte(doc), &head); err != nil {
			t.Fatalf("%v in:\n%s", err, doc)
		}
		if head.Kind == "" {
			continue
		}
		var into any
		switch head.APIVersion + " " + head.Kind {
		case "v1 ServiceAccount":
			into = &corev1.ServiceAccount{}
		case "v1 ConfigMap":
			into = &corev1.ConfigMap{}
		case "v1 Namespace":
			into = &corev1.Namespace{}
		case "apps/v1 DaemonSet":
			into = &appsv1.DaemonSet{}
		case "apps/v1 Deployment":
			into = &appsv1.Deployment{}
		case "v1 Service":
			into = &corev1.Service{}
		case "rbac.authorization.k8s.io/v1 ClusterRole":
			into = &rbacv1.ClusterRole{}
		case "rbac.authorization.k8s.io/v1 ClusterRoleBinding":
			into = &rbacv1.ClusterRoleBinding{}
		case "rbac.authorization.k8s.io/v1 Role":
			into = &rbacv1.Role{}
		case "rbac.authorization.k8s.io/v1 RoleBinding":
			into = &rbacv1.RoleBinding{}
		case "storage.k8s.io/v1 CSIDriver":
			into = &storagev1.CSIDriver{}
		case "admissionregistration.k8s.io/v1 MutatingWebhookConfiguration":
			into = &admissionv1.MutatingWebhookConfiguration{}
		case "networking.k8s.io/v1 NetworkPolicy":
			into = &networkingv1.NetworkPolicy{}
		case "monitoring.coreos.com/v1 PodMonitor":
			into = &monitoringv1.PodMonitor{}
		case "monitoring.coreos.com/v1 PrometheusRule":
			into = &monitoringv1.PrometheusRule{}
		default:
			t.Fatalf("no type is known for %s %s", head.APIVersion, head.Kind)
		}
		if err := yaml.UnmarshalStrict([]byte(doc), into); err != nil {
			t.Fatalf("%s/%s: %v", head.Kind, head.Metadata.Name, err)
		}
		id := head.Kind + "/" + head.Metadata.Name
		if out[id] != nil {
			t.Fatalf("%s is there twice", id)
		}
		out[id] = into
	}
	return out
}

// comparable removes the namespace, which "helm template" leaves to "helm install", and normalizes
// YAML in ConfigMaps.
func comparable(t *testing.T, objects map[string]any) map[string]any {
	t.Helper()
	out := map[string]any{}
	for id, o := range objects {
		b, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		var m map[string]any
		if err := json.Unmarshal(b, &m); err != nil {
			t.Fatal(err)
		}
		delete(m["metadata"].(map[string]any), "namespace")
		if data, ok := m["data"].(map[string]any); ok {
			for k, text := range data {
				var v any
				if err := yaml.Unmarshal([]byte(text.(string)), &v); err != nil {
					t.Fatalf("%s: %s: %v", id, k, err)
				}
				data[k] = v
			}
		}
		out[id] = m
	}
	return out
}

func TestChartMakesWhatTheOverlaysMake(t *testing.T) {
	mesh := []string{"--set", "gossip.enabled=true", "--set", "mesh.enabled=true"}
	for overlay, args := range map[string][]string{
		"plain":         nil,
		"interception":  {"--set", "interception.enabled=true"},
		"gossip":        {"--set", "gossip.enabled=true"},
		"metrics":       {"--set", "metrics.enabled=true"},
		"mesh":          mesh,
		"mesh-hostpath": append(slices.Clone(mesh), "--set", "mesh.identity=hostpath"),
		"webhook":       append(slices.Clone(mesh), "--set", "webhook.enabled=true"),
	} {
		t.Run(overlay, func(t *testing.T) {
			a := comparable(t, decode(t, kustomize(t, "../overlays/"+overlay)))
			b := comparable(t, decode(t, helm(t, args...)))
			if d := cmp.Diff(a, b); d != "" {
				t.Errorf("kustomize build (-) and helm template (+) differ:\n%s", d)
			}
			want := map[string]int{"gossip": 7, "metrics": 9, "mesh": 14, "mesh-hostpath": 11, "webhook": 16}[overlay]
			if len(a) != max(want, 6) {
				t.Errorf("%d objects, want %d", len(a), max(want, 6))
			}
		})
	}
}

// TestChartWithAll checks that the chart can combine the features of all overlays.
func TestChartWithAll(t *testing.T) {
	all := decode(t,
		helm(t, "--set", "gossip.enabled=true", "--set", "metrics.enabled=true", "--set", "interception.enabled=true"))
	if got := all["NetworkPolicy/nearside"].(*networkingv1.NetworkPolicy).Spec.Ingress; len(got) != 2 {
		t.Errorf("%d rules of the NetworkPolicy, want one for the pool and one for metrics", len(got))
	}
	if got := all["DaemonSet/nearside"].(*appsv1.DaemonSet).Spec.Template.Spec.Containers[0].Ports; len(got) != 3 {
		t.Errorf("ports of the agent: %v", got)
	}
	for identity, want := range map[string]bool{"csi": false, "hostpath": true} {
		with := decode(t, helm(t, "--set", "mesh.enabled=true", "--set", "webhook.enabled=true", "--set",
			"mesh.identity="+identity))
		config := with["ConfigMap/nearside-config"].(*corev1.ConfigMap).Data["agent.yaml"]
		if got := strings.Contains(config, "inject:\n  identity: hostpath\n"); got != want {
			t.Errorf("with the identity %s, the webhook gives pods another one: %s", identity, config)
		}
	}
}

// TestChartWithMeshes checks that the entries of other meshes come before those of the default one,
// and select the same namespaces and pods if these have the label.
func TestChartWithMeshes(t *testing.T) {
	hooks := decode(t, helm(t, "--set", "gossip.enabled=true,mesh.enabled=true,webhook.enabled=true,webhook.meshes={prod}"))["MutatingWebhookConfiguration/nearside-webhook"].(*admissionv1.MutatingWebhookConfiguration).Webhooks
	if len(hooks) != 4 {
		t.Fatalf("%d entries", len(hooks))
	}
	for i := range hooks[:2] {
		prod, other := &hooks[i], &hooks[i+2]
		if prod.Name != "prod."+other.Name || *prod.ClientConfig.Service.Path != "/inject/prod" {
			t.Errorf("%s has the path %s", prod.Name, *prod.ClientConfig.Service.Path)
		}
		if last := len(prod.NamespaceSelector.MatchExpressions) - 1; cmp.Diff(prod.NamespaceSelector.MatchExpressions[last],
			metav1.LabelSelectorRequirement{Key: "kuma.io/mesh", Operator: "In", Values: []string{"prod"}}) == "" {
			prod.NamespaceSelector.MatchExpressions = prod.NamespaceSelector.MatchExpressions[:last]
		}
		prod.Name, prod.ClientConfig = other.Name, other.ClientConfig
		if d := cmp.Diff(other, prod); d != "" {
			t.Errorf("the entry of the default mesh (-) and of another one (+) differ:\n%s", d)
		}
	}
}

func TestExampleIsStrict(t *testing.T) {
	if got := decode(t, kustomize(t, "../example")); got["Deployment/web"] == nil || got["Deployment/backend"] == nil {
		t.Errorf("the example has no web or no backend: %v", got)
	}
}

// binary builds the agent.
func binary(t *testing.T) string {
	t.Helper()
	if b := os.Getenv("NEARSIDE_BIN"); b != "" {
		return b
	}
	path := filepath.Join(t.TempDir(), "nearside")
	run(t, "go", "-C", "../../..", "build", "-o", path, "./cmd/agent")
	return path
}

// TestManifestsFitTheBinary runs the commands of the manifests, and compares their paths with those
// of the config that the agent loads from the ConfigMap.
func TestManifestsFitTheBinary(t *testing.T) {
	bin := binary(t)
	for _, overlay := range []string{"plain", "interception", "gossip", "metrics", "mesh", "mesh-hostpath", "webhook"} {
		t.Run(overlay, func(t *testing.T) {
			mesh := slices.Contains([]string{"mesh", "mesh-hostpath", "webhook"}, overlay)
			objects := decode(t, kustomize(t, "../overlays/"+overlay))
			ds := objects["DaemonSet/nearside"].(*appsv1.DaemonSet)
			pod := ds.Spec.Template.Spec
			c := pod.Containers[0]

			file := filepath.Join(t.TempDir(), "agent.yaml")
			if err := os.WriteFile(file, []byte(objects["ConfigMap/nearside-config"].(*corev1.ConfigMap).Data["agent.yaml"]),
				0o600); err != nil {
				t.Fatal(err)
			}
			var cfg struct {
				Paths struct{ Run, State, Logs string }
				API   struct{ Socket struct{ Path, Group string } }
				XDS   struct {
					Pods   string
					Access []struct{ UID string }
					Socket struct{ Path, Group string }
				}

				Resources struct{ Dir any }
				Intercept struct{ Pods bool }
				Webhook   struct {
					Listen string
					TLS    struct{ Cert, Key string }
				}
				Metrics struct{ Listen, TokenFile string }
				Gossip  struct {
					Bind, KeyringFile string
					Join              []string
				}
			}
			show := []string{"config", "show", "--config", file}
			if !mesh {
				show = append(show, "--set", "resources.dir=/etc/nearside/resources")
			}
			if err := yaml.Unmarshal(run(t, bin, show...), &cfg); err != nil {
				t.Fatal(err)
			}
			mounts := map[string]string{}
			for _, m := range c.VolumeMounts {
				mounts[m.MountPath] = m.Name
			}
			want := map[string]string{
				cfg.Paths.Run:              "run",
				cfg.Paths.State:            "state",
				cfg.Paths.Logs:             "logs",
				"/etc/nearside/agent.yaml": "config",
			}
			if mesh {
				want["/var/lib/nearside-kubernetes"] = "kubernetes"
				checkMesh(t, overlay, cfg.Resources.Dir, cfg.Intercept.Pods, cfg.XDS.Pods, len(cfg.XDS.Access))
			} else {
				want["/etc/nearside/resources"] = "resources"
			}
			if w := cfg.Webhook; w.Listen != "" {
				checkWebhook(t, objects, w.Listen, mounts, w.TLS.Cert, w.TLS.Key)
			}
			for path, volume := range want {
				if mounts[path] != volume {
					t.Errorf("%s of the agent is no mount of the volume %s: %v", path, volume, mounts)
				}
			}
			for _, v := range pod.Volumes {
				if v.HostPath != nil && mounts[v.HostPath.Path] != v.Name {
					t.Errorf("the hostPath %s of %s has another path inside, and Envoys get paths of FIFOs and sockets from the agent",
						v.HostPath.Path, v.Name)
				}
			}
			for _, e := range c.Env {
				if e.Name == "NEARSIDE_SOCKET" && e.Value != filepath.Join(cfg.Paths.Run, filepath.Base(cfg.API.Socket.Path)) {
					t.Errorf("NEARSIDE_SOCKET is %s, the agent's is %s", e.Value, cfg.API.Socket.Path)
				}
			}
			if g := fmt.Sprint(pod.SecurityContext.SupplementalGroups[0]); g != cfg.XDS.Socket.Group {
				t.Errorf("the agent is in the group %s and has to give sockets and FIFOs to %s", g, cfg.XDS.Socket.Group)
			}
			if g := cfg.Gossip; g.Bind != "" {
				s := objects["Service/nearside-gossip"].(*corev1.Service)
				if port := fmt.Sprintf(":%d", s.Spec.Ports[0].Port); g.Bind != port ||
					!slices.Equal(g.Join, []string{s.Name + port}) || c.Ports[0].ContainerPort != s.Spec.Ports[0].Port {
					t.Errorf("the agent binds %s and joins %q, and the service is %s%s", g.Bind, g.Join, s.Name, port)
				}
				if !slices.Contains(pod.InitContainers[0].Args, "/gossip/keyring="+g.KeyringFile) {
					t.Errorf("prepare does not bring the keyring to %s", g.KeyringFile)
				}
				for k, v := range s.Spec.Selector {
					if ds.Spec.Template.Labels[k] != v {
						t.Errorf("the service selects %s=%s", k, v)
					}
				}
			}
			if m := cfg.Metrics; m.Listen != "" {
				monitor := objects["PodMonitor/nearside"].(*monitoringv1.PodMonitor).Spec
				end := monitor.PodMetricsEndpoints[0]
				if port := c.Ports[0]; m.Listen != fmt.Sprintf(":%d", port.ContainerPort) || end.Port == nil ||
					*end.Port != port.Name {
					t.Errorf("the agent serves metrics on %s, and the pod names %v", m.Listen, port)
				}
				if !slices.Contains(pod.InitContainers[0].Args, "/metrics/token="+m.TokenFile) {
					t.Errorf("prepare does not bring the token to %s", m.TokenFile)
				}
				for k, v := range monitor.Selector.MatchLabels {
					if ds.Spec.Template.Labels[k] != v {
						t.Errorf("the PodMonitor selects %s=%s", k, v)
					}
				}
				if job := ds.Spec.Template.Labels[monitor.JobLabel]; job != "nearside" {
					t.Errorf("the job of the PodMonitor is %q, and the alerting rules select nearside", job)
				}
				rules := objects["PrometheusRule/nearside"].(*monitoringv1.PrometheusRule).Spec.Groups
				if len(rules) != 1 || len(rules[0].Rules) < 40 {
					t.Errorf("the PrometheusRule has %d groups", len(rules))
				}
			}
			for name, p := range map[string]*corev1.Probe{
				"startup":   c.StartupProbe,
				"readiness": c.ReadinessProbe,
				"liveness":  c.LivenessProbe,
			} {
				if p == nil || p.Exec == nil || p.Exec.Command[0] != "/nearside" {
					t.Fatalf("the %s probe does not run /nearside", name)
				}
				command := exec.Command(bin, p.Exec.Command[1:]...)
				command.Env = []string{"NEARSIDE_SOCKET=" + filepath.Join(t.TempDir(), "none.sock")}
				if out, err := command.CombinedOutput(); command.ProcessState == nil || command.ProcessState.ExitCode() != 1 {
					t.Errorf("the %s probe without an agent: %v, want exit code 1:\n%s", name, err, out)
				}
			}
			for _, init := range pod.InitContainers {
				if init.Name == "intercept" {
					run(t, bin, append(init.Args, "--dry-run")...)
				}
			}
			hold := objects["DaemonSet/nearside-hold"].(*appsv1.DaemonSet).Spec.Template.Spec
			run(t, bin, append(hold.Containers[0].Args, "--help")...)
			if a, b := *pod.SecurityContext.RunAsUser, *hold.SecurityContext.RunAsUser; a != b {
				t.Errorf("the holder is uid %d and the agent %d: neither trusts the other", b, a)
			}
			// A second pod waits for the agent, unless the scheduler finds both ports in the node's network.
			s, surge := ds.Spec.UpdateStrategy.RollingUpdate, 1
			if pod.HostNetwork {
				surge = 0
			}
			if s.MaxSurge.IntValue() != surge || s.MaxUnavailable.IntValue() != 1-surge || !slices.Contains(c.Args, "--wait") {
				t.Errorf("update %v, hostNetwork %t, arguments %q", s, pod.HostNetwork, c.Args)
			}
			run(t, bin, append(c.Args, "--help")...)
		})
	}
}

// checkMesh checks the config of an agent that follows Kubernetes.
func checkMesh(t *testing.T, overlay string, dirs any, redirect bool, pods string, rules int) {
	t.Helper()
	var got []string
	list, _ := dirs.([]any)
	for _, d := range list {
		m, _ := d.(map[string]any)
		got = append(got, strings.TrimSpace(fmt.Sprint(m["path"], " ", m["role"])))
	}
	const dir = "/var/lib/nearside-kubernetes/"
	want := []string{dir + "pods kubernetes", dir + "services kubernetes", dir + "resources", dir + "policies"}
	for i := range got {
		got[i] = strings.TrimSuffix(strings.TrimSuffix(got[i], "<nil>"), " ")
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if !redirect {
		t.Error("the agent does not redirect pods")
	}
	// Without the CSI driver, the uid of the sidecars is admitted; with it, only pods are.
	if csi := pods != ""; csi != (overlay != "mesh-hostpath") || csi != (rules == 0) {
		t.Errorf("xds.pods is %q with %d rules in xds.access", pods, rules)
	}
}

// checkWebhook checks that the API server reaches the agent through the Service.
func checkWebhook(t *testing.T, objects map[string]any, listen string, mounts map[string]string, files ...string) {
	t.Helper()
	for _, f := range files {
		if mounts[filepath.Dir(f)] != "webhook" {
			t.Errorf("%s is not in the mounted Secret", f)
		}
	}
	port := objects["DaemonSet/nearside"].(*appsv1.DaemonSet).Spec.Template.Spec.Containers[0].Ports[2]
	s := objects["Service/nearside-webhook"].(*corev1.Service)
	if listen != fmt.Sprintf(":%d", port.ContainerPort) || s.Spec.Ports[0].TargetPort.String() != port.Name {
		t.Errorf("the agent listens on %s, and the Service leads to %v", listen, port)
	}
	for _, w := range objects["MutatingWebhookConfiguration/nearside-webhook"].(*admissionv1.MutatingWebhookConfiguration).
		Webhooks {
		to := w.ClientConfig.Service
		if to.Name != s.Name || *to.Path != "/inject" || *to.Port != s.Spec.Ports[0].Port ||
			*w.FailurePolicy != admissionv1.Ignore {
			t.Errorf("%s calls %v with the failurePolicy %s", w.Name, to, *w.FailurePolicy)
		}
	}
}

// TestProgramsOfTheMesh runs the commands of the watcher and the CSI driver: they know the flags, and
// each probe fails without a running program.
func TestProgramsOfTheMesh(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "nearside-kubernetes")
	run(t, "go", "-C", "../watcher", "build", "-o", bin, ".")
	objects := decode(t, kustomize(t, "../overlays/mesh"))
	watcher := objects["DaemonSet/nearside"].(*appsv1.DaemonSet).Spec.Template.Spec.Containers[1]
	driver := objects["DaemonSet/nearside-csi"].(*appsv1.DaemonSet).Spec.Template.Spec.Containers[0]
	for _, c := range []corev1.Container{watcher, driver} {
		run(t, bin, append(slices.Clone(c.Args), "--help")...)
		for name, p := range map[string]*corev1.Probe{"startup": c.StartupProbe, "readiness": c.ReadinessProbe,
			"liveness": c.LivenessProbe} {
			if p == nil || p.Exec == nil || p.Exec.Command[0] != "/nearside-kubernetes" {
				t.Fatalf("the %s probe of %s does not run /nearside-kubernetes", name, c.Name)
			}
			command := exec.Command(bin, p.Exec.Command[1:]...)
			out, err := command.CombinedOutput()
			if code := command.ProcessState.ExitCode(); err == nil || code == 64 {
				t.Errorf("the %s probe of %s without the program: exit code %d\n%s", name, c.Name, code, out)
			}
		}
		mounts := map[string]bool{}
		for _, m := range c.VolumeMounts {
			mounts[m.MountPath] = true
		}
		for _, path := range map[string][]string{
			"watcher": {"/var/lib/nearside-kubernetes", "/var/run/secrets/kubernetes.io/serviceaccount"},
			"csi":     {"/run/nearside", "/var/lib/kubelet/pods", "/var/lib/kubelet/plugins_registry"},
		}[c.Name] {
			if !mounts[path] {
				t.Errorf("%s has no mount %s: %v", c.Name, path, mounts)
			}
		}
	}
}

// TestRights lists every privilege of each container.
func TestRights(t *testing.T) {
	want := map[string][]string{
		"plain": {"nearside-hold/hold 65532", "nearside-hold/prepare 0 CHOWN DAC_OVERRIDE FOWNER",
			"nearside/nearside 65532", "nearside/prepare 0 CHOWN DAC_OVERRIDE FOWNER"},
		"gossip": {"nearside-hold/hold 65532", "nearside-hold/prepare 0 CHOWN DAC_OVERRIDE FOWNER",
			"nearside/nearside 65532", "nearside/prepare 0 CHOWN DAC_OVERRIDE FOWNER"},
		"metrics": {"nearside-hold/hold 65532", "nearside-hold/prepare 0 CHOWN DAC_OVERRIDE FOWNER",
			"nearside/nearside 65532", "nearside/prepare 0 CHOWN DAC_OVERRIDE FOWNER"},
		"interception": {"nearside-hold/hold 0", "nearside-hold/prepare 0 CHOWN DAC_OVERRIDE FOWNER", "nearside/intercept " +
			"0 NET_ADMIN", "nearside/nearside 0 CHOWN NET_ADMIN", "nearside/prepare 0 CHOWN DAC_OVERRIDE FOWNER"},
		"mesh-hostpath": {"nearside-hold/hold 0", "nearside-hold/prepare 0 CHOWN DAC_OVERRIDE FOWNER",
			"nearside/nearside 0 CHOWN FOWNER NET_ADMIN SYS_ADMIN SYS_PTRACE",
			"nearside/prepare 0 CHOWN DAC_OVERRIDE FOWNER", "nearside/watcher 65531"},
		"remove": {"nearside-remove/intercept 0 NET_ADMIN", "nearside-remove/remove 0 DAC_OVERRIDE FOWNER",
			"nearside-remove/removed 0"},
	}
	want["mesh"] = append([]string{"nearside-csi/csi 0 privileged"}, want["mesh-hostpath"]...)
	want["webhook"] = want["mesh"]
	for overlay, list := range want {
		var got []string
		for _, o := range decode(t, kustomize(t, "../overlays/"+overlay)) {
			ds, ok := o.(*appsv1.DaemonSet)
			if !ok {
				continue
			}
			pod := ds.Spec.Template.Spec
			if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
				t.Errorf("%s: %s has a token", overlay, ds.Name)
			}
			for _, c := range append(slices.Clone(pod.InitContainers), pod.Containers...) {
				s := c.SecurityContext
				for _, m := range c.VolumeMounts {
					if m.Name == "token" && c.Name != "watcher" {
						t.Errorf("%s: %s of %s has a token", overlay, c.Name, ds.Name)
					}
				}
				if s != nil && s.Privileged != nil && *s.Privileged {
					got = append(got, fmt.Sprintf("%s/%s %d privileged", ds.Name, c.Name, *s.RunAsUser))
					continue
				}
				if s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem || s.AllowPrivilegeEscalation == nil ||
					*s.AllowPrivilegeEscalation || s.Capabilities == nil ||
					!slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
					t.Errorf("%s: %s of %s has more rights than it needs", overlay, c.Name, ds.Name)
					continue
				}
				uid := *pod.SecurityContext.RunAsUser
				if s.RunAsUser != nil {
					uid = *s.RunAsUser
				}
				line := fmt.Sprintf("%s/%s %d", ds.Name, c.Name, uid)
				for _, a := range s.Capabilities.Add {
					line += " " + string(a)
				}
				got = append(got, line)
			}
		}
		slices.Sort(got)
		if d := cmp.Diff(list, got); d != "" {
			t.Errorf("%s:\n%s", overlay, d)
		}
	}
}

// TestWatcherOnlyReads lists what the token of the watcher opens.
func TestWatcherOnlyReads(t *testing.T) {
	objects := decode(t, kustomize(t, "../overlays/mesh"))
	var got []string
	rules := append(slices.Clone(objects["ClusterRole/nearside-watcher"].(*rbacv1.ClusterRole).Rules),
		objects["Role/nearside-watcher"].(*rbacv1.Role).Rules...)
	for _, r := range rules {
		for _, v := range r.Verbs {
			if v != "list" && v != "watch" {
				t.Errorf("the watcher may %s %v", v, r.Resources)
			}
		}
		got = append(got, fmt.Sprint(r.APIGroups, r.Resources, r.ResourceNames))
	}
	want := []string{"[] [pods services namespaces nodes] []", "[discovery.k8s.io] [endpointslices] []",
		"[kuma.io] [*] []", "[] [configmaps] [nearside-resources]"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
