package webhook_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/nearside-mesh/nearside/agent/answer/inject"
	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/serve/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newServer(t testing.TB, o webhook.Options) *webhook.Server {
	t.Helper()
	if o.TLS == nil {
		o.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	s, err := webhook.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// review returns an AdmissionReview of the creation of a pod.
func review(pod string) string {
	return `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u-1", ` +
		`"kind": {"group": "", "version": "v1", "kind": "Pod"}, "operation": "CREATE", "namespace": "shop", "object": ` +
		pod + `}}`
}

const pod = `{"metadata": {"generateName": "web-", "labels": {"app": "web"}},
	"spec": {"containers": [{"name": "app"}]}}`

type answer struct {
	APIVersion, Kind string
	Response         struct {
		UID, PatchType string
		Allowed        bool
		Patch          []byte
		Warnings       []string
	}
}

// post sends a body to a path, and returns the status and the answer.
func post(t testing.TB, s http.Handler, path, body string) (int, answer) {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	var out answer
	if w.Code == http.StatusOK {
		if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
			t.Fatalf("%v: %s", err, w.Body)
		}
	}
	return w.Code, out
}

// patched returns a pod with the patch of an answer.
func patched(t testing.TB, text string, a answer) inject.Pod {
	t.Helper()
	var patch jsonpatch.Patch
	var tree any
	if err := json.Unmarshal(a.Response.Patch, &patch); err != nil {
		t.Fatalf("%v: %s", err, a.Response.Patch)
	}
	if err := json.Unmarshal([]byte(text), &tree); err != nil {
		t.Fatal(err)
	}
	tree, err := patch.Apply(tree)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	var out inject.Pod
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestInjects checks that a pod gets the sidecar of the options, and only once.
func TestInjects(t *testing.T) {
	s := newServer(t, webhook.Options{Inject: inject.Options{EnvoyImage: "example.org/envoy:1", Mesh: "prod"}})
	for path, mesh := range map[string]string{"/inject": "prod", "/inject/test": "test"} {
		code, a := post(t, s, path, review(pod))
		if code != http.StatusOK || !a.Response.Allowed || a.Response.UID != "u-1" || a.Response.PatchType != "JSONPatch" ||
			a.Kind != "AdmissionReview" || a.APIVersion != "admission.k8s.io/v1" || len(a.Response.Warnings) > 0 {
			t.Fatalf("%d %+v", code, a)
		}
		got := patched(t, pod, a)
		if len(got.Spec.InitContainers) != 1 || got.Spec.InitContainers[0].Name != inject.ContainerName ||
			got.Spec.InitContainers[0].Image != "example.org/envoy:1" || len(got.Spec.Volumes) != 2 ||
			got.Metadata.Annotations[inject.MeshKey] != mesh || len(got.Spec.Containers[0].Lifecycle) == 0 {
			t.Errorf("%s: %+v", path, got)
		}
	}
	code, a := post(t, s, "/inject", review(`{"metadata": {"annotations": {"kuma.io/sidecar-injected": "true"}},
		"spec": {"initContainers": [{"name": "nearside-envoy"}], "containers": [{"name": "app"}]}}`))
	if code != http.StatusOK || !a.Response.Allowed || a.Response.Patch != nil || len(a.Response.Warnings) != 1 {
		t.Errorf("injected before: %d %+v", code, a)
	}
	if n := count(t, s, "injected") + 10*count(t, s, "unchanged"); n != 12 {
		t.Errorf("counted %v", n)
	}
}

// TestJobs checks that the pods of a Job end without delay.
func TestJobs(t *testing.T) {
	text := strings.Replace(pod, `"labels"`, `"ownerReferences": [{"kind": "Job", "controller": true}], "labels"`, 1)
	_, a := post(t, newServer(t, webhook.Options{}), "/inject", review(text))
	if got := patched(t, text, a); len(got.Spec.Containers[0].Lifecycle)+len(got.Spec.InitContainers[0].Lifecycle) > 0 {
		t.Errorf("%+v", got)
	}
}

// TestNeverBlocks checks that every pod is admitted, with a warning if it has no sidecar.
func TestNeverBlocks(t *testing.T) {
	s := newServer(t, webhook.Options{})
	for name, c := range map[string]struct{ body, warning, result string }{
		"bad annotation": {review(`{"metadata": {"annotations": {"kuma.io/sidecar-uid": "x\ny"}}, "spec": {}}`),
			`sidecar-uid"]: "x\ny" is not a user`, "failed"},
		"Kuma":    {review(`{"spec": {"containers": [{"name": "kuma-sidecar"}]}}`), "Kuma has injected", "failed"},
		"odd pod": {review(`{"spec": {"containers": {"a": 1}}}`), "not a pod", "failed"},
		"null":    {review(`null`), "", "injected"},
		"disabled": {review(`{"metadata": {"labels": {"kuma.io/sidecar-injection": "disabled"}}}`),
			"", "unchanged"},
		"host network": {review(`{"metadata": {"labels": {"kuma.io/sidecar-injection": "enabled"}},
			"spec": {"hostNetwork": true}}`), "node's network", "unchanged"},
		"update":     {strings.Replace(review(pod), "CREATE", "UPDATE", 1), "only the creation", "failed"},
		"other kind": {strings.Replace(review(pod), `"Pod"`, `"Deployment"`, 1), "only the creation", "failed"},
		"many faults": {review(`{"metadata": {"annotations": {"kuma.io/sidecar-uid": "` + strings.Repeat("x", 9000) + `"}}}`),
			"sidecar-uid", "failed"},
	} {
		t.Run(name, func(t *testing.T) {
			before := count(t, s, c.result)
			code, a := post(t, s, "/inject", c.body)
			if code != http.StatusOK || !a.Response.Allowed || (a.Response.Patch != nil) != (c.result == "injected") {
				t.Fatalf("%d %+v", code, a)
			}
			text := strings.Join(a.Response.Warnings, "")
			if !strings.Contains(text, c.warning) || c.warning == "" && text != "" || len(text) > 256 {
				t.Errorf("warnings %q", a.Response.Warnings)
			}
			if count(t, s, c.result) != before+1 {
				t.Errorf("not counted as %s", c.result)
			}
		})
	}
}

// TestInvalid checks requests that are not admission reviews.
func TestInvalid(t *testing.T) {
	s := newServer(t, webhook.Options{})
	for name, c := range map[string]struct {
		path, body string
		want       int
	}{
		"path":    {"/other", review(pod), http.StatusNotFound},
		"suffix":  {"/injection", review(pod), http.StatusNotFound},
		"no mesh": {"/inject/", review(pod), http.StatusNotFound},
		"no JSON": {"/inject", "{", http.StatusBadRequest},
		"v1beta1": {"/inject", strings.Replace(review(pod), "admission.k8s.io/v1", "admission.k8s.io/v1beta1", 1),
			http.StatusBadRequest},
		"no uid":     {"/inject", strings.Replace(review(pod), "u-1", "", 1), http.StatusBadRequest},
		"no request": {"/inject", `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}`, http.StatusBadRequest},
		"huge":       {"/inject", review(pod) + strings.Repeat(" ", 5<<20), http.StatusRequestEntityTooLarge},
		"deep":       {"/inject", review(strings.Repeat(`{"a":`, 100_000)), http.StatusBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			before := count(t, s, "invalid")
			if code, a := post(t, s, c.path, c.body); code != c.want || count(t, s, "invalid") != before+1 {
				t.Errorf("%d, want %d: %+v", code, c.want, a)
			}
		})
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/inject", nil))
	if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != http.MethodPost {
		t.Errorf("GET: %d", w.Code)
	}
	r := httptest.NewRequest(http.MethodPost, "/inject", strings.NewReader(review(pod)))
	w = httptest.NewRecorder()
	s.ServeHTTP(w, r)
	if w.Code != http.StatusUnsupportedMediaType {
		t.Errorf("without a content type: %d", w.Code)
	}
}

// count returns the number of requests with a result.
func count(t testing.TB, s *webhook.Server, result string) float64 {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(s); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range families[0].GetMetric() {
		if m.GetLabel()[0].GetValue() == result {
			return m.GetCounter().GetValue()
		}
	}
	t.Fatalf("no result %s", result)
	return 0
}

// TestServe checks that the webhook works over TLS only, and ends with its context.
func TestServe(t *testing.T) {
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
	roots := x509.NewCertPool()
	roots.AddCert(model.Certificate())
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots,
		ServerName: "example.com", MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Post("https://"+l.Addr().String()+"/inject", "application/json",
		strings.NewReader(review(pod)))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || resp.Proto != "HTTP/2.0" ||
		!strings.Contains(string(body), "u-1") {
		t.Errorf("%s %s: %s (%v)", resp.Proto, resp.Status, body, err)
	}
	_ = resp.Body.Close()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("the listener is still open")
	}
}

// FuzzReview checks that no request causes a panic or a rejection.
func FuzzReview(f *testing.F) {
	f.Add(review(pod))
	f.Add(review(`{"metadata": null, "spec": {"initContainers": null, "containers": [{"lifecycle": null}]}}`))
	f.Add(review(`{"spec": {"volumes": [{}], "containers": [{"livenessProbe": {"httpGet": {"port": "x"}}}]}}`))
	f.Fuzz(func(t *testing.T, body string) {
		s := newServer(t, webhook.Options{})
		code, a := post(t, s, "/inject", body)
		if code != http.StatusOK {
			return
		}
		if !a.Response.Allowed {
			t.Fatalf("rejected: %+v", a)
		}
		if a.Response.Patch == nil {
			return
		}
		var in struct {
			Request struct{ Object json.RawMessage }
		}
		if err := json.Unmarshal([]byte(body), &in); err != nil {
			t.Fatal(err)
		}
		got := patched(t, string(in.Request.Object), a)
		if len(got.Spec.InitContainers) == 0 || got.Spec.InitContainers[0].Name != inject.ContainerName {
			t.Fatalf("no sidecar: %+v", got)
		}
	})
}
