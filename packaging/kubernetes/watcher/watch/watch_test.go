package watch_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nearside-mesh/nearside/packaging/kubernetes/watcher/watch"
	"github.com/nearside-mesh/nearside/packaging/kubernetes/watcher/watch/apitest"
	"github.com/nearside-mesh/nearside/packaging/kubernetes/watcher/watch/outdir"
)

// TestLifeOfPod follows a pod from its start to its end.
func TestLifeOfPod(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.has("services/shop.web.yaml", "10.96.0.10")
	const file = "pods/shop.web-0.yaml"
	w.Put(apitest.Pods, pod("web-0", "10.244.0.5", func(p *corev1.Pod) { p.Status.Conditions = nil }))
	w.has(file, "state: NotReady")
	w.Put(apitest.Pods, pod("web-0", "10.244.0.5"))
	w.has(file, "state: Ready")
	conditions := func(ready, containers, gate corev1.ConditionStatus) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "gate"}}
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready},
				{Type: corev1.ContainersReady, Status: containers}, {Type: "gate", Status: gate}}
		}
	}
	w.Put(apitest.Pods, pod("web-0", "10.244.0.5", conditions("False", "True", "False")))
	w.has(file, "state: NotReady")
	// The node controller has not heard of this node.
	w.Put(apitest.Pods, pod("web-0", "10.244.0.5", conditions("False", "True", "True")))
	w.has(file, "state: Ready")
	w.Put(apitest.Pods, pod("web-0", "10.244.0.5", conditions("False", "False", "True")))
	w.has(file, "state: NotReady")
	w.Put(apitest.Pods, pod("web-0", "10.244.0.5"))
	w.has(file, "topology.kubernetes.io/zone: z1")
	w.Put(apitest.Services, service("web", 81))
	w.has(file, "web_shop_svc_81")
	w.Put(apitest.Namespaces, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "shop",
		Labels: map[string]string{"kuma.io/mesh": "other"}}})
	w.has(file, "mesh: other")
	w.has("services/shop.web.yaml", "kuma.io/mesh: other")
	w.Put(apitest.Nodes, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "node1",
		Labels: map[string]string{"topology.kubernetes.io/zone": "z2"}}})
	w.has(file, "topology.kubernetes.io/zone: z2")
	w.Delete(apitest.Services, "shop/web")
	w.gone("services/shop.web.yaml")
	w.has(file, "web-0_shop_svc")
	now := metav1.NewTime(time.Unix(1_000_000, 0))
	w.Put(apitest.Pods, pod("web-0", "10.244.0.5", func(p *corev1.Pod) { p.DeletionTimestamp = &now }))
	w.has(file, "state: NotReady")
	w.Delete(apitest.Pods, "shop/web-0")
	w.gone(file)
}

// TestTakeover checks that a second watcher does not write until the first one has ended, and then
// writes only the changes since.
func TestTakeover(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.has("services/shop.web.yaml", "")
	first := *w
	w.start()
	w.logged("waiting until the watcher that writes this directory has ended")
	w.Put(apitest.Pods, pod("web-0", "10.244.0.5"))
	first.has("pods/shop.web-0.yaml", "state: Ready")
	third := *w
	third.start()
	third.logged("waiting until the watcher")
	third.stop()
	before := w.files()
	first.stop()
	w.logged("wrote the status")
	same(t, before, w.files())
	w.Delete(apitest.Pods, "shop/web-0")
	w.gone("pods/shop.web-0.yaml")
	w.stop()
	if wrote := func(l string) bool { return strings.HasPrefix(l, "wrote a file") }; slices.ContainsFunc(w.logs.lines, wrote) {
		t.Errorf("the second watcher has written: %v", w.logs.lines)
	}
}

// TestOtherNode checks that pods of other nodes have no files in the scope of a node, and have them
// in the scope of the cluster.
func TestOtherNode(t *testing.T) {
	w := newWorld(t)
	w.Put(apitest.Pods, pod("far", "10.244.1.5", func(p *corev1.Pod) { p.Spec.NodeName = "node2" }))
	w.start()
	w.has("services/shop.web.yaml", "web")
	w.Put(apitest.Pods, pod("near", "10.244.0.5"))
	w.has("pods/shop.near.yaml", "10.244.0.5")
	if f := w.files(); f["pods/shop.far.yaml"] != "" {
		t.Error(f)
	}
	w.stop()
	w.start(func(o *watch.Options) { o.Node = "" })
	w.has("pods/shop.far.yaml", "10.244.1.5")
}

