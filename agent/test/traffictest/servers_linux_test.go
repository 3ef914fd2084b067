package traffictest_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
)

// servers are the destinations inside and outside the mesh, each with separate addresses. A server
// returns its name to its clients.
type servers struct {
	t     testing.TB
	ca    *x509.Certificate
	key   *ecdsa.PrivateKey
	roots *x509.CertPool
	names map[string][]netip.Addr // DNS records

	wg     sync.WaitGroup
	mu     sync.Mutex
	ended  bool
	open   map[io.Closer]bool
	counts map[string]int  // connections, by server
	saw    map[string]seen // last request, by server
}

func newServers(t testing.TB, names map[string][]string) *servers {
	t.Helper()
	w := &servers{t: t, roots: x509.NewCertPool(), names: map[string][]netip.Addr{}, open: map[io.Closer]bool{},
		counts: map[string]int{}, saw: map[string]seen{}}
	for name, list := range names {
		for _, a := range list {
			w.names[name] = append(w.names[name], netip.MustParseAddr(a))
		}
	}
	var err error
	w.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	agenttest.Do(t, err)
	w.ca = &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, w.ca, w.ca, w.key.Public(), w.key)
	agenttest.Do(t, err)
	w.ca, err = x509.ParseCertificate(der)
	agenttest.Do(t, err)
	w.roots.AddCert(w.ca)
	t.Cleanup(func() {
		w.mu.Lock()
		w.ended = true
		for c := range w.open {
			c.Close()
		}
		w.mu.Unlock()
		w.wg.Wait()
	})
	return w
}

// reached returns the number of connections to a server.
func (w *servers) reached(server string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts[server]
}

// first reports whether this is the first call with this argument.
func (w *servers) first(what string) bool {
	w.count("once " + what)
	return w.reached("once "+what) == 1
}

// certificate returns a certificate for the names, signed by the CA of the test.
func (w *servers) certificate(names ...string) tls.Certificate {
	w.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	agenttest.Do(w.t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: names,
		NotBefore: w.ca.NotBefore, NotAfter: w.ca.NotAfter, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}},
		w.ca, key.Public(), w.key)
	agenttest.Do(w.t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// hold registers c to be closed at the end of the test. If the test has ended, hold closes it
// immediately.
func (w *servers) hold(c io.Closer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		c.Close()
	}
	w.open[c] = true
}

func (w *servers) listen(ns *netns, at string) net.Listener {
	w.t.Helper()
	l, err := ns.listen(at)
	agenttest.Do(w.t, err)
	w.hold(l)
	return l
}

// serve runs a server that calls handle for each connection.
func (w *servers) serve(ns *netns, server, at string, handle func(net.Conn)) {
	w.t.Helper()
	l := w.listen(ns, at)
	w.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			w.count(server)
			w.hold(c)
			w.wg.Go(func() {
				handle(c)
				c.Close()
				w.mu.Lock()
				defer w.mu.Unlock()
				delete(w.open, c)
			})
		}
	})
}

func (w *servers) count(server string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[server]++
}

// answer responds to each line with the name of the server. After the line "sum" it responds with
// the number of bytes that follow until the client half-closes the connection.
func answer(server string) func(net.Conn) {
	return func(c net.Conn) {
		r := bufio.NewReader(c)
		line, err := r.ReadString('\n')
		switch {
		case line == "sum\n":
			n, err := io.Copy(io.Discard, r)
			if err == nil {
				fmt.Fprintln(c, server, n)
			}
		default:
			for ; err == nil; _, err = r.ReadString('\n') {
				fmt.Fprintln(c, server)
			}
		}
	}
}

// tcp runs a server that responds to lines.
func (w *servers) tcp(ns *netns, server, at string) { w.serve(ns, server, at, answer(server)) }

// greeter runs a server that speaks first, like MySQL, and then waits for the client.
func (w *servers) greeter(ns *netns, server, at string) {
	w.serve(ns, server, at, func(c net.Conn) {
		fmt.Fprintln(c, server)
		_, _ = io.Copy(io.Discard, c)
	})
}

// tls runs a server with a certificate for names. It accepts lines over TLS and in plain text.
func (w *servers) tls(ns *netns, server, at string, names ...string) {
	config := &tls.Config{Certificates: []tls.Certificate{w.certificate(names...)},
		NextProtos: []string{"h2", "own", "kuma"}}
	w.serve(ns, server, at, func(c net.Conn) {
		r := bufio.NewReader(c)
		first, err := r.Peek(1)
		if err != nil {
			return
		}
		var said net.Conn = &replayed{Conn: c, r: r}
		if first[0] == 0x16 {
			said = tls.Server(said, config)
		}
		answer(server)(said)
	})
}

// replayed is a connection whose first bytes have already been read.
type replayed struct {
	net.Conn
	r io.Reader
}

func (c *replayed) Read(b []byte) (int, error) { return c.r.Read(b) }

