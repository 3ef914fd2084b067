package uitest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/uitest/chromium"
)

// Names that the browser resolves to the loopback address, as a site that rebinds its name does.
const (
	resolverRules = "--host-resolver-rules=MAP *.test 127.0.0.1"
	evilHost      = "evil.test"
	reboundHost   = "rebound.test"
)

// stolen is a resource that attackers try to write.
const stolen = "type: MeshTimeout\nmesh: default\nname: stolen\nspec: {targetRef: {kind: Mesh}, " +
	"to: [{targetRef: {kind: Mesh}, default: {idleTimeout: 1h}}]}\n"

// attacks are scripts of another site against the page at U. Each resolves to what it has learned
// or reached, or to "" if it was refused.
var attacks = []struct{ what, script string }{
	{"fetch with cookies", `fetch(U + "api/v1/status", {credentials: "include"}).then(r => r.text(), () => "")`},
	{"fetch with the header of the page",
		`fetch(U + "api/v1/status", {credentials: "include", headers: {"X-Nearside-Page": "1"}}).then(r => r.text(), () => "")`},
	{"fetch of the session", `fetch(U + "ui/session", {credentials: "include"}).then(r => r.text(), () => "")`},
	{"fetch of the page", `fetch(U, {credentials: "include"}).then(r => r.text(), () => "")`},
	{"opaque fetch", `fetch(U + "api/v1/status", {mode: "no-cors", credentials: "include"}).then(r => r.text(), () => "")`},
	{"write as a form", `fetch(U + "api/v1/apply", {mode: "no-cors", method: "POST", credentials: "include",
		body: new URLSearchParams({a: T})}).then(r => r.text(), () => "")`},
	{"write as text", `fetch(U + "api/v1/apply", {mode: "no-cors", method: "POST", credentials: "include", body: T})
		.then(r => r.text(), () => "")`},
	{"write as YAML with the header of the page", `fetch(U + "api/v1/apply", {method: "POST", credentials: "include",
		headers: {"Content-Type": "application/yaml", "X-Nearside-Page": "1"}, body: T}).then(r => r.text(), () => "")`},
	{"write by a beacon", `(navigator.sendBeacon(U + "api/v1/apply", T), "")`},
	{"image", `new Promise(done => { const e = new Image(); e.onload = () => done("loaded"); e.onerror = () => done("");
		e.src = U + "icon.svg" })`},
	{"script", `new Promise(done => { const e = document.createElement("script"); e.onload = () => done("loaded");
		e.onerror = () => done(""); e.src = U + "main.js"; document.head.append(e) })`},
	{"module", `import(U + "core/api.js").then(() => "loaded", () => "")`},
	{"style", `new Promise(done => { const e = document.createElement("link"); e.onload = () => done("loaded");
		e.onerror = () => done(""); e.rel = "stylesheet"; e.href = U + "style.css"; document.head.append(e) })`},
	{"events", `new Promise(done => { const e = new EventSource(U + "api/v1/events", {withCredentials: true});
		e.onopen = () => { e.close(); done("open") }; e.onerror = () => { e.close(); done("") } })`},
	{"websocket", `new Promise(done => { const e = new WebSocket(U.replace("http", "ws") + "api/v1/events");
		e.onopen = () => done("open"); e.onerror = () => done("") })`},
	{"form", `new Promise(done => { const f = document.createElement("iframe"); f.name = "f"; document.body.append(f);
		const e = document.createElement("form"); e.method = "POST"; e.action = U + "api/v1/apply"; e.target = "f";
		e.enctype = "text/plain"; const i = document.createElement("input"); i.name = T; e.append(i); document.body.append(e);
		f.onload = () => done(""); e.submit() })`},
}