// TestReusedAddress checks that the older of two pods with one address has no Dataplane.
func TestReusedAddress(t *testing.T) {
	w := newWorld(t)
	at := func(s int64) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.CreationTimestamp = metav1.Unix(s, 0) }
	}
	w.Put(apitest.Pods, pod("old", "10.244.0.5", at(100)))
	w.start()
	w.has("pods/shop.old.yaml", "10.244.0.5")
	w.Put(apitest.Pods, pod("new", "10.244.0.5", at(200)))
	w.has("pods/shop.new.yaml", "10.244.0.5")
	w.gone("pods/shop.old.yaml")
	w.logged("Pod shop/old: the newer pod shop/new has its IP address 10.244.0.5")
	w.Put(apitest.Pods, pod("new", "10.244.0.6", at(200)))
	w.has("pods/shop.old.yaml", "10.244.0.5")
}

// TestHeadless checks the MeshServices of a headless Service.
func TestHeadless(t *testing.T) {
	w := newWorld(t)
	s := service("peers", 5000)
	s.Spec.ClusterIP, s.Spec.ClusterIPs = "None", []string{"None"}
	w.Put(apitest.Services, s)
	w.start()
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "peers-x",
		Labels: map[string]string{"kubernetes.io/service-name": "peers"}}}
	w.has("services/shop.web.yaml", "web")
	for _, name := range []string{"db-0", "db-1"} {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.244.0.7"},
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: name, Namespace: "shop"}})
		w.Put(apitest.Slices, slice)
		w.has("services/shop.peers.yaml", "name: "+name+".shop")
	}
	w.Delete(apitest.Slices, "shop/peers-x")
	w.gone("services/shop.peers.yaml")
}

// TestConfigMap checks the resources of the ConfigMap. A deleted one changes nothing, and an empty
// one removes all.
func TestConfigMap(t *testing.T) {
	w := newWorld(t)
	w.Put(apitest.ConfigMaps, configMap(map[string]string{"a.yaml": "type: Mesh", "b.json": "{}", "README": "no"}))
	w.start()
	w.has("resources/a.yaml", "type: Mesh")
	w.has("resources/b.json.yaml", "{}")
	w.logged(`ConfigMap nearside/nearside-resources: data["README"]`)
	w.Put(apitest.ConfigMaps, configMap(map[string]string{"a.yaml": "type: Mesh # 2"}))
	w.has("resources/a.yaml", "# 2")
	w.gone("resources/b.json.yaml")
	w.Delete(apitest.ConfigMaps, "nearside/nearside-resources")
	w.Put(apitest.Pods, pod("web-0", "10.244.0.5")) // later than the deletion
	w.has("pods/shop.web-0.yaml", "10.244.0.5")
	w.stop()
	w.start()
	w.Put(apitest.Pods, pod("web-1", "10.244.0.6"))
	w.has("pods/shop.web-1.yaml", "10.244.0.6")
	if w.files()["resources/a.yaml"] == "" {
		t.Error("a deleted ConfigMap has deleted the resources")
	}
	w.Put(apitest.ConfigMaps, configMap(nil))
	w.gone("resources/a.yaml")
}

// TestCustomResources checks kinds that exist at the start, and their changes.
func TestCustomResources(t *testing.T) {
	w := newWorld(t)
	w.Define("dataplanes")
	w.Put(apitest.Kuma+"/dataplanes", custom("Dataplane", "shop", "forged"))
	w.Put(apitest.Kuma+"/meshtimeouts", custom("MeshTimeout", "nearside", "slow"))
	w.Put(apitest.Kuma+"/meshtimeouts", custom("MeshTimeout", "shop", "mine"))
	w.Put(apitest.Kuma+"/meshexternalservices", custom("MeshExternalService", "shop", "db"))
	w.start()
	w.has("policies/meshtimeout.nearside.slow.yaml", "kuma.io/policy-role: system")
	w.has("policies/meshtimeout.shop.mine.yaml", "kuma.io/policy-role: workload-owner")
	w.logged(`MeshExternalService shop/db: metadata.namespace`)
	w.Delete(apitest.Kuma+"/meshtimeouts", "shop/mine")
	w.gone("policies/meshtimeout.shop.mine.yaml")
	if got := slices.Sorted(maps.Keys(w.files())); len(got) != 2 { // and services/shop.web.yaml
		t.Errorf("%v", got)
	}
}

