package traffictest_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// speech is the protocol that a client speaks.
type speech uint8

const (
	get     speech = iota // an HTTP/1.1 request
	get10                 // an HTTP/1.0 request
	getH2                 // an HTTP/2 request without TLS
	rpc                   // a gRPC call
	upgrade               // a WebSocket upgrade request, followed by a line
	connect               // an HTTP CONNECT request
	aLine                 // a line without TLS
	halfway               // bytes, then a half-close; the client waits for the sum
	nothing               // the client waits for the server to speak
	overTLS               // a line over TLS; the client verifies the server's certificate if the row has a name
)

var speeches = [...]string{"HTTP/1.1", "HTTP/1.0", "HTTP/2", "gRPC", "WebSocket", "CONNECT", "line", "line and sum",
	"nothing", "TLS"}

func (s speech) String() string { return speeches[s] }

// http reports whether s is an HTTP request.
func (s speech) http() bool { return s <= connect }

// Results of a connection on which the client receives no byte.
const (
	closed   = "closed"    // the connection ends
	noAnswer = "no answer" // nothing arrives until the client times out
)

// silence is how long a client waits for a server that speaks first, if it may get no answer. A
// permissive inbound of such a server waits for a second.
const silence = 3 * time.Second

// answered is the response that a client received.
type answered struct {
	got    string // name of the server, closed, or the status of the proxy's local reply
	status uint32 // status of the proxy's local reply, 0 if there is none
	code   int    // status code of the response, from any source
	header http.Header
	seen   seen  // the request as the server reports it
	size   int64 // of the body, in bytes
	peer   string
	took   time.Duration // until the first byte, or the end of the connection
}

func mustAddrPort(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// send opens the connection of a row to an address and returns the response.
func (r *row) send(t testing.TB, w *world, ns *netns, at netip.AddrPort) answered {
	t.Helper()
	c, err := ns.dial(at)
	if err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) || isTimeout(err) {
			t.Fatalf("%s does not answer: %v", at, err)
		}
		return answered{got: closed}
	}
	defer c.Close()
	began := time.Now()
	patience := agenttest.Patience
	if r.say == nothing && (r.want == "" || r.want == noAnswer || r.pending != "") {
		patience = silence
		if r.pending != "" {
			patience = silence / 8
		}
	}
	agenttest.Do(t, c.SetDeadline(began.Add(patience)))
	a, err := r.talk(c, w)
	a.peer = c.LocalAddr().String()
	a.took = time.Since(began)
	switch {
	case err == nil:
	case isTimeout(err):
		a.got = noAnswer
	case strings.Contains(err.Error(), "certificate"):
		a.got = err.Error()
	case a.got == "":
		a.got = closed // errors of closed connections differ
	}
	return a
}

func (r *row) talk(c net.Conn, w *world) (answered, error) {
	switch r.say {
	case overTLS:
		return line(tls.Client(c, &tls.Config{ServerName: r.name, RootCAs: w.servers.roots, InsecureSkipVerify: r.name == "",
			NextProtos: r.alpn}), "hello\n")
	case nothing:
		return line(c, "")
	case aLine:
		return line(c, "hello\n")
	case halfway:
		return r.half(c)
	case get10:
		return r.request(c, r.head(cmp.Or(r.method, "GET"), r.pathOr(), "HTTP/1.0", r.host()))
	case connect:
		return r.request(c, r.head("CONNECT", r.to, "HTTP/1.1", r.to))
	case upgrade:
		a, err := r.request(c, r.head("GET", r.pathOr(), "HTTP/1.1", r.host(), "Connection: Upgrade", "Upgrade: websocket",
			"Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="))
		if err != nil || a.code != http.StatusSwitchingProtocols {
			return a, err
		}
		return line(c, "hello\n")
	case getH2:
		return r.h2(c)
	case rpc:
		return r.call(c)
	}
	return r.h1(c)
}

// head returns the header section of a request without a body.
func (r *row) head(method, target, version, host string, more ...string) string {
	lines := append([]string{method + " " + target + " " + version, "Host: " + host}, more...)
	for _, name := range slices.Sorted(maps.Keys(r.headers)) {
		lines = append(lines, name+": "+r.headers[name])
	}
	return strings.Join(lines, "\r\n") + "\r\n\r\n"
}

