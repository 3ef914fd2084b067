package envoybin

import (
	"strings"
	"testing"
	"unicode/utf8"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
)

func complained() *staticConfig {
	return &staticConfig{
		listeners: []*listenerv3.Listener{{Name: "inbound:10.0.0.1:80",
			Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
				Address: "10.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 80}}}}}, {Name: "backend"}},
		clusters: []*clusterv3.Cluster{{Name: "backend"}, {Name: "backend-v2"}},
		routes:   map[string]*routev3.RouteConfiguration{"outbound:backend": {}, "x": {}},
		secrets:  []*tlsv3.Secret{{Name: "mesh_ca:secret:default"}},
	}
}

func TestComplaint(t *testing.T) {
	head := "[2025-01-01 00:00:00.000][1][critical][main] [source/server/config_validation/server.cc:66] "
	for _, c := range []struct{ output, message, kind, name string }{
		{head + "error initializing configuration 'envoy.json': Error adding/updating listener(s) inbound:10.0.0.1:80: bad " +
			"filter\n", "Error adding/updating listener(s) inbound:10.0.0.1:80: bad filter", "Listener", "inbound:10.0.0.1:80"},
		{head + "error initializing configuration 'envoy.json': cluster backend-v2: no endpoints",
			"cluster backend-v2: no endpoints", "Cluster", "backend-v2"},
		{head + "error initializing configuration 'envoy.json': Cluster 'backend' is bad", "Cluster 'backend' is bad",
			"Cluster", "backend"},
		{head + "error initializing configuration 'envoy.json': listener 'backend' is bad", "listener 'backend' is bad",
			"Listener", "backend"},
		{head + "error initializing configuration 'envoy.json': error adding listener '10.0.0.1:80': no filter chains",
			"error adding listener '10.0.0.1:80': no filter chains", "Listener", "inbound:10.0.0.1:80"},
		{head + "error initializing configuration 'envoy.json': error adding listener '10.0.0.1:8080': no filter chains",
			"error adding listener '10.0.0.1:8080': no filter chains", "", ""},
		{head + "error initializing configuration 'envoy.json': Unknown static secret: mesh_ca:secret:default.",
			"Unknown static secret: mesh_ca:secret:default.", "Secret", "mesh_ca:secret:default"},
		{head + "error initializing configuration 'envoy.json': route outbound:backend: two domains",
			"route outbound:backend: two domains", "RouteConfiguration", "outbound:backend"},
		{"[x][warning] cluster backend\n[x][error][config] Protobuf message (type A reason\n  INVALID) has unknown\x00 " +
			"fields\n[x][info] exiting\n", "Protobuf message (type A reason INVALID) has unknown  fields", "", ""},
		{"envoy: cannot execute\n", "envoy: cannot execute", "", ""},
		{"  \n\n", "Envoy rejects the config without a reason", "", ""},
		{"", "Envoy rejects the config without a reason", "", ""},
		{"[", "[", "", ""},
	} {
		message, position := complaint(c.output, complained())
		kind := position.Type[strings.LastIndexByte(position.Type, '.')+1:]
		if message != c.message || kind != c.kind || position.Resource != c.name {
			t.Errorf("%q\nis %q about %s %s\nwant %q about %s %s", c.output, message, kind, position.Resource, c.message,
				c.kind, c.name)
		}
	}
	long, _ := complaint(strings.Repeat("ä", 5000), complained())
	if len(long) > maxComplaint+3 || !utf8.ValidString(long) {
		t.Errorf("%d bytes", len(long))
	}
}

func FuzzComplaint(f *testing.F) {
	f.Add("[2025][1][critical][main] [a.cc:1] error initializing configuration 'x': cluster backend: bad", "backend")
	f.Add("[[[]]]\n\r\n]", "")
	f.Fuzz(func(t *testing.T, output, name string) {
		cfg := complained()
		cfg.clusters = append(cfg.clusters, &clusterv3.Cluster{Name: name})
		message, position := complaint(output, cfg)
		if message == "" || len(message) > maxComplaint+3 || strings.ContainsAny(message, "\n\r\x00") {
			t.Errorf("message %q", message)
		}
		if (position.Type == "") != (position.Resource == "") {
			t.Errorf("place %+v", position)
		}
		if position.Resource != "" && !strings.Contains(message, position.Resource) &&
			position.Resource != "inbound:10.0.0.1:80" {
			t.Errorf("%q is not in %q", position.Resource, message)
		}
	})
}

func TestLastBytes(t *testing.T) {
	var w lastBytes
	for _, s := range []string{"a", strings.Repeat("b", maxOutput), strings.Repeat("c", 3*maxOutput), "end"} {
		if n, err := w.Write([]byte(s)); n != len(s) || err != nil {
			t.Fatal(n, err)
		}
	}
	if len(w.b) != maxOutput || !strings.HasSuffix(string(w.b), "ccend") {
		t.Errorf("%d bytes", len(w.b))
	}
}
