package proxypatch

import (
	"fmt"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// notes is a host that records warnings.
type notes struct {
	policy.Host
	list []string
}

// Claim always succeeds.
func (n *notes) Claim(string, string) bool { return true }

func (n *notes) Warn(k resource.Key, format string, args ...any) {
	n.list = append(n.list, k.Name+": "+fmt.Sprintf(format, args...))
}

// planOf decodes modifications as a policy with a name.
func planOf(t testing.TB, name, modifications string) Plan {
	t.Helper()
	registry, err := resource.NewRegistry(append(resource.Core(), Plugin(policy.LegacyKind{}).Kinds...)...)
	if err != nil {
		t.Fatal(err)
	}
	rs, faults := registry.Decode("", []byte("type: MeshProxyPatch\nmesh: default\nname: "+name+
		"\nspec:\n  default:\n    appendModifications:\n"+modifications))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return Plan{Policy: rs[0], Changes: rs[0].Spec.(*resource.Policy).Default.(*Conf).changes()}
}

// draftPart returns outbounds that share equal messages, like those of the generator.
func draftPart(from, n int) *draft.Draft {
	d := &draft.Draft{}
	for i := from; i < from+n; i++ {
		name := fmt.Sprintf("s-%d", i)
		d.Clusters = append(d.Clusters, &draft.Cluster{HTTP: draft.HTTP2Options, Message: &clusterv3.Cluster{
			Name: name, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}, EdsClusterConfig: draft.EDS,
		}})
		d.Listeners = append(d.Listeners, &draft.Listener{
			Kind: draft.Outbound, Tags: map[string]string{"kuma.io/service": name},
			Message: &listenerv3.Listener{Name: "outbound:" + name,
				Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
					Address: "127.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(i + 1)},
				}}}},
			Chains: []*draft.Chain{{HTTP: &draft.HTTP{
				Message: &hcmv3.HttpConnectionManager{StatPrefix: name, InternalAddressConfig: draft.InternalAddresses,
					NormalizePath: normalize},
				Filters: draft.PlainFilters,
				Routes: &routev3.RouteConfiguration{Name: name, ValidateClusters: validate, VirtualHosts: []*routev3.VirtualHost{{
					Name: name, Domains: []string{"*"}, Routes: []*routev3.Route{{
						Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
						Action: &routev3.Route_Route{
							Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: name}},
						},
					}},
				}}},
			}}},
		})
	}
	return d
}

func sealed(d *draft.Draft) (*draft.Sealed, []draft.Fault) {
	s := draft.NewSealer(nil)
	s.Inline = true
	s.Add(d)
	return s.Finish()
}

var normalize, validate = wrapperspb.Bool(true), wrapperspb.Bool(false)

const everything = `
    - cluster:
        operation: Patch
        match: {origin: outbound}
        value: |
          edsClusterConfig: {serviceName: x}
          typedExtensionProtocolOptions:
            envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
              "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
              commonHttpProtocolOptions: {idleTimeout: 5s}
    - cluster: {operation: Patch, jsonPatches: [{op: add, path: /connectTimeout, value: 9s}]}
    - listener: {operation: Patch, match: {origin: outbound}, value: "freebind: true"}
    - networkFilter:
        operation: Patch
        match: {name: envoy.filters.network.http_connection_manager}
        value: |
          typedConfig:
            "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
            normalizePath: false
            internalAddressConfig: {unixSockets: true}
    - httpFilter:
        operation: Patch
        match: {name: envoy.filters.http.router}
        value: "typedConfig: {'@type': type.googleapis.com/envoy.extensions.filters.http.router.v3.Router, startChildSpan: true}"
    - httpFilter:
        operation: AddFirst
        value: "{name: cors, typedConfig: {'@type': type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors}}"
    - virtualHost: {operation: Patch, value: "{includeRequestAttemptCount: true, routes: [{match: {path: /x}, route: {cluster: x}}]}"}
    - cluster: {operation: Add, value: "{name: added, type: STATIC, connectTimeout: 1s}"}
`

