package ui_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/ui"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// output is a buffer that tells when it has grown.
type output struct {
	mu    sync.Mutex
	text  bytes.Buffer
	grown chan struct{}
}

func newOutput() *output { return &output{grown: make(chan struct{}, 1)} }

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer func() {
		select {
		case o.grown <- struct{}{}:
		default:
		}
	}()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// until waits for a text.
func (o *output) until(t *testing.T, what string, holds func(text string) bool) string {
	t.Helper()
	agenttest.Await(t, what, o.grown, func() bool { return holds(o.String()) })
	return o.String()
}

// running is nearside ui in progress.
type running struct {
	out, errs *output
	wait      func() error // for its end
	stop      func() error // ends it
}

// runUI runs nearside ui.
func runUI(t *testing.T, env *command.Env, args ...string) *running {
	t.Helper()
	r := &running{out: newOutput(), errs: newOutput()}
	if env.Stdin == nil {
		env.Stdin = strings.NewReader("")
	}
	env.Stdout, env.Stderr = r.out, r.errs
	ctx, cancel := context.WithCancel(context.Background())
	cmd := ui.Commands(env)[0]
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetArgs(args)
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	r.wait = sync.OnceValue(func() error { return <-ended })
	r.stop = func() error { cancel(); return r.wait() }
	t.Cleanup(func() { _ = r.stop() })
	return r
}

// withAgent returns the environment of a command that finds the API of an agent.
func withAgent(t *testing.T) *command.Env {
	env := &command.Env{}
	env.Agent.Socket = agenttest.API(t, func(*httpapi.Options) {})
	return env
}

// get opens a URL as a browser does, and returns the status of the session afterwards.
func get(t *testing.T, link string) int {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: agenttest.Patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	first, err := client.Get(link)
	agenttest.Do(t, err)
	first.Body.Close()
	base, _, _ := strings.Cut(link, "?")
	req, err := http.NewRequest("GET", base+"ui/session", nil)
	agenttest.Do(t, err)
	req.Header.Set("X-Nearside-Page", "1")
	for _, c := range first.Cookies() {
		req.AddCookie(c)
	}
	second, err := client.Do(req)
	agenttest.Do(t, err)
	_, err = io.Copy(io.Discard, second.Body)
	agenttest.Do(t, err, second.Body.Close())
	return second.StatusCode
}

// TestDocument reads the URL of -o json, which is valid once.
func TestDocument(t *testing.T) {
	r := runUI(t, withAgent(t), "-o", "json")
	var doc ui.Opened
	r.out.until(t, "the document", func(text string) bool { return json.Unmarshal([]byte(text), &doc) == nil })
	left := time.Until(doc.Expires)
	if doc.Write || !strings.HasPrefix(doc.URL, "http://"+doc.Address+"/?key=") || left < time.Minute ||
		left > time.Hour {
		t.Fatalf("%+v", doc)
	}
	if got := [2]int{get(t, doc.URL), get(t, doc.URL)}; got != [2]int{200, 401} {
		t.Errorf("the sessions of one URL, used twice: %v", got)
	}
	agenttest.Contains(t, r.errs.String(), "(read-only)", "valid once and for 5m0s")
	if err := r.stop(); err != nil {
		t.Errorf("after the end: %v", err)
	}
}

// openTerminal returns a pseudoterminal: what a user types into keyboard, a program reads.
func openTerminal(t *testing.T) (keyboard, terminal *os.File) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudoterminals: %v", err)
	}
	t.Cleanup(func() { keyboard.Close() })
	agenttest.Do(t, unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetUint32(int(keyboard.Fd()), unix.TIOCGPTN)
	agenttest.Do(t, err)
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudoterminals: %v", err)
	}
	t.Cleanup(func() { terminal.Close() })
	return keyboard, terminal
}

// TestEnter types Enter in the terminal, which shows a new URL. The first one stays valid.
func TestEnter(t *testing.T) {
	env := withAgent(t)
	keyboard, terminal := openTerminal(t)
	env.Stdin, env.Terminal = terminal, io.Discard
	r := runUI(t, env, "--write")
	lines := func(n int) func(string) bool { return func(s string) bool { return strings.Count(s, "\n") >= n } }
	r.out.until(t, "a URL", lines(1))
	agenttest.Contains(t, r.errs.until(t, "what Enter does", lines(2)), "(with write access)",
		"press Enter for a new URL, Ctrl-C to stop")
	_, err := keyboard.Write([]byte("\n"))
	agenttest.Do(t, err)
	links := strings.Fields(r.out.until(t, "a second URL", lines(2)))
	if len(links) != 2 || links[0] == links[1] || get(t, links[0]) != 200 || get(t, links[1]) != 200 {
		t.Errorf("the URLs are %q", links)
	}
	if err := r.stop(); err != nil {
		t.Error(err)
	}
}

// TestInterrupt ends the command by the signal of Ctrl-C. Its exit code is that of success.
func TestInterrupt(t *testing.T) {
	r := runUI(t, withAgent(t))
	link := strings.TrimSpace(r.out.until(t, "a URL", func(s string) bool { return strings.HasSuffix(s, "\n") }))
	agenttest.Do(t, syscall.Kill(os.Getpid(), syscall.SIGINT))
	agenttest.Eventually(t, "the port is closed", func() bool {
		resp, err := http.Get(link)
		if err == nil {
			resp.Body.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	})
	if err := r.stop(); err != nil {
		t.Errorf("after an interrupt: %v", err)
	}
}

// TestUsage compares the errors of flags that contradict each other.
func TestUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"--write changes the resources of an agent": {"-f", t.TempDir(), "--write"},
		"--export writes files":                     {"--export", t.TempDir(), "--port", "80"},
	} {
		err := runUI(t, withAgent(t), args...).wait()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", args, err)
		}
	}
}
