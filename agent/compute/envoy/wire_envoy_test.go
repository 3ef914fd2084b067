package envoy_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3" // for packing in wireListeners
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/compute/match"
	"github.com/nearside-mesh/nearside/agent/test/envoytest"
)

// wire is a config and the Envoy that runs it.
type wire struct {
	config *match.Config
	real   bool                      // whether an Envoy runs it
	at     map[string]netip.AddrPort // listener addresses by name
	got    chan seenRequest          // requests that the mirror received
}

type seenRequest struct{ path, host, headers string }

func newWire(t *testing.T) *wire {
	w := &wire{got: make(chan seenRequest, 10)}
	up := httptest.NewServer(http.HandlerFunc(serveUpstream))
	t.Cleanup(up.Close)
	copies := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { w.got <- seenOf(r) }))
	t.Cleanup(copies.Close)
	speaks, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { speaks.Close() })
	go func() {
		for {
			c, err := speaks.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, "hello\n")
			go func() { io.Copy(io.Discard, c); c.Close() }()
		}
	}()
	var messages []proto.Message
	var listeners, clusters []any
	decode := func(text string, m proto.Message) any {
		var doc any
		if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		raw, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		if err := protojson.Unmarshal(raw, m); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		messages = append(messages, m)
		return doc
	}
	cluster := func(name, kind, host, addr string) {
		port := addr[strings.LastIndexByte(addr, ':')+1:]
		clusters = append(clusters, decode(fmt.Sprintf(`{name: %[1]s, type: %[2]s, dns_lookup_family: V4_ONLY, load_assignment: {cluster_name: %[1]s, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: %[3]s, port_value: %[4]s}}}}]}]}}`,
			name, kind, host, port), &clusterv3.Cluster{}))
	}
	cluster("up", "STATIC", "127.0.0.1", up.Listener.Addr().String())
	cluster("named", "STRICT_DNS", "localhost", up.Listener.Addr().String())
	cluster("copies", "STATIC", "127.0.0.1", copies.Listener.Addr().String())
	cluster("speaks", "STATIC", "127.0.0.1", speaks.Addr().String())
	names := slices.Sorted(maps.Keys(wireListeners))
	listener := func(name string, port uint16, m proto.Message) any {
		l := wireListeners[name]
		return decode(
			fmt.Sprintf(`{name: %s, address: {socket_address: {address: 127.0.0.1, port_value: %d}}, %sfilter_chains: [%s]}`,
				name, port, l[1], l[0]), m)
	}
	for _, name := range names {
		listeners = append(listeners, listener(name, 0, &listenerv3.Listener{}))
	}
	boot,
		err := json.Marshal(map[string]any{"static_resources": map[string]any{"listeners": listeners, "clusters": clusters}})
	if err != nil {
		t.Fatal(err)
	}
	w.at = startWireEnvoy(t, string(boot))
	w.real = w.at != nil
	messages = messages[:len(clusters)]
	for i, name := range names {
		if !w.real {
			if w.at == nil {
				w.at = map[string]netip.AddrPort{}
			}
			w.at[name] = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(10000+i))
		}
		listener(name, w.at[name].Port(), &listenerv3.Listener{})
	}
	w.config = match.Open(snapshot(t, messages...), nil)
	return w
}

// serveUpstream answers with the request that it received, and accepts upgrades.
func serveUpstream(rw http.ResponseWriter, r *http.Request) {
	s := seenOf(r)
	if to := r.Header.Get("Upgrade"); to != "" {
		c, _, err := rw.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\nX-Path: %s\r\n"+
			"X-Host: %s\r\nX-Headers: %s\r\n\r\n", to, s.path, s.host, s.headers)
		io.Copy(io.Discard, c)
		return
	}
	rw.Header().Set("X-Path", s.path)
	rw.Header().Set("X-Host", s.host)
	rw.Header().Set("X-Headers", s.headers)
}

// ownHeaders lists the headers that Envoy itself adds.
var ownHeaders = []string{"x-forwarded-proto", "x-request-id", "x-envoy-expected-rq-timeout-ms",
	"x-envoy-original-path", "x-envoy-original-host", "x-envoy-internal", "x-forwarded-for"}

func seenOf(r *http.Request) seenRequest {
	var list []match.Header
	for k, vs := range r.Header {
		for _, v := range vs {
			list = append(list, match.Header{Name: k, Value: v})
		}
	}
	return seenRequest{r.RequestURI, r.Host, headersText(list)}
}

