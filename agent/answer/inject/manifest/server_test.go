package manifest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/inject/manifest"
)

// TestServerDryRun sends all injected manifests to a real API server, which stores nothing. The
// namespace strict enforces the PodSecurity level restricted.
func TestServerDryRun(t *testing.T) {
	kubeconfig := os.Getenv("NEARSIDE_TEST_KUBECONFIG")
	if kubeconfig == "" {
		t.Skip("NEARSIDE_TEST_KUBECONFIG names no kubeconfig of a cluster for tests")
	}
	kubectl := func(stdin string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "kubectl", append([]string{"--kubeconfig", kubeconfig}, args...)...)
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	var namespaces strings.Builder
	for _, name := range []string{"shop", "lab", "elsewhere", "strict"} {
		namespaces.WriteString("---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: " + name +
			"\n  labels: {nearside-test: dry-run}\n")
	}
	if out, err := kubectl(namespaces.String(), "apply", "-f", "-"); err != nil {
		t.Fatal(out)
	}
	restrict := []string{"label", "--overwrite", "namespace", "strict", "pod-security.kubernetes.io/enforce=restricted"}
	if out, err := kubectl("", restrict...); err != nil {
		t.Fatal(out)
	}
	defer func() { _, _ = kubectl("", "delete", "namespace", "--wait=false", "-l", "nearside-test=dry-run") }()
	r, err := manifest.Inject(inputs(t), manifest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range r.Texts {
		name := filepath.Join(t.TempDir(), text.Name)
		if err := os.WriteFile(name, text.Data, 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := kubectl("", "apply", "--dry-run=server", "-f", name); err != nil {
			t.Errorf("%s: %s", text.Name, out)
		}
	}
	hostPath := manifest.Options{}
	hostPath.Identity = "hostpath"
	if r, err = manifest.Inject(inputs(t), hostPath); err != nil {
		t.Fatal(err)
	}
	strict := string(r.Texts[len(r.Texts)-1].Data)
	out, err := kubectl(strict, "apply", "--dry-run=server", "-f", "-")
	if err == nil || !strings.Contains(out, "restricted") {
		t.Errorf("restricted allows a hostPath volume: %s", out)
	}
}
