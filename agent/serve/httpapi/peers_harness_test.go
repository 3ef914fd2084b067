package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
	"go.uber.org/goleak"
)

// helperEnv makes the test binary a client that runs as another user; see helper.
const helperEnv = "NEARSIDE_INSPECT_HELPER"

func TestMain(m *testing.M) {
	if line := os.Getenv(helperEnv); line != "" {
		if err := helper(strings.Fields(line)); err != nil {
			fmt.Println("helper:", err)
		}
		return
	}
	goleak.VerifyTestMain(complete{m})
}

// helper is what a process of another user does: "ask" makes the requests that come as JSON on
// standard input and prints the answers; "hold SOCKET NUMBER REQUEST" begins that many requests,
// which never end, prints how many are not refused, and holds them until standard input ends;
// "flood ADDRESS NUMBER" sends wrong tokens, and prints the statuses, with the number of each.
func helper(args []string) error {
	switch args[0] {
	case "ask":
		in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
		for {
			var q request
			if err := in.Decode(&q); err != nil {
				return nil // the end
			}
			if err := out.Encode(q.ask()); err != nil {
				return err
			}
		}
	case "flood":
		n, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		return flood(args[1], n)
	case "hold":
		n, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		most, err := strconv.Atoi(args[4])
		if err != nil {
			return err
		}
		return hold(args[1], n, most, endless[args[3]])
	}
	return errors.New("no such helper")
}

// request is a request of another user, and reply is the response.
type (
	request struct{ Socket, Method, Path, Body string }
	reply   struct {
		Status int
		Body   string
	}
)

func (q *request) ask() reply {
	tr := &http.Transport{DialContext: func(context.Context, string,
		string) (net.Conn, error) {
		return net.Dial("unix", q.Socket)
	}, DisableKeepAlives: true}
	req, err := http.NewRequest(q.Method, "http://nearside"+q.Path, strings.NewReader(q.Body))
	if err != nil {
		return reply{Body: err.Error()}
	}
	resp, err := (&http.Client{Transport: tr, Timeout: 20 * time.Second}).Do(req)
	if err != nil {
		return reply{Body: err.Error()}
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, string(b)}
}

func flood(addr string, n int) error {
	statuses := map[string]int{}
	for i := range n {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		fmt.Fprintf(c, "GET /meshes HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer wrong%d\r\n\r\n", i)
		line, _ := bufio.NewReader(c).ReadString('\n') // "" where the connection was closed
		c.Close()
		statuses[strings.TrimSpace(line)]++
	}
	fmt.Println(statuses)
	return nil
}

// endless are requests that keep a connection.
var endless = map[string]string{
	"header": "GET / HTTP/1.1\r\nHost: x\r\nX-",
	"body":   "POST /v1/diff HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n{",
	"wait":   fmt.Sprintf("POST /v1/wait HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(waitDoc), waitDoc),
	"unread": strings.Repeat("GET /v1/kinds HTTP/1.1\r\nHost: x\r\n\r\n", 200),
}

const waitDoc = `{"type":"mesh","name":"default","for":"gone","timeout":"25s"}`

// network is that of an address: a path or HOST:PORT.
func network(addr string) string {
	if strings.HasPrefix(addr, "/") {
		return "unix"
	}
	return "tcp"
}

func hold(socket string, n, most int, request string) error {
	var held []net.Conn
	refused := 0
	for range n {
		c, err := net.Dial(network(socket), socket)
		if err != nil {
			return err
		}
		defer c.Close()
		_, _ = c.Write([]byte(request)) // one that is closed already is found below
		held = append(held, c)
	}
	wait := func(d time.Duration) {
		for _, c := range held {
			_ = c.SetReadDeadline(time.Now().Add(d))
		}
	}
	wait(20 * time.Second)
	answers := make(chan bool)
	for _, c := range held { // refused if closed, or answered before the request ends
		go func() {
			line, err := bufio.NewReader(c).ReadString('\n')
			var timeout net.Error
			answers <- err != nil && !(errors.As(err, &timeout) && timeout.Timeout()) || strings.Contains(line, " 429 ")
		}()
	}
	for range held {
		if !<-answers {
			continue
		}
		if refused++; refused == n-most {
			wait(500 * time.Millisecond) // for those that are refused although the user may have more
		}
	}
	fmt.Println(n - refused)
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// another starts the helper as another user, which requires root.
func another(t *testing.T, uid uint32, groups []uint32, args ...string) *exec.Cmd {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can start a process of another user")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(shared(t), "helper")
	if err := os.Link(self, bin); err != nil {
		b, err := os.ReadFile(self)
		if err == nil {
			syscall.ForkLock.RLock() // a process that starts meanwhile would keep the file open, and it could not be run
			err = os.WriteFile(bin, b, 0o755)
			syscall.ForkLock.RUnlock()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return &exec.Cmd{Path: bin, Args: []string{"helper"}, Dir: "/", Stderr: os.Stderr,
		// the race detector would hold it for 1 s at its end
		Env:         []string{helperEnv + "=" + strings.Join(args, " "), "GORACE=atexit_sleep_ms=0"},
		SysProcAttr: &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid, Groups: groups}}}
}

// shared is a directory that every user may read.
func shared(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "shared")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// startForAll is an API whose socket every user may open.
func startForAll(t *testing.T, change ...func(*httpapi.Options)) (a *testAPI, socket string) {
	t.Helper()
	a = start(t, change...)
	socket = filepath.Join(shared(t), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(socket, 0o666); err != nil {
		t.Fatal(err)
	}
	a.serve(l, "unix", socket)
	return a, socket
}

// user is a process of another user that makes requests.
type user struct {
	t   *testing.T
	in  *json.Encoder
	out *json.Decoder
}

func startUser(t *testing.T, uid uint32, groups ...uint32) *user {
	t.Helper()
	cmd := another(t, uid, groups, "ask")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	return &user{t, json.NewEncoder(in), json.NewDecoder(out)}
}

func (u *user) ask(socket, method, path, body string) (r reply) {
	u.t.Helper()
	if err := u.in.Encode(request{socket, method, path, body}); err != nil {
		u.t.Fatal(err)
	}
	if err := u.out.Decode(&r); err != nil {
		u.t.Fatal(err)
	}
	return r
}