// line sends one line and reads one line.
func line(c net.Conn, text string) (answered, error) {
	if _, err := io.WriteString(c, text); err != nil {
		return answered{}, err
	}
	s, err := bufio.NewReader(c).ReadString('\n')
	if strings.HasPrefix(s, "\x15\x03") {
		return answered{}, io.ErrUnexpectedEOF // a TLS alert: the server does not accept plain text
	}
	if strings.HasPrefix(s, "HTTP/1.1 400 ") {
		return answered{}, io.ErrUnexpectedEOF // the proxy accepts only requests
	}
	return answered{got: strings.TrimSpace(s)}, err
}

// half sends bytes, closes its side of the connection, and reads the server's summary.
func (r *row) half(c net.Conn) (answered, error) {
	if _, err := io.WriteString(c, "sum\n"); err != nil {
		return answered{}, err
	}
	if _, err := io.CopyN(c, zeros{}, r.body); err != nil {
		return answered{}, err
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return answered{}, err
	}
	b, err := io.ReadAll(c)
	name, n, _ := strings.Cut(strings.TrimSpace(string(b)), " ")
	a := answered{got: name}
	a.seen.Bytes, _ = strconv.ParseInt(n, 10, 64)
	return a, err
}

func (r *row) pathOr() string { return cmp.Or(r.path, "/") }

// host returns the Host of a request.
func (r *row) host() string {
	if r.name != "" {
		return r.name
	}
	return strings.TrimSuffix(r.to, ":80")
}

func (r *row) newRequest() *http.Request {
	var body io.Reader
	if r.body > 0 {
		body = io.LimitReader(zeros{}, r.body)
	}
	req, err := http.NewRequest(cmp.Or(r.method, "GET"), "http://"+r.host()+r.pathOr(), body)
	if err != nil {
		panic(err) // the table is invalid
	}
	req.ContentLength = r.body
	for k, v := range r.headers {
		req.Header.Set(k, v)
	}
	return req
}

func (r *row) h1(c net.Conn) (answered, error) {
	req := r.newRequest()
	req.Close = true
	output := make(chan error, 1)
	go func() { output <- req.Write(c) }() // a proxy can respond before it has read everything
	resp, err := http.ReadResponse(bufio.NewReader(c), req)
	a, err := heard(resp, err)
	if err != nil || a.status != 0 {
		c.Close()
	}
	<-output
	return a, err
}

func (r *row) h2(c net.Conn) (answered, error) {
	p := &http.Protocols{}
	p.SetUnencryptedHTTP2(true)
	t := &http.Transport{Protocols: p,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return c, nil }}
	defer t.CloseIdleConnections()
	return heard(t.RoundTrip(r.newRequest()))
}

func (r *row) request(c net.Conn, text string) (answered, error) {
	if _, err := io.WriteString(c, text); err != nil {
		return answered{}, err
	}
	method, _, _ := strings.Cut(text, " ")
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	return heard(resp, err)
}

// heard parses a response.
func heard(resp *http.Response, err error) (answered, error) {
	if err != nil {
		return answered{}, err
	}
	a := answered{code: resp.StatusCode, header: resp.Header, got: resp.Header.Get("X-Server")}
	if a.got == "" {
		a.status, a.got = uint32(resp.StatusCode), strconv.Itoa(resp.StatusCode)
	} else if a.code != http.StatusOK && a.code != http.StatusSwitchingProtocols {
		a.got += " " + strconv.Itoa(a.code)
	}
	if a.code == http.StatusSwitchingProtocols {
		return a, nil
	}
	defer resp.Body.Close()
	body := bufio.NewReader(resp.Body)
	first, err := body.ReadBytes('\n')
	a.size = int64(len(first))
	_ = json.Unmarshal(bytes.TrimSpace(first), &a.seen)
	if err == nil {
		var n int64
		n, err = io.Copy(io.Discard, body)
		a.size += n
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return a, err
}

// call sends a gRPC health check to a server.
func (r *row) call(c net.Conn) (answered, error) {
	taken := false
	conn, err := grpc.NewClient("passthrough:///"+r.host(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			if taken {
				return nil, errors.New("one connection is all there is")
			}
			taken = true
			return c, nil
		}))
	if err != nil {
		return answered{}, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), agenttest.Patience)
	defer cancel()
	var md metadata.MD
	_, err = grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{}, grpc.Header(&md))
	if names := md.Get("x-server"); len(names) == 1 && err == nil {
		return answered{got: names[0], code: 200}, nil
	}
	s := status.Convert(err)
	if s.Code() == codes.Unavailable && strings.Contains(s.Message(), "error reading") {
		return answered{}, err
	}
	// A proxy rejects a call with HTTP status 200 and a gRPC status.
	return answered{got: fmt.Sprintf("grpc %s", s.Code()), status: 200, code: 200}, nil
}
