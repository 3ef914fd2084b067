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
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/token"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
)

// helperEnv makes the test binary a client of its own user; see helper.
const helperEnv = "NEARSIDE_INSPECT_HELPER"

func TestMain(m *testing.M) {
	if line := os.Getenv(helperEnv); line != "" {
		if err := helper(strings.Fields(line)); err != nil {
			fmt.Println("helper:", err)
		}
		return
	}
	goleak.VerifyTestMain(m)
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

// request is one that another user makes, and reply what is answered.
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
	for _, c := range held { // what is closed, or answered without having been finished, is refused
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

// another starts the helper as another user. Root alone can.
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

// TestUsersOfTheSocket is the table of verbs by the users of real processes, without roles and with
// them.
func TestUsersOfTheSocket(t *testing.T) {
	const stranger, member, reader, group = 54321, 54322, 54323, 12345
	users := []struct {
		name string
		uid  uint32
		*user
	}{{"root", 0, startUser(t, 0)}, {"member", member, startUser(t, member, 7, group)},
		{"reader", reader, startUser(t, reader)}, {"stranger", stranger, startUser(t, stranger, 7)}}
	roles := []access.Role{
		{Name: "readers", Template: access.TemplateViewer, Subjects: []access.Matcher{{UID: "54323"}, {User: "54399"}}},
		{Name: "writers", Subjects: []access.Matcher{{Group: "12345"}}, Allow: []access.Allow{
			{Kinds: []string{"MeshTimeout"}, Verbs: []string{"get", "create", "update", "delete"}}}},
	}
	const at = "/meshes/default/meshtimeouts/t1"
	for _, set := range []struct {
		name  string
		roles []access.Role
		want  map[string]string // by verb, the status of each user
	}{
		{"without roles", nil, map[string]string{"open": "200 200 200 200", "whoami": "200 200 200 200",
			"list": "200 200 200 200", "get": "200 200 200 200",
			"inspect": "200 200 200 200", "create": "201 201 403 403", "update": "200 200 403 403",
			"delete": "200 200 403 403"}},
		{"with roles", roles, map[string]string{"open": "200 200 200 200", "whoami": "200 200 200 200",
			"list": "200 403 200 403", "get": "200 200 200 403",
			"inspect": "200 403 200 403", "create": "201 201 403 403", "update": "200 200 403 403",
			"delete": "200 200 403 403"}},
		{"roles for nobody", []access.Role{}, map[string]string{"open": "200 200 200 200", "whoami": "200 200 200 200",
			"list": "200 403 403 403", "get": "200 403 403 403",
			"inspect": "200 403 403 403", "create": "201 403 403 403", "update": "200 403 403 403",
			"delete": "200 403 403 403"}},
	} {
		t.Run(set.name, func(t *testing.T) {
			a, socket := startForAll(t, func(o *httpapi.Options) {
				o.Access.Roles = rolesOf(t, access.RoleOptions{Roles: set.roles, AgentUID: 54000, GID: group})
			})
			a.want(a.do("PUT", "/meshes/default", meshDoc), 201)
			a.want(a.do("PUT", "/meshes/default/dataplanes/web", web), 201)
			a.reconcile()
			for _, verb := range []struct{ name, method, path, body string }{
				{"open", "GET", "/readyz", ""}, {"whoami", "GET", "/v1/access/whoami", ""},
				{"list", "GET", "/meshes/default/meshtimeouts", ""},
				{"get", "GET", at, ""}, {"inspect", "GET", "/meshes/default/dataplanes/web/_config", ""},
				{"create", "PUT", at, timeout("1s")}, {"update", "PUT", at, timeout("2s")}, {"delete", "DELETE", at, ""},
			} {
				var got []string
				for _, u := range users {
					if verb.name == "create" {
						a.do("DELETE", at, "")
					} else {
						a.do("PUT", at, timeout("1s"))
					}
					r := u.ask(socket, verb.method, verb.path, verb.body)
					got = append(got, strconv.Itoa(r.Status))
					if r.Status == 403 && !strings.Contains(r.Body, fmt.Sprintf("uid=%d may not ", u.uid)) {
						t.Errorf("%s by %s: %s", verb.name, u.name, r.Body)
					}
				}
				if s := strings.Join(got, " "); s != set.want[verb.name] {
					t.Errorf("%s: %s, want %s", verb.name, s, set.want[verb.name])
				}
			}
		})
	}
}

// TestOneUserNeverTakesAllConnections has one user begin 300 requests of each sort that never end;
// others are answered.
func TestOneUserNeverTakesAllConnections(t *testing.T) {
	others := map[uint32]*user{54323: startUser(t, 54323), 0: startUser(t, 0)}
	for request, most := range map[string]int{"header": 64, "body": 64, "unread": 64, "wait": 16} {
		t.Run(request, func(t *testing.T) {
			a, socket := startForAll(t, func(o *httpapi.Options) {
				o.Access.Roles = rolesOf(t, access.RoleOptions{AgentUID: 54000, GID: -1})
				o.Limits.HeaderTime, o.Limits.ReadTime, o.Limits.WriteTime = time.Minute, time.Minute, time.Minute
			})
			a.want(a.do("PUT", "/meshes/default", meshDoc), 201)
			a.reconcile()
			for _, uid := range []uint32{54321, 54322} {
				cmd := another(t, uid, nil, "hold", socket, "300", request, strconv.Itoa(most))
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
					_ = cmd.Wait()
				})
				line, err := bufio.NewReader(out).ReadString('\n')
				held, _ := strconv.Atoi(strings.TrimSpace(line))
				if err != nil || held == 0 || held > most {
					t.Errorf("uid %d holds %s of 300 requests (%s), want at most %d: %v",
						uid, strings.TrimSpace(line), request, most, err)
				}
			}
			for uid, u := range others {
				if got := u.ask(socket, "GET", "/v1/status", ""); got.Status != 200 {
					t.Errorf("uid %d: %+v", uid, got)
				}
			}
			a.want(a.do("PUT", "/meshes/default/meshtimeouts/t1", timeout("1s")), 201)
		})
	}
}

