package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/secrettest"
)

const secretType = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"

// planted is an agent with private keys in every field that accepts one, and a scanner for all of
// its output.
type planted struct {
	*daemon
	leaks   secrettest.Leaks
	docs    map[string]string // by name; each document contains a key
	http    *http.Client
	answers int
}

// seen searches output of the agent for secrets.
func (p *planted) seen(what string, text []byte) {
	p.t.Helper()
	p.answers++
	if got := p.leaks.In(text); got != "" {
		p.t.Errorf("%s shows a secret: %s", what, got)
	}
}

// ask makes an API request.
func (p *planted) ask(method, path, body string) (int, []byte) {
	p.t.Helper()
	req, err := http.NewRequest(method, "http://nearside"+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	resp, err := p.http.Do(req)
	if err != nil {
		p.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	header, _ := json.Marshal(resp.Header)
	p.seen(method+" "+path, append(answer, header...))
	return resp.StatusCode, answer
}

// stream requests an answer that does not end. The function that it returns ends the request,
// searches the answer, and returns it.
func (p *planted) stream(path string) func() string {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://nearside"+path, nil)
	agenttest.Do(p.t, err)
	unbounded := &http.Client{Transport: p.http.Transport}
	resp, err := unbounded.Do(req)
	agenttest.Do(p.t, err)
	if resp.StatusCode != http.StatusOK {
		p.t.Errorf("GET %s: %s", path, resp.Status)
	}
	answer := make(chan []byte)
	go func() {
		text, _ := io.ReadAll(resp.Body) // it ends with the context
		resp.Body.Close()
		answer <- text
	}()
	return func() string {
		cancel()
		text := <-answer
		p.seen("GET "+path, text)
		return string(text)
	}
}

// command runs a command.
func (p *planted) command(args ...string) (int, string) {
	p.t.Helper()
	code, stdout, stderr := p.nearside("", args...)
	p.seen("nearside "+strings.Join(args, " "), []byte(stdout+stderr))
	return code, stdout + stderr
}

// secretDocs returns documents with keys by name, for the meshes filed and held.
func secretDocs(t *testing.T, leaks *secrettest.Leaks) map[string]string {
	t.Helper()
	quoted := func(b []byte) string { out, _ := json.Marshal(string(b)); return string(out) }
	pair := func(name string) (cert, key string) {
		c, k := secrettest.Authority(t, name)
		leaks.Key(t, name, k)
		return quoted(c), quoted(k)
	}
	mesh := func(name string) string {
		cert, key := pair("authority of " + name)
		return fmt.Sprintf(`{"type":"Mesh","name":%q,"mtls":{"enabledBackend":"own","backends":[{"name":"own","type":"provided","conf":{"cert":{"inlineString":%s},"key":{"inlineString":%s}}}]}}`,
			name, cert, key)
	}
	leaks.Text("password", "5ecre7-pa55word-0f-a-pa7ch")
	cert, key := pair("client key of an ExternalService")
	cert2, key2 := pair("client key of a MeshExternalService")
	_, key3 := pair("key in a MeshProxyPatch")
	_, key4 := pair("key in a JSON Patch")
	cluster := fmt.Sprintf(`{"name": "patched", "type": "STATIC", "connectTimeout": "1s", "transportSocket": {"name": "envoy.transport_sockets.tls", "typedConfig": {
		"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext", "commonTlsContext": {"tlsCertificates": [{"certificateChain": {"inlineString": %s},
		"privateKey": {"inlineString": %s}, "password": {"inlineString": "5ecre7-pa55word-0f-a-pa7ch"}}]}}}}`, cert, key3)
	return map[string]string{
		"filed": mesh("filed"), "held": mesh("held"), "other authority of held": mesh("held"),
		"outside": fmt.Sprintf(`{"type":"ExternalService","mesh":"held","name":"outside","tags":{"kuma.io/service":"outside","kuma.io/protocol":"tcp"},"networking":{"address":"192.0.2.9:443","tls":{"enabled":true,"clientCert":{"inlineString":%s},"clientKey":{"inlineString":%s}}}}`, cert, key),
		"beyond": fmt.Sprintf(`{"type":"MeshExternalService","mesh":"held","name":"beyond","spec":{"match":{"type":"HostnameGenerator","port":443,"protocol":"tcp"},"endpoints":[{"address":"192.0.2.8","port":443}],
			"tls":{"enabled":true,"verification":{"mode":"SkipAll","clientCert":{"inlineString":%s},"clientKey":{"inlineString":%s}}}}}`, cert2, key2),
		"patch": fmt.Sprintf(`{"type":"MeshProxyPatch","mesh":"held","name":"patch","spec":{"targetRef":{"kind":"Mesh"},"default":{"appendModifications":[{"cluster":{"operation":"Add","value":%s}},
			{"cluster":{"operation":"Patch","match":{"name":"patched"},"jsonPatches":[{"op":"replace","path":"/transportSocket/typedConfig/commonTlsContext/tlsCertificates/0/privateKey","value":{"inlineString":%s}},
			{"op":"copy","from":"/transportSocket/typedConfig/commonTlsContext/tlsCertificates/0/privateKey/inlineString","path":"/altStatName"}]}}]}}}`,
			quoted([]byte(cluster)), key4),
	}
}

// dataplaneIn returns a Dataplane in a mesh.
func dataplaneIn(mesh, name string) string {
	return fmt.Sprintf(`{"type":"Dataplane","mesh":%q,"name":%q,"networking":{"address":"192.0.2.1","inbound":[{"port":8080,"tags":{"kuma.io/service":"web","kuma.io/protocol":"http"}}],"outbound":[{"port":10001,"tags":{"kuma.io/service":"outside"}}]}}`, mesh, name)
}

// plant stores the documents that are not in files.
func (p *planted) plant() {
	p.t.Helper()
	docs := []string{p.docs["held"],
		`{"type":"Mesh","name":"built","mtls":{"enabledBackend":"ca","backends":[{"name":"ca","type":"builtin"}]}}`,
		dataplaneIn("held", "web"), dataplaneIn("built", "web"), p.docs["outside"], p.docs["beyond"]}
	if status, body := p.ask("POST", "/v1/apply", strings.Join(docs, "\n---\n")); status != 200 {
		p.t.Fatalf("%d %s", status, body)
	}
	if status, body := p.ask("PUT", "/meshes/held/meshproxypatches/patch", p.docs["patch"]); status != 201 {
		p.t.Fatalf("%d %s", status, body)
	}
}

// serve receives the config of a proxy like an Envoy, checks that its secret contains its key, and
// rejects all resources with a message that quotes them.
func (p *planted) serve(id string) {
	p.t.Helper()
	s := openStream(p.t, p.xds(), id)
	resp, err := s.Recv()
	if err != nil {
		p.t.Fatal(err)
	}
	var quoted strings.Builder
	for _, r := range resp.Resources {
		text, _ := proto.Marshal(r)
		// A password in an Envoy's message looks like any other word, so the agent cannot detect
		// it. Keys are detected by their format.
		quoted.Write(bytes.ReplaceAll(bytes.ToValidUTF8(text, []byte("?")), []byte("5ecre7-pa55word-0f-a-pa7ch"), nil))
	}
	reject := func(resp *discoveryv3.DeltaDiscoveryResponse, typeURL string) {
		p.t.Helper()
		if err := s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL, ResponseNonce: resp.Nonce,
			ErrorDetail: &rpcstatus.Status{Code: 13, Message: "no good: " + quoted.String()}}); err != nil {
			p.t.Fatal(err)
		}
	}
	reject(resp, clusterType)
	if err := s.Send(&discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: id}, TypeUrl: secretType,
		ResourceNamesSubscribe: []string{"identity_cert:secret:" + strings.Split(id, ".")[0]}}); err != nil {
		p.t.Fatal(err)
	}
	for {
		if resp, err = s.Recv(); err != nil {
			p.t.Fatal(err)
		}
		if resp.TypeUrl == secretType && len(resp.Resources) > 0 {
			break
		}
	}
	text, _ := proto.Marshal(resp.Resources[0].Resource)
	at := bytes.Index(text, []byte("-----BEGIN PRIVATE KEY"))
	if at < 0 {
		p.t.Fatalf("the secret of %s has no key", id)
	}
	p.leaks.Key(p.t, "key of "+id, text[at:])
	quoted.Write(text[at:])
	reject(resp, secretType)
	agenttest.Eventually(p.t, "the rejection of "+id, func() bool {
		mesh, name, _ := strings.Cut(id, ".")
		_, answer := p.ask("GET", "/v1/dataplanes/"+mesh+"/"+name+"/status", "")
		return bytes.Contains(answer, []byte("no good: "))
	})
}

