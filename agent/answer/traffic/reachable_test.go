package traffic_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/offline"
	"github.com/nearside-mesh/nearside/agent/answer/traffic"
)

const (
	mtls  = "mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}"
	allow = "---\n{type: MeshTrafficPermission, mesh: default, name: %s, spec: {targetRef: {kind: MeshService, " +
		"name: %s}, from: [{targetRef: {kind: Mesh}, default: {action: %s}}]}}\n"
)

// TestLists checks proposals for listed services, permitted services, and services that are not
// logged.
func TestLists(t *testing.T) {
	permissions := fmt.Sprintf(allow, "a", "backend", "Allow") + fmt.Sprintf(allow, "b", "cart", "Allow")
	some := ", reachableBackends: {refs: [{kind: MeshService, name: backend}, {kind: MeshService, name: orders, " +
		"namespace: shop, port: 80}]}"
	piece := "---\n{type: MeshAccessLog, mesh: default, name: quiet, spec: {to: [{targetRef: {kind: MeshService, " +
		"name: db}, default: {backends: []}}]}}\n"
	for _, c := range []struct {
		name  string
		w     world
		o     traffic.ReachableOptions
		lines []string
		want  string
	}{
		{"denied", world{mesh: mtls, more: permissions}, traffic.ReachableOptions{}, []string{http(1, "backend", "-"),
			tcp(1, "db", "-")}, "MeshService/backend:80 used 1; |; MeshService/db:5432 not permitted 1; MeshService/cart:80 " +
			"never used 0; MeshService/orders.shop:80 never used 0; MeshService/orders.shop:81 never used 0"},
		{"permitted", world{mesh: mtls, more: permissions}, traffic.ReachableOptions{Permitted: true},
			[]string{http(1, "backend", "-")}, "MeshService/backend:80 used 1; MeshService/cart:80 permitted 0; " +
				"MeshService/orders.shop:80 permitted 0; MeshService/orders.shop:81 permitted 0; |"},
		{"unused", world{lists: some}, traffic.ReachableOptions{}, []string{http(1, "backend", "-")},
			"MeshService/backend:80 used 1; |; MeshService/orders.shop:80 not used 0"},
		{"keep", world{lists: some}, traffic.ReachableOptions{Keep: true}, []string{http(1, "backend", "-")},
			"MeshService/backend:80 used 1; MeshService/orders.shop:80 listed 0; |"},
		{"keep, without lines", world{lists: some}, traffic.ReachableOptions{Keep: true}, nil,
			"MeshService/backend:80 listed 0; MeshService/orders.shop:80 listed 0; |"},
		{"unlisted", world{lists: some}, traffic.ReachableOptions{},
			[]string{http(1, "backend", "-"), tcp(1, "external", "VIP-DB"),
				tcp(2, "external", "VIP-DB"), tcp(3, "external", "192.0.2.3:5432"), tcp(3, "external", "198.51.100.1:80")},
			"MeshService/db:5432 used 2 unlisted; MeshService/backend:80 used 1; |; MeshService/orders.shop:80 not used 0; " +
				"192.0.2.3:5432 [MeshService/db:5432] 1"},
		{"unlisted and denied", world{mesh: mtls, more: permissions, lists: some}, traffic.ReachableOptions{},
			[]string{tcp(1, "external", "VIP-DB")},
			"|; MeshService/db:5432 not permitted 1; MeshService/backend:80 not used 0; MeshService/cart:80 never used 0; " +
				"MeshService/orders.shop:80 not used 0; MeshService/orders.shop:81 never used 0"},
		{"not logged", world{more: piece}, traffic.ReachableOptions{}, []string{http(1, "backend", "-")},
			"MeshService/backend:80 used 1; MeshService/db:5432 not logged 0; |"},
		{"a filter", world{more: strings.Replace(piece, "{backends: []}", "{backends: ["+file+
			"], filtering: {duration: {op: ge, value: 250ms}}}", 1)}, traffic.ReachableOptions{},
			[]string{http(1, "backend", "-")},
			"MeshService/backend:80 used 1; MeshService/db:5432 not logged 0; |"},
		{"from before it was unlisted", world{lists: some}, traffic.ReachableOptions{},
			[]string{tcp(1, "db", "192.0.2.3:5432"),
				tcp(1, "orders.shop", "-")}, "MeshService/db:5432 used 1 unlisted; MeshService/orders.shop:80 used 1; " +
				"MeshService/orders.shop:81 used 1 unlisted; |; MeshService/backend:80 not used 0"},
		{"cluster from before", world{lists: some, to: plain("%UPSTREAM_CLUSTER%")}, traffic.ReachableOptions{},
			[]string{"default_db___msvc_5432", "default_backend___msvc_80", "gone"},
			"MeshService/backend:80 used 1; MeshService/db:5432 used 1 unlisted; |; MeshService/orders.shop:80 not used 0"},
		{"services are not emptied",
			world{mode: "Everywhere", lists: ", reachableServices: [db], reachableBackends: {refs: []}"},
			traffic.ReachableOptions{},
			[]string{tcp(1, "external", "VIP-cart")}, "cart used 1 unlisted; |; db not used 0"},
		{"services retained", world{mode: "Everywhere", lists: ", reachableServices: [db], reachableBackends: {refs: []}"},
			traffic.ReachableOptions{}, []string{tcp(1, "external", "VIP-orders.shop")},
			"MeshService/orders.shop:80 used 1 unlisted; db listed 0; |"},
		{"nothing", world{}, traffic.ReachableOptions{}, []string{"x"}, "|"},
	} {
		for i, l := range c.lines {
			if _, name, ok := strings.Cut(l, "VIP-"); ok {
				name, _, _ = strings.Cut(name, "(")
				c.lines[i] = strings.Replace(l, "VIP-"+name, vip(t, c.w, strings.ToLower(name)), 1)
			}
		}
		p := c.w.proposal(t, c.o, c.lines...)
		if got := strings.TrimSuffix(summary(p), "; "); got != c.want {
			t.Errorf("%s: %s\nwant %s", c.name, got, c.want)
		}
		if (p.Fragment == "") != strings.HasPrefix(c.want, "|") {
			t.Errorf("%s: fragment %q", c.name, p.Fragment)
		}
	}
}

