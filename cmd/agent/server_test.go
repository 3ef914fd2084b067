package main

import (
	"bytes"
	"encoding/pem"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestServer runs commands over TCP: directly on loopback, and through a proxy with TLS.
func TestServer(t *testing.T) {
	const token = "0123456789abcdef0123456789abcdef"
	dir := agenttest.ShortDir(t)
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	tokenFile := write("token", token+"\n")
	r := agenttest.Up(t, dir, agent.Deps{LogTail: &agent.LogTail{}}, "api.tcp=127.0.0.1:0", "api.tokenFile="+tokenFile)
	direct := "http://" + r.Addrs().APITCP.String()
	target, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	var redirected atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { redirected.Add(1) }))
	defer other.Close()
	proxy := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if strings.HasPrefix(q.URL.Path, "/away") {
			http.Redirect(w, q, other.URL, http.StatusFound)
			return
		}
		(&httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(target) }}).ServeHTTP(w, q)
	}))
	proxy.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0) // rejected certificates
	proxy.StartTLS()
	defer proxy.Close()
	ca := write("ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: proxy.Certificate().Raw})))
	empty, two := write("empty", "\n"), write("two", "a b\n")
	mesh := write("mesh.yaml", "type: Mesh\nname: shop\n---\n"+agenttest.DataplaneText("shop", "web", "192.0.2.1"))
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free.Close()
	gone := "http://" + free.Addr().String()

	secure := []string{"--server", proxy.URL, "--token-file", tokenFile, "--ca", ca}
	for _, c := range []struct {
		args []string
		env  []string
		code int
		want string // on one of the streams
	}{
		{args: append([]string{"apply", "-f", mesh}, secure...), want: "mesh/shop created"},
		{args: append([]string{"get", "dataplanes"}, secure...), want: "web"},
		{args: append([]string{"delete", "dataplane", "web", "--dry-run"}, secure...), want: "deleted (dry run)"},
		{args: append([]string{"status"}, secure...), want: ": ready"},
		{args: append([]string{"access", "whoami"}, secure...), want: `with the token "token file"`},
		{args: append([]string{"debug", "bundle", "-O", dir + "/bundle.tgz"}, secure...)},
		{args: []string{"get", "dataplanes"}, want: "web", env: []string{"NEARSIDE_SERVER=" + direct + "/",
			"NEARSIDE_TOKEN_FILE=" + tokenFile}},
		{args: []string{"get", "meshes"}, want: "shop", env: []string{"NEARSIDE_SERVER=" + proxy.URL,
			"NEARSIDE_TOKEN_FILE=" + tokenFile, "NEARSIDE_CA=" + ca}},
		{args: []string{"get", "meshes", "--socket", r.Addrs().API}, want: "shop", env: []string{"NEARSIDE_SERVER=" + gone}},
		{args: []string{"validate", "-f", mesh}, want: "valid", env: []string{"NEARSIDE_SERVER=" + gone}},

		{args: []string{"get", "meshes", "--server", direct}, code: command.ExitPermission, want: "--token-file"},
		{args: []string{"get", "meshes", "--server", proxy.URL, "--token-file", tokenFile},
			code: command.ExitUnreachable, want: "is not trusted: x509"},
		{args: []string{"get", "meshes", "--server", proxy.URL, "--token-file", tokenFile},
			code: command.ExitUnreachable, want: "--ca or NEARSIDE_CA"},
		{args: []string{"get", "meshes", "--server", gone}, code: command.ExitUnreachable, want: "hint: compare the URL"},
		{args: []string{"get", "meshes", "--server", proxy.URL + "/away", "--token-file", tokenFile, "--ca", ca},
			code: command.ExitFailed, want: "is not an agent: 302"},
		{args: []string{"get", "meshes", "--server", "http://192.0.2.1:80"}, code: command.ExitUsage, want: "unencrypted"},
		{args: []string{"get", "meshes", "--server", "https://u:secret@h/"}, code: command.ExitUsage, want: "--token-file"},
		{args: []string{"get", "meshes", "--server", "h:80"}, code: command.ExitUsage, want: "is not a URL"},
		{args: []string{"get", "meshes", "--server", "https://h/?x=1"}, code: command.ExitUsage, want: "query"},
		{args: []string{"get", "meshes", "--server", ""}, code: command.ExitUsage, want: "--server is empty"},
		{args: []string{"get", "meshes", "--server", direct, "--socket", "/s"}, code: command.ExitUsage, want: "exclude"},
		{args: []string{"get", "meshes", "--ca", ca}, code: command.ExitUsage, want: "require --server"},
		{args: []string{"get", "meshes"}, code: command.ExitUsage, want: "both set",
			env: []string{"NEARSIDE_SERVER=" + direct, "NEARSIDE_SOCKET=/s"}},
		{args: []string{"get", "meshes", "--server", direct, "--token-file", empty}, code: command.ExitInvalid,
			want: "exactly one token"},
		{args: []string{"get", "meshes", "--server", direct, "--token-file", two}, code: command.ExitInvalid,
			want: "exactly one token"},
		{args: []string{"get", "meshes", "--server", direct, "--token-file", dir + "/no"}, code: command.ExitFailed,
			want: "no such file"},
		{args: []string{"get", "meshes", "--server", proxy.URL, "--ca", empty}, code: command.ExitInvalid,
			want: "no certificate"},
		{args: append([]string{"logs"}, secure...), code: command.ExitUsage, want: "only on the node of the agent"},
		{args: append([]string{"dns", "lookup", "web.mesh"}, secure...), code: command.ExitUsage, want: "only on the node"},
		{args: append([]string{"check", "--bootstrap", mesh}, secure...), code: command.ExitUsage, want: "only on the node"},
		{args: append([]string{"validate", "-f", mesh}, secure...), code: command.ExitUsage, want: "files of this node"},
	} {
		var out, errs bytes.Buffer
		code := Main(c.args, strings.NewReader(""), &out, &errs, append(c.env, "HOME="+dir))
		if code != c.code || !strings.Contains(out.String()+errs.String(), c.want) {
			t.Errorf("%v %v: exit code %d, want %d and %q: %s%s", c.env, c.args, code, c.code, c.want,
				out.String(), errs.String())
		}
		if strings.Contains(out.String()+errs.String(), token) || strings.Contains(errs.String(), "secret@") {
			t.Errorf("%v prints the token", c.args)
		}
	}
	if n := redirected.Load(); n > 0 {
		t.Errorf("%d redirects were followed", n)
	}
}
