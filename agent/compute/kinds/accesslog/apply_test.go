package accesslog_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	filev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	celv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/filters/cel/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/accesslog"
	legacykind "github.com/nearside-mesh/nearside/agent/compute/kinds/accesslog/legacy"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// host records warnings. The plugin uses no other method.
type host struct {
	policy.Host
	warnings []string
	claimed  map[string]bool
}

func (h *host) Claim(_, name string) bool {
	if h.claimed == nil {
		h.claimed = map[string]bool{}
	}
	taken := h.claimed[name]
	h.claimed[name] = true
	return !taken
}

func (h *host) EnvoyFrom(uint32, uint32) bool { return true }

func (h *host) Warn(k resource.Key, format string, args ...any) {
	if s := k.Name + ": " + fmt.Sprintf(format, args...); !slices.Contains(h.warnings, s) {
		h.warnings = append(h.warnings, s)
	}
}

// contextOf returns the context of the dataplane "d".
func contextOf(t testing.TB, docs string) (*policy.Context, *host) {
	t.Helper()
	rs, faults := kinds.Registry().Decode("", []byte(docs))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	set := resource.NewSet(rs)
	v, err := mesh.Build(set, "default", mesh.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, h := v.Dataplane("d"), &host{}
	rules := policy.NewIndex(kinds.Plugins(), set, v, policy.Options{}).Rules(r)
	return (&policy.Context{View: v, Rules: rules, Host: h, Last: true}).WithDataplane(r,
		r.Spec.(*resource.Dataplane)), h
}

const (
	withMTLS    = "type: Mesh\nname: default\nmtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}\n"
	withoutMTLS = "type: Mesh\nname: default\n"
	dataplane   = "---\ntype: Dataplane\nmesh: default\nname: d\nnetworking: {address: 10.0.0.1, inbound: [{port: 80, " +
		"tags: {kuma.io/service: web}}]}\n"
)

func from(name, items string) string {
	return "---\ntype: MeshAccessLog\nmesh: default\nname: " + name + "\nspec: {from: [" + items + "]}\n"
}

func item(target, path string) string {
	return "{targetRef: {" + target + "}, default: {backends: [{type: File, file: {path: " + path +
		", format: {type: Plain, plain: x}}}]}}"
}

// logs lists the paths of a chain's logs with their conditions.
func logs(t *testing.T, list []*accesslogv3.AccessLog) []string {
	t.Helper()
	out := []string{}
	for _, l := range list {
		f, e := &filev3.FileAccessLog{}, &celv3.ExpressionFilter{}
		if err := l.GetTypedConfig().UnmarshalTo(f); err != nil {
			t.Fatal(err)
		}
		if l.Filter != nil {
			if err := l.Filter.GetExtensionFilter().GetTypedConfig().UnmarshalTo(e); err != nil {
				t.Fatal(err)
			}
		}
		out = append(out, strings.TrimSuffix(f.Path+" "+e.Expression, " "))
	}
	return out
}

// TestClients checks that clients are distinguished only by their certificates.
func TestClients(t *testing.T) {
	const (
		web    = `connection.mtls && connection.uri_san_peer_certificate == "spiffe://default/web"`
		header = `request.headers["x-forwarded-client-cert"]`
		v2     = `connection.mtls && (` + header + `.contains("URI=kuma://version/v2;") || ` + header +
			`.endsWith("URI=kuma://version/v2"))`
	)
	everyone := item("kind: Mesh", "/all")
	for name, c := range map[string]struct {
		docs             string
		http, tcp, plain []string
		warn             []string
	}{
		"everyone": {withMTLS + from("p", everyone), []string{"/all"}, []string{"/all"}, []string{"/all"}, nil},
		"one service": {withMTLS + from("p", item("kind: MeshService, name: web", "/web")),
			[]string{"/web " + web}, []string{"/web " + web}, []string{}, nil},
		"one service and the others": {withMTLS + from("p", everyone+", "+item("kind: MeshService, name: web", "/web")),
			[]string{"/web " + web, "/all !(" + web + ")"}, []string{"/web " + web, "/all !(" + web + ")"},
			[]string{"/all"}, nil},
		"a subset of a service": {withMTLS +
			from("p", item("kind: MeshServiceSubset, name: web, tags: {version: v2}", "/v2")),
			[]string{"/v2 " + web + " && " + v2}, []string{}, []string{},
			[]string{"p: clients of TCP connections cannot be identified by the tag version, so items that require it have " +
				"no effect there; use only kuma.io/service"}},
		"a subset and the whole mesh": {withMTLS +
			from("p", everyone+", "+item("kind: MeshSubset, tags: {version: v2}", "/v2")),
			[]string{"/v2 " + v2, "/all !(" + v2 + ")"}, []string{"/all"}, []string{"/all"},
			[]string{"p: clients of TCP connections cannot be identified by the tag version, so items that require it have " +
				"no effect there; use only kuma.io/service"}},
		"switched off for one": {withMTLS + from("p", everyone+", {targetRef: {kind: MeshService, name: web}, default: "+
			"{backends: []}}"), []string{"/all !(" + web + ")"}, []string{"/all !(" + web + ")"}, []string{"/all"}, nil},
		"without mTLS": {withoutMTLS + from("p", everyone+", "+item("kind: MeshService, name: web", "/web")), nil, nil,
			[]string{"/all"}, []string{"p: from[1] has no effect, because mesh default has no mTLS and clients cannot be " +
				"identified by MeshService; enable mtls of the Mesh, or use kind Mesh"}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, h := contextOf(t, c.docs+dataplane)
			http := &draft.Chain{TLS: c.http != nil, HTTP: &draft.HTTP{Message: &hcmv3.HttpConnectionManager{}}}
			tcp := &draft.Chain{TLS: c.tcp != nil, TCP: &tcpv3.TcpProxy{}}
			plain := &draft.Chain{TCP: &tcpv3.TcpProxy{}}
			accesslog.Plugin(legacykind.Kind()).Apply(ctx, &draft.Draft{Listeners: []*draft.Listener{{
				Kind: draft.Inbound, Message: &listenerv3.Listener{Name: "in"}, Chains: []*draft.Chain{http, tcp, plain, {}},
			}}})
			if c.http != nil {
				if d := cmp.Diff(c.http, logs(t, http.HTTP.Message.AccessLog)); d != "" {
					t.Errorf("HTTP with TLS (-want +got):\n%s", d)
				}
				if d := cmp.Diff(c.tcp, logs(t, tcp.TCP.AccessLog)); d != "" {
					t.Errorf("TCP with TLS (-want +got):\n%s", d)
				}
			}
			if d := cmp.Diff(c.plain, logs(t, plain.TCP.AccessLog)); d != "" {
				t.Errorf("plain (-want +got):\n%s", d)
			}
			if d := cmp.Diff(c.warn, h.warnings); d != "" {
				t.Errorf("warnings (-want +got):\n%s", d)
			}
		})
	}
}

