package agent_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/model/token"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// pageClient is a browser at the page of an agent.
type pageClient struct {
	t      *testing.T
	base   string
	client *http.Client
	cookie string
}

// send sends a request of the page.
func (p *pageClient) send(method, path, body string) (int, string, http.Header) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), method, p.base+path, strings.NewReader(body))
	agenttest.Do(p.t, err)
	req.Header.Set("X-Nearside-Page", "1")
	req.Header.Set("Origin", p.base)
	if p.cookie != "" {
		req.Header.Set("Cookie", p.cookie)
	}
	resp, err := p.client.Do(req)
	agenttest.Do(p.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	agenttest.Do(p.t, err)
	return resp.StatusCode, string(text), resp.Header
}

// login logs in with a token, and returns the status and the document.
func (p *pageClient) login(text string) (int, string) {
	p.t.Helper()
	status, doc, header := p.send("POST", "/ui/session", fmt.Sprintf(`{"token": %q}`, text))
	if c := header.Get("Set-Cookie"); c != "" {
		p.cookie, _, _ = strings.Cut(c, ";")
	}
	return status, doc
}

func newPageClient(t *testing.T, base string, conf *tls.Config) *pageClient {
	tr := &http.Transport{DisableKeepAlives: true, TLSClientConfig: conf, ForceAttemptHTTP2: true}
	return &pageClient{t: t, base: base, client: &http.Client{Transport: tr, Timeout: agenttest.Patience}}
}

// The page has the permissions of the token at each request.
func TestPageTokens(t *testing.T) {
	dir := agenttest.ShortDir(t)
	viewer := newToken(t, dir, token.Claims{Subject: "view-1", Audience: token.AudienceAPI})
	writer := newToken(t, dir, token.Claims{Subject: "write-1", Audience: token.AudienceAPI})
	r := agenttest.Up(t, dir, agent.Deps{}, "ui.listen=127.0.0.1:0", `api.roles=[{name: v, template: viewer, `+
		`subjects: [{token: "view-*"}, {token: "write-*"}]}, `+
		`{name: w, subjects: [{token: "write-*"}], allow: [{kinds: [Mesh], verbs: ["*"]}]}]`)
	base := "http://" + r.Addrs().UI.String()
	p := newPageClient(t, base, nil)
	if status, doc, _ := p.send("GET", "/ui/session", ""); status != 401 || !strings.Contains(doc, `"login":"token"`) {
		t.Fatalf("without a token: %d %s", status, doc)
	}
	for _, wrong := range []string{"", "x", "a b", viewer[:len(viewer)-4] + "AAAA", newToken(t, dir,
		token.Claims{Mesh: "default", Name: "web"})} {
		if status, doc := p.login(wrong); status != 401 && status != 400 || p.cookie != "" || strings.Contains(doc, viewer) {
			t.Errorf("with the token %q: %d %s", wrong, status, doc)
		}
	}
	status, doc := p.login(viewer)
	if status != 200 || !strings.Contains(doc, "view-1") || strings.Contains(doc, viewer) {
		t.Fatalf("%d %s", status, doc)
	}
	const mesh = `{"type": "Mesh", "name": "new"}`
	for _, x := range []struct {
		method, path, body string
		want               int
	}{{"GET", "/api/v1/status", "", 200}, {"GET", "/api/meshes", "", 200}, {"PUT", "/api/meshes/new", mesh, 403},
		{"GET", "/api/v1/debug/pprof", "", 403}, {"GET", "/ui/files?path=/etc/passwd", "", 403},
		{"POST", "/api/tokens/dataplane", "{}", 403}} {
		if status, doc, _ := p.send(x.method, x.path, x.body); status != x.want {
			t.Errorf("%s %s: %d %s", x.method, x.path, status, doc)
		}
	}
	p.cookie = ""
	if status, doc := p.login(writer); status != 200 {
		t.Fatalf("%d %s", status, doc)
	}
	if status, doc, _ := p.send("PUT", "/api/meshes/new", mesh); status != 201 {
		t.Errorf("%d %s", status, doc)
	}
	events, err := os.ReadFile(filepath.Join(dir, "logs/audit/audit.log"))
	agenttest.Do(t, err)
	if !strings.Contains(string(events), `write-1`) || strings.Contains(string(events), writer) {
		t.Error("the audit log does not have the subject of the token")
	}
	keys := token.Open(filepath.Join(dir, "state", "tokens"), nil, nil)
	found, err := keys.Verify(writer, token.AudienceAPI)
	agenttest.Do(t, err, keys.Revoke(found.ID, time.Now().Add(2*time.Hour)))
	agenttest.Eventually(t, "the revoked token is refused", func() bool {
		status, _, _ := p.send("GET", "/api/v1/status", "")
		return status == 401
	})
	if status, doc, _ := p.send("GET", "/ui/session", ""); status != 401 || !strings.Contains(doc, `"login":"token"`) {
		t.Errorf("after the revocation: %d %s", status, doc)
	}
	limited := false
	for range 60 {
		status, _ := p.login(viewer[:len(viewer)-4] + "BBBB")
		limited = limited || status == http.StatusTooManyRequests
	}
	if !limited {
		t.Error("wrong tokens are not limited")
	}
}

