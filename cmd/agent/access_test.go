package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// stranger is a UID that owns nothing on the host.
const stranger = 54321

// accessSocket starts an agent with roles. Every user may connect to its socket.
func accessSocket(t *testing.T) string {
	t.Helper()
	roles, err := access.NewRoles(access.RoleOptions{AgentUID: uint32(os.Getuid()), GID: -1, Roles: []access.Role{
		{Name: "readers", Template: access.TemplateViewer, Subjects: []access.Matcher{{UID: "54000-54999"}}},
		{Name: "team", Subjects: []access.Matcher{{User: "no-such-user"}, {UID: "60000", Group: "60000"}},
			Allow: []access.Allow{
				{Kinds: []string{"MeshTimeout"}, Meshes: []string{"default"}, Names: []string{"web-*"},
					Verbs: []string{"create", "update"}}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	socket := agenttest.API(t, func(o *httpapi.Options) {
		o.Access = httpapi.Access{Roles: roles, Proxies: []access.ProxyRule{{Matcher: access.Matcher{UID: "1000"},
			Certificate: "*.mesh", Nodes: []string{"default.web-*"}}}}
	})
	for dir := filepath.Dir(socket); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(socket, 0o666); err != nil {
		t.Fatal(err)
	}
	return socket
}

func TestAccess(t *testing.T) {
	socket := accessSocket(t)
	for _, c := range []struct {
		line string
		code int
		want string // expected standard output
		errs string
	}{
		{"access whoami", command.ExitOK, `^WHO +ROLES +VERBS +BY\nuid=\d+ .*operator +get,list,inspect,create,update,delete,read-logs +root and the agent's user may do everything\n$`, "^$"},
		{"access can delete mesh default", command.ExitOK, `^yes\n$`, "^$"},
		{"access can delete mesh/default -o json", command.ExitOK, `"action": "delete Mesh default/default"`, "^$"},
		{"access can update Agent", command.ExitOK, `^yes\n$`, "^$"},
		{"access can create mpp --feature patch-unsafe,log-path", command.ExitOK, `^yes\n$`, "^$"},
		{"access can create mpp --feature patch", command.ExitUsage, `^$`, `--feature: "patch" is not a feature; use one of`},
		{"access can write mesh", command.ExitUsage, `^$`, `there is no verb "write"; use one of get, list`},
		{"access can get nothing", command.ExitUsage, `^$`, `there is no TYPE "nothing"`},
		{"access list", command.ExitOK,
			`ROLE +SUBJECTS +VERBS +KINDS +MESHES +NAMES +FEATURES\n` +
				`readers +uid 54000-54999 +get,list,inspect +\*,Agent +\* +\* +-\n` +
				`team +user no-such-user; group 60000, uid 60000 +create,update +MeshTimeout +default +web-\* +-\n\nPEER .*\nuid 1000, certificate \*\.mesh +default\.web-\* +false`,
			`warning: api.roles\[1\].subjects\[0\]: the user "no-such-user" does not exist`},
		{"access list -o yaml", command.ExitOK, `(?s)configured: true\nroles:\n  - name: readers.*proxies:\n  - uid: "1000"`,
			"^$"},
	} {
		var out, errs bytes.Buffer
		code := Main(strings.Fields(c.line), nil, &out, &errs, []string{"NEARSIDE_SOCKET=" + socket})
		if code != c.code || !regexp.MustCompile(c.want).MatchString(out.String()) ||
			!regexp.MustCompile(c.errs).MatchString(errs.String()) {
			t.Errorf("%s: exit code %d, want %d\n%s\n%s", c.line, code, c.code, out.String(), errs.String())
		}
	}
}

// TestAccessOfAnotherUser runs commands in processes of a user with only read permissions.
func TestAccessOfAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can start a process of another user")
	}
	socket := accessSocket(t)
	bin := filepath.Join(filepath.Dir(socket), "nearside")
	agenttest.Program(t, bin)
	for _, c := range []struct {
		line, in string
		code     int
		want     string
	}{
		{"access whoami", "", command.ExitOK, `uid=54321 +readers +get,list,inspect +roles of api.roles`},
		{"access can get mesh default", "", command.ExitOK, `^yes\n$`},
		{"access can inspect Agent", "", command.ExitOK, `^yes\n$`},
		{"access can update Agent", "", command.ExitNo, `may not update Agent; no role of api.roles allows it`},
		{"access can update mt web-1 --feature log-path", "", command.ExitNo,
			`may not update MeshTimeout default/web-1 with log-path; no role`},
		{"access can update mt slow", "", command.ExitNo,
			`^no: uid=54321 may not update MeshTimeout default/slow; no role of api.roles allows it\n$`},
		{"access can update mt web-1", "", command.ExitNo,
			`^no: uid=54321 may not update MeshTimeout default/web-1; the roles that allow it: team\n$`},
		{"get dataplane web -o name", "", command.ExitOK, `^dataplane/web\n$`},
		{"apply -f -", "{type: MeshTimeout, mesh: default, name: web-1, spec: {to: [{targetRef: {kind: Mesh}, " +
			"default: {connectionTimeout: 1s}}]}}", command.ExitPermission,
			`uid=54321 may not create MeshTimeout default/web-1; the roles that allow it: team\nhint: ask for one of these roles in api.roles`},
		{"delete mesh default", "", command.ExitPermission,
			`uid=54321 may not delete Mesh default/default; no role of api.roles allows it`},
	} {
		cmd := &exec.Cmd{Path: bin, Args: append([]string{"nearside"}, strings.Fields(c.line)...),
			Env: []string{"NEARSIDE_SOCKET=" + socket}, Dir: "/",
			Stdin:       strings.NewReader(c.in),
			SysProcAttr: &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}}
		out, err := cmd.CombinedOutput()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		if code := cmd.ProcessState.ExitCode(); code != c.code || !regexp.MustCompile(c.want).Match(out) {
			t.Errorf("%s: exit code %d, want %d\n%s", c.line, code, c.code, out)
		}
	}
}
