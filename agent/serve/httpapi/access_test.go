package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// dialAs connects to a unix socket as another user. Credentials belong to a thread: the one that
// takes them is thrown away with its goroutine.
func dialAs(t *testing.T, addr string, uid, gid int, groups ...uint32) net.Conn {
	t.Helper()
	type result struct {
		c   net.Conn
		err error
	}
	got := make(chan result)
	go func() {
		runtime.LockOSThread() // never unlocked
		var first unsafe.Pointer
		if len(groups) > 0 {
			first = unsafe.Pointer(&groups[0])
		}
		for _, call := range [][4]uintptr{
			{unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(first)},
			{unix.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid)},
			{unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)},
		} {
			if _, _, errno := unix.RawSyscall(call[0], call[1], call[2], call[3]); errno != 0 {
				got <- result{nil, fmt.Errorf("syscall %d: %w", call[0], errno)}
				return
			}
		}
		c, err := net.Dial("unix", addr)
		got <- result{c, err}
	}()
	r := <-got
	if r.err != nil {
		t.Fatal(r.err)
	}
	return r.c
}

func TestPeerCredentials(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can connect as somebody else")
	}
	const stranger, group = 54321, 12345
	for _, tc := range []struct {
		name   string
		access access.RoleOptions
		gid    int
		groups []uint32
		want   int
		part   string
	}{
		{"a stranger reads only", access.RoleOptions{AgentUID: 1, GID: -1}, stranger, nil, 403,
			"uid=54321 may not create Mesh default/default: writing requires root, uid 1"},
		{"the agent's user", access.RoleOptions{AgentUID: stranger, GID: -1}, stranger, nil, 201, "created"},
		{"the group of the socket", access.RoleOptions{AgentUID: 1, GID: group}, group, nil, 201, "created"},
		{"a supplementary group", access.RoleOptions{AgentUID: 1, GID: group}, stranger, []uint32{7, group}, 201, "created"},
		{"another group", access.RoleOptions{AgentUID: 1, GID: group}, stranger, []uint32{7, 8}, 403,
			"or a member of the group 12345"},
		{"no group is not group 0", access.RoleOptions{AgentUID: 1, GID: -1}, 0, nil, 403, "may not create"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := start(t, func(o *httpapi.Options) { o.Access.Roles = rolesOf(t, tc.access) })
			addr := fmt.Sprintf("@nearside-%d-%d", os.Getpid(), time.Now().UnixNano())
			l, err := net.Listen("unix", addr)
			if err != nil {
				t.Fatal(err)
			}
			a.serve(l, "unix", addr)
			a.http.Transport.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) {
				return dialAs(t, addr, stranger, tc.gid, tc.groups...), nil
			}
			a.want(a.do("GET", "/meshes", ""), 200)
			a.want(a.do("PUT", "/meshes/default", meshDoc), tc.want, tc.part)
			if tc.want == 201 {
				a.want(a.do("GET", "/v1/history/meshes/default", ""), 200, `"author":"uid=54321"`)
			}
		})
	}
}

func TestAuthorHasAName(t *testing.T) {
	a := start(t)
	a.want(a.do("PUT", "/meshes/default", meshDoc), 201)
	a.want(a.do("GET", "/meshes/default?meta=true", ""), 200, fmt.Sprintf(`"author":"uid=%d`, os.Getuid()),
		`"source":"api"`)
}

// TestTCP is about requests without the word of the kernel on who sends them: all but three take a
// token.
func TestTCP(t *testing.T) {
	for _, static := range []string{"", "s3cret"} {
		a := startTCP(t, func(o *httpapi.Options) { o.Access.Token = static })
		right := "Authorization: Bearer " + static
		for _, path := range []string{"/", "/livez", "/readyz"} {
			a.want(a.do("GET", path, ""), 200)
			a.want(a.do("GET", path, "", "Authorization: Bearer wrong"), 200)
		}
		for _, path := range []string{"/meshes", "/nothing/at/all/of/it", "/v1/access/whoami"} {
			got := a.do("GET", path, "")
			a.want(got, 401, "token-needed", "Authorization: Bearer TOKEN")
			if h := got.header.Get("WWW-Authenticate"); h != `Bearer realm="nearside"` {
				t.Errorf("WWW-Authenticate: %q", h)
			}
		}
		a.want(a.do("PUT", "/meshes/default", meshDoc), 401)
		a.want(a.do("POST", "/meshes/default", meshDoc), 401)
		if static == "" {
			a.want(a.do("GET", "/meshes", "", "Authorization: Bearer s3cret"), 401, "set api.tokenFile")
			continue
		}
		a.want(a.do("PUT", "/meshes/default", meshDoc, "Authorization: Bearer wrong"), 401, "use the token of api.tokenFile")
		a.want(a.do("PUT", "/meshes/default", meshDoc, right), 201)
		a.want(a.do("GET", "/meshes", "", right), 200)
		a.want(a.do("GET", "/v1/history/meshes/default", "", right), 200, `with the token \"token file\"`)
	}
}

