package webhook_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/inject"
	"github.com/nearside-mesh/nearside/agent/serve/webhook"
)

// cluster is a real API server of Kubernetes with etcd.
type cluster struct {
	t    *testing.T
	url  string
	http *http.Client
}

// startCluster starts the API server of KUBE_APISERVER and etcd, or skips the test.
func startCluster(t *testing.T) *cluster {
	t.Helper()
	server := os.Getenv("KUBE_APISERVER")
	if server == "" {
		t.Skip("skipped: KUBE_APISERVER is not set to a kube-apiserver of Kubernetes 1.30 or later")
	}
	etcd, err := exec.LookPath("etcd")
	if err != nil {
		t.Skip("skipped: etcd is not on PATH")
	}
	dir := t.TempDir()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	block := &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
	for name, text := range map[string]string{"sa.key": string(pem.EncodeToMemory(block)),
		"tokens.csv": "token,admin,admin,system:masters\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	client, peer, api := freePort(t), freePort(t), freePort(t)
	start(t, etcd, "--data-dir", dir+"/etcd", "--unsafe-no-fsync", "--listen-client-urls", "http://"+client,
		"--advertise-client-urls", "http://"+client, "--listen-peer-urls", "http://"+peer,
		"--initial-advertise-peer-urls", "http://"+peer, "--initial-cluster", "default=http://"+peer)
	_, port, _ := net.SplitHostPort(api)
	start(t, server, "--etcd-servers=http://"+client, "--secure-port="+port, "--bind-address=127.0.0.1",
		"--advertise-address=192.0.2.1", "--endpoint-reconciler-type=none", "--cert-dir="+dir+"/api",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+dir+"/sa.key",
		"--service-account-signing-key-file="+dir+"/sa.key", "--token-auth-file="+dir+"/tokens.csv",
		"--authorization-mode=RBAC", "--service-cluster-ip-range=10.96.0.0/16")
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // #nosec G402 -- of this test
	t.Cleanup(transport.CloseIdleConnections)
	c := &cluster{t, "https://" + api, &http.Client{Transport: transport, Timeout: time.Minute}}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond) // the API server has no event for being ready
	defer tick.Stop()
	for {
		if code, _, _ := c.send(http.MethodGet, "/readyz", "", nil); code == http.StatusOK {
			return c
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("the API server is not ready")
		}
	}
}