// TestParts checks that resources are added with the last part, that each part is patched, and that
// messages shared by parts and proxies are not modified.
func TestParts(t *testing.T) {
	shared := []proto.Message{draft.EDS, draft.HTTP2Options, draft.InternalAddresses, draft.PlainFilters[0].Packed,
		normalize, validate}
	var before []proto.Message
	for _, m := range shared {
		before = append(before, proto.Clone(m))
	}
	host := &notes{}
	plans := []Plan{planOf(t, "p", everything)}
	added := 0
	for i := range 3 {
		d := draftPart(10*i, 10)
		(&editor{c: &policy.Context{Host: host, Last: i == 2}, d: d, plans: plans}).run()
		for _, c := range d.Clusters {
			if c.Message.Name == "added" {
				added++
				continue
			}
			if c.Message.ConnectTimeout.GetSeconds() != 9 || c.Message.EdsClusterConfig.ServiceName != "x" ||
				c.HTTP.CommonHttpProtocolOptions.GetIdleTimeout().GetSeconds() != 5 || c.HTTP.GetExplicitHttpConfig() == nil {
				t.Fatalf("part %d: cluster %v, options %v", i, c.Message, c.HTTP)
			}
		}
		packed := d.Listeners[0].Chains[0].HTTP.Filters[1].Packed
		for _, l := range d.Listeners {
			h := l.Chains[0].HTTP
			if len(h.Filters) != 2 || h.Filters[0].Name != "cors" || h.Filters[1].Packed != packed {
				t.Fatalf("part %d: filters %v", i, h.Filters)
			}
			if h.Message.NormalizePath.GetValue() || !h.Message.InternalAddressConfig.UnixSockets ||
				len(h.Message.InternalAddressConfig.CidrRanges) != 4 {
				t.Fatalf("part %d: manager %v", i, h.Message)
			}
			if v := h.Routes.VirtualHosts[0]; !v.IncludeRequestAttemptCount || len(v.Routes) != 2 ||
				!l.Message.Freebind.GetValue() {
				t.Fatalf("part %d: virtual host %v of %v", i, v, l.Message)
			}
		}
		if _, faults := sealed(d); len(faults) > 0 {
			t.Fatal(faults)
		}
	}
	if added != 1 || len(host.list) > 0 {
		t.Errorf("added %d times, warnings %q", added, host.list)
	}
	for i := range shared {
		if !proto.Equal(before[i], shared[i]) {
			t.Errorf("a shared message was modified: %v", shared[i])
		}
	}
}

// TestFaultLeavesDraft checks that a failing policy leaves every resource unchanged, and that it
// warns once for each kind of resource.
func TestFaultLeavesDraft(t *testing.T) {
	for name, mods := range map[string]string{
		"cluster":        `    - cluster: {operation: Patch, jsonPatches: [{op: replace, path: /outlierDetection, value: {}}]}`,
		"options":        `    - cluster: {operation: Patch, jsonPatches: [{op: remove, path: /typedExtensionProtocolOptions/envoy.extensions.upstreams.http.v3.HttpProtocolOptions/explicitHttpConfig}]}`,
		"listener":       `    - listener: {operation: Patch, jsonPatches: [{op: replace, path: /filterChains/0/filters/0/typedConfig/httpFilters, value: []}]}`,
		"nothing to see": `    - listener: {operation: Patch, jsonPatches: [{op: replace, path: /filterChains/0/filters/0/typedConfig/statPrefix, value: ""}]}`,
		"unknown type":   `    - listener: {operation: Patch, jsonPatches: [{op: replace, path: /filterChains/0/filters/0/typedConfig/@type, value: type.googleapis.com/x}]}`,
		"last of many": everything + `    - networkFilter:
        operation: AddLast
        value: "{name: e, typedConfig: {'@type': type.googleapis.com/envoy.extensions.filters.network.echo.v3.Echo}}"
    - cluster: {operation: Patch, match: {origin: outbound}, value: "lbPolicy: CLUSTER_PROVIDED"}`,
	} {
		t.Run(name, func(t *testing.T) {
			want, faults := sealed(draftPart(0, 5))
			if len(faults) > 0 {
				t.Fatal(faults)
			}
			host := &notes{}
			d := draftPart(0, 5)
			(&editor{c: &policy.Context{Host: host}, d: d, plans: []Plan{planOf(t, "p", mods)}}).run()
			got, faults := sealed(d)
			if len(faults) > 0 {
				t.Fatal(faults)
			}
			if got.Versions != want.Versions {
				t.Error("the config was modified")
			}
			seen := map[string]bool{}
			for _, w := range host.list {
				seen[w] = true
			}
			if len(seen) == 0 || len(seen) > 2 {
				t.Errorf("got %d different warnings, want one for each kind of resource: %q", len(seen), host.list)
			}
			for w := range seen {
				if !strings.HasPrefix(w, "p: spec.default.appendModifications[") ||
					!strings.Contains(w, "this policy has no effect on ") {
					t.Errorf("the warning does not name the policy: %s", w)
				}
			}
		})
	}
}

