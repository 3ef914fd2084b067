package uitest_test

import (
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/uitest/chromium"
)

// The documents of docs/first-policies.md, in their order.
const (
	theMesh = iota
	thePermission
	theDataplane
	thePassthrough
	theLog
	documents
)

// operator does with the page what a reader of docs/first-policies.md does with commands.
type operator struct {
	t   *testing.T
	p   *chromium.Page
	url string
}

// firstPolicies does every step of docs/first-policies.md with only the page.
func firstPolicies(t *testing.T, b *chromium.Browser) {
	page, err := os.ReadFile("../../../docs/first-policies.md")
	agenttest.Do(t, err)
	var text []string
	for _, m := range regexp.MustCompile(`(?s)<<'END'\n(.*?)END\n`).FindAllStringSubmatch(string(page), -1) {
		text = append(text, m[1])
	}
	if len(text) != documents {
		t.Fatalf("the page has %d documents, want %d", len(text), documents)
	}
	n := newNode(t, fromQuickstart)
	p := b.Page(t)
	o := &operator{t, p, open(t, p, n, "--write")}
	before, err := os.ReadFile(n.path("resources/00-mesh.yaml"))
	agenttest.Do(t, err)

	o.view("proxies")
	o.shows("backend-1", "backend-2", "greeter", "redis", "web")

	// Who may call whom.
	toRedis, toBackend := "from=web&to=127.0.0.1:20002&kind=tcp", "from=web&to=127.0.0.1:20001&kind=request&path=/"
	o.why(toRedis, "Allowed")
	o.view("change?type=Mesh&name=default")
	o.write(text[theMesh], "5 of 5")
	o.press("Save the file", "applied")
	o.why(toRedis, "Denied")
	o.shows("no policy fits", "name: allow-web-to-redis", "redis")
	o.why(toBackend, "Allowed")
	o.apply(text[thePermission])
	o.why(toRedis, "Allowed")

	// What may leave the mesh.
	const toAPI = "from=shop&kind=tls&to=api.example.com:443&ip=203.0.113.8"
	const toOther = "from=shop&kind=tls&to=www.example.com:443&ip=203.0.113.7"
	o.apply(text[theDataplane])
	o.why(toOther, "Allowed")
	o.apply(text[thePassthrough])
	o.why(toAPI, "Allowed")
	o.why(toOther, "Closed")
	o.shows("no filter chain fits")
	o.view("proxy?mesh=default&name=shop")
	o.shows("disconnected", "MeshPassthrough: Matched")
	var passthrough []string // what nearside inspect dataplane shop --type=status prints
	p.Eval(`[...[...document.querySelectorAll("section, .panel")].findLast(x => x.textContent.startsWith("MeshPassthrough:"))
		.querySelectorAll("tbody td, tbody th")].map(x => x.innerText)`, &passthrough)
	want := []string{"tls", "api.example.com", "443", "the addresses of api.example.com, resolved by the proxy", "IPv4",
		"meshpassthrough_tls_api.example.com_443", "MeshPassthrough/default/shop spec.default.appendMatch[0]"}
	if diff := cmp.Diff(want, passthrough); diff != "" {
		t.Error(diff)
	}

	// What is logged.
	o.apply(text[theLog], "filtering by headers or gRPC status has no effect on TCP connections")
	o.view("policy?type=MeshAccessLog&mesh=default&name=shop&dataplane=shop")
	o.shows("partly in force")
	o.view("policy?type=MeshAccessLog&mesh=default&name=requests&dataplane=shop")
	o.shows("MeshAccessLog/default/shop")

	// Undo it.
	o.view("history?type=MeshPassthrough&mesh=default&name=shop")
	o.shows("created", "root")
	for _, r := range []string{"MeshAccessLog&mesh=default&name=shop", "MeshPassthrough&mesh=default&name=shop",
		"MeshTrafficPermission&mesh=default&name=allow-web-to-redis", "Dataplane&mesh=default&name=shop"} {
		o.view("policy?type=" + r)
		p.Click("#delete")
		p.Until(`document.querySelector("main button.danger:not(#delete)")`)
		p.Press("Enter") // the focus is on the button that deletes
		o.shows("does not exist")
	}
	o.view("change?type=Mesh&name=default")
	o.write(string(before), "5 of 5")
	o.press("Save the file", "applied")
	o.why(toRedis, "Allowed")
	// A template has faults until it is complete, and the page reads again what was deleted.
	answers := regexp.MustCompile(`the server responded with a status of 40[04] `)
	if f := slices.DeleteFunc(p.Faults(), answers.MatchString); len(f) > 0 {
		t.Errorf("errors of the page: %q", f)
	}
}

// view opens a view and waits for its answers.
func (o *operator) view(hash string) {
	o.t.Helper()
	o.p.Open(o.url + "#/" + hash)
	o.p.Until(`location.hash === ` + strconv.Quote("#/"+hash) + ` && document.querySelector("main .view h1")`)
	o.p.Quiet()
}

// shows waits until the view contains all texts.
func (o *operator) shows(texts ...string) {
	o.t.Helper()
	for _, text := range texts {
		o.p.Until(`document.querySelector("main").innerText.includes(` + strconv.Quote(text) + `)`)
	}
}

// why asks a question, and expects an outcome.
func (o *operator) why(question, outcome string) {
	o.t.Helper()
	o.view("change") // a new answer, also to the same question
	o.p.Open(o.url + "#/why?mesh=default&" + question)
	o.p.Until(`document.querySelector(".verdict .answer")?.textContent === ` + strconv.Quote(outcome))
}

// write replaces the text of the editor, and looks at its effect.
func (o *operator) write(text string, effect ...string) {
	o.t.Helper()
	o.p.Click("textarea")
	o.p.Press("Control+a")
	o.p.Type(text)
	o.p.Press("Control+Enter")
	o.p.Until(`document.querySelector(".result").childElementCount && !document.querySelector(".result[aria-busy]")`)
	o.shows(effect...)
}

// press clicks the button with a name, and expects texts.
func (o *operator) press(name string, texts ...string) {
	o.t.Helper()
	button := `[...document.querySelectorAll("main button")].find(b => b.textContent === ` + strconv.Quote(name) + ` && !b.disabled)`
	o.p.Until(button)
	o.p.Eval(button+`.focus()`, nil)
	o.p.Press("Enter")
	o.shows(texts...)
}

// apply writes a document, looks at its effect, applies it, and waits until it is in force.
func (o *operator) apply(text string, texts ...string) {
	o.t.Helper()
	o.view("change?kind=" + url.QueryEscape(regexp.MustCompile(`(?m)^type: (\w+)`).FindStringSubmatch(text)[1]))
	o.write(text)
	o.press("Apply", "revision")
	o.p.Until(`document.querySelector("main .wait .badge")`)
	o.shows(texts...)
}