// start runs a program until the test ends.
func start(t *testing.T, path string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, path, args...)
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // the error reports the kill
		if t.Failed() {
			t.Logf("%s:\n%s", path, log.Bytes()[max(0, log.Len()-3000):])
		}
	})
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// send sends an object, and returns the status, the answer, and the warnings.
func (c *cluster) send(method, path, body string, warnings *[]string) (int, []byte, error) {
	req, err := http.NewRequest(method, c.url+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer token")
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	if warnings != nil {
		*warnings = resp.Header.Values("Warning")
	}
	data, err := io.ReadAll(resp.Body)
	return resp.StatusCode, data, err
}

func (c *cluster) create(path, body string) (out []byte, warnings []string) {
	c.t.Helper()
	code, out, err := c.send(http.MethodPost, path, body, &warnings)
	if err != nil || code != http.StatusCreated {
		c.t.Fatalf("%s: %d (%v)\n%s\n%s", path, code, err, out, body)
	}
	return out, warnings
}

// TestAPIServer lets a real API server create pods in a restricted namespace through the webhook.
func TestAPIServer(t *testing.T) {
	c := startCluster(t)
	model := httptest.NewUnstartedServer(nil) // only its certificate is used
	model.StartTLS()
	defer model.Close()
	s := newServer(t, webhook.Options{TLS: &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"},
		Certificates: model.TLS.Certificates}})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	defer func() { cancel(); <-ended }()
	ca, err := json.Marshal(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: model.Certificate().Raw}))
	if err != nil {
		t.Fatal(err)
	}
	c.create("/api/v1/namespaces", `{"metadata": {"name": "shop", "labels": {"kuma.io/sidecar-injection": "enabled",
		"pod-security.kubernetes.io/enforce": "restricted"}}}`)
	c.create("/api/v1/namespaces/shop/serviceaccounts", `{"metadata": {"name": "default"}}`)
	c.create("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", fmt.Sprintf(`{
		"metadata": {"name": "w"}, "webhooks": [{"name": "w.example.org", "admissionReviewVersions": ["v1"],
		"sideEffects": "None", "failurePolicy": "Ignore", "timeoutSeconds": 20,
		"clientConfig": {"url": "https://127.0.0.1:%d/inject/prod", "caBundle": %s},
		"namespaceSelector": {"matchLabels": {"kuma.io/sidecar-injection": "enabled"}},
		"rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]}]}`,
		l.Addr().(*net.TCPAddr).Port, ca))
	const restricted = `"securityContext": {"runAsNonRoot": true, "runAsUser": 1000, "allowPrivilegeEscalation": false,
		"capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"}}`
	app := func(annotations, extra string) string {
		return `{"metadata": {"generateName": "web-", "annotations": {` + annotations + `}}, "spec": {"containers": [{
			"name": "app", "image": "example.org/app:1", "ports": [{"name": "http", "containerPort": 8080}], ` + restricted +
			extra + `}]}}`
	}
	const pods = "/api/v1/namespaces/shop/pods"
	var out []byte
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for range 600 { // the API server learns of the configuration some time later
		if out, _ = c.create(pods+"?dryRun=All", app("", "")); bytes.Contains(out, []byte(inject.ContainerName)) {
			break
		}
		<-tick.C
	}
	for name, text := range map[string]string{
		"plain": app("", ""),
		"virtual": app(`"kuma.io/virtual-probes": "enabled"`,
			`, "livenessProbe": {"httpGet": {"path": "/a?b", "port": "http"}}`),
		"settings": app(`"kuma.io/sidecar-uid": "6000", "kuma.io/sidecar-drain-time": "29s",
			"nearside.io/app-drain-time": "0s"`, ""),
		"resources": app(`"nearside.io/sidecar-resources": "{requests: {cpu: 0.1}, limits: {memory: 1Gi}}"`, ""),
		"post hook": app("", `, "lifecycle": {"postStart": {"exec": {"command": ["true"]}}}`),
		"hurried":   strings.Replace(app("", ""), `"spec": {`, `"spec": {"terminationGracePeriodSeconds": 1, `, 1),
		"volumes": strings.Replace(app("", ""), `"spec": {`, `"spec": {"volumes": [{"name": "v", "emptyDir": {}}],
			"initContainers": [{"name": "setup", "image": "example.org/setup:1", `+restricted+`}], `, 1),
	} {
		t.Run(name, func(t *testing.T) {
			c := &cluster{t, c.url, c.http}
			out, warnings := c.create(pods, text)
			var pod struct {
				inject.Pod
				Spec struct {
					InitContainers []struct {
						Name         string
						VolumeMounts []struct{ Name, MountPath string }
					}
				} `json:"spec"`
			}
			if err := json.Unmarshal(out, &pod); err != nil {
				t.Fatal(err)
			}
			if len(pod.Spec.InitContainers) == 0 || pod.Spec.InitContainers[0].Name != inject.ContainerName ||
				pod.Metadata.Annotations[inject.MeshKey] != "prod" {
				t.Fatalf("%s %s", warnings, out)
			}
			// The API server adds the token of the ServiceAccount where nothing else is mounted.
			var mounts []string
			for _, m := range pod.Spec.InitContainers[0].VolumeMounts {
				mounts = append(mounts, m.Name+" "+m.MountPath)
			}
			if slices.ContainsFunc(mounts, func(m string) bool { return strings.HasPrefix(m, "kube-api-access") }) ||
				len(mounts) != 3 {
				t.Errorf("mounts %q", mounts)
			}
			if name != "hurried" && len(warnings) > 0 {
				t.Errorf("warnings %q", warnings)
			}
		})
	}
	out, warnings := c.create(pods, app(`"kuma.io/sidecar-uid": "root"`, ""))
	if bytes.Contains(out, []byte(inject.ContainerName)) || !strings.Contains(strings.Join(warnings, ""), "no sidecar") {
		t.Errorf("warnings %q\n%s", warnings, out)
	}
	cancel()
	<-ended
	ended <- nil
	if out, _ := c.create(pods, app("", "")); bytes.Contains(out, []byte(inject.ContainerName)) {
		t.Error("a pod was injected without the webhook")
	}
}
