package watch_test

import (
	"context"
	"encoding/json"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nearside-mesh/nearside/packaging/kubernetes/watcher/watch"
	"github.com/nearside-mesh/nearside/packaging/kubernetes/watcher/watch/apitest"
)

// kubeconfigVariable names the kubeconfig of an API server without a kubelet, on which the test may
// create and delete objects. The admission plugin ServiceAccount must be off.
const kubeconfigVariable = "WATCHER_TEST_KUBECONFIG"

// TestRealAPI follows objects of a real API server, with all its encodings.
func TestRealAPI(t *testing.T) {
	path := os.Getenv(kubeconfigVariable)
	if path == "" {
		t.Skip(kubeconfigVariable + " is not set: there is no API server")
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { utilnet.CloseIdleConnectionsFor(client.Transport) })
	r := &real{t: t}
	if r.client, err = dynamic.NewForConfigAndClient(config, client); err != nil {
		t.Fatal(err)
	}
	r.create("v1", "nodes", "", map[string]any{"metadata": map[string]any{"name": "node1-of-test",
		"labels": map[string]any{"topology.kubernetes.io/zone": "z9"}}})
	r.create("v1", "namespaces", "", map[string]any{"metadata": map[string]any{"name": "shop"}})
	s := service("web", 80)
	s.Spec.ClusterIP, s.Spec.ClusterIPs = "", nil // the server assigns it
	r.create("v1", "services", "shop", s)
	p := pod("web-0", "10.244.0.5")
	p.Spec.NodeName, p.Spec.InitContainers[0].Image, p.Spec.Containers[0].Image = "node1-of-test", "envoy", "app"
	r.create("v1", "pods", "shop", p)

	w := &world{t: t, dir: t.TempDir(), stop: func() {}, Server: apitest.New(t)}
	w.start(func(o *watch.Options) {
		o.Kubernetes, o.Node, o.Self, o.Config = config, "node1-of-test", "", "shop/nearside-resources"
	})
	const file = "pods/shop.web-0.yaml"
	w.has("services/shop.web.yaml", "- ip: 10.")
	r.status("web-0", &p.Status)
	w.has(file, "state: Ready")
	w.has(file, "topology.kubernetes.io/zone: z9")
	p.Status.Conditions[0].Status = corev1.ConditionFalse
	r.status("web-0", &p.Status)
	w.has(file, "state: NotReady")
	p.Status.Conditions[0].Status = corev1.ConditionTrue
	r.status("web-0", &p.Status)
	w.has(file, "state: Ready")
	// No kubelet ends the pod, so it stays with a deletion timestamp.
	r.delete("v1", "pods", "shop", "web-0", 30)
	w.has(file, "state: NotReady")
	r.delete("v1", "pods", "shop", "web-0", 0)
	w.gone(file)
	c := configMap(map[string]string{"mesh.yaml": "type: Mesh"})
	c.Namespace = "shop"
	r.create("v1", "configmaps", "shop", c)
	w.has("resources/mesh.yaml", "type: Mesh")
	r.delete("v1", "configmaps", "shop", "nearside-resources", 0)
	r.delete("v1", "services", "shop", "web", 0)
	w.gone("services/shop.web.yaml")
	if w.files()["resources/mesh.yaml"] == "" {
		t.Error("the deleted ConfigMap has deleted the resources")
	}
}

// real writes to a real API server.
type real struct {
	t      *testing.T
	client dynamic.Interface
}

func (r *real) of(version, plural, namespace string) dynamic.ResourceInterface {
	gvr := schema.GroupVersionResource{Version: version, Resource: plural}
	if namespace == "" {
		return r.client.Resource(gvr)
	}
	return r.client.Resource(gvr).Namespace(namespace)
}

// create creates an object, and deletes it after the test.
func (r *real) create(version, plural, namespace string, v any) {
	r.t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		r.t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(text, &u.Object); err != nil {
		r.t.Fatal(err)
	}
	kinds := map[string]string{"nodes": "Node", "namespaces": "Namespace", "services": "Service", "pods": "Pod",
		"configmaps": "ConfigMap"}
	u.SetAPIVersion(version)
	u.SetKind(kinds[plural])
	_, err = r.of(version, plural, namespace).Create(r.t.Context(), u, metav1.CreateOptions{})
	if plural == "namespaces" && (err == nil || apierrors.IsAlreadyExists(err)) {
		return // without a controller manager, a deleted namespace never vanishes
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		zero := int64(0)
		_ = r.of(version, plural, namespace).Delete(context.Background(), u.GetName(), metav1.DeleteOptions{GracePeriodSeconds: &zero})
	})
}

func (r *real) status(name string, s *corev1.PodStatus) {
	r.t.Helper()
	text, err := json.Marshal(map[string]any{"status": s})
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.of("v1", "pods", "shop").Patch(r.t.Context(), name, types.MergePatchType, text, metav1.PatchOptions{},
		"status"); err != nil {
		r.t.Fatal(err)
	}
}

func (r *real) delete(version, plural, namespace, name string, grace int64) {
	r.t.Helper()
	if err := r.of(version, plural, namespace).Delete(r.t.Context(), name,
		metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
		r.t.Fatal(err)
	}
}