// origins attacks the page from pages of other origins in the same browser, with the cookie of an
// open session that may write.
func origins(t *testing.T, b *chromium.Browser) {
	n := newNode(t, fromQuickstart)
	once, page := serve(t, n, "--write")
	p := b.Page(t)
	p.Open(once)
	p.Until(`document.querySelector("main .view h1")`)
	if got := p.Cookies(); len(got) != 1 || !strings.Contains(got[0], "SameSite=Strict HttpOnly=true") {
		t.Errorf("cookies of the page: %v", got)
	}
	var address string
	p.Eval("location.href", &address)
	if strings.Contains(address, "key=") {
		t.Errorf("the address still has the key: %s", address)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<!doctype html><title>another site</title><link rel=icon href="data:,"><body>`)
	}))
	defer s.Close()
	other, err := url.Parse(s.URL)
	agenttest.Do(t, err)
	target, err := url.Parse(page)
	agenttest.Do(t, err)

	// The attacks reach a server without a gate.
	var requests atomic.Int64
	open := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		w.Header().Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
		w.Header().Set("Access-Control-Allow-Credentials", "true")
		w.Header().Set("Access-Control-Allow-Headers", "X-Nearside-Page, Content-Type")
		if strings.HasSuffix(r.URL.Path, ".js") {
			w.Header().Set("Content-Type", "text/javascript")
		}
	}))
	defer open.Close()
	p.Open("http://" + evilHost + ":" + other.Port() + "/")
	for _, a := range attacks {
		before := requests.Load()
		p.Eval(attack(a.script, open.URL+"/"), nil)
		agenttest.Eventually(t, a.what+" sends a request", func() bool { return requests.Load() > before })
	}

	for what, host := range map[string]string{"another port": "127.0.0.1:", "another site": evilHost + ":"} {
		t.Run(what, func(t *testing.T) {
			p := p.With(t)
			p.Open("http://" + host + other.Port() + "/")
			for _, a := range attacks {
				var got string
				p.Eval(attack(a.script, page), &got)
				if got != "" {
					t.Errorf("%s: %.200q", a.what, got)
				}
			}
			p.Faults()
			p.Eval(attack(`new Promise(done => { const e = document.createElement("iframe"); e.onload = () => done("");
				e.src = U; document.body.append(e) })`, page), nil)
			agenttest.Eventually(t, "a frame with the page is refused", func() bool {
				return slices.ContainsFunc(p.Faults(), func(s string) bool { return strings.Contains(s, "frame") })
			})
		})
	}
	t.Run("rebound name", func(t *testing.T) {
		p := p.With(t)
		p.Open("http://" + reboundHost + ":" + target.Port() + "/")
		if text := p.Text("body"); !strings.Contains(text, "Host") || strings.Contains(text, "Health") {
			t.Errorf("a rebound name shows %.300q", text)
		}
		var got string
		p.Eval(`fetch("api/v1/status", {headers: {"X-Nearside-Page": "1"}}).then(r => r.status + " " + location.host)`, &got)
		if !strings.HasPrefix(got, "403 ") {
			t.Errorf("a rebound name reads with status %s", got)
		}
	})
	t.Run("used key", func(t *testing.T) {
		p := b.Page(t)
		p.Open(once)
		p.Until(`document.querySelector("main").innerText.includes("nearside ui")`)
		if got := p.Cookies(); len(got) != 0 {
			t.Errorf("a used key gives cookies: %v", got)
		}
	})
	// The session survives, and nothing was written.
	p = p.With(t)
	p.Open(page + "#/history")
	p.Until(`document.querySelector("main .view h1")`)
	var status int
	p.Eval(`fetch("api/meshes/default/meshtimeouts/stolen", {headers: {"X-Nearside-Page": "1"}}).then(r => r.status)`, &status)
	if status != http.StatusNotFound {
		t.Errorf("reading the resource of the attacks: status %d", status)
	}
}

// attack returns a script with the values of its names U, the page, and T, the text of a resource.
func attack(script, page string) string {
	return fmt.Sprintf("(() => { const U = %q, T = %q; return %s })()", page, stolen, script)
}
