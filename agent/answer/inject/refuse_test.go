package inject_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/inject"
)

// annotated returns a template with one annotation.
func annotated(key, value string) string {
	text, _ := json.Marshal(map[string]string{key: value})
	return `{"metadata": {"annotations": ` + string(text) + `}, "spec": {"containers": [{"name": "app"}]}}`
}

// TestPlanRefuses checks that conflicts and invalid values are errors that name the field and the
// value.
func TestPlanRefuses(t *testing.T) {
	for name, c := range map[string]struct{ text, want, value string }{
		"uid":         {annotated("kuma.io/sidecar-uid", "0"), "sidecar-uid", `"0"`},
		"concurrency": {annotated("kuma.io/sidecar-proxy-concurrency", "-1"), "sidecar-proxy-concurrency", "1023"},
		"log level":   {annotated("kuma.io/envoy-log-level", "loud"), "envoy-log-level", `"loud"`},
		"component":   {annotated("kuma.io/envoy-component-log-level", "http:loud"), "component-log-level", `"http:loud"`},
		"env":         {annotated("kuma.io/sidecar-env-vars", "A=1;B"), "sidecar-env-vars", `"B"`},
		"env twice":   {annotated("kuma.io/sidecar-env-vars", "POD_IP=1"), "sidecar-env-vars", `"POD_IP"`},
		"drain":       {annotated("kuma.io/sidecar-drain-time", "30s"), "sidecar-drain-time", "(30 s)"},
		"app drain":   {annotated("nearside.io/app-drain-time", "soon"), "app-drain-time", `"soon"`},
		"mesh":        {annotated("kuma.io/mesh", "a.b"), "kuma.io/mesh", `"a.b"`},
		"probes":      {annotated("kuma.io/virtual-probes", "maybe"), "virtual-probes", `"maybe"`},
		"probes port": {annotated("kuma.io/virtual-probes-port", "9902"), "virtual-probes-port", `"9902"`},
		"excluded":    {annotated("traffic.kuma.io/exclude-inbound-ports", "80,x"), "exclude-inbound-ports", `"x"`},
		"gateway":     {annotated("kuma.io/gateway", "builtin"), "kuma.io/gateway", "builtin"},
		"reach":       {annotated("kuma.io/reachable-backends", "refs: [{kind: MeshService, nam: x}]"), "backends", "nam"},
		"resources":   {annotated("nearside.io/sidecar-resources", "{limits: {memory: 1x}}"), "limits.memory", `"1x"`},
		"section":     {annotated("nearside.io/sidecar-resources", "{limits: 5}"), "sidecar-resources", "limits"},
		"resource":    {annotated("nearside.io/sidecar-resources", "{limits: {gpu: 1}}"), "limits.gpu", "ephemeral-storage"},
		"too little":  {annotated("nearside.io/sidecar-resources", "{limits: {memory: 1Mi}, requests: {}}"), "limits", "1Mi"},
		"no limit":    {annotated("nearside.io/sidecar-resources", "{requests: {memory: 1Gi}}"), "request 1Gi", "512Mi"},
		"port": {`{"spec": {"containers": [{"name": "app"}, {"name": "b", "ports": [{"containerPort": 15006}]}]}}`,
			"spec.containers[1].ports[0].containerPort", "15006"},
		"user": {`{"spec": {"containers": [{"name": "app", "securityContext": {"runAsUser": 5678}}]}}`,
			"spec.containers[0].securityContext.runAsUser", "5678"},
		"user of the pod": {`{"spec": {"securityContext": {"runAsUser": 5678}}}`, "spec.securityContext.runAsUser", "5678"},
		"name": {`{"spec": {"initContainers": [{"name": "nearside-envoy"}]}}`, "spec.initContainers[0].name",
			"nearside-envoy"},
		"volume": {`{"spec": {"volumes": [{"name": "nearside"}]}}`, "spec.volumes[0].name", `"nearside"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, pod := template(t, c.text)
			edits, _, err := inject.Plan(pod, inject.Options{})
			if err == nil || len(edits) > 0 || !strings.Contains(err.Error(), c.want) ||
				!strings.Contains(err.Error(), c.value) {
				t.Errorf("error %v, want %q and %q", err, c.want, c.value)
			}
		})
	}
	for name, o := range map[string]inject.Options{"identity": {Identity: "token"}, "image": {EnvoyImage: "a b"},
		"mesh": {Mesh: "A"}} {
		_, pod := template(t, `{"spec": {"containers": [{"name": "app"}]}}`)
		if _, _, err := inject.Plan(pod, o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPlanNotes checks that no annotation is ignored silently, and that values without a difference
// need no note.
func TestPlanNotes(t *testing.T) {
	for _, c := range []struct{ key, value, want string }{
		{"kuma.io/wait-for-dataplane-ready", "false", "always starts after"},
		{"kuma.io/wait-for-dataplane-ready", "true", ""},
		{"kuma.io/service-account-token-volume", "v", "needs no token"},
		{"kuma.io/container-patches", "a", "not applied"},
		{"kuma.io/application-probe-proxy-port", "0", ""},
		{"kuma.io/application-probe-proxy-port", "9001", "around the proxy"},
		{"prometheus.metrics.kuma.io/port", "1", "scrape the port"},
		{"8080.service.kuma.io/protocol", "http", ""},
		{"kuma.io/gateway", "enabled", ""},
		{"kuma.io/sidecar-uuid", "1", "did you mean kuma.io/sidecar-uid?"},
		{"nearside.io/pod", "uid", "no such annotation"},
		{"example.org/x", "y", ""},
		{"traffic.kuma.io/exclude-outbound-ports", "5432", ""},
		{"traffic.kuma.io/exclude-outbound-port", "5432", "did you mean traffic.kuma.io/exclude-outbound-ports?"},
		{"kuma.io/transparent-proxying", "enabled", ""},
		{"kuma.io/sidecar-drain-time", "29s", ""},
	} {
		_, pod := template(t, annotated(c.key, c.value))
		_, notes, err := inject.Plan(pod, inject.Options{})
		if err != nil || (len(notes) > 0) != (c.want != "") ||
			c.want != "" && (!strings.Contains(notes[0].Text, c.want) || !strings.Contains(notes[0].Field, c.key)) {
			t.Errorf("%s: %s: %v %v", c.key, c.value, notes, err)
		}
	}
	_, pod := template(t, `{"metadata": {"labels": {"nearside.io/pod": "x"}},
		"spec": {"terminationGracePeriodSeconds": 1}}`)
	if _, notes, err := inject.Plan(pod, inject.Options{}); err != nil || len(notes) != 3 {
		t.Errorf("a label, and two drain times of a short grace period: %v %v", notes, err)
	}
}

// FuzzPlan checks that no pod causes a panic, and that the edits of a plan apply.
func FuzzPlan(f *testing.F) {
	f.Add(`{"metadata": {"annotations": {"kuma.io/virtual-probes": "true", "kuma.io/sidecar-env-vars": "A=$(B);C=d"}},
		"spec": {"containers": [{"livenessProbe": {"httpGet": {"path": "/a/../$(b)", "port": "8080"}}}]}}`)
	f.Add(annotated("nearside.io/sidecar-resources", "{limits: {memory: 999999999999999999Ti}, requests: {cpu: 1m}}"))
	f.Add(`{"spec": {"terminationGracePeriodSeconds": -5, "containers": [{"lifecycle": null, "securityContext": []}]}}`)
	f.Fuzz(func(t *testing.T, text string) {
		var tree map[string]any
		var pod inject.Pod
		if json.Unmarshal([]byte(text), &tree) != nil || tree == nil || json.Unmarshal([]byte(text), &pod) != nil {
			return
		}
		edits, _, err := inject.Plan(pod, inject.Options{})
		if err != nil || len(edits) == 0 {
			return
		}
		second, _, err := inject.Plan(pod, inject.Options{})
		a, _ := json.Marshal(edits)
		b, _ := json.Marshal(second)
		if err != nil || string(a) != string(b) {
			t.Fatalf("the same input gave other edits: %v", err)
		}
		if _, err := edits.Patch(tree); err != nil {
			t.Fatal(err)
		}
	})
}