// TestFragment checks that the proposed fragment is valid and makes exactly the proposed services
// reachable.
func TestFragment(t *testing.T) {
	w := world{mode: "Everywhere"}
	p := w.proposal(t, traffic.ReachableOptions{}, http(1, "backend", "192.0.2.2:80"), http(2, "backend", "192.0.2.2:80"),
		tcp(3, "external", vip(t, w, "orders.shop")))
	const want = `networking:
  transparentProxying:
    reachableServices:
    # 2 lines, the last at 2026-11-23T10:00:02Z
    - backend
    reachableBackends:
      refs:
      # 2 lines, the last at 2026-11-23T10:00:02Z
      - {kind: MeshService, name: backend, port: 80}
      # 1 line, at 2026-11-23T10:00:03Z
      - {kind: MeshService, name: orders, namespace: shop, port: 80}
`
	if p.Fragment != want {
		t.Errorf("%s\nwant\n%s", p.Fragment, want)
	}
	_, lists, _ := strings.Cut(p.Fragment, "transparentProxying:\n")
	docs := strings.Replace(fmt.Sprintf(resources, "Everywhere", "", "", file, ""),
		"  transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001, ipFamilyMode: IPv4}\n",
		"  transparentProxying:\n    redirectPortInbound: 15006\n    redirectPortOutbound: 15001\n    ipFamilyMode: IPv4\n"+
			lists, 1)
	off, faults := offline.Read([]offline.Text{{Name: "r.yaml", Data: []byte(docs)}})
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	b, err := off.Backends("", "default", "web")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, x := range b.Items {
		if x.Reachable {
			got = append(got, x.Destination.String())
		}
	}
	if want := []string{"backend", "MeshService/backend:80", "MeshService/orders.shop:80"}; !slices.Equal(got, want) {
		t.Errorf("reachable are %v, want %v", got, want)
	}
}
