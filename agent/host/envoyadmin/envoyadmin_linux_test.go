package envoyadmin_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/host/envoyadmin"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// serve listens on the admin socket of an Envoy with the PID of the test. answer writes the
// response for each path.
func serve(t *testing.T, answer func(c net.Conn, path string)) envoyadmin.Envoy {
	t.Helper()
	dir := agenttest.ShortDir(t)
	uid := strconv.Itoa(os.Geteuid())
	agenttest.Do(t, os.Mkdir(filepath.Join(dir, uid), 0o700))
	l, err := net.Listen("unix", filepath.Join(dir, uid, "default.web.sock"))
	agenttest.Do(t, err)
	ended := make(chan struct{})
	t.Cleanup(func() { l.Close(); <-ended })
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			b := make([]byte, 4096)
			n, _ := c.Read(b)
			path, _, _ := strings.Cut(strings.TrimPrefix(string(b[:n]), "GET "), " ") // or the method of other requests
			answer(c, path)
			c.Close()
		}
	}()
	return envoyadmin.Envoy{Dir: dir, ID: "default.web",
		Peer: access.Peer{Local: true, UID: uint32(os.Geteuid()), PID: int32(os.Getpid())}}
}

// text responds with the given texts to requests for the counters and the listeners.
func text(counters, listeners string) func(net.Conn, string) {
	return func(c net.Conn, path string) {
		body := counters
		if path == "/listeners" {
			body = listeners
		}
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s", len(body), body)
	}
}

// TestReopenLogs checks that the request is a POST, and that every status but 200 is an error.
func TestReopenLogs(t *testing.T) {
	asked := make(chan string, 2)
	e := serve(t, func(c net.Conn, path string) {
		asked <- path
		fmt.Fprint(c, "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nOK\n")
	})
	if err := e.ReopenLogs(t.Context()); err != nil {
		t.Error(err)
	}
	if got := <-asked; got != "POST" {
		t.Errorf("asked %q", got)
	}
	e = serve(t, func(c net.Conn, _ string) { fmt.Fprint(c, "HTTP/1.1 405 No\r\ncontent-length: 0\r\n\r\n") })
	if err := e.ReopenLogs(t.Context()); err == nil || !strings.Contains(err.Error(), "405") {
		t.Errorf("%v", err)
	}
	e.Peer.PID++
	if err := e.ReopenLogs(t.Context()); err == nil || !strings.Contains(err.Error(), "xDS stream that of") {
		t.Errorf("another process is told: %v", err)
	}
}

// TestInspection requests the outputs for inspection, and changes log levels.
func TestInspection(t *testing.T) {
	asked := make(chan string, 8)
	answers := map[string]string{"/config_dump?include_eds": "{}", "/stats": "a: 1\n", "/clusters": "b::c\n"}
	e := serve(t, func(c net.Conn, path string) {
		if path == "POST" {
			b := "active loggers:\n  admin: info\n  upstream: debug\n"
			asked <- path
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s", len(b), b)
			return
		}
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s", len(answers[path]), answers[path])
	})
	dump, err := e.ConfigDump(t.Context(), true)
	stats, err2 := e.Stats(t.Context())
	clusters, err3 := e.Clusters(t.Context())
	if err != nil || err2 != nil || err3 != nil || string(dump) != "{}" || string(stats) != "a: 1\n" ||
		string(clusters) != "b::c\n" {
		t.Errorf("%s %v, %s %v, %s %v", dump, err, stats, err2, clusters, err3)
	}
	levels, err := e.Levels(t.Context(), map[string]string{"": "info", "upstream": "debug"})
	if err != nil || len(levels) != 2 || levels["upstream"] != "debug" || len(asked) != 2 {
		t.Errorf("%v, %v, %d requests", levels, err, len(asked))
	}
	for _, bad := range []string{"", "active loggers:\n", "  admin\n", "  admin: loud\n", "  : info\n"} {
		e := serve(t, func(c net.Conn, _ string) {
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s", len(bad), bad)
		})
		if levels, err := e.Levels(t.Context(), nil); err == nil {
			t.Errorf("%q: %v", bad, levels)
		}
	}
}

func TestFailedWrites(t *testing.T) {
	got, err := serve(t, text("filesystem.write_failed: 3\nfilesystem.reopen_failed: 2\nfilesystem.write_completed: 5\n"+
		"cluster.outbound_passthrough_ipv4.upstream_cx_none_healthy: 1\n", "not asked")).Counts(t.Context())
	if want := (api.ProxyCounts{Refused: 1, WritesFailed: 3, ReopensFailed: 2, WritesDone: 5}); err != nil ||
		!reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}

// TestTimedOut checks that clients that sent too little in time are counted by listener.
func TestTimedOut(t *testing.T) {
	got, err := serve(t, text("listener.0.0.0.0_15001.downstream_pre_cx_timeout: 2\n"+
		"listener.0.0.0.0_15001.no_filter_chain_match: 1\nlistener.[fd00__1]_80.downstream_pre_cx_timeout: 3\n"+
		"listener.10.0.0.1_80.downstream_pre_cx_timeout: 0\n",
		"outbound:passthrough:ipv4::0.0.0.0:15001\ninbound:10.0.0.1:80::10.0.0.1:80\n"+
			"inbound:[fd00::1]:80::[fd00::1]:80\n")).Counts(t.Context())
	want := api.ProxyCounts{Refused: 1,
		TimedOut: map[string]uint64{"outbound:passthrough:ipv4": 2, "inbound:[fd00::1]:80": 3}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}

func TestRefused(t *testing.T) {
	listeners := "outbound:passthrough:ipv4::0.0.0.0:15001\noutbound:passthrough:ipv6::[::]:15001\n" +
		"inbound:10.0.0.1:80::10.0.0.1:80\n"
	for name, c := range map[string]struct {
		counters, listeners string
		want                uint64
	}{
		"nothing": {"", "not asked", 0},
		"closed passthrough": {"cluster.outbound_passthrough_ipv4.upstream_cx_none_healthy: 3\n" +
			"cluster.outbound_passthrough_ipv6.upstream_cx_none_healthy: 4\n", "not asked", 7},
		"no chain": {"listener.0.0.0.0_15001.no_filter_chain_match: 2\nlistener.[__]_15001.no_filter_chain_match: 5\n",
			listeners, 7},
		"of an inbound": {"listener.10.0.0.1_80.no_filter_chain_match: 9\n", listeners, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := serve(t, text(c.counters, c.listeners)).Counts(t.Context())
			if err != nil || got.Refused != c.want {
				t.Errorf("%d, %v; want %d", got.Refused, err, c.want)
			}
		})
	}
}

