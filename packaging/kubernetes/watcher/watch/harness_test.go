package watch_test

import (
	"context"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nearside-mesh/nearside/packaging/kubernetes/watcher/watch"
	"github.com/nearside-mesh/nearside/packaging/kubernetes/watcher/watch/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// records collects log messages, which are the events that tests wait for.
type records struct {
	mu      sync.Mutex
	lines   []string
	changed chan struct{}
}

func (r *records) Enabled(context.Context, slog.Level) bool { return true }
func (r *records) WithAttrs([]slog.Attr) slog.Handler       { return r }
func (r *records) WithGroup(string) slog.Handler            { return r }

func (r *records) Handle(_ context.Context, rec slog.Record) error {
	line := rec.Message
	rec.Attrs(func(a slog.Attr) bool {
		line += " " + a.String()
		return true
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, line)
	close(r.changed)
	r.changed = make(chan struct{})
	return nil
}

// world is a watcher with its API server and directory.
type world struct {
	*apitest.Server
	t    *testing.T
	dir  string
	logs *records
	stop func()
}

const patience = 2 * time.Minute // also on a busy machine

func newWorld(t *testing.T) *world {
	w := &world{Server: apitest.New(t), t: t, dir: t.TempDir(), stop: func() {}}
	w.Put(apitest.Nodes, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "node1",
		Labels: map[string]string{"topology.kubernetes.io/zone": "z1"}}})
	for _, ns := range []string{"shop", "nearside"} {
		w.Put(apitest.Namespaces, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	}
	w.Put(apitest.Services, service("web", 80))
	w.Put(apitest.Pods, pod("watcher", "10.244.0.2", func(p *corev1.Pod) {
		p.Namespace, p.Annotations = "nearside", nil
	}))
	return w
}

// start runs the watcher until stop is called, or until the test ends.
func (w *world) start(edit ...func(*watch.Options)) {
	w.t.Helper()
	w.logs = &records{changed: make(chan struct{})}
	o := watch.Options{Kubernetes: w.Config(), Node: "node1", Self: "nearside/watcher", Config: "nearside/nearside-resources",
		System: []string{"nearside"}, Dir: w.dir, Socket: filepath.Join(w.dir, "watch.sock"), Log: slog.New(w.logs)}
	for _, e := range edit {
		e(&o)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- watch.Run(ctx, o) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	})
	w.t.Cleanup(w.stop)
}

// logged waits for a log line that contains text.
func (w *world) logged(text string) {
	w.t.Helper()
	w.until("the log line "+text, func() bool {
		return slices.ContainsFunc(w.logs.lines, func(l string) bool { return strings.Contains(l, text) })
	})
}

// until waits for a condition that becomes true with some log line.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	end := time.After(patience)
	for {
		w.logs.mu.Lock()
		changed, met := w.logs.changed, ok()
		w.logs.mu.Unlock()
		if met {
			return
		}
		select {
		case <-changed:
		case <-end:
			w.t.Fatalf("waiting for %s; log:\n%s", what, strings.Join(w.logs.lines, "\n"))
		}
	}
}

// files returns the content of all files by path below the directory.
func (w *world) files() map[string]string {
	w.t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == ".new" {
			return fs.SkipDir
		}
		if err != nil || d.IsDir() || filepath.Ext(path) != ".yaml" || strings.HasPrefix(d.Name(), ".") {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(w.dir, path)
		out[name] = string(text)
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		w.t.Fatal(err)
	}
	return out
}

func (w *world) has(file, text string) {
	w.t.Helper()
	w.until(file+" with "+text, func() bool {
		got, err := os.ReadFile(filepath.Join(w.dir, file))
		return err == nil && strings.Contains(string(got), text)
	})
}

func (w *world) gone(file string) {
	w.t.Helper()
	w.until(file+" to be deleted", func() bool {
		_, err := os.Stat(filepath.Join(w.dir, file))
		return os.IsNotExist(err)
	})
}

func pod(name, ip string, edit ...func(*corev1.Pod)) *corev1.Pod {
	always := corev1.ContainerRestartPolicyAlways
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name),
		Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"kuma.io/sidecar-injected": "true"}}}
	p.Spec.NodeName = "node1"
	p.Spec.InitContainers = []corev1.Container{{Name: "nearside-envoy", RestartPolicy: &always}}
	p.Spec.Containers = []corev1.Container{{Name: "app", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}}}
	p.Status.Phase, p.Status.PodIP = corev1.PodRunning, ip
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	for _, e := range edit {
		e(p)
	}
	return p
}

func service(name string, port int32) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	s.Spec.Selector = map[string]string{"app": "web"}
	s.Spec.ClusterIP = "10.96.0.10"
	s.Spec.ClusterIPs = []string{"10.96.0.10"}
	s.Spec.Ports = []corev1.ServicePort{{Port: port, TargetPort: intstr.FromString("http")}}
	return s
}

func configMap(data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "nearside", Name: "nearside-resources"}, Data: data}
}

func custom(kind, namespace, name string) map[string]any {
	return map[string]any{"apiVersion": "kuma.io/v1alpha1", "kind": kind,
		"metadata": map[string]any{"namespace": namespace, "name": name}, "spec": map[string]any{"a": "b"}}
}

func same(t *testing.T, want, got map[string]string) {
	t.Helper()
	if !maps.Equal(want, got) {
		t.Errorf("files changed: %v, before %v", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
}
