// Package chromium drives a headless Chromium in tests, over the pipe of its DevTools protocol. It
// needs no other program and no module.
//
// A [Browser] is one process. A [Page] is a tab with cookies and storage of its own. Every wait has
// a time limit, and a fault ends the test with the text of the page.
package chromium

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is the timeout of one command, long enough for a busy machine.
const patience = 3 * time.Minute

// Variable is the environment variable with the path of the browser.
const Variable = "NEARSIDE_CHROMIUM"

// Browser is a Chromium process. It is safe for concurrent use.
type Browser struct {
	t    testing.TB
	cmd  *exec.Cmd
	in   *os.File
	done chan struct{} // closed when the process has closed its pipe

	mu      sync.Mutex
	last    int
	pending map[int]chan reply // by ID of the command
	pages   map[string]*Page   // by session
}

type reply struct {
	Result json.RawMessage
	Error  *struct{ Message string }
}

// message is a command, a reply, or an event of the protocol.
type message struct {
	ID        int             `json:"id,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    any             `json:"params,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// Find returns the path of the browser, or the reason why there is none.
func Find() (string, error) {
	if path := os.Getenv(Variable); path != "" {
		return exec.LookPath(path)
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("there is no Chromium on PATH; install the package chromium, or set " + Variable)
}

// Start starts a browser with additional arguments, and ends it with the test. It skips the test if
// there is no Chromium, and fails it if CI requires one.
func Start(t testing.TB, args ...string) *Browser {
	t.Helper()
	path, err := Find()
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	fromBrowser, browserOut, err := os.Pipe()
	check(t, err)
	browserIn, toBrowser, err := os.Pipe()
	check(t, err)
	b := &Browser{t: t, in: toBrowser, done: make(chan struct{}), pending: map[int]chan reply{}, pages: map[string]*Page{}}
	b.cmd = exec.Command(path, append([]string{"--headless=new", "--remote-debugging-pipe", "--no-first-run",
		"--no-default-browser-check", "--disable-gpu", "--disable-dev-shm-usage", "--disable-extensions",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--mute-audio",
		"--hide-scrollbars", "--force-color-profile=srgb", "--font-render-hinting=none", "--lang=en-US",
		"--no-sandbox", // only pages of the test are opened, and root has no other choice
		"--user-data-dir=" + t.TempDir()}, args...)...)
	b.cmd.ExtraFiles = []*os.File{browserIn, browserOut}
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	check(t, b.cmd.Start())
	browserIn.Close()
	browserOut.Close()
	go b.read(fromBrowser)
	t.Cleanup(func() {
		_, _ = b.send("", "Browser.close", nil)
		select {
		case <-b.done:
		case <-time.After(patience):
		}
		_ = syscall.Kill(-b.cmd.Process.Pid, syscall.SIGKILL)
		_ = b.cmd.Wait()
		<-b.done
		toBrowser.Close()
	})
	return b
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// read dispatches replies and events until the browser ends.
func (b *Browser) read(from *os.File) {
	defer close(b.done)
	defer from.Close()
	for r := bufio.NewReaderSize(from, 1<<20); ; {
		line, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var m struct {
			message
			Params json.RawMessage `json:"params"`
		}
		if json.Unmarshal(line[:len(line)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		if m.ID != 0 {
			if ch := b.pending[m.ID]; ch != nil {
				delete(b.pending, m.ID)
				out := reply{Result: m.Result}
				if m.Error != nil {
					out.Error = &struct{ Message string }{m.Error.Message}
				}
				ch <- out
			}
		} else if p := b.pages[m.SessionID]; p != nil {
			p.event(m.Method, m.Params)
		}
		b.mu.Unlock()
	}
}

// send sends a command and waits for its result.
func (b *Browser) send(session, method string, params any) (json.RawMessage, error) {
	if params == nil {
		params = struct{}{}
	}
	ch := make(chan reply, 1)
	b.mu.Lock()
	b.last++
	text, err := json.Marshal(message{ID: b.last, SessionID: session, Method: method, Params: params})
	if err == nil {
		b.pending[b.last] = ch
		_, err = b.in.Write(append(text, 0))
	}
	b.mu.Unlock()
	if err != nil {
		return nil, err
	}
	select {
	case r := <-ch:
		if r.Error != nil {
			return nil, fmt.Errorf("%s: %s", method, r.Error.Message)
		}
		return r.Result, nil
	case <-b.done:
		return nil, errors.New(method + ": the browser has ended")
	case <-time.After(patience):
		return nil, fmt.Errorf("%s: no reply within %s", method, patience)
	}
}