// TestHostileEnvoy checks the handling of invalid, endless, and missing responses.
func TestHostileEnvoy(t *testing.T) {
	endless := func(prefix, more string) func(net.Conn, string) {
		return func(c net.Conn, _ string) {
			_, err := io.WriteString(c, prefix)
			for block := strings.Repeat(more, 1024); err == nil; {
				_, err = io.WriteString(c, block)
			}
		}
	}
	for name, c := range map[string]struct {
		answer func(net.Conn, string)
		want   string
	}{
		"says nothing":    {func(c net.Conn, _ string) { _, _ = io.Copy(io.Discard, c) }, "no answer within 1s"},
		"hangs up":        {func(net.Conn, string) {}, "not HTTP"},
		"endless header":  {endless("HTTP/1.1 200 OK\r\nx: ", "abcdefgh"), "more than 4194304 bytes"},
		"endless headers": {endless("HTTP/1.1 200 OK\r\n", "x: 1\r\n"), "more than 4194304 bytes"},
		"endless body":    {endless("HTTP/1.1 200 OK\r\n\r\n", "abcdefgh"), "more than 4194304 bytes"},
		"endless chunks": {endless("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", "1\r\nx\r\n"),
			"more than 4194304 bytes"},
		"garbage": {func(c net.Conn, _ string) { _, _ = io.WriteString(c, "\x00\xff\r\n\r\n") }, "not HTTP"},
		"an error": {func(c net.Conn, _ string) { _, _ = io.WriteString(c, "HTTP/1.1 503 No\r\n\r\n") },
			"status 503"},
		"less than it says": {func(c net.Conn,
			_ string) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx")
		}, "not HTTP"},
		"not what was asked": {text("cluster.other.upstream_cx_none_healthy: 1\n", ""), "not a list of the counters"},
		"no number":          {text("listener.x.no_filter_chain_match: -1\n", ""), "not a list of the counters"},
		"too many": {text("cluster.outbound_passthrough_ipv4.upstream_cx_none_healthy: 1099511627777\n", ""),
			"not a list of the counters"},
		"no listeners": {text("listener.x.no_filter_chain_match: 1\n", "outbound:passthrough:ipv4::/sock\n"),
			"not a list of listeners"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := serve(t, c.answer).Counts(t.Context())
			// on a machine under load
			slow := strings.HasPrefix(name, "endless") && err != nil && strings.Contains(err.Error(), "no answer within")
			if err == nil || !strings.Contains(err.Error(), c.want) && !slow {
				t.Errorf("%v; want %q", err, c.want)
			}
		})
	}
}

// TestForeignSockets checks that a socket gets no request unless it certainly belongs to the Envoy
// of the stream.
func TestForeignSockets(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, e *envoyadmin.Envoy, socket string)
		want   string
	}{
		"another process": {func(_ *testing.T, e *envoyadmin.Envoy, _ string) { e.Peer.PID++ },
			"the xDS stream that of uid"},
		"a process that is not known": {func(_ *testing.T, e *envoyadmin.Envoy, _ string) { e.Peer.PID = 0 },
			"cannot be identified"},
		"over TCP": {func(_ *testing.T, e *envoyadmin.Envoy, _ string) { e.Peer = access.Peer{Addr: "127.0.0.1:1"} },
			"cannot be identified"},
		"a user that is not known": {func(_ *testing.T, e *envoyadmin.Envoy, _ string) { e.Peer.Foreign = true },
			"cannot be identified"},
		"another user": {func(_ *testing.T, e *envoyadmin.Envoy, _ string) { e.Peer.UID++ }, "no such file"},
		"a link": {func(t *testing.T, _ *envoyadmin.Envoy, socket string) {
			agenttest.Do(t, os.Rename(socket, socket+"2"))
			agenttest.Do(t, os.Symlink(socket+"2", socket))
		}, "not a socket of uid"},
		"a linked directory": {func(t *testing.T, _ *envoyadmin.Envoy, socket string) {
			dir := filepath.Dir(socket)
			agenttest.Do(t, os.Rename(dir, dir+"2"))
			agenttest.Do(t, os.Symlink(dir+"2", dir))
		}, "not a directory"},
		"a file": {func(t *testing.T, _ *envoyadmin.Envoy, socket string) {
			agenttest.Do(t, os.Remove(socket))
			agenttest.Do(t, os.WriteFile(socket, nil, 0o600))
		}, "not a socket of uid"},
	} {
		t.Run(name, func(t *testing.T) {
			e := serve(t, func(c net.Conn, path string) {
				if path != "" {
					t.Errorf("asked for %s", path)
				}
			})
			c.change(t, &e, filepath.Join(e.Dir, strconv.Itoa(os.Geteuid()), e.ID+".sock"))
			_, err := e.Counts(context.Background())
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; want %q", err, c.want)
			}
		})
	}
}