// startTCP is start, with the server on a TCP address.
func startTCP(t testing.TB, change ...func(*httpapi.Options)) *testAPI {
	t.Helper()
	a := start(t, change...)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a.serve(l, "tcp", l.Addr().String())
	a.base = "http://" + l.Addr().String()
	return a
}

// TestHosts checks that requests of a web page whose host name resolves to a loopback address are
// refused.
func TestHosts(t *testing.T) {
	a := startTCP(t, func(o *httpapi.Options) { o.Access.Token = "s3cret" })
	for host, want := range map[string]int{
		"localhost": 200, "LOCALHOST:80": 200, "127.0.0.1:9": 200, "127.1.2.3": 200, "[::1]": 200, "[::1]:80": 200,
		"[::ffff:127.0.0.1]": 200, "evil.example:80": 403, "localhost.evil.example": 403, "127.0.0.1.evil.example": 403,
		"192.0.2.1": 403, "[2001:db8::1]:80": 403, "[::ffff:192.0.2.1]": 403, "0.0.0.0": 403, "localhost.": 403,
		"127.0.0.1@evil.example": 403, "127.1": 403, "2130706433": 403,
	} {
		got := a.do("GET", "/meshes", "", "Host: "+host, "Authorization: Bearer s3cret")
		if got.status != want && !(want == 403 && got.status == 400) { // net/http refuses some
			t.Errorf("Host %s: %d, want %d: %s", host, got.status, want, got.body)
		}
	}
	for in, want := range map[string]string{
		"GET / HTTP/1.1\r\n\r\n":                                       "400",
		"GET / HTTP/1.0\r\n\r\n":                                       "403",
		"GET / HTTP/1.1\r\nHost:\r\n\r\n":                              "403",
		"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n":      "400",
		"GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n": "403",
		// the URL takes precedence (RFC 9112, 3.2.2)
		"GET http://localhost/ HTTP/1.1\r\nHost: evil.example\r\n\r\n":     "200",
		"GET / HTTP/1.1\r\nHost: localhost\r\nOrigin: http://x\r\n\r\n":    "403",
		"OPTIONS * HTTP/1.1\r\nHost: evil.example\r\nOrigin: null\r\n\r\n": "",
	} {
		c, err := net.Dial("tcp", strings.TrimPrefix(a.base, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte(in)); err != nil {
			t.Fatal(err)
		}
		line := make([]byte, len("HTTP/1.1 200"))
		_ = c.SetReadDeadline(time.Now().Add(agenttest.Patience))
		if _, err := io.ReadFull(c, line); err != nil || !strings.HasSuffix(string(line), want) {
			t.Errorf("%q: %s, want %s: %v", in, line, want, err)
		}
		c.Close()
	}
}

func TestBrowsersAreRefused(t *testing.T) {
	a := start(t)
	for _, h := range []string{
		"Origin: http://localhost", "Origin: null", "Sec-Fetch-Site: same-origin", "Sec-Fetch-Mode: no-cors",
	} {
		a.want(a.do("GET", "/meshes", "", h), 403, "browser-refused")
		a.want(a.do("PUT", "/meshes/default", meshDoc, h), 403)
	}
}

func TestHandlerAloneNeedsAToken(t *testing.T) {
	a := start(t)
	a.http.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
		w := &recorder{header: http.Header{}}
		r.Host = "localhost"
		a.srv.Handler().ServeHTTP(w, r)
		return w.response(), nil
	})
	a.want(a.do("GET", "/", ""), 200)
	a.want(a.do("GET", "/meshes", ""), 401)
	a.want(a.do("PUT", "/meshes/default", meshDoc), 401)
}