// admin serves the admin socket of the Envoy that this process represents, with keys wherever
// Envoy's output can contain some.
func (p *planted) admin(id string) {
	p.t.Helper()
	dir := filepath.Join(filepath.Dir(p.socket()), "envoy", strconv.Itoa(os.Geteuid()))
	l, err := net.Listen("unix", filepath.Join(dir, id+".sock"))
	if err != nil {
		p.t.Fatal(err)
	}
	key, err := os.ReadFile(p.dir + "/state/identity/held/proxy-web.pem")
	if err != nil {
		p.t.Fatal(err)
	}
	pem, err := json.Marshal(string(key))
	if err != nil {
		p.t.Fatal(err)
	}
	const at = `{"@type": "type.googleapis.com/envoy.`
	answers := map[string]string{
		"/stats": "a: 1\n", "/clusters": "a::b\n", "/logging": "active loggers:\n  upstream: info\n",
		"/config_dump": `{"configs": [` + at + `admin.v3.BootstrapConfigDump", "bootstrap": {"node": {"cluster": ` +
			string(pem) + `}, "dynamic_resources": {"ads_config": {"grpc_services": [
			{"initial_metadata": [{"key": "authorization", "value": "Bearer a-bearer-token-that-nobody-may-see"}]}]}}}},
			` + at + `admin.v3.SecretsConfigDump", "dynamic_active_secrets": [{"secret": ` + at +
			`extensions.transport_sockets.tls.v3.Secret", "tls_certificate": {"private_key": {"inline_string": ` +
			string(pem) + `}}}}]}]}`,
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, answers[r.URL.Path])
	})}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = srv.Serve(l) }()
	p.t.Cleanup(func() { _ = srv.Close(); <-ended })
}

// keysOfTheAgent adds the keys that the agent created to the scanner.
func (p *planted) keysOfTheAgent() {
	p.t.Helper()
	found := 0
	err := filepath.WalkDir(p.dir+"/state/identity", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		found++
		p.leaks.Key(p.t, path, text)
		return nil
	})
	if err != nil || found < 2 {
		p.t.Fatalf("%d files with keys: %v", found, err)
	}
}