// TestOutage checks that nothing changes while the API server is away, also over a restart, and that
// the watcher catches up.
func TestOutage(t *testing.T) {
	w := newWorld(t)
	w.Put(apitest.Pods, pod("web-0", "10.244.0.5"))
	w.Put(apitest.Pods, pod("web-1", "10.244.0.6"))
	w.Put(apitest.ConfigMaps, configMap(map[string]string{"a.yaml": "type: Mesh"}))
	w.Put(apitest.Kuma+"/meshtimeouts", custom("MeshTimeout", "nearside", "slow"))
	w.start()
	for _, f := range []string{"pods/shop.web-0.yaml", "pods/shop.web-1.yaml", "services/shop.web.yaml", "resources/a.yaml",
		"policies/meshtimeout.nearside.slow.yaml"} {
		w.has(f, "")
	}
	before := w.files()
	w.Down(true)
	w.logged("cannot read from the Kubernetes API")
	w.Delete(apitest.Pods, "shop/web-0")
	w.stop()
	same(t, before, w.files())
	w.start()
	for _, kind := range []string{"pods", "services", "configmaps", "namespaces"} {
		w.logged("cannot read from the Kubernetes API; all files stay as they are kind=" + kind)
	}
	same(t, before, w.files())
	w.logged("wrote the status reachable=false")
	status, err := os.ReadFile(filepath.Join(w.dir, "status.json"))
	if err != nil || !strings.Contains(string(status), `"reachable": false`) || !strings.Contains(string(status), "awaySince") {
		t.Errorf("%v %s", err, status)
	}
	// The next watcher continues the outage that this one has seen, from its first line on.
	w.stop()
	since := regexp.MustCompile(`"awaySince": "[^"]*"`)
	const early = `"awaySince": "2020-01-02T03:04:05Z"`
	status = since.ReplaceAll(status, []byte(early))
	if err := os.WriteFile(filepath.Join(w.dir, "status.json"), status, 0o640); err != nil {
		t.Fatal(err)
	}
	w.start()
	for _, event := range []string{"wrote the status reachable=false", "all files stay as they are kind=pods"} {
		w.logged(event)
		if status, err := os.ReadFile(filepath.Join(w.dir, "status.json")); err != nil || !strings.Contains(string(status), early) {
			t.Errorf("%v %s", err, status)
		}
	}
	w.Down(false)
	w.gone("pods/shop.web-0.yaml")
	w.logged("the Kubernetes API answers again")
	delete(before, "pods/shop.web-0.yaml")
	same(t, before, w.files())
	w.logged("wrote the status reachable=true")
	for _, dir := range []string{"pods", "services", "resources"} {
		if _, err := os.Stat(filepath.Join(w.dir, dir, outdir.Marker)); err != nil {
			t.Error(err)
		}
	}
}

// TestExpired checks that changes are found after the watch has expired.
func TestExpired(t *testing.T) {
	w := newWorld(t)
	w.Put(apitest.Pods, pod("web-0", "10.244.0.5"))
	w.Put(apitest.Pods, pod("web-1", "10.244.0.6"))
	w.start()
	w.has("pods/shop.web-0.yaml", "10.244.0.5")
	w.has("pods/shop.web-1.yaml", "10.244.0.6")
	w.Forget(apitest.Pods, "shop/web-0")
	w.Expire()
	w.gone("pods/shop.web-0.yaml")
	w.has("pods/shop.web-1.yaml", "10.244.0.6")
}

// TestImpossibleLists checks that lists that cannot be right change nothing.
func TestImpossibleLists(t *testing.T) {
	for path, refusal := range map[string]string{
		apitest.Pods:       "does not contain the pod nearside/watcher of the watcher",
		apitest.Services:   "the list of Services is empty",
		apitest.Namespaces: "the list of Namespaces is empty",
		apitest.Nodes:      "the list of Nodes is empty",
	} {
		t.Run(path[1:], func(t *testing.T) {
			w := newWorld(t)
			w.Put(apitest.Pods, pod("web-0", "10.244.0.5"))
			w.start()
			w.has("pods/shop.web-0.yaml", "10.244.0.5")
			w.has("services/shop.web.yaml", "web")
			before := w.files()
			for _, key := range []string{"shop/web-0", "nearside/watcher", "shop/web", "/shop", "/nearside", "/node1"} {
				w.Forget(path, key)
			}
			w.Expire()
			w.logged(refusal)
			same(t, before, w.files())
			w.stop()
			w.start() // a restart does not help either
			w.logged(refusal)
			same(t, before, w.files())
		})
	}
}

