package agent_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// authority writes a certificate and its key below dir, and returns a client that trusts it.
func authority(t *testing.T, dir string) *http.Client {
	t.Helper()
	model := httptest.NewUnstartedServer(nil) // only its certificate is used
	model.StartTLS()
	defer model.Close()
	key, err := x509.MarshalPKCS8PrivateKey(model.TLS.Certificates[0].PrivateKey)
	agenttest.Do(t, err)
	for name, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: model.Certificate().Raw},
		"key.pem": {Type: "PRIVATE KEY", Bytes: key}} {
		agenttest.Do(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600))
	}
	roots := x509.NewCertPool()
	roots.AddCert(model.Certificate())
	return &http.Client{Timeout: agenttest.Patience, Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "example.com", MinVersion: tls.VersionTLS12}}}
}

// review asks a webhook to admit a pod.
func review(client *http.Client, addr string) (string, error) {
	resp, err := client.Post("https://"+addr+"/inject", "application/json", strings.NewReader(
		`{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u-1", "kind": {"version": "v1",
		"kind": "Pod"}, "operation": "CREATE", "object": {"spec": {"containers": [{"name": "app"}]}}}}`))
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(resp.Body)
	return resp.Status + " " + string(text), errors.Join(err, resp.Body.Close())
}

// The agent serves the webhook with the options of its config, and says why it cannot.
func TestWebhook(t *testing.T) {
	dir := agenttest.ShortDir(t)
	client := authority(t, dir)
	r := agenttest.Up(t, dir, agent.Deps{}, "webhook.listen=127.0.0.1:0", "webhook.tls.cert="+dir+"/cert.pem",
		"webhook.tls.key="+dir+"/key.pem", "inject.mesh=prod", "inject.envoyImage=example.org/envoy:1", "inject.drainTime=7")
	text, err := review(client, r.Addrs().Webhook.String())
	agenttest.Do(t, err)
	if !strings.HasPrefix(text, "200 ") || !strings.Contains(text, `"patchType":"JSONPatch"`) {
		t.Error(text)
	}
}

// TestAwait: an agent that waits for another one serves the webhook only, and takes over when the
// other one ends. It ends while it waits, if it must.
func TestAwait(t *testing.T) {
	dir := agenttest.ShortDir(t)
	client := authority(t, dir)
	first := agenttest.Up(t, dir, agent.Deps{})
	at := "127.0.0.1:" + strconv.Itoa(freePort(t))
	webhook := []string{"webhook.listen=" + at, "webhook.tls.cert=" + dir + "/cert.pem",
		"webhook.tls.key=" + dir + "/key.pem"}
	second, done := agenttest.Begin(t, dir, agent.Deps{Await: true}, webhook...)
	agenttest.Eventually(t, "it waits", func() bool {
		return strings.Contains(second.Logs.String(), "waiting until the agent that runs has ended")
	})
	text, err := review(client, at)
	agenttest.Do(t, err)
	if !strings.HasPrefix(text, "200 ") {
		t.Error(text)
	}
	third, _ := agenttest.Begin(t, dir, agent.Deps{Await: true})
	agenttest.Eventually(t, "the third one waits", func() bool {
		return strings.Contains(third.Logs.String(), "waiting until")
	})
	agenttest.Do(t, third.Stop())
	select {
	case <-second.Ready():
		t.Fatal("two agents use the same paths")
	case err := <-done:
		t.Fatalf("it has ended: %v", err)
	default:
	}
	if _, err := first.Api().Status(t.Context()); err != nil {
		t.Error(err)
	}
	agenttest.Do(t, first.Stop())
	select {
	case <-second.Ready():
	case err := <-done:
		t.Fatalf("it has ended: %v", err)
	}
	_, err = second.Api().Status(t.Context())
	agenttest.Do(t, err)

	for range 10 {
		stopped, began := make(chan error, 1), time.Now()
		go func() { stopped <- second.Stop() }()
		next := agenttest.Up(t, dir, agent.Deps{Await: true}) // while the second one answers its last requests
		text, err = review(client, at)
		asked := time.Since(began)
		agenttest.Do(t, <-stopped)
		if err == nil || asked < 3*time.Second { // lingerTime
			break
		}
		t.Logf("the machine is busy: the webhook was asked after %v", asked)
		agenttest.Do(t, next.Stop())
		second = agenttest.Up(t, dir, agent.Deps{Await: true}, webhook...)
	}
	agenttest.Do(t, err)
	if !strings.HasPrefix(text, "200 ") {
		t.Error(text)
	}
}
