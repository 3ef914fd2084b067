package uitest_test

import (
	"net"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/token"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/uitest/chromium"
)

// tokens opens the page of ui.listen with a token that expires under it: the page asks for another
// one, and continues with it.
func tokens(t *testing.T, b *chromium.Browser) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	agenttest.Do(t, err)
	address := free.Addr().String()
	agenttest.Do(t, free.Close())
	n := newNode(t, fromQuickstart, "ui.listen="+address,
		`api.roles=[{name: v, template: viewer, subjects: [{token: "view-*"}]}]`)
	p := b.Page(t)
	p.Open("http://" + address + "/#/proxies")
	login := func(text string) {
		t.Helper()
		p.Until(`document.activeElement?.id === "token"`)
		p.Press("Control+a")
		p.Type(text)
		p.Eval(`for (const e of document.querySelectorAll("form [role=alert], form .notice")) e.textContent = ""`, nil)
		p.Press("Enter")
	}
	login("wrong")
	p.Until(`document.querySelector("form [role=alert]")?.textContent`)
	const shown = `document.querySelector("main").innerText.includes("backend-1") && ` + live
	var short string
	for valid, seen := 4*time.Second, false; !seen; { // a busy machine may need longer to show the mesh
		valid *= 2
		short = newToken(t, n, "view-short", valid)
		login(short)
		p.Until(`(window.seen ||= ` + shown + `) || document.querySelector("main form")?.innerText.includes("expired")`)
		p.Eval(`Boolean(window.seen)`, &seen)
	}
	p.Until(`document.querySelector("main form") && document.querySelector("main").innerText.includes("expired")`)
	var left bool
	p.Eval(`document.body.innerText.includes("backend-1")`, &left)
	if left {
		t.Error("the page still shows the mesh after the token has expired")
	}
	login(short)
	p.Until(`document.querySelector("form [role=alert]")?.textContent.includes("expired")`)
	login(newToken(t, n, "view-long", time.Hour))
	p.Until(`document.querySelector("main").innerText.includes("backend-1")`)
	p.Until(live)
	var hash string
	p.Eval("location.hash", &hash)
	if hash != "#/proxies" {
		t.Errorf("after the login the page is at %s", hash)
	}
	agenttest.Write(t, n.path("resources/new.yaml"), agenttest.PortedText("default", "newcomer", "127.0.0.1"))
	p.Until(`document.querySelector("main").innerText.includes("newcomer")`)
	press := `[...document.querySelectorAll("#where button")].find(b => b.textContent === "Sign out")`
	p.Until(press)
	p.Eval(press+`.click()`, nil)
	p.Until(`document.querySelector("main form")`)
	if got := p.Cookies(); len(got) != 0 {
		t.Errorf("cookies after the page has signed out: %v", got)
	}
}

// newToken returns a token for the API of a node.
func newToken(t *testing.T, n *node, subject string, valid time.Duration) string {
	t.Helper()
	text, err := token.Open(n.path("state/tokens"), nil, nil).Create(token.Claims{Subject: subject,
		Audience: token.AudienceAPI}, valid)
	agenttest.Do(t, err)
	return text
}
