package web_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/serve/web"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// Each request is one that a page of another site can cause in the browser of a user with a
// session, or that another program sends. None reaches the API.
func TestAttacks(t *testing.T) {
	p := up(t, func(o *web.Options) { o.Write = true }).login()
	_, port, _ := net.SplitHostPort(p.host)
	form := "application/x-www-form-urlencoded"
	for name, x := range map[string]struct {
		method, target string
		header         map[string]string
		body           string
		status         int
	}{
		// DNS rebinding: the browser sends the name of the attacker.
		"rebinding": {"GET", "/api/v1/status", p.asPage("Host", "evil.example:"+port, "Origin",
			"http://evil.example:"+port), "", 403},
		"rebinding, page": {"GET", "/", map[string]string{"Host": "evil.example:" + port}, "", 403},
		"rebinding, suffix": {"GET", "/", map[string]string{"Host": "127.0.0.1.evil.example:" + port}, "",
			403},
		"rebinding, userinfo": {"GET", "/",
			map[string]string{"Host": "127.0.0.1:" + port + "@evil.example"}, "", 400},
		"another port":    {"GET", "/", map[string]string{"Host": "127.0.0.1:1"}, "", 403},
		"no port":         {"GET", "/", map[string]string{"Host": "127.0.0.1"}, "", 403},
		"another address": {"GET", "/", map[string]string{"Host": "127.0.0.2:" + port}, "", 403},
		"no host":         {"GET", "/", map[string]string{"Host": ""}, "", 403},
		"a dot":           {"GET", "/", map[string]string{"Host": "localhost.:" + port}, "", 403},

		"fetch": {"GET", "/api/v1/status", p.asPage("Sec-Fetch-Site", "cross-site", "Origin",
			"https://evil.example"), "", 403},
		"fetch, old": {"GET", "/api/v1/status", map[string]string{"Origin": "https://evil.example"},
			"", 403},
		"fetch, no-cors": {"GET", "/api/v1/status", map[string]string{"Sec-Fetch-Site": "cross-site",
			"Sec-Fetch-Mode": "no-cors"}, "", 403},
		"other port": {"GET", "/api/v1/status", p.asPage("Sec-Fetch-Site", "same-site", "Origin",
			"http://127.0.0.1:1"), "", 403},
		"other port, old": {"GET", "/api/v1/status", p.asPage("Sec-Fetch-Site", "", "Origin",
			"http://127.0.0.1:1"), "", 403},
		"localhost": {"GET", "/api/v1/status", p.asPage("Sec-Fetch-Site", "", "Origin",
			"http://localhost:"+port), "", 403},
		"opaque origin": {"POST", "/api/v1/explain", p.asPage("Sec-Fetch-Site", "", "Origin", "null"),
			"{}", 403},
		"two origins": {"GET", "/api/v1/status", p.asPage("Origin",
			"http://"+p.host+"\r\nOrigin: https://evil.example"), "", 403},
		"origin with path": {"GET", "/api/v1/status", p.asPage("Origin", "http://"+p.host+"/x"), "", 403},
		"preflight": {"OPTIONS", "/api/v1/apply", map[string]string{"Origin": "https://evil.example",
			"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-nearside-page"},
			"", 405},
		"typed address": {"GET", "/api/v1/status", map[string]string{"Sec-Fetch-Site": "none",
			"Sec-Fetch-Mode": "navigate"}, "", 403},
		"no header":    {"GET", "/api/v1/status", p.asPage(web.PageHeader, ""), "", 403},
		"wrong header": {"GET", "/api/v1/status", p.asPage(web.PageHeader, "2"), "", 403},
		"two headers": {"GET", "/api/v1/status", p.asPage(web.PageHeader,
			"1\r\n"+web.PageHeader+": 1"), "", 403},

		"form": {"POST", "/api/v1/apply", map[string]string{"Content-Type": form,
			"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}, "a=b", 403},
		"form, old": {"POST", "/api/v1/apply", map[string]string{"Content-Type": form}, "a=b", 403},
		"JSON as text": {"POST", "/api/v1/apply", map[string]string{"Content-Type": "text/plain",
			"Origin": "https://evil.example"}, `{"type":"Mesh","name":"x"}`, 403},
		"JSON": {"POST", "/api/v1/apply", map[string]string{"Content-Type": "application/json",
			"Origin": "https://evil.example"}, `{"type":"Mesh","name":"x"}`, 403},
		"form to page": {"POST", "/", map[string]string{"Content-Type": form}, "a=b", 405},
		"log out": {"DELETE", "/ui/session", p.asPage("Sec-Fetch-Site", "cross-site", "Origin",
			"https://evil.example"), "", 403},
		"log in": {"POST", "/ui/session", map[string]string{"Content-Type": "text/plain",
			"Origin": "https://evil.example"}, `{"token":"x"}`, 403},
		"method override": {"GET", "/api/v1/apply", map[string]string{"X-HTTP-Method-Override": "POST"}, "",
			403},

		"frame": {"GET", "/", map[string]string{"Sec-Fetch-Dest": "iframe",
			"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "cross-site"}, "", 403},
		"own frame": {"GET", "/", map[string]string{"Sec-Fetch-Dest": "iframe",
			"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "same-origin"}, "", 403},
		"object": {"GET", "/icon.svg", map[string]string{"Sec-Fetch-Dest": "object"}, "", 403},
		"page as script": {"GET", "/", map[string]string{"Sec-Fetch-Dest": "script",
			"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Site": "cross-site"}, "", 403},
		"script": {"GET", "/main.js", map[string]string{"Sec-Fetch-Dest": "script",
			"Sec-Fetch-Site": "cross-site"}, "", 403},
		"image": {"GET", "/icon.svg", map[string]string{"Sec-Fetch-Dest": "image",
			"Sec-Fetch-Site": "same-site"}, "", 403},
		"API as script": {"GET", "/api/v1/status", map[string]string{"Sec-Fetch-Dest": "script",
			"Sec-Fetch-Site": "cross-site"}, "", 403},
		"WebSocket":       {"GET", "/api/v1/events", p.asPage("Upgrade", "websocket"), "", 403},
		"h2c":             {"GET", "/", map[string]string{"Upgrade": "h2c"}, "", 403},
		"absolute target": {"GET", "http://evil.example/api/v1/status", p.asPage(), "", 403},

		"traversal":          {"GET", "/../../etc/passwd", nil, "", 404},
		"encoded traversal":  {"GET", "/%2e%2e/%2e%2e/etc/passwd", nil, "", 404},
		"encoded slashes":    {"GET", "/..%2f..%2fetc%2fpasswd", nil, "", 404},
		"backslashes":        {"GET", `/..%5c..%5cwindows`, nil, "", 404},
		"NUL":                {"GET", "/main.js%00.html", nil, "", 404},
		"folder":             {"GET", "/core/", nil, "", 404},
		"double slash":       {"GET", "//evil.example/", nil, "", 404},
		"API traversal":      {"GET", "/api/../ui/session", p.asPage(), "", 404},
		"API, encoded":       {"GET", "/api/v1%2f..%2f..%2fx", p.asPage(), "", 404},
		"debug":              {"GET", "/api/v1/debug/pprof", p.asPage(), "", 403},
		"debug, encoded":     {"GET", "/api/v1/d%65bug/pprof", p.asPage(), "", 403},
		"debug, log level":   {"PUT", "/api/v1/debug/loglevel", p.asPage(), "debug", 403},
		"token":              {"POST", "/api/tokens/dataplane", p.asPage(), "{}", 403},
		"file without right": {"GET", "/ui/files?path=/etc/passwd", p.asPage(), "", 403},
		"other path":         {"GET", "/ui/x", p.asPage(), "", 404},
		"TRACE":              {"TRACE", "/api/v1/status", p.asPage(), "", 405},
		"PATCH":              {"PATCH", "/api/v1/status", p.asPage(), "{}", 405},
	} {
		t.Run(name, func(t *testing.T) {
			a := p.send(x.method, x.target, x.header, x.body)
			if a.status != x.status {
				t.Errorf("%d instead of %d: %s", a.status, x.status, a.body)
			}
			for header := range a.header {
				if strings.HasPrefix(header, "Access-Control-") || header == "Set-Cookie" ||
					header == "Location" {
					t.Errorf("%s: %s", header, a.header.Get(header))
				}
			}
		})
	}
	if n := len(p.api.seen); n != 0 {
		t.Errorf("%d requests reached the API, the first is %s %s", n, p.api.seen[0].Method, p.api.seen[0].URL)
	}
	if a := p.send("GET", "/api/v1/status", p.asPage(), ""); a.status != 200 || len(p.api.seen) != 1 {
		t.Errorf("the page itself: %d %s", a.status, a.body)
	}
}

// Links from other sites open the page, and only the page.
func TestLinks(t *testing.T) {
	p := up(t, nil)
	for _, site := range []string{"cross-site", "same-site", "same-origin", "none"} {
		a := p.send("GET", "/", map[string]string{"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate",
			"Sec-Fetch-Dest": "document"}, "")
		if a.status != 200 {
			t.Errorf("%s: %d %s", site, a.status, a.body)
		}
	}
	for _, host := range []string{"localhost", "LOCALHOST", "127.0.0.1"} {
		_, port, _ := net.SplitHostPort(p.host)
		if a := p.send("GET", "/", map[string]string{"Host": host + ":" + port}, ""); a.status != 200 {
			t.Errorf("%s: %d %s", host, a.status, a.body)
		}
	}
}

// A cookie that was guessed, forged, or stolen grants nothing.
func TestForgedCookies(t *testing.T) {
	p := up(t, nil).login()
	name, secret, _ := strings.Cut(p.cookie, "=")
	for what, cookie := range map[string]string{"another value": name + "=" + strings.ToLower(secret),
		"empty": name + "=", "prefix": name + "=" + secret[:26], "another name": "nearside=" + secret,
		"a key": name + "=" + p.server.Key(""), "many": strings.Repeat(name+"=x; ", 100) + name + "=y"} {
		forged := &page{t: t, host: p.host, cookie: cookie}
		if a := forged.send("GET", "/api/v1/status", p.asPage(), ""); a.status != 401 {
			t.Errorf("%s: %d", what, a.status)
		}
	}
	// A page on another port of this host can add a cookie, but not log the user out.
	tossed := &page{t: t, host: p.host, cookie: name + "=x; " + p.cookie}
	if a := tossed.send("GET", "/api/v1/status", p.asPage(), ""); a.status != 200 {
		t.Errorf("with a second cookie: %d", a.status)
	}
}

// Another user of this host cannot use a session, although browsers send its cookie to servers on
// other ports.
func TestAnotherUser(t *testing.T) {
	p := up(t, nil).login()
	other := agenttest.People(t)(65533)
	ask := fmt.Sprintf("GET /api/v1/status HTTP/1.1\r\nHost: %s\r\nCookie: %s\r\n%s: 1\r\nConnection: close\r\n\r\n",
		p.host, p.cookie, web.PageHeader)
	if got := other.Try(agenttest.Act{Do: "tcp", Socket: p.host,
		Body: ask})[0]; !strings.Contains(got.Detail, " 401 ") {
		t.Errorf("with a stolen cookie: %v", got)
	}
	key := p.server.Key(fmt.Sprintf("uid %d over TCP", os.Getuid()))
	redeem := fmt.Sprintf("GET /?key=%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", key, p.host)
	if got := other.Try(agenttest.Act{Do: "tcp", Socket: p.host,
		Body: redeem})[0]; !strings.Contains(got.Detail, " 303 ") ||
		strings.Contains(got.Detail, "Set-Cookie") {
		t.Errorf("with a key of the arguments of a browser: %v", got)
	}
	if a := p.send("GET", "/?key="+key, nil, ""); a.header.Get("Set-Cookie") == "" {
		t.Error("the attempt has used the key up")
	}
}

// A header that is too large ends the connection, with or without an answer.
func TestHugeHeader(t *testing.T) {
	p := up(t, nil).login()
	c, err := net.Dial("tcp", p.host)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(agenttest.Patience))
	fmt.Fprintf(c, "GET /api/v1/status HTTP/1.1\r\nHost: %s\r\nCookie: %s\r\nX-Nearside-Page: 1\r\nX: ",
		p.host, p.cookie)
	_, _ = c.Write(bytes.Repeat([]byte("x"), 1<<20)) // the server may have closed the connection
	text, _ := io.ReadAll(c)
	if s := string(text); s != "" && !strings.HasPrefix(s, "HTTP/1.1 431 ") || len(p.api.seen) > 0 {
		t.Errorf("%.100q", s)
	}
}

// Clients that send or read slowly do not keep others out, and do not stay.
func TestSlowClients(t *testing.T) {
	p := up(t, nil).login()
	for range 50 {
		c, err := net.Dial("tcp", p.host)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: ")
	}
	if a := p.send("GET", "/api/v1/status", p.asPage(), ""); a.status != 200 {
		t.Errorf("beside slow clients: %d", a.status)
	}
}

// A stream arrives while it is written, and ends with the session.
func TestStream(t *testing.T) {
	p := up(t, nil).login()
	more, ended := make(chan string), make(chan struct{})
	p.api.serve = func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		w.Header().Set("Content-Type", "text/event-stream")
		flush := http.NewResponseController(w)
		for {
			select {
			case text := <-more:
				fmt.Fprint(w, text)
				if err := flush.Flush(); err != nil {
					t.Error(err)
				}
			case <-r.Context().Done():
				return
			}
		}
	}
	req, err := http.NewRequest("GET", "http://"+p.host+"/api/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range p.asPage("Cookie", p.cookie) {
		req.Header.Set(name, value)
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	go func() { more <- "data: 1\n\n" }()
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got := make([]byte, 64)
	n, err := resp.Body.Read(got)
	if err != nil || string(got[:n]) != "data: 1\n\n" {
		t.Fatalf("%q %v", got[:n], err)
	}
	if a := p.send("DELETE", "/ui/session", p.asPage(), ""); a.status != 204 {
		t.Fatal(a.status)
	}
	select {
	case <-ended:
	case <-time.After(agenttest.Patience):
		t.Error("the stream outlives its session")
	}
}