// TestFIFOs checks that each collector of a proxy has one FIFO, regardless of the number of
// references, and that TrafficLog uses separate ones.
func TestFIFOs(t *testing.T) {
	const logging = "logging: {backends: [{name: a, type: tcp, conf: {address: 'one:1'}}, {name: b, type: file, " +
		"conf: {path: /b}}], defaultBackend: a}\n"
	policies := from("p", "{targetRef: {kind: Mesh}, default: {backends: [{type: Tcp, tcp: {address: 'one:1'}}, "+
		"{type: File, file: {path: /a}}, {type: reference, conf: {kind: MeshAccessLogBackend, name: two}}]}}") +
		"---\ntype: MeshAccessLogBackend\nmesh: default\nname: two\nspec: {name: x, type: tcp, conf: {address: 'two:2'}}\n" +
		"---\ntype: MeshAccessLog\nmesh: default\nname: q\nspec: {to: [{targetRef: {kind: Mesh}, " +
		"default: {backends: [{type: tcp, conf: {address: 'one:1'}}, {type: reference, name: nowhere}]}}]}\n"
	legacy := "---\ntype: TrafficLog\nmesh: default\nname: t\nsources: [{match: {kuma.io/service: '*'}}]\n" +
		"destinations: [{match: {kuma.io/service: '*'}}]\n"
	// fifos returns the FIFOs that Envoy opens, with the prefix of their lines up to the end of an
	// address.
	fifos := func(docs string) map[string]string {
		ctx, _ := contextOf(t, docs)
		in, out := &draft.Chain{TCP: &tcpv3.TcpProxy{}}, &draft.Chain{TCP: &tcpv3.TcpProxy{}}
		d := &draft.Draft{Listeners: []*draft.Listener{
			{Kind: draft.Inbound, Message: &listenerv3.Listener{}, Chains: []*draft.Chain{in}},
			{Kind: draft.Outbound, Message: &listenerv3.Listener{}, Service: draft.Service{Name: "web"},
				Chains: []*draft.Chain{out}},
		}}
		p := accesslog.Plugin(legacykind.Kind())
		p.Apply(ctx, d)
		p.Legacy[0].Apply(ctx, d)
		paths := map[string]string{}
		for _, l := range append(in.TCP.AccessLog, out.TCP.AccessLog...) {
			f := &filev3.FileAccessLog{}
			if err := l.GetTypedConfig().UnmarshalTo(f); err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(f.Path, "/run/nearside/access/nearside-default.d-") || !accesslog.IsFIFO(f.Path) {
				continue
			}
			address, _, found := strings.Cut(f.GetLogFormat().GetTextFormatSource().GetInlineString(), ";")
			if !found {
				address = ""
			}
			if was, known := paths[f.Path]; known && was != address {
				t.Errorf("%s receives lines for %q and %q", f.Path, was, address)
			}
			paths[f.Path] = address
		}
		return paths
	}
	for name, c := range map[string]struct {
		docs string
		want []string
	}{
		"policies": {withoutMTLS + logging + dataplane + policies + legacy, []string{"", ""}},
		"legacy":   {withoutMTLS + logging + dataplane + legacy, []string{"one:1"}},
		"nothing":  {withoutMTLS + logging + dataplane, nil},
	} {
		if d := cmp.Diff(c.want, slices.Sorted(maps.Values(fifos(c.docs)))); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

func never(string) bool { return false }

// TestPipes checks that a config contains the destinations of FIFOs and socket once, and none for a
// file that Envoy writes.
func TestPipes(t *testing.T) {
	const backends = "{type: Tcp, name: lines, tcp: {address: 'one:1'}}, {type: file, conf: {path: /own}}, {type: File, " +
		"file: {path: /var/log/a, rotation: {maxFiles: 0, maxFileSize: 5}}}, " +
		"{type: file, conf: {path: /var/log/b, rotation: {}}}, {type: OpenTelemetry, openTelemetry: {endpoint: otel}}"
	ctx, h := contextOf(t,
		withoutMTLS+dataplane+from("p", "{targetRef: {kind: Mesh}, default: {backends: ["+backends+"]}}"))
	d := &draft.Draft{Listeners: []*draft.Listener{
		{Kind: draft.Inbound, Message: &listenerv3.Listener{Name: "in"}, Chains: []*draft.Chain{
			{TCP: &tcpv3.TcpProxy{StatPrefix: "in", ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: "in"}}}}},
		{Kind: draft.Inbound, Message: &listenerv3.Listener{Name: "two"}, Chains: []*draft.Chain{
			{TCP: &tcpv3.TcpProxy{StatPrefix: "in", ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: "in"}}}}},
	}}
	accesslog.Plugin().Apply(ctx, d)
	s := draft.NewSealer(nil)
	s.Add(d)
	s.Add(&draft.Draft{Pipes: d.Pipes}) // another part of the config
	sealed, faults := s.Finish()
	if len(faults) > 0 || len(h.warnings) > 0 {
		t.Fatal(faults, h.warnings)
	}
	var got []string
	for _, p := range sealed.Pipes {
		if p.Policy.Name != "p" || p.Kind != draft.PipeOTLP && !accesslog.IsFIFO(p.Path) {
			t.Errorf("%+v", p)
		}
		got = append(got, fmt.Sprint(p.Kind, " ", p.Target, " ", p.Backend, " ", p.Rotation))
	}
	slices.Sort(got)
	want := []string{"file /var/log/a  {5 0 -1}", "file /var/log/b  {-1 -1 -1}", "otlp otel:4317  {0 0 0}",
		"tcp one:1 lines {0 0 0}"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}

	// Without a pipe, its loggers are removed, and the rest is unchanged.
	logs := func(s *draft.Sealed) (out []string) {
		for _, r := range s.Resources[draft.RankListener] {
			for _, p := range sealed.Pipes {
				if mentions(r, p.ID()) {
					out = append(out, r.Name+" "+p.Target)
				}
			}
			if mentions(r, "/own") {
				out = append(out, r.Name+" /own")
			}
		}
		slices.Sort(out)
		return out
	}
	if got := sealed.Without(never, never); got != sealed {
		t.Error("a config without missing pipes was rebuilt")
	}
	less := sealed.Without(func(id string) bool {
		return slices.ContainsFunc(sealed.Pipes, func(p draft.Pipe) bool {
			return p.ID() == id && (p.Target == "/var/log/a" || p.Kind == draft.PipeOTLP)
		})
	}, never)
	want = []string{"in /own", "in /var/log/b", "in one:1", "in otel:4317", "two /own", "two /var/log/b", "two one:1",
		"two otel:4317"}
	if diff := cmp.Diff(want, logs(less)); diff != "" || len(less.Pipes) != 2 {
		t.Errorf("remaining pipes %v (-want +got):\n%s", less.Pipes, diff)
	}
	if c := less.Resources[draft.RankCluster][0]; mentions(c, "otlp.sock") || !mentions(c, "otel") ||
		less.Versions == sealed.Versions {
		t.Errorf("OpenTelemetry records do not go directly to the collector: %s", c.Body())
	}
	if len(logs(sealed)) != 10 {
		t.Errorf("the original config was modified: %v", logs(sealed))
	}
}