// TestFailingLists checks that a kind that cannot be read changes no files of others.
func TestFailingLists(t *testing.T) {
	w := newWorld(t)
	w.Put(apitest.Pods, pod("web-0", "10.244.0.5"))
	w.start()
	w.has("pods/shop.web-0.yaml", "10.244.0.5")
	w.stop()
	before := w.files()
	w.Delete(apitest.Services, "shop/web")
	w.Put(apitest.ConfigMaps, configMap(map[string]string{"a.yaml": "type: Mesh"}))
	w.Break(apitest.Services, 403)
	w.start()
	w.logged("kind=services")
	w.has("resources/a.yaml", "type: Mesh")
	delete(before, "resources/a.yaml")
	after := w.files()
	delete(after, "resources/a.yaml")
	same(t, before, after)
	w.Put(apitest.Services, service("web", 80))
	w.Break(apitest.Services, 0)
	w.logged("the Kubernetes API answers again kind=services")
}

// TestHangingList checks that the first pages of a list that never ends change nothing.
func TestHangingList(t *testing.T) {
	w := newWorld(t)
	for i := range 600 {
		w.Put(apitest.Services, service(fmt.Sprintf("s%d", i), 80))
	}
	w.start()
	w.has("services/shop.s599.yaml", "s599")
	w.until("all Services", func() bool { return len(w.files()) == 601 })
	w.stop()
	before := w.files()
	w.Hang(apitest.Services, true)
	w.Put(apitest.ConfigMaps, configMap(map[string]string{"a.yaml": "type: Mesh"}))
	w.start()
	w.has("resources/a.yaml", "type: Mesh") // so the other lists are complete
	after := w.files()
	delete(after, "resources/a.yaml")
	same(t, before, after)
	w.Delete(apitest.Services, "shop/s0")
	w.Hang(apitest.Services, false)
	w.gone("services/shop.s0.yaml")
}

// TestWriteError checks that a file that cannot be written is written later.
func TestWriteError(t *testing.T) {
	w := newWorld(t)
	if err := os.MkdirAll(filepath.Join(w.dir, "pods", "shop.web-0.yaml"), 0o700); err != nil {
		t.Fatal(err)
	}
	w.Put(apitest.Pods, pod("web-0", "10.244.0.5"))
	w.start()
	w.logged("cannot write a file")
	w.has("services/shop.web.yaml", "web")
	if err := os.Remove(filepath.Join(w.dir, "pods", "shop.web-0.yaml")); err != nil {
		t.Fatal(err)
	}
	w.has("pods/shop.web-0.yaml", "10.244.0.5")
}

// TestHealth checks the answers of the health check.
func TestHealth(t *testing.T) {
	w := newWorld(t)
	ask := func(args ...string) (int, string) {
		var out, errs strings.Builder
		code := watch.Healthcheck(t.Context(), append(args, "--socket", filepath.Join(w.dir, "watch.sock")), &out, &errs)
		return code, out.String() + errs.String()
	}
	if code, out := ask(); code != 69 || !strings.Contains(out, "does not answer") {
		t.Errorf("%d %s", code, out)
	}
	w.Down(true)
	w.start()
	w.logged("wrote the status reachable=false") // it also answers health checks by then
	if code, out := ask(); code != 0 {
		t.Errorf("an outage of the API server makes the watcher unhealthy: %d %s", code, out)
	}
	if code, out := ask("--ready"); code != 1 || !strings.Contains(out, "503") {
		t.Errorf("%d %s", code, out)
	}
	w.Down(false)
	w.has("services/shop.web.yaml", "web")
	w.Put(apitest.Pods, pod("web-0", "10.244.0.5"))
	w.has("pods/shop.web-0.yaml", "10.244.0.5")
	w.until("the status after the files", func() bool {
		code, out := ask("--ready")
		return code == 0 && strings.Contains(out, `"node": "node1"`)
	})
}
