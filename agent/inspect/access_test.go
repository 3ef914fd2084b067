package inspect_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/inspect"
)

// dialAs connects to a unix socket as another user. Credentials belong to a thread: the one that takes them is thrown
// away with its goroutine.
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
		access inspect.Access
		gid    int
		groups []uint32
		want   int
		part   string
	}{
		{"a stranger reads only", inspect.Access{UID: 1, GID: -1}, stranger, nil, 403, "uid=54321 may read only; writing needs root or uid 1"},
		{"the agent's user", inspect.Access{UID: stranger, GID: -1}, stranger, nil, 201, "created"},
		{"the group of the socket", inspect.Access{UID: 1, GID: group}, group, nil, 201, "created"},
		{"a supplementary group", inspect.Access{UID: 1, GID: group}, stranger, []uint32{7, group}, 201, "created"},
		{"another group", inspect.Access{UID: 1, GID: group}, stranger, []uint32{7, 8}, 403, "or a member of group 12345"},
		{"no group is not group 0", inspect.Access{UID: 1, GID: -1}, 0, nil, 403, "may read only"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := start(t, func(o *inspect.Options) { o.Access = tc.access })
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
	a.want(a.do("GET", "/meshes/default?meta=true", ""), 200, fmt.Sprintf(`"author":"uid=%d`, os.Getuid()), `"source":"api"`)
}

func TestTCP(t *testing.T) {
	for _, token := range []string{"", "s3cret"} {
		a := start(t, func(o *inspect.Options) { o.Access.Token = token })
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		a.serve(l, "tcp", l.Addr().String())
		a.base = "http://" + l.Addr().String()
		a.want(a.do("GET", "/meshes", ""), 200)
		a.want(a.do("GET", "/meshes", "", "Host: localhost:80"), 200)
		a.want(a.do("GET", "/meshes", "", "Host: [::1]"), 200)
		a.want(a.do("GET", "/meshes", "", "Host: evil.example:80"), 403, "browser-refused", "Host")
		a.want(a.do("GET", "/meshes", "", "Host: 192.0.2.1"), 403)
		a.want(a.do("PUT", "/meshes/default", meshDoc), 403, "permission-denied")
		a.want(a.do("PUT", "/meshes/default", meshDoc, "Authorization: Bearer wrong"), 403)
		a.want(a.do("PUT", "/meshes/default", meshDoc, "Authorization: Bearer "), 403)
		want := 403
		if token != "" {
			want = 201
		}
		a.want(a.do("PUT", "/meshes/default", meshDoc, "Authorization: Bearer s3cret"), want)
	}
}

func TestBrowsersAreRefused(t *testing.T) {
	a := start(t)
	for _, h := range []string{"Origin: http://localhost", "Origin: null", "Sec-Fetch-Site: same-origin", "Sec-Fetch-Mode: no-cors"} {
		a.want(a.do("GET", "/meshes", "", h), 403, "browser-refused")
		a.want(a.do("PUT", "/meshes/default", meshDoc, h), 403)
	}
}

func TestHandlerAloneReadsOnly(t *testing.T) {
	a := start(t)
	a.http.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
		w := &recorder{header: http.Header{}}
		r.Host = "localhost"
		a.srv.Handler().ServeHTTP(w, r)
		return w.response(), nil
	})
	a.want(a.do("GET", "/meshes", ""), 200)
	a.want(a.do("PUT", "/meshes/default", meshDoc), 403)
}

func TestConnectionsAreBounded(t *testing.T) {
	a := start(t, func(o *inspect.Options) { o.Limits.Connections = 2; o.Limits.HeaderTime = time.Hour })
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
	a := start(t, func(o *inspect.Options) {
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
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
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
	_, err := inspect.New(inspect.Options{Limits: inspect.Limits{Body: -1}, Access: inspect.Access{UID: -1}})
	for _, want := range []string{"Registry", "Store", "Last", "NewMesh", "Access.UID: -1", "Limits.Body: -1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not named: %v", want, err)
		}
	}
}

func TestMetricsAreOptional(t *testing.T) {
	a := start(t, func(o *inspect.Options) { o.Metrics = nil })
	a.want(a.do("GET", "/metrics", ""), 404)
}
