package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
)

// pipes is a listener of connections in memory, so that the time of a test can be fake.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func newPipes() *pipes { return &pipes{make(chan net.Conn), make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	select {
	case <-p.done:
	default:
		close(p.done)
	}
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-p.done:
		return nil, errors.New("the server has stopped")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// serveInMemory serves the API in memory, and points the client at it. It is for a bubble of
// synctest, so the server of start, which has a socket, is not used.
func serveInMemory(t *testing.T, change ...func(*httpapi.Options)) (a *testAPI, stop func()) {
	t.Helper()
	a = newTestAPI(t, change...)
	l := newPipes()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.srv.Serve(ctx, l) }()
	tr := &http.Transport{DialContext: l.dial, DisableCompression: true}
	a.base, a.http = "http://localhost", &http.Client{Transport: tr}
	return a, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		tr.CloseIdleConnections()
	}
}

// reader is a reader of events.
type reader struct {
	t    *testing.T
	resp *http.Response
	in   *bufio.Reader
}

// events opens a stream. The status must be 200.
func (a *testAPI) events(t *testing.T, query, token string) *reader {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", a.base+"/v1/events"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	client := *a.http
	client.Timeout = 0
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		t.Fatalf("%d %s: %s", resp.StatusCode, resp.Header.Get("Content-Type"), b)
	}
	return &reader{t, resp, bufio.NewReader(resp.Body)}
}

func (r *reader) close() { r.resp.Body.Close() }

// text reads up to an empty line.
func (r *reader) text() string {
	r.t.Helper()
	var out strings.Builder
	for {
		line, err := r.in.ReadString('\n')
		if err != nil {
			r.t.Fatalf("the stream has ended: %v", err)
		}
		if line == "\n" {
			return out.String()
		}
		out.WriteString(line)
	}
}

// next reads the next event, without signs of life, as "NAME DATA".
func (r *reader) next() string {
	r.t.Helper()
	for {
		text := r.text()
		if strings.HasPrefix(text, ":") {
			continue
		}
		name, data := "", ""
		for line := range strings.Lines(text) {
			if v, ok := strings.CutPrefix(line, "event: "); ok {
				name = strings.TrimSpace(v)
			} else if v, ok := strings.CutPrefix(line, "data: "); ok {
				data = strings.TrimSpace(v)
			} else if !strings.HasPrefix(line, "id: ") {
				r.t.Fatalf("a line %q", line)
			}
		}
		if !json.Valid([]byte(data)) {
			r.t.Fatalf("%s: data %q", name, data)
		}
		return name + " " + data
	}
}

// want reads the next event and compares its name, and parts of its data.
func (r *reader) want(name string, parts ...string) {
	r.t.Helper()
	got := r.next()
	if !strings.HasPrefix(got, name+" ") {
		r.t.Fatalf("got %s, want %s", got, name)
	}
	for _, p := range parts {
		if !strings.Contains(got, p) {
			r.t.Errorf("%q is not in %s", p, got)
		}
	}
}

// ended reports that the stream has ended.
func (r *reader) ended() {
	r.t.Helper()
	if rest, err := io.ReadAll(r.in); err != nil || len(rest) > 0 {
		r.t.Errorf("the stream goes on: %v %s", err, rest)
	}
}

// after reads the next sign of life, and returns how long it took.
func (r *reader) alive() time.Duration {
	r.t.Helper()
	began := time.Now()
	if text := r.text(); !strings.HasPrefix(text, ":") {
		r.t.Fatalf("got %s, want a sign of life", text)
	}
	return time.Since(began)
}
