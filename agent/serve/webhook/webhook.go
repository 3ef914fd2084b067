// Package webhook is the mutating admission webhook of Kubernetes that injects sidecars into pods.
// It never rejects a pod: if the injection fails, the pod is admitted unchanged with a warning. It
// keeps no state, and starts goroutines only in [Server.Serve], which waits for them.
package webhook

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nearside-mesh/nearside/agent/answer/inject"
	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/serve/sender"
)

// Path is the path of the webhook. Path/MESH sets the mesh of pods that name none, for the pods of
// namespaces whose mesh the API server selects.
const Path = "/inject"

// Limits of the server.
const (
	maxBody        = 4 << 20 // the API server accepts pods of at most 3 MiB
	maxRunning     = 16      // requests whose bodies are in memory
	maxConnections = 256
	maxOfAddress   = 64
	headerTime     = 5 * time.Second
	requestTime    = 4 * time.Second // to read a request, and to write an answer
	idleTime       = 2 * time.Minute
	headerBytes    = 16 << 10
	drainTime      = 2 * time.Second
	maxWarnings    = 16
	maxWarning     = 256 // bytes; the API server shortens longer ones
)

// Options configures a server.
type Options struct {
	TLS    *tls.Config
	Inject inject.Options
	Log    *slog.Logger
}

// Server answers admission reviews. Create it with [New]. It is a [prometheus.Collector].
type Server struct {
	opts     Options
	running  chan struct{}
	requests *prometheus.CounterVec
}

// Results of requests, as the metric counts them.
const (
	resultInjected  = "injected"
	resultUnchanged = "unchanged" // disabled, or already injected
	resultFailed    = "failed"    // admitted without a sidecar
	resultInvalid   = "invalid"   // not an admission review
)

// New creates a server. It opens and starts nothing.
func New(o Options) (*Server, error) {
	if o.TLS == nil {
		return nil, errors.New("webhook.Options.TLS: is nil; the API server connects only with https")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{opts: o, running: make(chan struct{}, maxRunning),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "nearside_webhook_requests_total",
			Help: "Requests of the webhook by result: injected, unchanged (disabled or already injected), failed " +
				"(admitted without a sidecar), or invalid."}, []string{"result"})}
	for _, result := range []string{resultInjected, resultUnchanged, resultFailed, resultInvalid} {
		s.requests.WithLabelValues(result)
	}
	return s, nil
}

// Describe implements [prometheus.Collector].
func (s *Server) Describe(ch chan<- *prometheus.Desc) { s.requests.Describe(ch) }

// Collect implements [prometheus.Collector].
func (s *Server) Collect(ch chan<- prometheus.Metric) { s.requests.Collect(ch) }

// Serve serves the listeners, which it closes, until ctx ends or a listener fails.
func (s *Server) Serve(ctx context.Context, listeners ...net.Listener) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	srv := &http.Server{Handler: s, ReadHeaderTimeout: headerTime, ReadTimeout: requestTime, WriteTimeout: 2 * requestTime,
		IdleTimeout: idleTime, MaxHeaderBytes: headerBytes, TLSConfig: s.opts.TLS,
		ErrorLog: slog.NewLogLogger(s.opts.Log.Handler(), slog.LevelDebug)}
	var wg sync.WaitGroup
	for _, l := range listeners {
		wg.Go(func() {
			counted := &sender.Listener{Listener: l, Connections: maxConnections, PerOwner: maxOfAddress,
				Privileged: func(*access.Peer) bool { return false }, Log: s.opts.Log}
			if err := srv.ServeTLS(counted, "", ""); !errors.Is(err, http.ErrServerClosed) {
				cancel(fmt.Errorf("the webhook on %s: %w", l.Addr(), err))
			}
		})
	}
	<-ctx.Done()
	sender.Shut(ctx, srv, drainTime, listeners)
	wg.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// review is an AdmissionReview of admission.k8s.io/v1.
type review struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Request    *request  `json:"request,omitempty"`
	Response   *response `json:"response,omitempty"`
}

type request struct {
	UID       string          `json:"uid"`
	Kind      groupKind       `json:"kind"`
	Operation string          `json:"operation"`
	Namespace string          `json:"namespace"`
	Object    json.RawMessage `json:"object"`
}

