package traffictest_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/compute/bootstrap"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// pod is a workload of a namespace with the Dataplane that the watcher of Kubernetes writes.
type pod struct {
	service, namespace string
	address            int    // last byte of the IP address
	cluster            string // address of its Service
}

// pods are the same three services in two namespaces.
func pods() (out []pod) {
	for i, ns := range []string{"red", "blue"} {
		for j, service := range []string{"web", "backend", "store"} {
			out = append(out, pod{service, ns, 2 + 3*i + j, fmt.Sprintf("10.96.0.%d", 10+3*i+j)})
		}
	}
	return out
}

func (p *pod) id() string { return "default." + p.name() + "." + p.namespace }

func (p *pod) name() string { return p.service + "-0" }

func (p *pod) dataplane(state string) string {
	return fmt.Sprintf(`apiVersion: kuma.io/v1alpha1
kind: Dataplane
mesh: default
metadata:
  name: %[1]s
  namespace: %[2]s
  labels: {app: %[3]s, kuma.io/mesh: default, k8s.kuma.io/namespace: %[2]s, kuma.io/env: kubernetes}
spec:
  networking:
    address: %[4]s
    inbound:
    - {port: 8080, name: http, state: %[5]s, tags: {kuma.io/service: %[3]s_%[2]s_svc_80, kuma.io/protocol: http, app: %[3]s,
       k8s.kuma.io/service-name: %[3]s, k8s.kuma.io/service-port: "80", k8s.kuma.io/namespace: %[2]s}}
    transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001}
`, p.name(), p.namespace, p.service, nodeV4(p.address), state)
}

func (p *pod) meshService() string {
	return fmt.Sprintf(`apiVersion: kuma.io/v1alpha1
kind: MeshService
metadata:
  name: %[1]s
  namespace: %[2]s
  labels: {kuma.io/mesh: default, k8s.kuma.io/namespace: %[2]s, k8s.kuma.io/service-name: %[1]s,
    kuma.io/managed-by: k8s-controller}
spec:
  selector: {dataplaneTags: {app: %[1]s, k8s.kuma.io/namespace: %[2]s}}
  ports: [{port: 80, targetPort: http, appProtocol: http}]
status: {vips: [{ip: %[3]s}]}
`, p.service, p.namespace, p.cluster)
}

// namespacePolicies are policies that users of the namespaces write. Each applies to its own
// namespace or to clients of its services.
const namespacePolicies = `{type: Mesh, name: default, mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin, mode: STRICT}]}}
---
{type: HostnameGenerator, name: names, spec: {template: "{{ .DisplayName }}.{{ .Namespace }}.cluster", selector: {meshService: {}}}}
---
apiVersion: kuma.io/v1alpha1
kind: MeshTrafficPermission
metadata: {name: clients, namespace: red}
spec: {from: [{targetRef: {kind: MeshSubset, tags: {k8s.kuma.io/namespace: red}}, default: {action: Allow}}]}
---
apiVersion: kuma.io/v1alpha1
kind: MeshTrafficPermission
metadata: {name: clients, namespace: blue}
spec: {from: [{targetRef: {kind: Mesh}, default: {action: Allow}}]}
`

// storeRoute sends requests for /rows of the backend of blue, from every namespace, to its store.
const storeRoute = `apiVersion: kuma.io/v1alpha1
kind: MeshHTTPRoute
metadata: {name: rows, namespace: blue}
spec:
  to:
  - targetRef: {kind: MeshService, name: backend}
    rules:
    - matches: [{path: {type: PathPrefix, value: /rows}}]
      default: {backendRefs: [{kind: MeshService, name: store, port: 80}]}
`