// TestUntouched checks that resources without changes keep their messages.
func TestUntouched(t *testing.T) {
	d := draftPart(0, 3)
	l, c := d.Listeners[1], d.Clusters[1]
	mods := `    - cluster: {operation: Patch, match: {name: s-0}, value: "connectTimeout: 1s"}
    - listener: {operation: Patch, match: {tags: {kuma.io/service: s-0}}, value: "freebind: true"}
    - httpFilter: {operation: Remove, match: {name: none}}
    - networkFilter: {operation: Remove, match: {name: none}}
    - virtualHost: {operation: Remove, match: {name: none}}`
	(&editor{c: &policy.Context{Host: &notes{}, Last: true}, d: d, plans: []Plan{planOf(t, "p", mods)}}).run()
	if d.Listeners[1] != l || d.Clusters[1] != c || len(d.Listeners) != 3 {
		t.Error("a resource without changes was replaced")
	}
	if d.Clusters[0].Message.ConnectTimeout.GetSeconds() != 1 || !d.Listeners[0].Message.Freebind.GetValue() {
		t.Error("a matching resource was not modified")
	}
}

// TestTags checks that a listener keeps its tags if a policy adds metadata, and that later changes
// match them.
func TestTags(t *testing.T) {
	d := draftPart(0, 1)
	mods := `    - listener: {operation: Patch, match: {origin: outbound}, value: "metadata: {filterMetadata: {x: {}}}"}
    - listener: {operation: Patch, match: {tags: {kuma.io/service: s-0}}, value: "freebind: true"}`
	(&editor{c: &policy.Context{Host: &notes{}}, d: d, plans: []Plan{planOf(t, "p", mods)}}).run()
	m, err := d.Listeners[0].Whole()
	if err != nil {
		t.Fatal(err)
	}
	if tags := m.GetMetadata().GetFilterMetadata(); tags["x"] == nil ||
		tags["io.kuma.tags"].Fields["kuma.io/service"] == nil || !m.Freebind.GetValue() {
		t.Errorf("got %v", m)
	}
}

func BenchmarkPatch(b *testing.B) {
	for name, mods := range map[string]string{
		"cluster":       `    - cluster: {operation: Patch, match: {origin: outbound}, value: "connectTimeout: 1s"}`,
		"http filter":   `    - httpFilter: {operation: AddFirst, match: {origin: outbound}, value: "{name: cors, typedConfig: {'@type': type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors}}"}`,
		"manager":       `    - networkFilter: {operation: Patch, match: {name: envoy.filters.network.http_connection_manager}, value: "typedConfig: {'@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, streamIdleTimeout: 5s}"}`,
		"manager json":  `    - networkFilter: {operation: Patch, match: {name: envoy.filters.network.http_connection_manager}, jsonPatches: [{op: add, path: /streamIdleTimeout, value: 5s}]}`,
		"listener json": `    - listener: {operation: Patch, jsonPatches: [{op: add, path: /filterChains/0/filters/0/typedConfig/streamIdleTimeout, value: 5s}]}`,
		"one of many":   `    - cluster: {operation: Patch, match: {name: s-1}, value: "connectTimeout: 1s"}`,
	} {
		b.Run(name, func(b *testing.B) {
			p := []Plan{planOf(b, "p", mods)}
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				d := draftPart(0, 1000)
				b.StartTimer()
				(&editor{c: &policy.Context{Host: &notes{}}, d: d, plans: p}).run()
			}
		})
	}
}

// TestOrder checks that policies apply in order, whether or not they match by name.
func TestOrder(t *testing.T) {
	about := func(match, timeout string) string {
		return `    - cluster: {operation: Patch, match: ` + match + `, value: "connectTimeout: ` + timeout + `"}`
	}
	all, named := about(`{origin: outbound}`, "1s"), about(`{name: s-0}`, "2s")
	for want, plans := range map[string][]Plan{
		"s-0: 2s, s-1: 1s":  {planOf(t, "a", all), planOf(t, "b", named)},
		"s-0: 1s, s-1: 1s":  {planOf(t, "a", named), planOf(t, "b", all)},
		"s-0: 2s, s-1: 0s":  {planOf(t, "a", about(`{name: s-9}`, "7s")), planOf(t, "b", named)},
		"s-0: 2s, s-1: 11s": {planOf(t, "a", all), planOf(t, "b", about(`{name: s-1}`, "11s")+"\n"+named)},
	} {
		d := draftPart(0, 2)
		(&editor{c: &policy.Context{Host: &notes{}}, d: d, plans: plans}).run()
		got := fmt.Sprintf("s-0: %ds, s-1: %ds", d.Clusters[0].Message.ConnectTimeout.GetSeconds(),
			d.Clusters[1].Message.ConnectTimeout.GetSeconds())
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
