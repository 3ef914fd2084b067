package traffictest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	upstreamhttpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/agenttest"
	"github.com/nearside-mesh/nearside/agent/envoy"
	"github.com/nearside-mesh/nearside/agent/envoy/finding"
	"github.com/nearside-mesh/nearside/agent/envoy/match"
)

// part reads a resource of the config in force.
func (d *dataplane) part(k envoy.Kind, name string, m proto.Message) bool {
	d.mu.Lock()
	list := d.parts[k]
	d.mu.Unlock()
	i := slices.IndexFunc(list, func(r *envoy.Resource) bool { return r.Name == name })
	return i >= 0 && proto.Unmarshal(list[i].Body, m) == nil
}

// address is where a cluster leads: to what the client dialled, or to the first of its endpoints, of which names are
// resolved.
func (d *dataplane) address(cluster string, dst netip.AddrPort) (netip.AddrPort, error) {
	var c clusterv3.Cluster
	if !d.part(envoy.KindCluster, cluster, &c) {
		return netip.AddrPort{}, fmt.Errorf("there is no cluster %q", cluster)
	}
	endpoints := c.GetLoadAssignment()
	switch c.GetType() {
	case clusterv3.Cluster_ORIGINAL_DST:
		return dst, nil
	case clusterv3.Cluster_EDS:
		endpoints = &endpointv3.ClusterLoadAssignment{}
		d.part(envoy.KindEndpoint, cluster, endpoints)
	case clusterv3.Cluster_STATIC, clusterv3.Cluster_STRICT_DNS:
	default:
		return netip.AddrPort{}, fmt.Errorf("cluster %q is of the type %s", cluster, c.GetType())
	}
	for _, locality := range endpoints.GetEndpoints() {
		for _, e := range locality.GetLbEndpoints() {
			at := e.GetEndpoint().GetAddress().GetSocketAddress()
			if a, ok := d.lookUp(at, &c); ok {
				return netip.AddrPortFrom(a, uint16(at.GetPortValue())), nil
			}
		}
	}
	return netip.AddrPort{}, fmt.Errorf("cluster %q has no endpoint that can be dialled", cluster)
}

// lookUp finds the address of an endpoint. Only clusters that resolve names take one.
func (d *dataplane) lookUp(at *core.SocketAddress, c *clusterv3.Cluster) (netip.Addr, bool) {
	if a, err := netip.ParseAddr(at.GetAddress()); err == nil {
		return a, true
	}
	if c.GetType() != clusterv3.Cluster_STRICT_DNS {
		return netip.Addr{}, false
	}
	for _, a := range d.resolve(at.GetAddress()) {
		if a.Is4() || c.GetDnsLookupFamily() != clusterv3.Cluster_V4_ONLY {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// dial connects to where a target leads, past the redirection.
func (d *dataplane) dial(t *match.Target, seen *match.Conn) (net.Conn, error) {
	at, err := d.address(t.Cluster, seen.Dst)
	if err != nil {
		return nil, err
	}
	return dialIn(d.ns, at, 0, ownMark)
}

// dialIn opens a connection in a namespace, from a port and with a mark, 0 for any.
func dialIn(ns *netns, at netip.AddrPort, port, mark int) (c net.Conn, err error) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{Port: port}, Timeout: 2 * time.Second, KeepAlive: -1, Control: func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) {
			if mark != 0 {
				failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, mark)
			}
		})
		if err == nil {
			err = failed
		}
		return err
	}}
	ns.do(func() { c, err = dialer.Dial("tcp", at.String()) })
	return c, err
}

func readerOf(b []byte) io.Reader { return bytes.NewReader(b) }

// released is a connection that is let go of when it is closed.
type released struct {
	*replayed
	release func()
}

func (c *released) Close() error {
	c.release()
	return nil
}

// handoff gives connections to an HTTP server.
type handoff struct {
	conns chan net.Conn
	ended chan struct{}
	once  sync.Once
}

