package house

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// TestObservabilityCopies checks that the manifests for Kubernetes contain the rules and the
// dashboard of packaging/observability. kustomize and Helm read no files outside of their
// directories. UPDATE_GOLDEN=1 writes the copies.
func TestObservabilityCopies(t *testing.T) {
	read := func(path string) string {
		b, err := os.ReadFile(root + "/packaging/" + path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	indent := func(text, by string) string {
		var out strings.Builder
		for line := range strings.Lines(text) {
			if strings.TrimSpace(line) != "" {
				out.WriteString(by)
			}
			out.WriteString(line)
		}
		return out.String()
	}
	rules, dashboard := read("observability/alerts.yaml"), read("observability/dashboard.json")
	const note = "# Made from packaging/observability by UPDATE_GOLDEN=1 go test ./agent/test/house.\n"
	for path, want := range map[string]string{
		"kubernetes/chart/files/alerts.yaml":    rules,
		"kubernetes/chart/files/dashboard.json": dashboard,
		"kubernetes/overlays/metrics/prometheusrule.yaml": note + `apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: nearside
  labels: {app.kubernetes.io/name: nearside}
spec:
` + indent(rules, "  "),
		"kubernetes/overlays/metrics/dashboard.yaml": note + `apiVersion: v1
kind: ConfigMap
metadata:
  name: nearside-dashboard
  labels: {app.kubernetes.io/name: nearside, grafana_dashboard: "1"}
data:
  nearside.json: |
` + indent(dashboard, "    "),
	} {
		file := root + "/packaging/" + path
		if os.Getenv("UPDATE_GOLDEN") != "" {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, []byte(want)) {
			t.Errorf("packaging/%s differs from packaging/observability: run UPDATE_GOLDEN=1 go test ./agent/test/house "+
				"-run TestObservabilityCopies (%v)", path, err)
		}
	}
}
