// Package envoytest finds the Envoy binary of this machine and runs it for tests.
package envoytest

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is the timeout until an Envoy is live. It is generous for busy machines.
const patience = time.Minute

// Look returns the path of the Envoy binary in ENVOY_BIN or on PATH, or "" if there is none.
func Look() string {
	if path := os.Getenv("ENVOY_BIN"); path != "" {
		return path
	}
	path, err := exec.LookPath("envoy")
	if err != nil {
		return ""
	}
	return path
}

// Find is like [Look], but skips the test if there is no Envoy.
func Find(t testing.TB) string {
	t.Helper()
	path := Look()
	if path == "" {
		t.Skip("skipped: there is no Envoy: set ENVOY_BIN or put envoy on PATH (make envoy installs one)")
	}
	return path
}

// Process is a running Envoy.
type Process struct {
	client *http.Client
	pid    int
	stop   func()
	ended  chan struct{} // closed when the process ends
}

// Start runs an Envoy until the test ends or [Process.Stop] is called, and returns when it is live.
// bootstrap receives the socket path of the admin interface: admin, or a new path if admin is
// empty. args are added to the command line.
func Start(t testing.TB, path, admin string, bootstrap func(admin string) ([]byte, error), args ...string) *Process {
	t.Helper()
	return StartAs(t, os.Geteuid(), path, admin, bootstrap, args...)
}

// StartAs is like [Start], but runs Envoy with the given user ID. That user must be able to run the
// binary and to create the admin socket.
func StartAs(t testing.TB, uid int, path, admin string, bootstrap func(admin string) ([]byte, error),
	args ...string) *Process {
	t.Helper()
	dir, err := os.MkdirTemp("", "envoy") // the test's directory is too long for a socket path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	boot, log := filepath.Join(dir, "envoy.yaml"), filepath.Join(dir, "log")
	if admin == "" {
		admin = filepath.Join(dir, "admin.sock")
	}
	text, err := bootstrap(admin)
	if err == nil {
		err = os.WriteFile(boot, text, 0o600)
	}
	if err == nil && uid != os.Geteuid() {
		err = errors.Join(os.Chown(dir, uid, -1), os.Chown(boot, uid, -1))
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, path, append([]string{"-c", boot, "--disable-hot-restart", "--concurrency", "1",
		"-l", "warning", "--log-path", log}, args...)...)
	if uid != os.Geteuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	e := &Process{pid: cmd.Process.Pid, ended: make(chan struct{}),
		client: &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", admin)
			}}}}
	go func() {
		_ = cmd.Wait() // the error reports the kill
		close(e.ended)
	}()
	e.stop = sync.OnceFunc(func() { cancel(); <-e.ended })
	t.Cleanup(func() {
		e.stop()
		if t.Failed() {
			said, _ := os.ReadFile(log)
			t.Logf("Envoy's log:\n%s", said)
		}
	})
	e.live(t)
	return e
}

func (e *Process) live(t testing.TB) {
	t.Helper()
	tick, limit := time.NewTicker(20*time.Millisecond), time.After(patience) // Envoy has no event for being live
	defer tick.Stop()
	for {
		if status, _ := e.Admin("/ready"); status == http.StatusOK {
			return
		}
		select {
		case <-tick.C:
		case <-e.ended:
			t.Fatal("Envoy has ended before it was live")
		case <-limit:
			t.Fatalf("Envoy is not live after %s", patience)
		}
	}
}

// Stop kills the Envoy and waits until it has ended.
func (e *Process) Stop() { e.stop() }

// Admin sends a GET request to the admin interface and returns status and body. The status is 0 if
// Envoy does not respond.
func (e *Process) Admin(path string) (int, string) {
	resp, err := e.client.Get("http://envoy" + path)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

// Post sends a POST request to the admin interface.
func (e *Process) Post(path string) (int, string) {
	resp, err := e.client.Post("http://envoy"+path, "", nil)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

// Signal sends a signal to the Envoy.
func (e *Process) Signal(s syscall.Signal) error { return syscall.Kill(e.pid, s) }

// Ended returns a channel that is closed when the process ends.
func (e *Process) Ended() <-chan struct{} { return e.ended }

// Terminate sends SIGTERM to an Envoy that the test has started itself, and waits for its end.
// ended, which has a capacity of one, receives the result of its Wait. Others may receive from it
// afterwards.
func Terminate(ctx context.Context, t testing.TB, process *os.Process, ended chan error) {
	t.Helper()
	if err := process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		ended <- nil
		if err != nil {
			t.Errorf("after SIGTERM: %v", err)
		}
	case <-ctx.Done():
		t.Fatal("the Envoy has not ended after SIGTERM")
	}
}