// TestPipeWarnings checks warnings about forgeable lines and files with two writers.
func TestPipeWarnings(t *testing.T) {
	for name, c := range map[string]struct{ backends, want string }{
		"forged": {"{type: File, file: {path: /a, format: {type: Plain, plain: 'a %QUERY_PARAM(x)%'}}}",
			"can forge lines of this log; use a JSON format"},
		"json": {"{type: File, file: {path: /a, format: {type: Json, json: [{key: a, value: '%QUERY_PARAM(x)%'}]}}}",
			""},
		"two backends to one path": {"{type: File, file: {path: /a}}, {type: File, file: {path: /a, rotation: {}}}",
			"Envoy continues to write to the rotated file"},
		"two limits": {"{type: File, file: {path: /a, rotation: {maxFiles: 1}}}, {type: File, file: {path: /a, " +
			"rotation: {maxFiles: 2}}}", "one of them has no effect"},
		"the same": {"{type: File, file: {path: /a, rotation: {maxFiles: 1}}}, {type: File, file: {path: /a, " +
			"rotation: {maxFiles: 1}}}", ""},
	} {
		ctx, h := contextOf(t,
			withoutMTLS+dataplane+from("p", "{targetRef: {kind: Mesh}, default: {backends: ["+c.backends+"]}}"))
		accesslog.Plugin().Apply(ctx, &draft.Draft{Listeners: []*draft.Listener{
			{Kind: draft.Inbound, Message: &listenerv3.Listener{},
				Chains: []*draft.Chain{{HTTP: &draft.HTTP{Message: &hcmv3.HttpConnectionManager{}}}}},
		}})
		if all := strings.Join(h.warnings, "\n"); (all == "") != (c.want == "") || !strings.Contains(all, c.want) {
			t.Errorf("%s: warned %q", name, all)
		}
	}
}

// BenchmarkOutbounds uses a proxy with many logged outbounds whose format contains the destination.
func BenchmarkOutbounds(b *testing.B) {
	ctx, _ := contextOf(b, withoutMTLS+dataplane+"---\ntype: MeshAccessLog\nmesh: default\nname: q\n"+
		"spec: {to: [{targetRef: {kind: Mesh}, default: {backends: [{type: File, file: {path: /a}}]}}]}\n")
	listeners := make([]*draft.Listener, 1000)
	for i := range listeners {
		listeners[i] = &draft.Listener{Kind: draft.Outbound, Service: draft.Service{Name: fmt.Sprintf("service-%d", i)},
			Chains: []*draft.Chain{{HTTP: &draft.HTTP{}}}}
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, l := range listeners {
			l.Chains[0].HTTP.Message = &hcmv3.HttpConnectionManager{}
		}
		accesslog.Plugin(legacykind.Kind()).Apply(ctx, &draft.Draft{Listeners: listeners})
	}
}

// mentions reports whether a text occurs in a resource.
func mentions(r *draft.Resource, text string) bool { return bytes.Contains(r.Body(), []byte(text)) }
