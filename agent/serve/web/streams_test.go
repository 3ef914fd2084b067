package web_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/serve/events"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
	"github.com/nearside-mesh/nearside/agent/serve/web"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// stream is an answer of the page that is read while it grows.
type stream struct {
	t testing.TB
	*http.Response
	lines *bufio.Scanner
}

// open sends a GET of the page, and returns its answer without reading it.
func (p *page) open(client *http.Client, path string) *stream {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), "GET", "http://"+p.host+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	for name, value := range p.asPage("Cookie", p.cookie) {
		req.Header.Set(name, value)
	}
	resp, err := client.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { resp.Body.Close() })
	return &stream{p.t, resp, bufio.NewScanner(resp.Body)}
}

// next returns the next line with a prefix, or "" at the end of the stream.
func (s *stream) next(prefix string) string {
	for s.lines.Scan() {
		if strings.HasPrefix(s.lines.Text(), prefix) {
			return s.lines.Text()
		}
	}
	return ""
}

// newClient returns a client with any number of connections, which end with the test.
func newClient(t testing.TB) *http.Client {
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: agenttest.Patience}
}

// The events of a real API reach the page at once, and end when the user logs out.
func TestEventsOfAPI(t *testing.T) {
	hub := new(events.Hub)
	st, err := store.Open(store.Options{Changed: hub.Changed})
	agenttest.Do(t, err)
	socket := agenttest.API(t, func(o *httpapi.Options) { o.Store, o.Events = st, hub })
	p := up(t, func(o *web.Options) { o.Backend = web.Proxy(localhost, "", web.Socket(socket)) }).login()
	s := p.open(newClient(t), "/api/v1/events")
	if s.StatusCode != 200 || s.Header.Get("Content-Type") != "text/event-stream" || s.next("event:") != "event: hello" {
		t.Fatalf("%d %v", s.StatusCode, s.Header)
	}
	agenttest.ByAPI(t, st, "{type: Mesh, name: second}")
	if got := s.next("event: change"); got == "" {
		t.Fatal("the stream ended without the change")
	}
	agenttest.Contains(t, s.next("data:"), `"name":"second"`)
	if a := p.send("DELETE", "/ui/session", p.asPage(), ""); a.status != 204 {
		t.Fatalf("log out: %d", a.status)
	}
	if got := s.next("event:"); got != "" {
		t.Errorf("after logging out: %s", got)
	}
}

var localhost = &url.URL{Scheme: "http", Host: "localhost"}

// socketServer is an API on a socket, like that of an agent: it closes connections beyond a limit.
type socketServer struct {
	net.Listener
	mu                  sync.Mutex
	open, most, refused int
}

const connectionsOfUser = 64 // of the API

func (l *socketServer) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		l.mu.Lock()
		if l.open == connectionsOfUser {
			l.refused++
			l.mu.Unlock()
			c.Close()
			continue
		}
		l.open++
		l.most = max(l.most, l.open)
		l.mu.Unlock()
		return &counted{Conn: c, closed: sync.OnceFunc(func() {
			l.mu.Lock()
			l.open--
			l.mu.Unlock()
		})}, nil
	}
}

type counted struct {
	net.Conn
	closed func()
}

func (c *counted) Close() error {
	c.closed()
	return c.Conn.Close()
}

// 50 pages with streams, and many requests at once, use fewer connections than the API accepts from
// one user.
func TestConnections(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	counter := &socketServer{Listener: l}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/events" && !r.URL.Query().Has("follow") {
			fmt.Fprint(w, "{}")
			return
		}
		fmt.Fprint(w, "event: hello\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(counter) }()
	t.Cleanup(func() {
		srv.Close()
		<-ended
	})
	p := up(t, func(o *web.Options) { o.Backend = web.Proxy(localhost, "", web.Socket(socket)) }).login()
	client := newClient(t)
	var streams []*stream
	for i := range 56 {
		path := "/api/v1/events"
		if i >= 50 {
			path = "/api/v1/logs?follow=true"
		}
		s := p.open(client, path)
		if s.StatusCode != 200 || s.next("event:") != "event: hello" {
			t.Fatalf("stream %d: %d", i, s.StatusCode)
		}
		streams = append(streams, s)
	}
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			s := p.open(client, "/api/v1/status")
			if s.StatusCode != 200 {
				t.Errorf("a request beside the streams: %d", s.StatusCode)
			}
			s.Body.Close()
		})
	}
	wg.Wait()
	if a := p.send("GET", "/api/v1/events", p.asPage(), ""); a.status != 503 ||
		!strings.Contains(a.body, "close other tabs") {
		t.Errorf("one more stream: %d %s", a.status, a.body)
	}
	if counter.refused > 0 || counter.most > connectionsOfUser-2 {
		t.Errorf("%d connections at once, %d refused", counter.most, counter.refused)
	}
	streams[0].Body.Close()
	agenttest.Eventually(t, "a closed stream makes room", func() bool {
		return p.open(client, "/api/v1/events").StatusCode == 200
	})
}