// web runs an HTTP server without TLS. It supports HTTP/1, HTTP/2, WebSockets, and the gRPC health
// service.
func (w *servers) web(ns *netns, server, at string) {
	l := w.listen(ns, at)
	health := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(health, &healthServer{name: server})
	p := &http.Protocols{}
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	s := &http.Server{Protocols: p, ReadHeaderTimeout: agenttest.Patience,
		Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			w.count(server)
			switch {
			case strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc"):
				health.ServeHTTP(rw, r)
			case strings.EqualFold(r.Header.Get("Upgrade"), "websocket"):
				w.socket(server, rw)
			case r.Method == http.MethodConnect:
				w.tunnel(ns, rw, r)
			default:
				w.respond(server, rw, r)
			}
		})}
	w.hold(s)
	w.wg.Go(func() { _ = s.Serve(l) })
}

// seen is the request as a server received it.
type seen struct {
	Server  string            `json:"server"`
	Method  string            `json:"method"`
	Host    string            `json:"host"`
	Path    string            `json:"path"` // including the query
	Proto   string            `json:"proto"`
	Headers map[string]string `json:"headers"` // names in lower case
	Bytes   int64             `json:"bytes"`   // size of the body
}

// respond returns the received request. Header x-answer sets the status, x-headers adds that many
// headers, x-larger adds a header of that many bytes, x-size adds that many bytes to the body,
// x-wait delays the response until the client disconnects, and x-fail-once fails the first request
// with that name.
func (w *servers) respond(server string, rw http.ResponseWriter, r *http.Request) {
	n, err := io.Copy(io.Discard, r.Body)
	if err != nil {
		return
	}
	s := seen{Server: server, Method: r.Method, Host: r.Host, Path: r.RequestURI, Proto: r.Proto,
		Headers: map[string]string{}, Bytes: n}
	for name, values := range r.Header {
		s.Headers[strings.ToLower(name)] = strings.Join(values, ",")
	}
	w.note(s)
	b, _ := json.Marshal(s)
	rw.Header().Set("X-Server", server)
	if r.Header.Get("X-Wait") != "" {
		<-r.Context().Done()
		return
	}
	if once := r.Header.Get("X-Fail-Once"); once != "" && w.first(once) {
		rw.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if r.URL.Path == sick {
		rw.WriteHeader(http.StatusServiceUnavailable)
	}
	for i := range numberOf(r, "X-Headers") {
		rw.Header().Set("X-R-"+strconv.Itoa(i), "1")
	}
	if n := numberOf(r, "X-Larger"); n > 0 {
		rw.Header().Set("X-Large", strings.Repeat("x", n))
	}
	if code, err := strconv.Atoi(r.Header.Get("X-Answer")); err == nil {
		rw.WriteHeader(code)
	}
	_, _ = rw.Write(append(b, '\n'))
	if more, err := strconv.ParseInt(r.Header.Get("X-Size"), 10, 64); err == nil {
		_, _ = io.CopyN(rw, zeros{}, more)
	}
}

// sick is a path that all servers answer with 503.
const sick = "/sick"

// numberOf returns the number in a request header, or 0.
func numberOf(r *http.Request, name string) int {
	n, _ := strconv.Atoi(r.Header.Get(name))
	return n
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// socket completes a WebSocket handshake and then responds to lines.
func (w *servers) socket(server string, rw http.ResponseWriter) {
	h, ok := rw.(http.Hijacker)
	if !ok {
		http.Error(rw, "no HTTP/1", http.StatusHTTPVersionNotSupported)
		return
	}
	c, buffered, err := h.Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	w.hold(c)
	fmt.Fprintf(buffered,
		"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nX-Server: %s\r\n\r\n", server)
	if buffered.Flush() == nil {
		answer(server)(&replayed{Conn: c, r: buffered})
	}
}

// tunnel handles CONNECT like a proxy.
func (w *servers) tunnel(ns *netns, rw http.ResponseWriter, r *http.Request) {
	at, err := netip.ParseAddrPort(r.Host)
	h, ok := rw.(http.Hijacker)
	if err != nil || !ok {
		http.Error(rw, "CONNECT needs HTTP/1 and an address", http.StatusBadRequest)
		return
	}
	to, err := ns.dial(at)
	if err != nil {
		http.Error(rw, err.Error(), http.StatusBadGateway)
		return
	}
	defer to.Close()
	c, buffered, err := h.Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	w.hold(c)
	fmt.Fprint(c, "HTTP/1.1 200 OK\r\n\r\n")
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(to, buffered)
		to.Close()
		close(ended)
	}()
	_, _ = io.Copy(c, to)
	c.Close()
	<-ended
}

// healthServer returns its name in a header.
type healthServer struct {
	grpc_health_v1.UnimplementedHealthServer
	name string
}

func (s *healthServer) Check(ctx context.Context,
	_ *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	_ = grpc.SetHeader(ctx, metadata.Pairs("x-server", s.name))
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
}
