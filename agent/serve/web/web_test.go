package web_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nearside-mesh/nearside/agent/serve/web"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

func TestMain(m *testing.M) {
	if agenttest.PersonMain() {
		return
	}
	goleak.VerifyTestMain(m)
}

// backend is an API that records what reaches it.
type backend struct {
	seen   []*http.Request
	bodies []string
	serve  http.HandlerFunc // nil: an empty document
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	b.seen, b.bodies = append(b.seen, r.Clone(context.Background())), append(b.bodies, string(body))
	if b.serve != nil {
		b.serve(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, "{}")
}

// page is a served page.
type page struct {
	t      testing.TB
	server *web.Server
	host   string // host:port
	api    *backend
	cookie string
}

// up serves a page with the options set by change.
func up(t testing.TB, change func(*web.Options)) *page {
	t.Helper()
	p := &page{t: t, api: &backend{}}
	o := web.Options{Backend: p.api, Mode: web.ModeAgent, Login: web.LoginURL, WriteRemedy: "use --write"}
	if change != nil {
		change(&o)
	}
	var err error
	if p.server, err = web.New(o); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.host = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.server.Serve(ctx, nil, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return p
}

// login begins a session with a key.
func (p *page) login() *page {
	p.t.Helper()
	a := p.send("GET", "/?key="+p.server.Key(""), nil, "")
	p.cookie = cookieOf(a)
	if a.status != http.StatusSeeOther || p.cookie == "" {
		p.t.Fatalf("no session: %d %v", a.status, a.header)
	}
	return p
}

func cookieOf(a answer) string {
	c, _, _ := strings.Cut(a.header.Get("Set-Cookie"), ";")
	return c
}

type answer struct {
	status int
	header http.Header
	body   string
}

// send sends a request as it is, with the cookie of the page, and without following redirects. A
// header Host replaces the host.
func (p *page) send(method, target string, header map[string]string, body string) answer {
	p.t.Helper()
	host := p.host
	var b bytes.Buffer
	if h, ok := header["Host"]; ok {
		host = h
	}
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nContent-Length: %d\r\n", method, target, host,
		len(body))
	if p.cookie != "" {
		fmt.Fprintf(&b, "Cookie: %s\r\n", p.cookie)
	}
	for name, value := range header {
		if name != "Host" {
			fmt.Fprintf(&b, "%s: %s\r\n", name, value)
		}
	}
	b.WriteString("\r\n" + body)
	c, err := net.Dial("tcp", p.host)
	if err != nil {
		p.t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(agenttest.Patience))
	if _, err := c.Write(b.Bytes()); err != nil {
		p.t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		p.t.Fatalf("%s %s: %v", method, target, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(text)}
}

// asPage returns the headers that the page sends in a browser, and further ones.
func (p *page) asPage(more ...string) map[string]string {
	h := map[string]string{web.PageHeader: "1", "Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors",
		"Sec-Fetch-Dest": "empty", "Origin": "http://" + p.host}
	for i := 0; i < len(more); i += 2 {
		if h[more[i]] = more[i+1]; more[i+1] == "" {
			delete(h, more[i])
		}
	}
	return h
}

func TestPage(t *testing.T) {
	p := up(t, nil)
	a := p.send("GET", "/", map[string]string{"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate",
		"Sec-Fetch-Dest": "document"}, "")
	if a.status != 200 || !strings.Contains(a.body, "<html") || a.header.Get("Set-Cookie") != "" {
		t.Fatalf("%d %v", a.status, a.header)
	}
	for name, want := range map[string]string{
		"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
			"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
			"require-trusted-types-for 'script'",
		"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
		"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin"} {
		if got := a.header.Get(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	plain := p.send("GET", "/main.js", nil, "")
	small := p.send("GET", "/main.js", map[string]string{"Accept-Encoding": "br, gzip;q=0.5"}, "")
	none := p.send("GET", "/main.js", map[string]string{"Accept-Encoding": "gzip;q=0"}, "")
	if plain.status != 200 || !strings.HasPrefix(plain.header.Get("Content-Type"), "text/javascript") ||
		plain.body != none.body || small.header.Get("Content-Encoding") != "gzip" || len(small.body) >= len(plain.body) {
		t.Errorf("%d %v, %d %v", len(plain.body), plain.header, len(small.body), small.header)
	}
	for _, x := range []struct {
		answer
		accept string
	}{{plain, ""}, {small, "gzip"}} {
		cached := p.send("GET", "/main.js", map[string]string{"If-None-Match": x.header.Get("ETag"),
			"Accept-Encoding": x.accept}, "")
		if cached.status != http.StatusNotModified || cached.body != "" {
			t.Errorf("the ETag %s: %d", x.header.Get("ETag"), cached.status)
		}
	}
	if small.header.Get("ETag") == plain.header.Get("ETag") {
		t.Error("two encodings have one ETag")
	}
	if a := p.send("HEAD", "/main.js", nil, ""); a.status != 200 || a.body != "" {
		t.Errorf("HEAD: %d %q", a.status, a.body)
	}
}

// The page stays below its limit, compressed as a browser gets it.
func TestPageSize(t *testing.T) {
	n, err := web.PageSize()
	if err != nil {
		t.Fatal(err)
	}
	const most = 300_000
	if n > most || n < 1000 {
		t.Errorf("the page has %d bytes with gzip; at most %d are allowed", n, most)
	}
}

func TestKey(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	p := up(t, func(o *web.Options) { o.Now = func() time.Time { return now } })
	key := p.server.Key("")
	if a := p.send("HEAD", "/?key="+key, nil, ""); a.header.Get("Set-Cookie") != "" {
		t.Error("HEAD used the key")
	}
	a := p.send("GET", "/?key="+key, nil, "")
	if a.status != 303 || a.header.Get("Location") != "./" {
		t.Fatalf("%d %v", a.status, a.header)
	}
	cookie := a.header.Get("Set-Cookie")
	for _, attribute := range []string{"; Path=/;", "; HttpOnly", "; SameSite=Strict"} {
		if !strings.Contains(cookie, attribute) {
			t.Errorf("the cookie %q has no %q", cookie, attribute)
		}
	}
	if len(a.header.Values("Set-Cookie")) != 1 || strings.Contains(cookie, "Domain") {
		t.Errorf("cookies %q", a.header.Values("Set-Cookie"))
	}
	if a := p.send("GET", "/?key="+key, nil, ""); a.status != 303 || a.header.Get("Set-Cookie") != "" {
		t.Errorf("the key works twice: %v", a.header)
	}
	late := p.server.Key("")
	now = now.Add(web.KeyLife)
	if a := p.send("GET", "/?key="+late, nil, ""); a.header.Get("Set-Cookie") != "" {
		t.Error("an old key works")
	}
	if a := p.send("GET", "/?key="+p.server.Key("uid 4294967294 over TCP"), nil, ""); a.header.Get("Set-Cookie") != "" {
		t.Error("another user can use a key")
	}
	for _, wrong := range []string{"", "x", strings.Repeat("A", 26), url.QueryEscape("' or 1=1"), "%00"} {
		if a := p.send("GET", "/?key="+wrong, nil, ""); a.status != 303 || a.header.Get("Set-Cookie") != "" {
			t.Errorf("the key %q: %d %v", wrong, a.status, a.header)
		}
	}
}

// Keys and sessions are bounded. The newest ones work.
func TestBounds(t *testing.T) {
	p := up(t, nil)
	first := p.server.Key("")
	var last string
	for range 40 {
		last = p.server.Key("")
	}
	if a := p.send("GET", "/?key="+first, nil, ""); a.header.Get("Set-Cookie") != "" {
		t.Error("the first of 41 keys works")
	}
	if a := p.send("GET", "/?key="+last, nil, ""); a.header.Get("Set-Cookie") == "" {
		t.Error("the last of 41 keys does not work")
	}
	p.login()
	old := p.cookie
	for range 256 {
		p.cookie = ""
		p.login()
	}
	for cookie, want := range map[string]int{old: 401, p.cookie: 200} {
		p.cookie = cookie
		if a := p.send("GET", "/ui/session", p.asPage(), ""); a.status != want {
			t.Errorf("%d instead of %d", a.status, want)
		}
	}
}

func TestSession(t *testing.T) {
	now := time.Now()
	p := up(t, func(o *web.Options) {
		o.Now, o.Version, o.Files = func() time.Time { return now }, "1.2.3", []string{"a", "b"}
	})
	if a := p.send("GET", "/ui/session", p.asPage(), ""); a.status != 401 || !strings.Contains(a.body, `"login":"url"`) {
		t.Fatalf("%d %s", a.status, a.body)
	}
	p.api.serve = func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			fmt.Fprint(w, `{"instance": "I"}`)
			return
		}
		fmt.Fprint(w, `{"who": "uid=7"}`)
	}
	p.login()
	var doc web.Session
	a := p.send("GET", "/ui/session", p.asPage(), "")
	if err := json.Unmarshal([]byte(a.body), &doc); err != nil {
		t.Fatal(err, a.body)
	}
	if doc.Mode != "agent" || doc.Login != "url" || doc.Write || len(doc.Files) != 2 || doc.Version != "1.2.3" ||
		doc.Instance != "I" || doc.Who != "uid=7" || doc.Expires == nil || doc.Remedy != "use --write" {
		t.Errorf("%s", a.body)
	}
	if a := p.send("PUT", "/ui/session", p.asPage(), "{}"); a.status != 405 {
		t.Errorf("PUT: %d", a.status)
	}
	if a := p.send("POST", "/ui/session", p.asPage(), `{"token": "x"}`); a.status != 401 {
		t.Errorf("a token: %d", a.status)
	}
	second := up(t, nil).login()
	if second.cookie == p.cookie || strings.Split(second.cookie, "=")[0] == strings.Split(p.cookie, "=")[0] {
		t.Error("pages on two ports have one cookie")
	}
	now = doc.Expires.Add(time.Second)
	if a := p.send("GET", "/api/v1/status", p.asPage(), ""); a.status != 401 {
		t.Errorf("after its end: %d", a.status)
	}
	p.login()
	if a := p.send("DELETE", "/ui/session", p.asPage(), ""); a.status != 204 {
		t.Errorf("log out: %d", a.status)
	}
	if a := p.send("GET", "/api/v1/status", p.asPage(), ""); a.status != 401 {
		t.Errorf("after logging out: %d", a.status)
	}
}

// Requests reach the API without what the browser has added.
func TestAPI(t *testing.T) {
	p := up(t, func(o *web.Options) { o.Write = true }).login()
	p.api.serve = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ETag", `"7"`)
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, "answer")
	}
	a := p.send("PUT", "/api/meshes/default/meshtimeouts/a%2Fb?dryRun=false", p.asPage("If-Match", `"6"`,
		"Authorization", "Bearer x", "Referer", "http://"+p.host+"/", "X-Forwarded-For", "10.0.0.1"), "body")
	if a.status != 201 || a.body != "answer" || a.header.Get("ETag") != `"7"` ||
		a.header.Get("Cache-Control") != "no-store" {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	r := p.api.seen[len(p.api.seen)-1]
	if r.URL.EscapedPath() != "/meshes/default/meshtimeouts/a%2Fb" || r.URL.RawQuery != "dryRun=false" ||
		r.Host != "localhost" || r.Header.Get("If-Match") != `"6"` || p.api.bodies[len(p.api.bodies)-1] != "body" {
		t.Errorf("%s %s %v", r.Host, r.URL, r.Header)
	}
	for _, name := range []string{"Cookie", "Origin", "Referer", "Authorization", "Sec-Fetch-Site", "Sec-Fetch-Mode",
		"Sec-Fetch-Dest", "X-Forwarded-For", web.PageHeader} {
		if r.Header.Get(name) != "" {
			t.Errorf("%s reaches the API", name)
		}
	}
}