type groupKind struct {
	Group   string `json:"group"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
}

type response struct {
	UID       string   `json:"uid"`
	Allowed   bool     `json:"allowed"`
	PatchType string   `json:"patchType,omitempty"`
	Patch     []byte   `json:"patch,omitempty"` // base64 in JSON
	Warnings  []string `json:"warnings,omitempty"`
}

const admissionVersion = "admission.k8s.io/v1"

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case s.running <- struct{}{}:
		defer func() { <-s.running }()
	case <-r.Context().Done():
		return
	}
	status, text, req := s.read(w, r)
	if req == nil {
		s.requests.WithLabelValues(resultInvalid).Inc()
		http.Error(w, text, status)
		return
	}
	o := s.opts.Inject
	if mesh := strings.TrimPrefix(r.URL.Path, Path); mesh != "" {
		o.Mesh = mesh[1:]
	}
	resp, result := answer(req, o)
	s.requests.WithLabelValues(result).Inc()
	if result == resultFailed {
		s.opts.Log.Warn("a pod is admitted without a sidecar", "namespace", req.Namespace, "reason", resp.Warnings[0])
	}
	data, err := json.Marshal(review{APIVersion: admissionVersion, Kind: "AdmissionReview", Response: resp})
	if err != nil {
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data)
}

// read returns the request, or the status and the text of a refusal.
func (s *Server) read(w http.ResponseWriter, r *http.Request) (int, string, *request) {
	mesh, found := strings.CutPrefix(r.URL.Path, Path)
	if !found || mesh != "" && (mesh[0] != '/' || len(mesh) == 1) {
		return http.StatusNotFound, "the path is " + Path + " or " + Path + "/MESH", nil
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return http.StatusMethodNotAllowed, "use POST", nil
	}
	if media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); media != "application/json" {
		return http.StatusUnsupportedMediaType, "the content type must be application/json", nil
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return http.StatusRequestEntityTooLarge, fmt.Sprintf("the body has more than %d bytes", maxBody), nil
	} else if err != nil {
		return http.StatusBadRequest, "the body cannot be read", nil
	}
	var in review
	if err := json.Unmarshal(body, &in); err != nil {
		return http.StatusBadRequest, "the body is not an AdmissionReview in JSON", nil
	}
	if in.APIVersion != admissionVersion || in.Kind != "AdmissionReview" || in.Request == nil || in.Request.UID == "" {
		return http.StatusBadRequest, "want an AdmissionReview of " + admissionVersion + " with request.uid", nil
	}
	return 0, "", in.Request
}

// answer returns the response for a request, and its result.
func answer(req *request, o inject.Options) (*response, string) {
	out := &response{UID: req.UID, Allowed: true}
	patch, notes, err := plan(req, o)
	for _, n := range notes {
		text := n.Text
		if n.Field != "" {
			text = n.Field + ": " + text
		}
		if n.Warning && len(out.Warnings) < maxWarnings {
			out.Warnings = append(out.Warnings, clip.Text("nearside: "+text, maxWarning))
		}
	}
	switch {
	case err != nil:
		out.Warnings = []string{clip.Text("nearside: the pod has no sidecar: "+oneLine(err), maxWarning)}
		return out, resultFailed
	case patch == nil:
		return out, resultUnchanged
	}
	out.PatchType, out.Patch = "JSONPatch", patch
	return out, resultInjected
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// plan returns the JSON Patch for a pod, or nil.
func plan(req *request, o inject.Options) (patch []byte, notes []inject.Note, err error) {
	if k := req.Kind; k.Group != "" || k.Version != "v1" || k.Kind != "Pod" || req.Operation != "CREATE" {
		return nil, nil, fmt.Errorf("%s of %s: only the creation of pods (v1) is supported; correct the rules of the "+
			"MutatingWebhookConfiguration", clip.Text(req.Operation, 32), clip.Text(k.Kind, 64))
	}
	var (
		pod    inject.Pod
		object map[string]any
		meta   struct {
			Metadata struct {
				Name            string `json:"name"`
				OwnerReferences []struct {
					Kind       string `json:"kind"`
					Controller bool   `json:"controller"`
				} `json:"ownerReferences"`
			} `json:"metadata"`
		}
	)
	for _, to := range []any{&pod, &object, &meta} {
		if err := json.Unmarshal(req.Object, to); err != nil {
			return nil, nil, errors.New("request.object is not a pod")
		}
	}
	pod.Kind, pod.Name, pod.Namespace = "Pod", meta.Metadata.Name, req.Namespace
	for _, owner := range meta.Metadata.OwnerReferences {
		if owner.Controller {
			pod.Kind = owner.Kind
		}
	}
	ok, note, err := inject.Select(pod, o)
	if err != nil || !ok {
		return nil, []inject.Note{note}, err
	}
	edits, notes, err := inject.Plan(pod, o)
	if err != nil || len(edits) == 0 {
		return nil, notes, err
	}
	ops, err := edits.Patch(object)
	if err != nil {
		return nil, nil, err
	}
	patch, err = json.Marshal(ops)
	return patch, notes, err
}