// TestOneUserNeverShutsOutOthersOverTCP has one user send wrong tokens and hold all connections
// that he gets. A token of another user that was never seen before is looked at, and the one of the
// token file too.
func TestOneUserNeverShutsOutOthersOverTCP(t *testing.T) {
	wrong := atomic.Int64{}
	a := startTCP(t, func(o *httpapi.Options) {
		o.Access.Token = "of the token file"
		o.Access.Verify = func(text string) (token.Claims, error) {
			if strings.HasPrefix(text, "wrong") {
				wrong.Add(1)
			}
			return subjects(text)
		}
		o.Limits.HeaderTime = time.Minute
	})
	addr := strings.TrimPrefix(a.base, "http://")
	began := time.Now()
	out, err := another(t, 54321, nil, "flood", addr, "2000").Output()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("statuses: %s", out)
	if !strings.Contains(string(out), "HTTP/1.1 429 Too Many Requests:") {
		t.Errorf("2000 wrong tokens: %s", out)
	}
	if n, most := wrong.Load(), int64(11+time.Since(began)/time.Second); n > most {
		t.Errorf("%d wrong tokens were verified, want at most %d", n, most)
	}
	cmd := another(t, 54321, nil, "hold", addr, "300", "header", "64")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	held, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		in.Close()
		_ = cmd.Wait()
	}()
	if line, err := bufio.NewReader(held).ReadString('\n'); err != nil || strings.TrimSpace(line) != "64" {
		t.Errorf("the user holds %s of 300 connections, want 64: %v", line, err)
	}
	a.want(a.do("GET", "/meshes", "", as("new")), 200)
	a.want(a.do("GET", "/meshes", "", "Authorization: Bearer of the token file"), 200)
}