// The page over TLS accepts the names of its certificate. An invalid certificate does not stop the
// agent, which reports it.
func TestPageTLS(t *testing.T) {
	dir := agenttest.ShortDir(t)
	viewer := newToken(t, dir, token.Claims{Subject: "v", Audience: token.AudienceAPI})
	cert, key := certificateOf(t, 1)
	r := agenttest.Up(t, dir, agent.Deps{}, "ui.listen=0.0.0.0:0", "ui.tls.cert=page.crt", "ui.tls.key=page.key")
	problem := func() string {
		s, err := r.Api().Status(t.Context())
		agenttest.Do(t, err)
		for _, p := range s.Problems {
			if p.Check == "listeners" {
				return p.Reason
			}
		}
		return ""
	}
	if got := problem(); !strings.Contains(got, "ui.tls.cert and ui.tls.key: ") {
		t.Errorf("without files, the problem is %q", got)
	}
	agenttest.WriteSecret(t, dir+"/state/page.key", string(key))
	agenttest.WriteSecret(t, dir+"/state/page.crt", string(cert))
	agenttest.Eventually(t, "the certificate is in use", func() bool { return problem() == "" })

	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cert)
	_, port, _ := net.SplitHostPort(r.Addrs().UI.String())
	p := newPageClient(t, "https://logs:"+port, &tls.Config{RootCAs: roots, ServerName: "logs"})
	p.client.Transport.(*http.Transport).DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", "127.0.0.1:"+port)
	}
	status, doc, header := p.send("POST", "/ui/session", fmt.Sprintf(`{"token": %q}`, viewer))
	if c := header.Get("Set-Cookie"); status != 200 || !strings.HasPrefix(c, "__Host-nearside=") ||
		!strings.Contains(c, "; Secure") {
		t.Fatalf("%d %s: %s", status, c, doc)
	}
	p.cookie, _, _ = strings.Cut(header.Get("Set-Cookie"), ";")
	if status, doc, _ := p.send("GET", "/api/v1/status", ""); status != 200 {
		t.Errorf("%d %s", status, doc)
	}
	p.base = "https://evil.example:" + port
	if status, doc, _ := p.send("GET", "/api/v1/status", ""); status != 403 {
		t.Errorf("with another name: %d %s", status, doc)
	}
}

// A proxy in front of the page serves a configured name.
func TestPageHosts(t *testing.T) {
	dir := agenttest.ShortDir(t)
	viewer := newToken(t, dir, token.Claims{Subject: "v", Audience: token.AudienceAPI})
	r := agenttest.Up(t, dir, agent.Deps{}, "ui.listen=127.0.0.1:0", "ui.hosts=mesh.example.org")
	at := &url.URL{Scheme: "http", Host: r.Addrs().UI.String()}
	p := newPageClient(t, "http://mesh.example.org", nil)
	p.client.Transport.(*http.Transport).DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", at.Host)
	}
	status, doc, header := p.send("POST", "/ui/session", fmt.Sprintf(`{"token": %q}`, viewer))
	if c := header.Get("Set-Cookie"); status != 200 || !strings.Contains(c, "; Secure") {
		t.Errorf("%d %s: %s", status, c, doc)
	}
}

// A stream of events through the page is not buffered. It ends with its token and its session.
func TestPageEvents(t *testing.T) {
	dir := agenttest.ShortDir(t)
	viewer := newToken(t, dir, token.Claims{Subject: "view-1", Audience: token.AudienceAPI})
	r := agenttest.Up(t, dir, agent.Deps{}, "ui.listen=127.0.0.1:0",
		`api.roles=[{name: v, template: viewer, subjects: [{token: "view-*"}]}]`)
	p := newPageClient(t, "http://"+r.Addrs().UI.String(), nil)
	open := func() (next func(prefix string) string) {
		t.Helper()
		if status, doc := p.login(viewer); status != 200 {
			t.Fatalf("%d %s", status, doc)
		}
		req, err := http.NewRequestWithContext(t.Context(), "GET", p.base+"/api/v1/events?types=change", nil)
		agenttest.Do(t, err)
		req.Header.Set("X-Nearside-Page", "1")
		req.Header.Set("Cookie", p.cookie)
		resp, err := p.client.Do(req)
		agenttest.Do(t, err)
		t.Cleanup(func() { resp.Body.Close() })
		lines := bufio.NewScanner(resp.Body)
		next = func(prefix string) string {
			for lines.Scan() {
				if strings.HasPrefix(lines.Text(), prefix) {
					return lines.Text()
				}
			}
			return ""
		}
		if got := next("event:"); resp.StatusCode != 200 || got != "event: hello" {
			t.Fatalf("%d %q", resp.StatusCode, got)
		}
		return next
	}
	next := open()
	agenttest.Apply(t, r.Agent, "{type: Mesh, name: second}")
	if got := next("data: {\"type\":\"Mesh\""); !strings.Contains(got, `"name":"second"`) {
		t.Errorf("after a change: %q", got)
	}
	if status, doc, _ := p.send("DELETE", "/ui/session", ""); status != 204 {
		t.Fatalf("log out: %d %s", status, doc)
	}
	if got := next("event:"); got != "" {
		t.Errorf("after logging out: %s", got)
	}
	next = open()
	keys := token.Open(filepath.Join(dir, "state", "tokens"), nil, nil)
	found, err := keys.Verify(viewer, token.AudienceAPI)
	agenttest.Do(t, err, keys.Revoke(found.ID, time.Now().Add(2*time.Hour)))
	if got := next("event:"); got != "event: end" {
		t.Errorf("after the revocation: %q", got)
	} else if got := next("data:"); !strings.Contains(got, "revoked") {
		t.Errorf("after the revocation: %s", got)
	}
	if status, _, _ := p.send("GET", "/ui/session", ""); status != 401 {
		t.Errorf("the session of the revoked token: %d", status)
	}
}