// give reports whether the server has taken the connection.
func (h *handoff) give(c net.Conn) bool {
	select {
	case h.conns <- c:
		return true
	case <-h.ended:
		return false
	}
}

func (h *handoff) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.ended:
		return nil, net.ErrClosed
	}
}

func (h *handoff) Close() error {
	h.once.Do(func() { close(h.ended) })
	return nil
}

func (h *handoff) Addr() net.Addr { return &net.TCPAddr{} }

// plainHTTP are the protocols that are spoken without TLS.
func plainHTTP(http1, http2 bool) *http.Protocols {
	p := &http.Protocols{}
	p.SetHTTP1(http1)
	p.SetUnencryptedHTTP2(http2)
	return p
}

type seenKey struct{}

// newHTTPServer is the HTTP connection manager of a dataplane.
func newHTTPServer(d *dataplane) *http.Server {
	return &http.Server{Handler: http.HandlerFunc(d.Request), Protocols: plainHTTP(true, true), ReadHeaderTimeout: agenttest.Patience,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, seenKey{}, c.(*released).seen)
		}}
}

// request answers a request, or forwards it to where its route leads.
func (d *dataplane) Request(w http.ResponseWriter, r *http.Request) {
	seen := r.Context().Value(seenKey{}).(*match.Conn)
	req := &match.Request{Method: r.Method, Host: r.Host, Path: r.RequestURI}
	for name, values := range r.Header {
		for _, v := range values {
			req.Headers = append(req.Headers, match.Header{Name: name, Value: v})
		}
	}
	trace := d.follow(seen, req)
	if trace.Outcome != match.Forwarded {
		w.WriteHeader(max(int(trace.Status), http.StatusNotFound))
		_, _ = io.WriteString(w, d.body(trace.Route))
		return
	}
	target := &trace.Targets[0]
	transport := &http.Transport{Protocols: d.upstreamHTTP(target.Cluster), DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return d.dial(target, seen) }}
	defer transport.CloseIdleConnections()
	(&httputil.ReverseProxy{Transport: transport, Rewrite: func(p *httputil.ProxyRequest) {
		p.SetURL(&url.URL{Scheme: "http", Host: "upstream"})
		p.Out.Host = p.In.Host
	}}).ServeHTTP(w, r)
}

// upstreamHTTP is what a cluster speaks: HTTP/2 where it says so.
func (d *dataplane) upstreamHTTP(cluster string) *http.Protocols {
	var c clusterv3.Cluster
	var options upstreamhttpv3.HttpProtocolOptions
	d.part(envoy.KindCluster, cluster, &c)
	for _, a := range c.GetTypedExtensionProtocolOptions() {
		if a.UnmarshalTo(&options) == nil && options.GetExplicitHttpConfig().GetHttp2ProtocolOptions() != nil {
			return plainHTTP(false, true)
		}
	}
	return plainHTTP(true, false)
}

// body is the text with which a route answers by itself, "" for none.
func (d *dataplane) body(route *finding.Place) string {
	if route == nil {
		return ""
	}
	var m proto.Message = &listenerv3.Listener{}
	kind := envoy.KindListener
	if route.Type == envoy.KindRoute.URL() {
		m, kind = &routev3.RouteConfiguration{}, envoy.KindRoute
	}
	if !d.part(kind, route.Resource, m) {
		return ""
	}
	text, err := protojson.Marshal(m)
	var at any
	if err != nil || json.Unmarshal(text, &at) != nil {
		return ""
	}
	for key := range strings.SplitSeq(strings.TrimPrefix(route.Pointer, "/")+"/directResponse/body/inlineString", "/") {
		switch in := at.(type) {
		case map[string]any:
			at = in[key]
		case []any:
			if i, err := strconv.Atoi(key); err == nil && i < len(in) {
				at = in[i]
			}
		}
	}
	out, _ := at.(string)
	return out
}
