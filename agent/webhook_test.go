package agent_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// The agent serves the webhook with the options of its config, and says why it cannot.
func TestWebhook(t *testing.T) {
	dir := agenttest.ShortDir(t)
	model := httptest.NewUnstartedServer(nil) // only its certificate is used
	model.StartTLS()
	defer model.Close()
	key, err := x509.MarshalPKCS8PrivateKey(model.TLS.Certificates[0].PrivateKey)
	agenttest.Do(t, err)
	for name, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: model.Certificate().Raw},
		"key.pem": {Type: "PRIVATE KEY", Bytes: key}} {
		agenttest.Do(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600))
	}
	r := agenttest.Up(t, dir, agent.Deps{}, "webhook.listen=127.0.0.1:0", "webhook.tls.cert="+dir+"/cert.pem",
		"webhook.tls.key="+dir+"/key.pem", "inject.mesh=prod", "inject.envoyImage=example.org/envoy:1", "inject.drainTime=7")
	roots := x509.NewCertPool()
	roots.AddCert(model.Certificate())
	client := &http.Client{Timeout: agenttest.Patience, Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "example.com", MinVersion: tls.VersionTLS12}}}
	resp, err := client.Post("https://"+r.Addrs().Webhook.String()+"/inject", "application/json", strings.NewReader(
		`{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u-1", "kind": {"version": "v1",
		"kind": "Pod"}, "operation": "CREATE", "object": {"spec": {"containers": [{"name": "app"}]}}}}`))
	agenttest.Do(t, err)
	text, err := io.ReadAll(resp.Body)
	agenttest.Do(t, err)
	agenttest.Do(t, resp.Body.Close())
	if resp.StatusCode != http.StatusOK || !strings.Contains(string(text), `"patchType":"JSONPatch"`) {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
}
