package httpapi_test

import (
	"bufio"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/token"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
)

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

// TestOneUserNeverShutsOutOthersOverTCP has one user send wrong tokens and hold as many connections
// as possible. The agent still verifies a new token of another user, and the one of the token file.
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
	if n, most := wrong.Load(), int64(111+101*time.Since(began)/time.Second); n > most {
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