// TestTrafficByNamespace runs the same three services in two namespaces of a mesh, from the files
// of the watcher. No name leads into the other namespace, and policies stay in theirs.
func TestTrafficByNamespace(t *testing.T) {
	w := quietWorld(t)
	dir := agenttest.ShortDir(t)
	agenttest.Do(t, os.Chmod(dir, 0o755))
	for _, sub := range []string{"resources", "pods"} {
		agenttest.Do(t, os.Mkdir(filepath.Join(dir, sub), 0o755))
	}
	agenttest.Write(t, filepath.Join(dir, "resources", "policies.yaml"), namespacePolicies)
	agenttest.Write(t, filepath.Join(dir, "resources", "route.yaml"), storeRoute)
	for _, p := range pods() {
		agenttest.Write(t, filepath.Join(dir, "pods", p.namespace+"."+p.name()+".yaml"), p.dataplane("Ready"))
		agenttest.Write(t, filepath.Join(dir, "pods", p.namespace+"."+p.service+".service.yaml"), p.meshService())
	}
	w.agent = agenttest.Up(t, dir, agent.Deps{}, "xds.socket.mode=0666",
		fmt.Sprintf("resources.dir=[{path: %[1]s/resources}, {path: %[1]s/pods, role: kubernetes}]", dir),
		fmt.Sprintf(`xds.access=[{user: "%d", nodes: ["*.*.red", "*.*.blue"]}]`, envoyUser))
	w.agents = append(w.agents, w.agent)
	for _, p := range pods() {
		ns := w.net.node(p.address, true)
		w.proxies[p.id()] = startEnvoy(t, w.binary, ns, bootstrap.Options{Type: node.ProxyDataplane, Mesh: "default",
			Name: p.name() + "." + p.namespace, XDSSocket: w.agent.Addrs().XDS}, p.id(), nowhere, time.Second)
		serveName(t, ns, nodeV4(p.address)+":8080", p.service+" of "+p.namespace)
	}
	w.live(t)
	ask := func(from *pod, at netip.AddrPort, path string) string {
		c := &http.Client{Timeout: agenttest.Patience, Transport: &http.Transport{DisableKeepAlives: true,
			DialContext: func(context.Context, string, string) (net.Conn, error) { return w.proxies[from.id()].ns.dial(at) }}}
		resp, err := c.Get("http://service" + path)
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			return fmt.Sprint(resp.StatusCode)
		}
		return string(b)
	}
	list := pods()
	for i := range list {
		to := &list[i]
		places := map[string]netip.Addr{"cluster IP": netip.MustParseAddr(to.cluster)}
		for _, name := range []string{to.service + "_" + to.namespace + "_svc_80.mesh",
			to.service + "." + to.namespace + ".svc.80.mesh", to.service + "." + to.namespace + ".cluster"} {
			addrs := w.addressesOf(t, "default", name)
			if len(addrs) != 1 {
				t.Fatalf("%s: %v", name, addrs)
			}
			places[name] = addrs[0]
		}
		if got := places[to.service+"."+to.namespace+".cluster"]; got != places["cluster IP"] {
			t.Errorf("the generated name of %s has the address %s, not that of its Service", to.id(), got)
		}
		for j := range list {
			from := &list[j]
			want := to.service + " of " + to.namespace
			if to.namespace == "red" && from.namespace == "blue" {
				want = "403"
			}
			for name, addr := range places {
				if got := ask(from, netip.AddrPortFrom(addr, 80), "/"); got != want {
					t.Errorf("%s calls %s: %q, want %q", from.id(), name, got, want)
				}
			}
		}
	}
	for _, c := range []struct {
		from, to *pod
		want     string
	}{
		{&list[3], &list[4], "store of blue"}, {&list[0], &list[4], "store of blue"}, {&list[0], &list[1], "backend of red"},
	} {
		if got := ask(c.from, netip.AddrPortFrom(netip.MustParseAddr(c.to.cluster), 80), "/rows"); got != c.want {
			t.Errorf("%s calls /rows of %s: %q, want %q", c.from.id(), c.to.id(), got, c.want)
		}
	}
}
