package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// nearside builds the program and puts it on the PATH.
func nearside(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "nearside"), "./cmd/agent")
	cmd.Dir = "../../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// files writes files below a new folder.
func files(t *testing.T, contents map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range contents {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: registry.example.org/web:1}]
`

// injected checks that a Deployment has the sidecar of a mesh.
func injected(t *testing.T, out []byte, mesh string) {
	t.Helper()
	for _, want := range []string{"name: web", "name: nearside-envoy", mesh + ".$(POD_NAME).$(POD_NAMESPACE)"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is not in the output:\n%s", want, out)
		}
	}
}

// TestInject runs inject as a transformer of kustomize, and as a post-renderer of Helm 3 and 4, as
// docs/inject.md shows.
func TestInject(t *testing.T) {
	nearside(t)
	program, err := exec.LookPath("nearside")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("kustomize", func(t *testing.T) {
		dir := files(t, map[string]string{"web.yaml": deployment,
			"kustomization.yaml": "resources: [web.yaml]\ntransformers: [inject.yaml]\n",
			"inject.yaml": `apiVersion: nearside.io/v1alpha1
kind: Inject
metadata:
  name: inject
  annotations:
    config.kubernetes.io/function: |
      exec: {path: ` + program + `, args: [inject, -f, "-", -m, prod, -q]}
`})
		injected(t, run(t, "go", "tool", "kustomize", "build", "--enable-alpha-plugins", "--enable-exec", dir), "prod")
	})
	chart := files(t, map[string]string{"templates/web.yaml": deployment,
		"Chart.yaml": "apiVersion: v2\nname: web\nversion: 0.1.0\n"})
	t.Run("Helm 3", func(t *testing.T) {
		injected(t, run(t, "go", "tool", "helm", "template", "web", chart, "--post-renderer", "nearside",
			"--post-renderer-args=inject", "--post-renderer-args=-f", "--post-renderer-args=-", "--post-renderer-args=-mprod"),
			"prod")
	})
	t.Run("Helm 4", func(t *testing.T) {
		plugins := t.TempDir()
		folder, err := filepath.Abs("../helm-plugin")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(folder, filepath.Join(plugins, "nearside-inject")); err != nil {
			t.Fatal(err)
		}
		t.Setenv("HELM_PLUGINS", plugins)
		injected(t, run(t, "go", "tool", "-modfile=helm4/go.mod", "helm", "template", "web", chart, "--post-renderer",
			"nearside-inject", "--post-renderer-args=-mprod"), "prod")
	})
}