func headersText(list []match.Header) string {
	var out []string
	for _, h := range list {
		if k := strings.ToLower(h.Name); strings.HasPrefix(k, "x-") && !slices.Contains(ownHeaders, k) {
			for v := range strings.SplitSeq(h.Value, ",") { // an HTTP/1 codec may join them
				out = append(out, k+"="+strings.TrimSpace(v))
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// conn returns a connection to a listener.
func (w *wire) conn(listener string, first match.FirstBytes) *match.Conn {
	return &match.Conn{Dst: w.at[listener], Src: netip.MustParseAddrPort("127.0.0.1:4000"), First: first}
}

// TestWire evaluates requests, and compares the results with the expected ones and with those of a
// real Envoy.
func TestWire(t *testing.T) {
	w := newWire(t)
	for _, row := range wireRows {
		t.Run(row.name, func(t *testing.T) {
			req := row.req
			if req.Host == "" {
				req.Host = "a.com"
			} else if req.Host == "-" {
				req.Host = ""
			}
			trace := w.config.Request(w.conn(row.listener, row.first), &req)
			said, status := seenRequest{}, trace.Status
			if trace.Outcome == match.Forwarded {
				u := trace.Targets[0].Request
				said, status = seenRequest{u.Path, u.Host, headersText(u.Headers)}, 200
				if u.Method != "CONNECT" &&
					slices.ContainsFunc(u.Headers, func(h match.Header) bool { return h.Name == "upgrade" }) {
					status = 101
				}
			}
			want := seenRequest{row.path, row.host, row.headers}
			if said != want || status != row.status || trace.Location != row.location {
				t.Errorf("explained: %d %+v to %q, want %d %+v to %q (%s)", status, said, trace.Location, row.status, want,
					row.location, trace.Reason)
			}
			if !w.real {
				return
			}
			resp := w.send(t, row.listener, row.first, &req)
			got := seenRequest{resp.Header.Get("X-Path"), resp.Header.Get("X-Host"), resp.Header.Get("X-Headers")}
			if got != want || resp.StatusCode != int(row.status) || resp.Header.Get("Location") != row.location {
				t.Errorf("Envoy: %d %+v to %q, want %d %+v to %q", resp.StatusCode, got, resp.Header.Get("Location"), row.status,
					want, row.location)
			}
			for _, m := range trace.Mirrors {
				if copied := <-w.got; m.Percent != 100 || m.Cluster != "copies" ||
					copied != (seenRequest{m.Request.Path, m.Request.Host, headersText(m.Request.Headers)}) {
					t.Errorf("the copy is %+v, explained as %+v to %+v", copied, m, m.Request)
				}
			}
			if i := slices.IndexFunc(trace.Effects, func(e match.Effect) bool {
				return e.Kind == match.EffectRateLimit
			}); i >= 0 {
				if limited := w.send(t, row.listener, row.first, &req); limited.StatusCode != int(trace.Effects[i].Status) {
					t.Errorf("above the limit there comes %d, explained as %s", limited.StatusCode, trace.Effects[i].Text)
				}
			}
		})
	}
	for _, row := range wireSilent {
		t.Run("silent "+row.listener, func(t *testing.T) {
			trace := w.config.Connection(w.conn(row.listener, match.ServerFirst))
			if trace.Outcome != row.outcome || (trace.Wait == nil) != (row.wait == nil) ||
				trace.Wait != nil && *trace.Wait != *row.wait {
				t.Errorf("explained: %v, waits %+v (%s); want %v, %+v", trace.Outcome, trace.Wait, trace.Reason,
					row.outcome, row.wait)
			}
			if !w.real || row.outcome == match.Broken { // Envoy would wait for an hour
				return
			}
			c, err := net.Dial("tcp", w.at[row.listener].String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			line, err := bufio.NewReader(c).ReadString('\n')
			if spoke := line == "hello\n"; spoke != (row.outcome == match.Forwarded) {
				t.Errorf("the client got %q, %v; want %v", line, err, row.outcome)
			}
		})
	}
}

// send sends a request over a new connection, byte by byte as given, and returns the response.
func (w *wire) send(t *testing.T, listener string, first match.FirstBytes, req *match.Request) *http.Response {
	t.Helper()
	c, err := net.Dial("tcp", w.at[listener].String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	method, path, version := "GET", "/", "HTTP/1.1"
	if req.Method != "" {
		method = req.Method
	}
	if req.Path != "" {
		path = req.Path
	}
	if method == http.MethodConnect {
		path = req.Host
	}
	if first == match.HTTP10 {
		version = "HTTP/1.0"
	}
	text := fmt.Sprintf("%s %s %s\r\n", method, path, version)
	if req.Host != "" {
		text += "Host: " + req.Host + "\r\n"
	}
	for _, h := range req.Headers {
		text += h.Name + ": " + h.Value + "\r\n"
	}
	if _, err := io.WriteString(c, text+"\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// startWireEnvoy runs an Envoy with a static config until the test ends. It returns the addresses
// of the listeners once Envoy is live, or nil if no Envoy is available.
func startWireEnvoy(t *testing.T, bootstrap string) map[string]netip.AddrPort {
	path := envoytest.Look()
	if path == "" {
		t.Log("there is no Envoy to compare with: set ENVOY_BIN or put envoy on PATH")
		return nil
	}
	envoy := envoytest.Start(t, path, "", func(admin string) ([]byte, error) {
		return []byte(`{"admin": {"address": {"pipe": {"path": ` + strconv.Quote(admin) + `}}}, ` + bootstrap[1:]), nil
	})
	_, body := envoy.Admin("/listeners?format=json")
	var list struct {
		Statuses []struct {
			Name  string `json:"name"`
			Local struct {
				Socket struct {
					Port uint16 `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatal(err)
	}
	out := map[string]netip.AddrPort{}
	for _, l := range list.Statuses {
		out[l.Name] = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), l.Local.Socket.Port)
	}
	return out
}
