package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/serve/client"
)

func TestUnreachable(t *testing.T) {
	var u *client.UnreachableError
	path := filepath.Join(t.TempDir(), "none")
	_, err := client.New(path, 0).Status(t.Context())
	if !errors.As(err, &u) || u.Socket != path || !strings.Contains(u.Hint(), "nearside run") {
		t.Errorf("no socket: %v", err)
	}
	if strings.Count(err.Error(), path) != 1 {
		t.Errorf("the path stands there more than once: %v", err)
	}
	stale, l := listen(t)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	if _, err := client.New(stale, 0).Status(t.Context()); !errors.As(err, &u) {
		t.Errorf("a stale socket: %v", err)
	}
	silent, l := listen(t)
	defer l.Close()
	var late *client.UnansweredError
	if _, err := client.New(silent, 50*time.Millisecond).Status(t.Context()); !errors.As(err, &late) ||
		late.After != 50*time.Millisecond || errors.As(err, &u) {
		t.Errorf("an agent that does not answer: %v", err)
	}
	broken, l := listen(t)
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			c.Close()
		}
	}()
	if _, err := client.New(broken, 0).Status(t.Context()); !errors.As(err, &late) || late.After != 0 ||
		errors.As(err, &u) {
		t.Errorf("an agent that ends the connection: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := client.New(silent, 0).Status(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a canceled call: %v", err)
	}
}

func TestNotAnAgent(t *testing.T) {
	var answer atomic.Pointer[http.HandlerFunc]
	path, l := listen(t)
	serve(t, l, func(w http.ResponseWriter, r *http.Request) { (*answer.Load())(w, r) })
	for name, h := range map[string]http.HandlerFunc{
		"html":        func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") },
		"404 of it":   func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) },
		"empty":       func(http.ResponseWriter, *http.Request) {},
		"another 500": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500); fmt.Fprint(w, `{"title":""}`) },
	} {
		answer.Store(&h)
		if _, err := client.New(path, 0).Status(t.Context()); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFindSocket(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	env := map[string]string{}
	find := func(given string, uid int) string {
		return client.FindSocket(given, func(k string) string { return env[k] }, uid)
	}
	position := func(path string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
	}
	want := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	if _, err := os.Stat(client.DefaultSocket); err == nil {
		t.Skip("an agent runs on this machine")
	}
	want("nothing there", find("", 1000), client.DefaultSocket)
	position("nearside-data/run/nearside.sock")
	want("below the working directory", find("", 1000), "nearside-data/run/nearside.sock")
	want("root", find("", 0), client.DefaultSocket)
	env["XDG_RUNTIME_DIR"] = filepath.Join(dir, "x")
	want("a runtime directory without an agent", find("", 1000), "nearside-data/run/nearside.sock")
	position(filepath.Join(dir, "x/nearside/run/nearside.sock"))
	want("the runtime directory", find("", 1000), filepath.Join(dir, "x/nearside/run/nearside.sock"))
	env["NEARSIDE_SOCKET"] = "/e"
	want("the environment", find("", 1000), "/e")
	want("the flag", find("/f", 1000), "/f")
}