func TestConnectionsAreBounded(t *testing.T) {
	a := start(t, func(o *httpapi.Options) { o.Limits.Connections = 2; o.Limits.HeaderTime = time.Hour })
	l, err := net.Listen("unix", fmt.Sprintf("@nearside-%d-%d", os.Getpid(), time.Now().UnixNano()))
	if err != nil {
		t.Fatal(err)
	}
	a.serve(l, "unix", l.Addr().String())
	var held []net.Conn
	for range 2 {
		c, err := net.Dial("unix", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		// An answer proves that the connection has been accepted.
		fmt.Fprintf(c, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		held = append(held, c)
	}
	c, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if n, err := c.Read(make([]byte, 1)); err == nil {
		t.Errorf("a third connection was served (%d bytes)", n)
	}
	held[0].Close()
	// The place becomes free once the server has noticed.
	for i := 0; ; i++ {
		c, err := net.Dial("unix", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
		_, err = c.Read(make([]byte, 1))
		c.Close()
		if err == nil {
			break
		}
		if i > 10000 {
			t.Fatal("the place of a closed connection stays taken")
		}
	}
}

func TestSlowAndBrokenClients(t *testing.T) {
	a := start(t, func(o *httpapi.Options) {
		o.Limits.HeaderTime = 250 * time.Millisecond
		o.Limits.ReadTime = 250 * time.Millisecond
		o.Limits.Header = 4096
	})
	addr := fmt.Sprintf("@nearside-%d-%d", os.Getpid(), time.Now().UnixNano())
	l, err := net.Listen("unix", addr)
	if err != nil {
		t.Fatal(err)
	}
	a.serve(l, "unix", addr)
	for _, in := range []string{
		"", // never says anything
		"GET /",
		"PUT /meshes/default HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{", // never sends the rest
		"\x16\x03\x01garbage\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("a", 10000) + "\r\n\r\n",
	} {
		c, err := net.Dial("unix", addr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte(in)); err != nil && !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(agenttest.Patience))
		for {
			if _, err = c.Read(make([]byte, 1024)); err != nil {
				break
			}
		}
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			t.Errorf("%.20q: the server keeps the connection", in)
		}
		c.Close()
	}
	a.want(a.do("GET", "/livez", ""), 200)
	if a.store.Snapshot().Len() != 0 {
		t.Error("half a request was stored")
	}
}

func TestServeEndsWithItsListener(t *testing.T) {
	a := start(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := a.srv.Serve(t.Context(), l); err == nil || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("Serve on a closed listener: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.srv.Serve(ctx); err != nil {
		t.Errorf("Serve without listeners: %v", err)
	}
}

func TestOptions(t *testing.T) {
	_, err := httpapi.New(httpapi.Options{Limits: httpapi.Limits{Body: -1}})
	for _, want := range []string{"Registry", "Store", "Last", "NewMesh", "Access.Roles", "Limits.Body: -1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not named: %v", want, err)
		}
	}
}

func TestMetricsAreOptional(t *testing.T) {
	a := start(t, func(o *httpapi.Options) { o.Metrics = nil })
	// A busy machine may be too slow for the limits of this server.
	agenttest.Eventually(t, "the server still answers", func() bool {
		resp, err := a.http.Get(a.base + "/metrics")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusNotFound
	})
}

// TestSlowWriterHoldsUpNobody writes while the body of another write does not come.
func TestSlowWriterHoldsUpNobody(t *testing.T) {
	a := start(t)
	addr := fmt.Sprintf("@nearside-%d-%d", os.Getpid(), time.Now().UnixNano())
	l, err := net.Listen("unix", addr)
	if err != nil {
		t.Fatal(err)
	}
	a.serve(l, "unix", addr)
	for _, path := range []string{"PUT /meshes/default", "POST /v1/apply", "POST /v1/rollback", "POST /v1/diff"} {
		c, err := net.Dial("unix", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 100\r\n\r\n",
			path); err != nil {
			t.Fatal(err)
		}
		// It is asked for the body, so that the request is being read.
		if _, err := io.ReadFull(c, make([]byte, len("HTTP/1.1 100 Continue"))); err != nil {
			t.Fatal(err)
		}
	}
	a.want(a.do("PUT", "/meshes/default", meshDoc), 201)
	a.want(a.do("DELETE", "/meshes/default", ""), 200)
}

// FuzzAuthorization sends any header: only the token of the file and a signed one are taken, and
// nothing else makes a defect.
func FuzzAuthorization(f *testing.F) {
	for _, seed := range []string{
		"", "Bearer", "Bearer ", "Bearer s3cret", "bearer s3cret", "Bearer is-a", "Bearer  s3cret", "Basic eDp5",
		"Bearer s3cret,Bearer x", "Bearer \x00",
	} {
		f.Add(seed)
	}
	a := startTCP(f, func(o *httpapi.Options) { o.Access.Token, o.Access.Verify = "s3cret", subjects })
	f.Fuzz(func(t *testing.T, header string) {
		r, err := http.NewRequest("GET", "http://localhost/meshes", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header["Authorization"] = []string{header}
		w := &recorder{header: http.Header{}}
		a.srv.Handler().ServeHTTP(w, r)
		scheme, text, _ := strings.Cut(header, " ")
		right := strings.EqualFold(scheme, "Bearer") && (text == "s3cret" || strings.HasPrefix(text, "is-"))
		limited := w.status == 429 && text != "s3cret" // of many wrong ones, signed ones that are new wait too
		if right != (w.status == 200) && !limited || !right && w.status != 401 && w.status != 429 {
			t.Errorf("%q: %d", header, w.status)
		}
	})
}
