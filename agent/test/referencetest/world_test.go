package referencetest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/test/envoytest"
)

// patience is the timeout of one request or connection. It is generous for busy machines.
const patience = 30 * time.Second

// form is one of the two forms of a config: a listener and a cluster with the same name, and the
// server behind the cluster.
type form struct {
	name     string
	filters  string // the filters of the listener's only chain, as YAML in a list
	cluster  string // further fields of the cluster, as YAML
	upstream string // HOST:PORT of the server; without one, the cluster has no endpoint
	port     int    // the port of the listener; known when Envoy runs
}

// httpFilters returns an HTTP connection manager. Both parts are YAML: route is the only route,
// with the cluster's name in NAME, and more has fields of the virtual host.
func httpFilters(route, more string) string {
	const router = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
	return fmt.Sprintf(`
- name: hcm
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
    stat_prefix: NAME
    http_filters: [{name: router, typed_config: {"@type": `+router+`}}]
    route_config: {virtual_hosts: [{name: all, domains: ["*"], routes: [%s]%s}]}`, route, more)
}

// tcpProxy is a chain that forwards connections.
const tcpProxy = `
- name: tcp
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
    stat_prefix: NAME
    cluster: NAME`

// start runs an Envoy with all forms.
func start(t *testing.T, forms []*form) *envoytest.Process {
	t.Helper()
	e := envoytest.Start(t, envoytest.Find(t), "", func(admin string) ([]byte, error) {
		return []byte(bootstrap(admin, forms)), nil
	})
	_, text := e.Admin("/listeners?format=json")
	var list struct {
		Status []struct {
			Name    string `json:"name"`
			Address struct {
				Socket struct {
					Port int `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	for _, f := range forms {
		for _, l := range list.Status {
			if l.Name == f.name {
				f.port = l.Address.Socket.Port
			}
		}
		if f.port == 0 {
			t.Fatalf("Envoy has no listener %s: %s", f.name, text)
		}
	}
	return e
}

func bootstrap(admin string, forms []*form) string {
	var listeners, clusters strings.Builder
	for _, f := range forms {
		endpoints := ""
		if host, port, err := net.SplitHostPort(f.upstream); err == nil {
			endpoints = fmt.Sprintf("{endpoint: {address: {socket_address: {address: %s, port_value: %s}}}}", host, port)
		}
		fmt.Fprintf(&listeners, "\n  - name: %s\n    address: {socket_address: {address: 127.0.0.1, port_value: 0}}\n"+
			"    filter_chains:\n    - filters:%s\n", f.name, indent(strings.ReplaceAll(f.filters, "NAME", f.name), "      "))
		fmt.Fprintf(&clusters, "\n  - name: %[1]s\n    type: STATIC\n    load_assignment: {cluster_name: %[1]s, endpoints: "+
			"[{lb_endpoints: [%[2]s]}]}%[3]s\n", f.name, endpoints, indent(f.cluster, "    "))
	}
	return "admin: {address: {pipe: {path: " + admin + "}}}\nstatic_resources:\n  listeners:" + listeners.String() +
		"  clusters:" + clusters.String()
}

func indent(text, by string) string { return strings.ReplaceAll(text, "\n", "\n"+by) }

// get sends a request to the listener of a form, and returns the status.
func (f *form) get(t *testing.T, path string) int {
	t.Helper()
	c := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := c.Get(fmt.Sprintf("http://127.0.0.1:%d%s", f.port, path))
	if err != nil {
		t.Fatalf("%s: %v", f.name, err)
	}
	_ = r.Body.Close()
	return r.StatusCode
}

// hear connects to the listener of a form, sends nothing, and returns what it reads until the end
// or the first line.
func (f *form) hear(t *testing.T) string {
	t.Helper()
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", f.port))
	if err != nil {
		t.Fatalf("%s: %v", f.name, err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	line, err := bufio.NewReader(c).ReadString('\n')
	if err, is := err.(net.Error); is && err.Timeout() {
		t.Fatalf("%s: neither data nor an end", f.name)
	}
	return line
}

// requests is a server of HTTP that counts requests and keeps their paths.
type requests struct {
	mu     sync.Mutex
	paths  []string
	header http.Header // of each response
	status int         // of each response
}

func (r *requests) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.paths = append(r.paths, q.URL.Path)
	for k := range r.header {
		w.Header().Set(k, r.header.Get(k))
	}
	w.WriteHeader(r.status)
}

func (r *requests) seen() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.paths...)
}

// serveHTTP starts a server of HTTP, and returns it with its address.
func serveHTTP(t *testing.T, status int, header ...string) (*requests, string) {
	t.Helper()
	r := &requests{status: status, header: http.Header{}}
	for i := 0; i+1 < len(header); i += 2 {
		r.header.Set(header[i], header[i+1])
	}
	l := listen(t)
	s := &http.Server{Handler: r}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close(); <-ended })
	return r, l.Addr().String()
}

// serve starts a server that calls answer for each connection.
func serve(t *testing.T, answer func(net.Conn)) string {
	t.Helper()
	l := listen(t)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(patience))
				answer(c)
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	return l.Addr().String()
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// first reads the first bytes that a connection brings.
func first(c net.Conn) string {
	b := make([]byte, 64)
	n, err := c.Read(b)
	if err != nil && err != io.EOF {
		return err.Error()
	}
	return string(bytes.TrimRight(b[:n], "\x00"))
}
